//! Rate limiting of HTTP requests: plans, their enforcement, and headers and problem details
//! for clients. Uses the types of the `http` crate and no framework.

mod actual;
mod client;
mod enforce;
mod grpc;
mod head;
mod headers;
mod json;
mod outcome;
mod peer;
mod plan;
mod problem;
mod refusal;
mod request_json;
mod text_error;

pub use actual::{ActualCost, ActualSource};
pub use client::{ClientAddress, ForwardedBy, Network, canonical_address};
pub use enforce::{Enforcement, Holds, Settlement, TryEnforce, enforce, try_enforce};
pub use head::{Head, canonical, is_secret};
pub use headers::{Draft, Headers, Limits};
pub use json::{JsonBody, JsonPath, JsonScanner, JsonValue, MAX_JSON_BYTES, MAX_JSON_PATHS};
pub use outcome::Outcome;
pub(crate) use peer::HOW_TO_RECORD_PEERS;
pub use peer::Peer;
pub use plan::{
    Charge, CountFilter, DelayMode, NO_RULE, Plan, Policy, RuleSettings, Stop, StopReason,
};
pub use problem::ProblemDetails;
pub use refusal::Refusal;
pub(crate) use request_json::RequestValue;
pub use request_json::{RequestJson, RequestJsonReader};
pub use text_error::TextError;
