//! Throughput and latency with many decisions in flight, for any contender.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use super::client::Client;
use crate::keys::Key;
use crate::measure::{percentile, thread_cpu_time};
use crate::quota_spec::{Algorithm, algorithm_name};

/// A group of rows.
#[derive(Clone, Copy, Debug)]
pub struct ConcurrentScenario {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Tasks, each of which waits for one decision at a time.
    pub in_flight: usize,
    /// Threads of the client.
    pub threads: usize,
    /// Where the counters are.
    pub servers: Servers,
    /// The keys that are asked for.
    pub keys: Keys,
}

/// The keys of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// Many, all equally often.
    Uniform,
    /// One.
    Hot,
    /// [`ZIPF_KEYS`], the k-th most frequent in proportion to 1/k.
    Zipf,
}

/// The number of keys of [`Keys::Zipf`].
pub const ZIPF_KEYS: usize = 100_000;

/// The servers of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Servers {
    /// One.
    One,
    /// A cluster of three masters.
    Cluster,
}

/// Threads of the client in the rows with several.
pub const THREADS: usize = 4;

impl ConcurrentScenario {
    /// One server, and a client with one thread.
    pub fn new(algorithm: Algorithm, in_flight: usize) -> Self {
        ConcurrentScenario {
            algorithm,
            in_flight,
            threads: 1,
            servers: Servers::One,
            keys: Keys::Uniform,
        }
    }

    /// Asks for other keys.
    #[must_use]
    pub fn with_keys(self, keys: Keys) -> Self {
        ConcurrentScenario { keys, ..self }
    }

    /// Runs the client on [`THREADS`].
    #[must_use]
    pub fn with_threads(self) -> Self {
        ConcurrentScenario {
            threads: THREADS,
            ..self
        }
    }

    /// Spreads the counters over a cluster.
    #[must_use]
    pub fn in_cluster(self) -> Self {
        ConcurrentScenario {
            servers: Servers::Cluster,
            ..self
        }
    }

    /// The row of a metric.
    pub fn row(&self, metric: &str) -> String {
        let algorithm = algorithm_name(self.algorithm);
        let servers = match self.servers {
            Servers::One => "",
            Servers::Cluster => ", cluster of 3 masters",
        };
        let threads = match self.threads {
            1 => String::new(),
            threads => format!(", {threads} client threads"),
        };
        let keys = match self.keys {
            Keys::Uniform => "",
            Keys::Hot => ", one hot key",
            Keys::Zipf => ", 100,000 Zipf keys",
        };
        let in_flight = self.in_flight;
        format!("{algorithm}{keys}{servers}, {in_flight} in flight{threads}, {metric}")
    }
}

/// Throughput.
pub const RATE: &str = "thousand decisions/s";
/// The median latency.
pub const P50: &str = "p50, µs";
/// The 99th percentile of the latency.
pub const P99: &str = "p99, µs";
/// The server's CPU time per decision, µs.
pub const SERVER: &str = "server CPU";
/// The client's CPU time per decision, µs.
pub const CLIENT: &str = "client CPU";

/// Of so many decisions one is timed: reading the clock takes as long as a decision from a lease.
pub const TIMED_ONE_IN: usize = 8;

/// The result of a run.
#[derive(Clone, Debug)]
pub struct LoadResult {
    /// Decided requests.
    pub decided: usize,
    /// Admitted requests.
    pub admitted: usize,
    /// The latency of [one in a few](TIMED_ONE_IN), sorted.
    pub latencies_ns: Vec<u64>,
    /// From the first start to the last end.
    pub elapsed: Duration,
    /// The CPU time of this thread, which runs the whole client.
    pub cpu: Duration,
}

impl LoadResult {
    /// Decisions per second.
    pub fn rate(&self) -> f64 {
        self.decided as f64 / self.elapsed.as_secs_f64()
    }

    /// A percentile of the latency in microseconds; `share` is from 0 to 1.
    pub fn latency_us(&self, share: f64) -> f64 {
        percentile(&self.latencies_ns, share) as f64 / 1_000.0
    }
}

/// A [`Client`] as a trait object: dispatch is dynamic per run, static per decision.
pub trait DynClient {
    /// Decides requests under a load.
    fn run(&self, runtime: &Runtime, requests: &Arc<[Key]>, load: Load) -> LoadResult;
}

/// The load of a run.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Tasks, each of which waits for one decision at a time.
    pub in_flight: usize,
    /// How long new decisions are started.
    pub time: Duration,
}

/// Boxes a client.
pub(crate) fn boxed<C: Client>(client: C) -> Box<dyn DynClient> {
    Box::new(Arc::new(client))
}

impl<C: Client> DynClient for Arc<C> {
    fn run(&self, runtime: &Runtime, requests: &Arc<[Key]>, load: Load) -> LoadResult {
        let (start, cpu_before) = (Instant::now(), thread_cpu_time());
        let tasks: Vec<_> = (0..load.in_flight)
            .map(|task| {
                let (client, requests) = (Arc::clone(self), Arc::clone(requests));
                let share = requests.len() / load.in_flight;
                runtime.spawn(async move {
                    let mut latencies_ns = Vec::with_capacity(1 << 12);
                    let mut admitted = 0;
                    let mut own_requests =
                        requests[task * share..(task + 1) * share].iter().cycle();
                    let (mut decided, mut before) = (0, start);
                    while before - start < load.time {
                        before = Instant::now();
                        for (at, key) in own_requests.by_ref().take(TIMED_ONE_IN).enumerate() {
                            admitted += usize::from(client.check(key).await);
                            decided += 1;
                            if at == 0 {
                                latencies_ns.push(before.elapsed().as_nanos() as u64);
                            }
                        }
                    }
                    (decided, admitted, latencies_ns)
                })
            })
            .collect();
        let (mut decided, mut admitted, mut latencies_ns) = (0, 0, Vec::new());
        runtime.block_on(async {
            for task in tasks {
                let finished = task.await.expect("a contender does not panic");
                let (own_decided, own_admitted, own_latencies) = finished;
                decided += own_decided;
                admitted += own_admitted;
                latencies_ns.extend(own_latencies);
            }
        });
        let (elapsed, cpu) = (start.elapsed(), thread_cpu_time() - cpu_before);
        latencies_ns.sort_unstable();
        LoadResult {
            decided,
            admitted,
            latencies_ns,
            elapsed,
            cpu,
        }
    }
}
