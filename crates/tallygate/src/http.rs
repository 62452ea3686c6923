//! From an HTTP request to a decision, and from a decision to what the client is told. Knows the
//! `http` crate's types; knows no server and no framework.

mod client;
mod grpc;
mod head;
mod headers;
mod limits;
mod lone;
mod outcome;
mod passage;
mod peer;
mod plan;
mod refusal;
mod rule;

pub use client::{ClientAddress, ForwardedBy, Network, NetworkError};
pub use head::{Head, canonical, is_secret};
pub use headers::{Draft, Headers};
pub use limits::Limits;
#[cfg(feature = "tower")]
pub(crate) use lone::Told;
pub use lone::{Consulted, Lone};
pub use outcome::Outcome;
pub use passage::Passage;
pub use peer::Peer;
pub use plan::{Charge, Counts, Plan, Policy, Stop, Terms, Why};
pub use refusal::Refusal;
pub use rule::{Missing, Rule, Rules};
