//! From an HTTP request to a decision, and from a decision to what the client is told. Knows the
//! `http` crate's types; knows no server and no framework.

mod client;
mod head;
mod headers;
mod limits;
mod plan;

pub use client::{ClientAddress, ForwardedBy, Network, NetworkError};
pub use head::{Head, Peer};
pub use headers::{Draft, Headers};
pub use limits::Limits;
pub use plan::{Charge, Counts, Plan, Policy, Stop, Terms, Why};
