//! The tower layer with rules built in Rust: decisions, responses and rate limit headers.
#![allow(clippy::unwrap_used)]

mod bad_input;
mod client_address;
mod count_if;
mod grpc;
mod headers;
mod responses;
mod retry_after;
mod shadow;
mod shaping;
mod shared_store;
mod sockets;
mod store_failure;
mod support;
