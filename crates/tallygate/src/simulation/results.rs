//! What a simulation found.

use super::bound::CheckedBound;
use super::scenario::Scenario;

/// Points of the time series.
const POINTS: u64 = 100;

/// What a simulation found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Results {
    /// The title of the scenario.
    pub title: String,
    /// The seed of all random numbers.
    pub seed: u64,
    /// The number of processes.
    pub nodes: u32,
    /// How long requests arrived, in microseconds.
    pub duration_us: u64,
    /// Requests that arrived.
    pub requests: u64,
    /// Requests that were answered.
    pub decisions: u64,
    /// Requests that were admitted.
    pub admitted: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Requests whose process ended before their answer.
    pub unanswered: u64,
    /// Requests that an exact limiter, asked at their arrival, admits.
    pub exact_admitted: u64,
    /// What decided the requests.
    pub answers: Answers,
    /// Script calls of all servers.
    pub calls: u64,
    /// Counters that they decided: equal checks of a batch are one.
    pub steps: u64,
    /// The time from the arrival of a request to its answer.
    pub latency: Percentiles,
    /// Units of leases.
    pub leases: LeaseUnits,
    /// While servers were lost: of the requests for other servers, the share that was decided with
    /// their counters. 1 if none was lost.
    pub healthy: f64,
    /// The servers.
    pub shards: Vec<ShardLoad>,
    /// For each limit, the most that was admitted of a key.
    pub worst: Vec<WorstCase>,
    /// The course of the simulation.
    pub series: Vec<Point>,
    /// The bounds of the scenario.
    pub bounds: Vec<CheckedBound>,
}

/// What decided requests.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Answers {
    /// The servers.
    pub servers: u64,
    /// Leases, without asking a server.
    pub leases: u64,
    /// The refusal cache, without asking a server.
    pub refusal_cache: u64,
    /// The failure policy, for some limits at least: servers failed.
    pub failure: u64,
    /// The failure policy, for some limits at least: servers were overloaded.
    pub overload: u64,
}

/// Units of leases, of all processes.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct LeaseUnits {
    /// Taken ahead.
    pub taken: u64,
    /// Returned unspent.
    pub returned: u64,
    /// Charged, although nobody spends them: their process was killed, or a reply was lost.
    pub stranded: u64,
}

/// The load of a server.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ShardLoad {
    /// The share of the time that it worked.
    pub busy: f64,
    /// Script calls.
    pub calls: u64,
}

/// The most that was admitted of one key, compared with the worst case of its limit.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WorstCase {
    /// The limit.
    pub limit: String,
    /// Units that were admitted of a key in a span.
    pub admitted: u64,
    /// The worst case of the limit in that span.
    pub bound: u64,
    /// The span, in microseconds.
    pub span_us: u64,
}

impl WorstCase {
    pub(super) fn new(limit: &str) -> Self {
        WorstCase {
            limit: limit.to_owned(),
            admitted: 0,
            bound: 1,
            span_us: 0,
        }
    }

    pub(super) fn record(&mut self, admitted: u64, bound: u64, span_us: u64) {
        let is_worse = |one: (u64, u64), other: (u64, u64)| {
            u128::from(one.0) * u128::from(other.1) > u128::from(other.0) * u128::from(one.1)
        };
        let bound = bound.max(1);
        if is_worse((admitted, bound), (self.admitted, self.bound)) {
            (self.admitted, self.bound, self.span_us) = (admitted, bound, span_us);
        }
    }

    /// How much of the worst case was admitted.
    pub fn ratio(&self) -> f64 {
        self.admitted as f64 / self.bound as f64
    }
}

/// A part of the simulated time.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Point {
    /// When it begins, in microseconds since the start.
    pub at_us: u64,
    /// Requests that arrived.
    pub requests: u64,
    /// Requests that were admitted.
    pub admitted: u64,
    /// Requests that an exact limiter admits.
    pub exact_admitted: u64,
    /// Requests that were decided by the failure policy.
    pub degraded: u64,
    /// Script calls.
    pub calls: u64,
    /// The time to an answer.
    pub latency: LatencyPoint,
}

/// The latency in a part of the simulated time, in microseconds.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct LatencyPoint {
    /// The median.
    pub p50_us: u64,
    /// The 99th percentile.
    pub p99_us: u64,
}

/// Percentiles of a latency, exact to 3 %.
#[derive(Clone, Debug, Default)]
pub struct Percentiles {
    /// How many values are in each bucket.
    buckets: Vec<u32>,
    count: u64,
    max_us: u64,
}

/// Buckets for each doubling.
const STEPS: u64 = 32;

impl Percentiles {
    #[cfg(test)]
    pub(super) fn from_values(values_us: &[u64]) -> Self {
        let mut percentiles = Percentiles::default();
        values_us.iter().for_each(|us| percentiles.record(*us));
        percentiles
    }

    pub(super) fn record(&mut self, us: u64) {
        let bucket = bucket(us);
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
        self.count += 1;
        self.max_us = self.max_us.max(us);
    }

    /// The least value, in microseconds, that so many thousandths of all values do not exceed.
    pub fn at(&self, thousandths: u16) -> u64 {
        let rank = (self.count * u64::from(thousandths)).div_ceil(1_000).max(1);
        let mut seen = 0;
        let reached = self.buckets.iter().position(|count| {
            seen += u64::from(*count);
            seen >= rank
        });
        reached.map_or(0, |bucket| upper_us(bucket as u64).min(self.max_us))
    }
}

