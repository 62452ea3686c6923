//! The tower layer with rules built in Rust: decisions, responses and rate limit headers.
#![allow(clippy::unwrap_used)]

mod as_a_user;
mod bad_input;
mod budgets;
mod client_address;
mod costs;
mod count_if;
mod grpc;
mod header_cases;
mod headers;
mod holds;
mod missing_address;
mod responses;
mod retry_after;
mod shadow;
mod shaping;
mod shared_store;
mod sockets;
mod store_failure;
mod support;
