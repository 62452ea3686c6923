//! Faults under load: every call is answered, by the failure policy if not by the store; nothing is
//! counted twice; the store recovers without a restart; limits are exact again; no key stays.

mod clocks;
mod cluster;
mod migration;
mod network;
mod partial;
mod replies;
mod sentinel;
mod server;