/// Buckets of one microsecond, from [`STEPS`] on of a thirty-second of their value.
fn bucket(us: u64) -> usize {
    let bucket = match us {
        0..STEPS => us,
        _ => {
            let doublings = u64::from(us.ilog2() - STEPS.ilog2());
            STEPS * doublings + (us >> doublings)
        }
    };
    usize::try_from(bucket).unwrap_or(usize::MAX)
}

/// The largest value of a bucket.
fn upper_us(bucket: u64) -> u64 {
    match bucket {
        0..STEPS => bucket,
        _ => {
            let doublings = bucket / STEPS - 1;
            ((bucket - STEPS * doublings + 1) << doublings) - 1
        }
    }
}

impl Results {
    /// Requests that an exact limiter refuses.
    pub fn exact_refused(&self) -> u64 {
        self.requests - self.exact_admitted
    }

    /// Script calls for each decision.
    pub fn calls_per_decision(&self) -> f64 {
        self.calls as f64 / (self.decisions as f64).max(1.0)
    }

    /// Counters that servers decided, for each decision.
    pub fn steps_per_decision(&self) -> f64 {
        self.steps as f64 / (self.decisions as f64).max(1.0)
    }

    #[cfg(test)]
    pub(super) fn empty() -> Self {
        let text = b"limits: 1/s\ntraffic: 1/s\n";
        let scenario = Scenario::from_bytes("test", text).unwrap();
        Collector::new(&scenario).results
    }
}

/// Collects results while a simulation runs.
pub(super) struct Collector {
    pub(super) results: Results,
    latencies: Vec<Percentiles>,
    step_us: u64,
}

impl Collector {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let step_us = scenario.duration_us.div_ceil(POINTS).max(1);
        let points = scenario.duration_us.div_ceil(step_us);
        let point = |number: u64| Point {
            at_us: number * step_us,
            requests: 0,
            admitted: 0,
            exact_admitted: 0,
            degraded: 0,
            calls: 0,
            latency: LatencyPoint::default(),
        };
        let results = Results {
            title: scenario.title.clone(),
            seed: scenario.seed,
            nodes: scenario.nodes,
            duration_us: scenario.duration_us,
            requests: 0,
            decisions: 0,
            admitted: 0,
            refused: 0,
            unanswered: 0,
            exact_admitted: 0,
            answers: Answers::default(),
            calls: 0,
            steps: 0,
            latency: Percentiles::default(),
            leases: LeaseUnits::default(),
            healthy: 1.0,
            shards: Vec::new(),
            worst: Vec::new(),
            series: (0..points).map(point).collect(),
            bounds: Vec::new(),
        };
        Collector {
            latencies: vec![Percentiles::default(); results.series.len()],
            results,
            step_us,
        }
    }

    /// The point of a time since the start. Answers after the end belong to the last one.
    fn position(&self, at_us: u64) -> usize {
        let last = self.results.series.len() - 1;
        usize::try_from(at_us / self.step_us).map_or(last, |at| at.min(last))
    }

    pub(super) fn on_arrival(&mut self, at_us: u64, exact_admits: bool) {
        let at = self.position(at_us);
        let (results, point) = (&mut self.results, at);
        results.requests += 1;
        results.exact_admitted += u64::from(exact_admits);
        results.series[point].requests += 1;
        results.series[point].exact_admitted += u64::from(exact_admits);
    }

    pub(super) fn on_call(&mut self, at_us: u64, steps: usize) {
        let at = self.position(at_us);
        self.results.calls += 1;
        self.results.steps += steps as u64;
        self.results.series[at].calls += 1;
    }

    pub(super) fn on_answer(
        &mut self,
        arrived_us: u64,
        answered_us: u64,
        admitted: bool,
        degraded: bool,
    ) {
        let at = self.position(arrived_us);
        let results = &mut self.results;
        results.decisions += 1;
        match admitted {
            true => results.admitted += 1,
            false => results.refused += 1,
        }
        results.series[at].admitted += u64::from(admitted);
        results.series[at].degraded += u64::from(degraded);
        let latency_us = answered_us.saturating_sub(arrived_us);
        results.latency.record(latency_us);
        self.latencies[at].record(latency_us);
    }

    pub(super) fn finish(mut self) -> Results {
        for (point, latency) in self.results.series.iter_mut().zip(&self.latencies) {
            point.latency = LatencyPoint {
                p50_us: latency.at(500),
                p99_us: latency.at(990),
            };
        }
        self.results
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_exact_to_three_percent() {
        let values: Vec<u64> = (1..=100_000).collect();
        let percentiles = Percentiles::from_values(&values);
        for (thousandths, exact) in [
            (500, 50_000),
            (990, 99_000),
            (999, 99_900),
            (1_000, 100_000),
        ] {
            let found = percentiles.at(thousandths);
            assert!(
                (exact..=exact + exact / 32).contains(&found),
                "{found} for {exact}"
            );
        }
        assert_eq!(Percentiles::default().at(500), 0);
        assert_eq!(Percentiles::from_values(&[7]).at(500), 7);
        assert_eq!(Percentiles::from_values(&[u64::MAX >> 1, 3]).at(500), 3);
    }

    #[test]
    fn a_bucket_holds_the_values_up_to_its_upper_bound() {
        for us in (0..5_000).chain([1 << 20, (1 << 20) + 1, 1 << 40]) {
            let at = bucket(us);
            assert!(upper_us(at as u64) >= us, "{us}");
            assert!(at == 0 || upper_us(at as u64 - 1) < us, "{us}");
        }
    }
}
