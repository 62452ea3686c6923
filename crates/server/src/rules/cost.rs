//! How much a request takes. Knows nothing of limits.

use http::{HeaderName, Method};

/// How much a request takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Always the same.
    Constant(u32),
    /// What a header says, in decimal digits.
    ///
    /// Without the header, or where it is no number, the default; the largest where there are
    /// several; never below `least` or above `most`.
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
