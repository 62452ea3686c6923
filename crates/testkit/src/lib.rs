//! What the tests of several crates share. Knows nothing of what is tested.
//!
//! With the feature `servers`: real Redis and Valkey servers on free ports (`redis`), and a TCP
//! proxy that breaks what passes through it (`proxy`), and programs of others (`program`). Linux only. Whatever is started here ends
//! with its value, and with the test's process, however that dies.
#![allow(
    clippy::print_stderr,
    reason = "a test that fails says how to run it again"
)]

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
pub use server_process::Served;
