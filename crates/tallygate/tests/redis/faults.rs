//! Whatever can break, breaks under load: every call is answered, by its policy if not by the
//! store; nothing is counted twice; the store is used again without a restart; limits are exact
//! again; no key is left behind.

mod clocks;
mod cluster;
mod network;
mod replies;
mod sentinel;
mod server;
