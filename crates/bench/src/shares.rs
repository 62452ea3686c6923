//! Fair shares: what greedy and light members of one limit get, with shares and without.
//!
//! The core decides at supplied times, so a run is deterministic: a table of percentages, no times.

pub mod picture;
pub mod run;
pub mod scenario;
pub mod table;
pub mod target;
pub mod traffic;
