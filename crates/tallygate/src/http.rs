//! Rate limiting of HTTP requests: plans, their enforcement, and headers and problem details
//! for clients. Uses the types of the `http` crate and no framework.

mod client;
mod enforce;
mod grpc;
mod head;
mod headers;
mod outcome;
mod peer;
mod plan;
mod problem;
mod refusal;
mod text_error;

pub use client::{ClientAddress, ForwardedBy, Network};
pub use enforce::{Enforcement, TryEnforce, enforce, try_enforce};
pub use head::{Head, canonical, is_secret};
pub use headers::{Draft, Headers, Limits};
pub use outcome::Outcome;
pub use peer::Peer;
pub use plan::{Charge, CountFilter, DelayMode, Plan, Policy, RuleSettings, Stop, StopReason};
pub use problem::ProblemDetails;
pub use refusal::Refusal;
pub use text_error::TextError;
