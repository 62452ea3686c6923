//! Exact rate-limiting arithmetic: *state, verb, cost, now* in, a verdict out.
//!
//! A [`Quota`] says how much is allowed. A [`State`] is what one counter remembers. [`evaluate`]
//! decides one request against one counter and [`evaluate_all`] one request against several, all or
//! nothing. Everything is whole numbers: microseconds and units, never a float.
//!
//! This crate asks nobody the time, performs no I/O and has no dependencies. The `tallygate` crate
//! puts a store, a clock and keys around it; most people want that one.
//!
//! ```
//! use tallygate_core::{evaluate, Quota, State, Verb};
//!
//! let quota: Quota = "token-bucket 10/s burst 2".parse()?;
//! let mut state = State::New;
//! let now_us = 1_700_000_000_000_000;
//!
//! assert!(evaluate(&quota, &mut state, Verb::Check, 2, now_us).allowed());
//! let refused = evaluate(&quota, &mut state, Verb::Check, 1, now_us);
//! assert_eq!(refused.retry_after_us(), Some(100_000));
//! # Ok::<(), tallygate_core::QuotaError>(())
//! ```
#![no_std]
#![warn(clippy::cast_possible_truncation)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod algorithm;
mod decision;
#[cfg(feature = "lua")]
pub mod lua;
mod math;
mod quota;
mod snapshot;
mod verb;

pub use algorithm::{Algorithm, Log, Packed, State, WholeBucket};
pub use decision::{Decision, Outcome, Retry, Verdict};
pub use quota::{
    MAX_CAPACITY, MAX_LOG_LIMIT, MAX_PERIOD_US, MIN_PERIOD_US, Quota, QuotaError, Whole,
};
pub use snapshot::CounterState;
pub use verb::{
    Change, Decided, UnknownVerb, Verb, apply_log, apply_whole, check_log, evaluate, evaluate_all,
    evaluate_packed, undo,
};
#[cfg(feature = "lua")]
pub use verb::{FoundState, evaluate_found};

/// The latest time and the longest wait that can be told: 2^52 microseconds, 142 years.
pub const MAX_TIME_US: u64 = 1 << 52;

/// The most units a window or a log remembers; a charge beyond saturates.
pub const MAX_UNITS: u64 = 1 << 52;
