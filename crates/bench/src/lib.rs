//! Side-by-side benches of Tollgate and its peers.
//!
//! `cargo bench -p tollgate-bench` prints one table: the same keys, the same quotas, the same
//! loops for every contender, measured in turns in one run. [`contender`] holds one small file per
//! contender; everything else knows contenders only by their traits. Nothing here asserts a
//! time: machines are noisy, so the benches print, and people judge.
#![allow(clippy::float_arithmetic, clippy::print_stdout, clippy::print_stderr)]

pub mod child;
pub mod contender;
pub mod expiry;
pub mod keys;
pub mod machine;
pub mod measure;
pub mod options;
pub mod resident;
pub mod scenario;
pub mod setting;
pub mod table;
pub mod target;
