//! Which responses count.

use std::fmt;
use std::str::FromStr;

use ::http::{HeaderMap, StatusCode};

use super::{ResponseFn, TextError};

const EXAMPLE: &str = "401 or 5xx";

/// Which responses count.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum StatusFilter {
    /// All of them.
    #[default]
    All,
    /// Only these, such as the 401 of a failed login.
    Only(Vec<StatusRange>),
    /// All but these.
    Except(Vec<StatusRange>),
    /// Those that a function returns true for.
    Custom(ResponseFn),
}

/// One status, such as `401`, or a class, such as `5xx`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusRange {
    first: u16,
    last: u16,
}

impl StatusFilter {
    /// Whether a response counts.
    pub fn counts(&self, status: StatusCode, headers: &HeaderMap) -> bool {
        let contains = |list: &[StatusRange]| list.iter().any(|range| range.contains(status));
        match self {
            StatusFilter::All => true,
            StatusFilter::Only(list) => contains(list),
            StatusFilter::Except(list) => !contains(list),
            StatusFilter::Custom(filter) => filter.call(status, headers),
        }
    }
}

impl StatusRange {
    /// Whether it contains a status.
    pub fn contains(&self, status: StatusCode) -> bool {
        (self.first..=self.last).contains(&status.as_u16())
    }
}

impl FromStr for StatusRange {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let wrong = || TextError::new(text, "is not a status from 100 to 599", EXAMPLE);
        let (first, last) = match *text.as_bytes() {
            [class @ b'1'..=b'5', b'x', b'x'] => {
                let first = u16::from(class - b'0') * 100;
                (first, first + 99)
            }
            [b'1'..=b'5', b'0'..=b'9', b'0'..=b'9'] => {
                let status = text.parse().map_err(|_| wrong())?;
                (status, status)
            }
            _ => return Err(wrong()),
        };
        Ok(StatusRange { first, last })
    }
}

impl fmt::Display for StatusRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => write!(f, "{}", self.first),
            false => write!(f, "{}xx", self.first / 100),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(texts: &[&str]) -> Vec<StatusRange> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn only_and_except_are_opposites() {
        let statuses = ["401", "5xx"];
        let only = StatusFilter::Only(list(&statuses));
        let headers = HeaderMap::new();
        let except = StatusFilter::Except(list(&statuses));
        for (code, among) in [(200, false), (400, false), (401, true), (402, false)]
            .into_iter()
            .chain([(499, false), (500, true), (599, true), (999, false)])
        {
            let status = StatusCode::from_u16(code).unwrap();
            assert_eq!(only.counts(status, &headers), among, "{code}");
            assert_eq!(except.counts(status, &headers), !among, "{code}");
            assert!(StatusFilter::All.counts(status, &headers));
        }
    }

    #[test]
    fn a_status_range_displays_as_it_parses() {
        for text in ["100", "401", "599", "1xx", "5xx"] {
            assert_eq!(text.parse::<StatusRange>().unwrap().to_string(), text);
        }
        for wrong in [
            "", "4", "4x", "4XX", "600", "099", "0xx", "6xx", "4000", "40 ", "4xé",
        ] {
            assert!(wrong.parse::<StatusRange>().is_err(), "{wrong:?}");
        }
    }
}
