//! The parts of `--bench redis`: the Redis store compared with scripts from articles and with
//! peers.
//!
//! [`script`] has the contenders that decide inside the server, [`client`] those that run in this
//! process, one file each. The other modules use contenders only through their traits.

pub mod callers;
pub mod client;
pub mod concurrency;
pub mod log_undo;
pub mod memory;
pub mod scenario;
pub mod script;
pub mod server;
pub mod target;
