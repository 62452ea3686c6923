//! The Redis store beside the articles' scripts and the peers: what `--bench redis` measures.
//!
//! [`script`] holds whoever decides inside the server, [`client`] whoever is called in this process;
//! both have one small file per contender. Everything else knows contenders only by their traits.

pub mod client;
pub mod concurrency;
pub mod memory;
pub mod scenario;
pub mod script;
pub mod server;
pub mod target;
