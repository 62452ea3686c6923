//! Outbound limits through the public API: queues and pauses on tokio's paused clock, and real
//! clients with real servers.
// Clippy allows unwrap only inside `#[test]` functions.
#![allow(clippy::unwrap_used)]

mod bounds;
mod contract;
mod errors;
mod order;
mod pauses;
mod remote;
mod reqwest;
mod server;
#[cfg(feature = "redis")]
mod shared;
mod sockets;
mod targets;
