//! Which answers count. Knows statuses; knows nothing of limits.

use std::fmt;
use std::str::FromStr;

use http::StatusCode;

use super::TextError;

const EXAMPLE: &str = "401 or 5xx";

/// Which answers count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Answers {
    /// All of them.
    #[default]
    All,
    /// Only these, such as the 401 of a failed login.
    Only(Vec<Statuses>),
    /// All but these.
    Except(Vec<Statuses>),
}

/// One status, such as `401`, or a class of them, such as `5xx`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statuses {
    first: u16,
    last: u16,
}

impl Answers {
    /// Whether an answer counts.
    pub fn count(&self, status: StatusCode) -> bool {
        let among = |list: &[Statuses]| list.iter().any(|statuses| statuses.contain(status));
        match self {
            Answers::All => true,
            Answers::Only(list) => among(list),
            Answers::Except(list) => !among(list),
        }
    }
}

impl Statuses {
    /// Whether a status is one of them.
    pub fn contain(&self, status: StatusCode) -> bool {
        (self.first..=self.last).contains(&status.as_u16())
    }
}

impl FromStr for Statuses {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let wrong = || TextError::new(text, "is no status from 100 to 599", EXAMPLE);
        match *text.as_bytes() {
            [class @ b'1'..=b'5', b'x', b'x'] => {
                let first = u16::from(class - b'0') * 100;
                Ok(Statuses {
                    first,
                    last: first + 99,
                })
            }
            [b'1'..=b'5', b'0'..=b'9', b'0'..=b'9'] => {
                let status = text.parse().map_err(|_| wrong())?;
                Ok(Statuses {
                    first: status,
                    last: status,
                })
            }
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Statuses {
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

    fn list(texts: &[&str]) -> Vec<Statuses> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn only_and_except_are_each_others_opposite() {
        let statuses = ["401", "5xx"];
        let only = Answers::Only(list(&statuses));
        let except = Answers::Except(list(&statuses));
        for (code, among) in [(200, false), (400, false), (401, true), (402, false)]
            .into_iter()
            .chain([(499, false), (500, true), (599, true), (999, false)])
        {
            let status = StatusCode::from_u16(code).unwrap();
            assert_eq!(only.count(status), among, "{code}");
            assert_eq!(except.count(status), !among, "{code}");
            assert!(Answers::All.count(status));
        }
    }

    #[test]
    fn statuses_are_written_as_they_are_read() {
        for text in ["100", "401", "599", "1xx", "5xx"] {
            assert_eq!(text.parse::<Statuses>().unwrap().to_string(), text);
        }
        for wrong in [
            "", "4", "4x", "4XX", "600", "099", "0xx", "6xx", "4000", "40 ", "4xé",
        ] {
            assert!(wrong.parse::<Statuses>().is_err(), "{wrong:?}");
        }
    }
}
