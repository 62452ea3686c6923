//! The doors: where requests come in by wire and decisions go out. Only they know wire formats;
//! none knows where the counters are.

pub(crate) mod admin;
mod files;
pub mod gateway;
pub(crate) mod http;
mod listen;
mod playground;
mod problem;
mod reply;
mod unread;

pub(crate) use listen::{Bound, bind};
