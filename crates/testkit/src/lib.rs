//! Test support shared by several crates.
//!
//! With the feature `servers`: real Redis and Valkey servers (`redis`), a faulty TCP proxy
//! (`proxy`) and third-party programs (`program`). Linux only. Everything started here ends when it
//! is dropped, and with the test process, however that ends.
#![allow(clippy::print_stderr, reason = "a failed test prints how to repeat it")]

#[cfg(feature = "servers")]
pub mod certificates;
pub mod poll;
pub mod ports;
#[cfg(feature = "servers")]
mod process;
#[cfg(feature = "servers")]
pub mod program;
#[cfg(feature = "servers")]
pub mod proxy;
#[cfg(feature = "servers")]
pub mod redis;
#[cfg(feature = "servers")]
pub mod resp;
mod seeds;
mod server_process;

pub use seeds::{any, with_each_seed};
pub use server_process::ServerProcess;
