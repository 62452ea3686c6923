//! Waiting for real, on virtual time: the store's clock and the runtime's timers are the same, and
//! both move only when everybody waits.

mod admit;
mod deadline;
mod dropped;
mod jitter;
mod line;
mod order;
mod own_costs;
mod threads;
mod unequal;
