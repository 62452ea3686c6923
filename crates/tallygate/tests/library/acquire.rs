//! `acquire` and `admit` on tokio's paused clock, which is also the clock of the store.

mod admit;
mod cancel;
mod deadline;
mod jitter;
mod link;
mod order;
mod per_limit_costs;
pub(crate) mod queue;
mod threads;
mod unequal_costs;
mod unpolled;
