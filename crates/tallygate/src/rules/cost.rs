//! The cost of a request.

use ::http::{HeaderName, Method};

use super::RequestFn;
use super::request_view::RequestView;

/// The cost of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// The same for all requests.
    Constant(u32),
    /// The value of a header, in decimal digits.
    ///
    /// Without a number it is the default. The largest of several numbers counts, whether they are
    /// in separate lines or separated by commas. It is clamped to `min` and `max`.
    Header {
        /// The name of the header.
        name: HeaderName,
        /// The cost without a number.
        default: u32,
        /// The smallest cost, 1 unless requests may be free.
        min: u32,
        /// The largest cost.
        max: u32,
    },
    /// By method.
    Method {
        /// The cost of each method.
        costs: Vec<(Method, u32)>,
        /// The cost of all other methods.
        default: u32,
    },
    /// The result of a function.
    Custom(RequestFn<u32>),
}

impl Default for Cost {
    /// One unit.
    fn default() -> Self {
        Cost::Constant(1)
    }
}

impl Cost {
    pub(super) fn evaluate(&self, view: &RequestView<'_>) -> u32 {
        match self {
            Cost::Constant(cost) => *cost,
            Cost::Header {
                name,
                default,
                min,
                max,
            } => {
                let lines = view.head.headers().get_all(name).iter();
                // A proxy may have merged several lines into one.
                let values = lines.flat_map(|line| line.as_bytes().split(|&byte| byte == b','));
                let cost = values.filter_map(number).max();
                cost.unwrap_or(*default).min(*max).max(*min)
            }
            Cost::Method { costs, default } => {
                let mut costs = costs.iter();
                let own = costs.find(|(method, _)| method == view.head.method());
                own.map_or(*default, |(_, cost)| *cost)
            }
            Cost::Custom(cost) => cost.call(view.head),
        }
    }

    /// The largest cost of any request.
    pub fn max(&self) -> u32 {
        match self {
            Cost::Constant(cost) => *cost,
            Cost::Header { min, max, .. } => *max.max(min),
            Cost::Method { costs, default } => {
                let costs = costs.iter().map(|(_, cost)| *cost);
                costs.fold(*default, u32::max)
            }
            Cost::Custom(_) => u32::MAX,
        }
    }
}

/// Parses a number in decimal digits, saturating.
fn number(text: &[u8]) -> Option<u32> {
    let digits = text.trim_ascii();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    // Digits only: the only error is overflow.
    Some(str::from_utf8(digits).ok()?.parse().unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_digits_are_a_number_and_it_saturates() {
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
