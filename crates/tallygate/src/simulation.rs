//! What a fleet of processes over shared servers would decide, simulated on supplied time.
//!
//! A [`Scenario`] describes the fleet, its traffic and what goes wrong. [`simulate`] runs it: the
//! parts of the Redis store that perform no I/O (leases, refusal cache, breakers, batches) are driven
//! by a queue of events, and simulated servers decide with the core. The same scenario and seed give
//! the same [`Results`].
//!
//! ```
//! use tallygate::simulation::{Scenario, simulate};
//!
//! let text = b"duration: 2s\nnodes: 4\nlimits: 100/s\ntraffic: 500/s\nbounds: worst <= 1x\n";
//! let scenario = Scenario::from_bytes("scenario.yaml", text)?;
//! let results = simulate(&scenario, |_| {});
//! assert!(results.bounds.iter().all(|bound| bound.holds));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

// Statistics of decisions; no decision is made with them.
#![allow(clippy::float_arithmetic)]

mod bound;
mod event;
mod exact;
mod fleet;
mod network;
mod results;
mod scenario;
mod traffic;
mod zipf;

pub use bound::{Bound, BoundError, CheckedBound};
pub use fleet::simulate;
pub use results::{
    Answers, LatencyPoint, LeaseUnits, Percentiles, Point, Results, ShardLoad, WorstCase,
};
pub use scenario::Scenario;
pub(crate) use scenario::{
    Clocks, CountedBy, Defect, Fault, FaultKind, Network, ScenarioLimit, ServiceTime, Stream,
};
pub use traffic::{Arrival, Traffic};
