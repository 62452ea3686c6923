//! The core against its specification: a slow model, every short history, long random traces,
//! properties and the text form. Uses the public API only.
// Clippy knows unwrap and print of tests only within `#[test]`, not in what they call.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod changed_quota;
mod debt;
mod drift;
mod long_traces;
mod model;
mod packing;
mod refusals;
mod several;
mod share;
mod short_histories;
mod side_by_side;
mod text;
mod text_errors;
#[cfg(feature = "lua")]
mod twins;
mod undo;
mod waits;
mod worst_case;
