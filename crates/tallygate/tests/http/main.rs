//! The doors' HTTP side: rules in Rust, the tower layer, what clients are told.
#![allow(clippy::unwrap_used)]

mod addresses;
mod answers;
mod bad_input;
mod counting;
mod failing;
mod grpc;
mod headers;
mod retry_after;
mod shadow;
mod shaping;
mod shared_store;
mod sockets;
mod support;
