//! Calls to others, as a stranger makes them: lines and pauses on a clock that is moved, and real
//! clients against real servers. Knows only the crates' public names.
// Clippy knows unwrap of tests only within `#[test]`, not in what they call.
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
