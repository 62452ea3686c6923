//! Exact rate-limiting arithmetic: *state, verb, cost, now* in, a verdict out.
//!
//! A [`Quota`] is an algorithm with its limit, period and capacity. A [`State`] is the state of one
//! counter. [`evaluate`] decides one request against one counter, [`evaluate_packed`] against a
//! counter in its compact form, and [`evaluate_all`] against several, all or nothing. All arithmetic
//! is in whole microseconds and units, without floats.
//!
//! This crate reads no clock, performs no I/O and has no dependencies. The `tallygate` crate adds
//! stores, clocks and keys.
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
mod caller;
mod decision;
mod evaluate;
#[cfg(feature = "lua")]
pub mod lua;
mod math;
mod quota;
mod snapshot;
mod verb;

pub use algorithm::{Algorithm, FormerHold, Log, Packed, State, StateSize};
pub use caller::{Caller, MAX_MEMBERS, RESERVATION_US, Reservation, Room, Weight, WeightError};
pub use decision::{Decision, Outcome, Retry, Verdict};
pub use evaluate::{
    Change, Entry, PackedEvaluation, evaluate, evaluate_all, evaluate_by, evaluate_lease,
    evaluate_packed, former_hold, refund_tail, restore_hold, undo, undo_by,
};
#[cfg(feature = "lua")]
pub use evaluate::{FoundState, evaluate_found, next_check};
pub use quota::{
    MAX_CAPACITY, MAX_HOLD_US, MAX_IN_FLIGHT, MAX_LOG_LIMIT, MAX_PERIOD_US, MIN_HOLD_US,
    MIN_PERIOD_US, Quota, QuotaBuilder, QuotaError,
};
pub use snapshot::{CounterState, HoldState, MemberState};
pub use verb::{UnknownVerb, Verb};

/// The latest time and the longest wait: 2^52 microseconds, 142 years.
pub const MAX_TIME_US: u64 = 1 << 52;

/// The maximum count of a window or a log; a charge beyond saturates.
pub const MAX_UNITS: u64 = 1 << 52;
