//! The verbs.

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
    /// Checks an estimate and remembers it under an id.
    Reserve,
    /// Corrects the estimate remembered under an id to the cost, and forgets the id.
    Settle,
    /// Prolongs what the owner holds of a concurrency limit.
    Renew,
    /// Ends what the owner holds of a concurrency limit.
    Release,
}

impl Verb {
    /// Those that need neither an id nor an owner.
    pub const BASIC: [Verb; 6] = [
        Verb::Check,
        Verb::Peek,
        Verb::Take,
        Verb::Charge,
        Verb::Refund,
        Verb::Reset,
    ];

    /// Every verb.
    pub const ALL: [Verb; 10] = [
        Verb::Check,
        Verb::Peek,
        Verb::Take,
        Verb::Charge,
        Verb::Refund,
        Verb::Reset,
        Verb::Reserve,
        Verb::Settle,
        Verb::Renew,
        Verb::Release,
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
            Verb::Reserve => "reserve",
            Verb::Settle => "settle",
            Verb::Renew => "renew",
            Verb::Release => "release",
        }
    }

    /// Whether the request needs the id of a reservation; the others have none.
    #[inline]
    pub fn needs_id(self) -> bool {
        matches!(self, Verb::Reserve | Verb::Settle)
    }

    /// Whether an owner is needed where a limit [is concurrent](crate::Algorithm::is_concurrent).
    pub fn needs_owner(self) -> bool {
        match self {
            Verb::Check | Verb::Take | Verb::Reserve | Verb::Renew | Verb::Release => true,
            Verb::Peek | Verb::Charge | Verb::Refund | Verb::Reset | Verb::Settle => false,
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The error of parsing an unknown verb.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct UnknownVerb;

impl fmt::Display for UnknownVerb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "unknown verb: expected check, peek, take, charge, refund, reset, reserve, settle, \
             renew or release",
        )
    }
}

impl fmt::Debug for UnknownVerb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
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
