//! The requests of a scenario.

use fastrand::Rng;

use super::scenario::{Scenario, Stream};
use super::zipf::Zipf;

/// A request that arrives at a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Arrival {
    /// Since the start, in microseconds.
    pub at_us: u64,
    /// The number of the process, from 0 on.
    pub node: u32,
    /// The number of its key, from 1 on.
    pub key: u64,
    /// The units it asks for.
    pub cost: u32,
}

/// The requests of a scenario, in the order of their arrival: an iterator.
pub struct Traffic {
    streams: Vec<Source>,
    rng: Rng,
    nodes: u32,
}

struct Source {
    stream: Stream,
    zipf: Zipf,
    rng: Rng,
    /// When the next request arrives. Not whole, so that high rates are exact.
    next_us: f64,
}

impl Traffic {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let mut rng = Rng::with_seed(scenario.seed);
        let streams = scenario.traffic.iter().map(|stream| {
            let mut source = Source {
                stream: stream.clone(),
                zipf: Zipf::new(stream.keys, stream.skew),
                rng: rng.fork(),
                next_us: stream.from_us as f64,
            };
            source.advance();
            source
        });
        Traffic {
            streams: streams.collect(),
            nodes: scenario.nodes,
            rng,
        }
    }
}

impl Source {
    /// Requests arrive independently of each other.
    fn advance(&mut self) {
        let pause = -(1.0 - self.rng.f64()).ln();
        self.next_us += pause * 1e6 / self.stream.rate;
    }

    fn is_over(&self) -> bool {
        self.next_us >= self.stream.until_us as f64
    }
}

impl Iterator for Traffic {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        let open = self.streams.iter_mut().filter(|source| !source.is_over());
        let source = open.min_by(|one, other| one.next_us.total_cmp(&other.next_us))?;
        let key = source.zipf.draw(&mut source.rng) - 1 + source.stream.first_key;
        let arrival = Arrival {
            at_us: source.next_us as u64,
            node: self.rng.u32(..self.nodes),
            key,
            cost: source.stream.cost,
        };
        source.advance();
        Some(arrival)
    }
}
