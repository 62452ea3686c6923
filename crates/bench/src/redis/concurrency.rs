//! Many decisions in flight at once: how many a second, and how long each is waited for. Knows no
//! contender by name.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use super::client::Client;
use crate::keys::Key;
use crate::measure::{percentile, thread_cpu_time};
use crate::setting::Behaviour;

/// What is measured with that many decisions in flight.
#[derive(Clone, Copy, Debug)]
pub struct Flight {
    /// How it limits.
    pub behaviour: Behaviour,
    /// Tasks, each of which waits for one decision at a time.
    pub in_flight: usize,
}

impl Flight {
    /// The row of one of its figures.
    pub fn row(&self, figure: &str) -> String {
        let behaviour = self.behaviour.name();
        format!("{behaviour}, {} in flight, {figure}", self.in_flight)
    }
}

/// Thousand decisions a second.
pub const RATE: &str = "thousand decisions/s";
/// The wait that half of the decisions do not exceed.
pub const P50: &str = "p50, µs";
/// The wait that one decision in a hundred exceeds.
pub const P99: &str = "p99, µs";
/// What a decision costs the server.
pub const SERVER: &str = "server CPU";
/// What a decision costs the client.
pub const CLIENT: &str = "client CPU";

/// What came of it.
#[derive(Clone, Debug)]
pub struct Flown {
    /// Those that admitted.
    pub admitted: usize,
    /// The wait for each decision, ns, sorted.
    pub waits: Vec<u64>,
    /// From the first start to the last end.
    pub took: Duration,
    /// The processor time of this thread, in which all of the client runs.
    pub cpu: Duration,
}

impl Flown {
    /// Decisions in a second.
    pub fn rate(&self) -> f64 {
        self.waits.len() as f64 / self.took.as_secs_f64()
    }

    /// The wait that this share of the decisions does not exceed, µs.
    pub fn wait_us(&self, share: f64) -> f64 {
        percentile(&self.waits, share) as f64 / 1_000.0
    }
}

/// A contender whose type is forgotten outside the loops.
pub trait Lane {
    /// Decides requests for that long, so many at a time.
    fn fly(&self, runtime: &Runtime, requests: &Arc<[Key]>, load: Load) -> Flown;
}

/// How much a lane is asked to do.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Tasks, each of which waits for one decision at a time.
    pub in_flight: usize,
    /// For how long new ones are begun.
    pub time: Duration,
}

/// The lane of a client.
pub(crate) fn lane<C: Client>(client: C) -> Box<dyn Lane> {
    Box::new(Arc::new(client))
}

impl<C: Client> Lane for Arc<C> {
    fn fly(&self, runtime: &Runtime, requests: &Arc<[Key]>, load: Load) -> Flown {
        let (begin, before) = (Instant::now(), thread_cpu_time());
        let tasks: Vec<_> = (0..load.in_flight)
            .map(|task| {
                let (client, requests) = (Arc::clone(self), Arc::clone(requests));
                let share = requests.len() / load.in_flight;
                runtime.spawn(async move {
                    let mut waits = Vec::with_capacity(1 << 12);
                    let mut admitted = 0;
                    let mut mine = requests[task * share..(task + 1) * share].iter().cycle();
                    let mut before = begin;
                    while before - begin < load.time {
                        let Some(key) = mine.next() else { break };
                        before = Instant::now();
                        admitted += usize::from(client.check(key).await);
                        waits.push(before.elapsed().as_nanos() as u64);
                    }
                    (admitted, waits)
                })
            })
            .collect();
        let (mut admitted, mut waits) = (0, Vec::new());
        runtime.block_on(async {
            for task in tasks {
                let (some, its) = task.await.expect("a contender does not panic");
                admitted += some;
                waits.extend(its);
            }
        });
        let (took, cpu) = (begin.elapsed(), thread_cpu_time() - before);
        waits.sort_unstable();
        Flown {
            admitted,
            waits,
            took,
            cpu,
        }
    }
}
