//! The six verbs.

use core::fmt;
use core::str::FromStr;

/// What a request does to its counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Takes all of the cost or nothing.
    #[default]
    Check,
    /// Returns what a check would and changes nothing.
    Peek,
    /// Takes as much of the cost as fits.
    Take,
    /// Takes unconditionally; the debt delays later requests.
    Charge,
    /// Returns units, never above the capacity.
    Refund,
    /// Deletes the counter.
    Reset,
}

impl Verb {
    /// Every verb.
    pub const ALL: [Verb; 6] = [
        Verb::Check,
        Verb::Peek,
        Verb::Take,
        Verb::Charge,
        Verb::Refund,
        Verb::Reset,
    ];

    /// The verb's name.
    pub fn name(self) -> &'static str {
        match self {
            Verb::Check => "check",
            Verb::Peek => "peek",
            Verb::Take => "take",
            Verb::Charge => "charge",
            Verb::Refund => "refund",
            Verb::Reset => "reset",
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The error of parsing an unknown verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownVerb;

impl fmt::Display for UnknownVerb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown verb: expected check, peek, take, charge, refund or reset")
    }
}

impl core::error::Error for UnknownVerb {}

impl FromStr for Verb {
    type Err = UnknownVerb;

    fn from_str(text: &str) -> Result<Self, UnknownVerb> {
        Verb::ALL
            .into_iter()
            .find(|verb| verb.name() == text)
            .ok_or(UnknownVerb)
    }
}
