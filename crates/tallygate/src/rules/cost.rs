//! How much a request takes. Knows nothing of limits.

use http::{HeaderName, Method};

use super::request_view::Asked;

/// How much a request takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Always the same.
    Constant(u32),
    /// What a header says, in decimal digits.
    ///
    /// Without the header, or where it is no number, the default; the largest where there are
    /// several, in lines of their own or with commas in one; never below `least` or above `most`.
    Header {
        /// Which header.
        name: HeaderName,
        /// The cost where it says none.
        default: u32,
        /// The least: 1 unless whoever writes the header may say that a request is free.
        least: u32,
        /// The most.
        most: u32,
    },
    /// By method.
    Method {
        /// What each method costs.
        costs: Vec<(Method, u32)>,
        /// What any other costs.
        default: u32,
    },
}

impl Default for Cost {
    /// One unit.
    fn default() -> Self {
        Cost::Constant(1)
    }
}

impl Cost {
    pub(super) fn of(&self, asked: &Asked<'_>) -> u32 {
        match self {
            Cost::Constant(cost) => *cost,
            Cost::Header {
                name,
                default,
                least,
                most,
            } => {
                let lines = asked.headers().get_all(name).iter();
                // Whoever is in front may have put several lines into one.
                let values = lines.flat_map(|line| line.as_bytes().split(|&byte| byte == b','));
                let said = values.filter_map(number).max();
                said.unwrap_or(*default).min(*most).max(*least)
            }
            Cost::Method { costs, default } => {
                let mut costs = costs.iter();
                let own = costs.find(|(method, _)| method == asked.method());
                own.map_or(*default, |(_, cost)| *cost)
            }
        }
    }

    /// The most that it ever is.
    pub fn most(&self) -> u32 {
        match self {
            Cost::Constant(cost) => *cost,
            Cost::Header { least, most, .. } => *most.max(least),
            Cost::Method { costs, default } => {
                let costs = costs.iter().map(|(_, cost)| *cost);
                costs.fold(*default, u32::max)
            }
        }
    }
}

/// A whole number in decimal digits; one that is too large is the largest.
fn number(text: &[u8]) -> Option<u32> {
    let digits = text.trim_ascii();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |sum: u32, digit: &u8| {
        sum.saturating_mul(10)
            .saturating_add(u32::from(digit - b'0'))
    };
    Some(digits.iter().fold(0, add))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_digits_are_a_number_and_too_many_are_the_largest() {
        for (text, expected) in [
            ("0", Some(0)),
            (" 12 ", Some(12)),
            ("007", Some(7)),
            ("4294967295", Some(u32::MAX)),
            ("4294967296", Some(u32::MAX)),
            ("99999999999999999999999", Some(u32::MAX)),
            ("", None),
            ("-1", None),
            ("+1", None),
            ("1.5", None),
            ("1e3", None),
            ("0x10", None),
            ("1, 2", None),
            ("\u{661}", None),
        ] {
            assert_eq!(number(text.as_bytes()), expected, "{text}");
        }
    }
}
