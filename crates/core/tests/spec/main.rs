//! The core against its specification: a slow model, every short history, long random traces,
//! properties and the text form. Uses the public API only.
// Clippy allows unwrap and print only inside `#[test]` functions.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod callers;
mod changed_quota;
mod compare_with_model;
mod constants;
mod debt;
mod divide;
mod long_traces;
#[cfg(feature = "lua")]
mod lua;
mod model;
mod multi_limit;
mod packing;
mod refusals;
mod retry_and_reset;
mod rounding;
mod short_histories;
mod text;
mod text_errors;
mod undo;
mod worst_case;
