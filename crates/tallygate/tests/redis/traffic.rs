//! Traffic during a fault: checks every decision, and at the end compares admitted with counted.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tallygate::{Decision, Limit, Limiter, OnFailure, RedisStore, Replicas, Request};
use tallygate_testkit::poll;
use tokio::task::JoinHandle;

use crate::fixtures::{TIMEOUT, block_on, limiter, limits_are_exact, runtime, used};

/// Never exhausted, and hardly refilled, during a test.
pub(crate) const LARGE_QUOTA: &str = "token-bucket 1/d burst 50000";
/// The default deadline.
pub(crate) const DEFAULT_DEADLINE: Duration = Duration::from_millis(50);

const POLICIES: [OnFailure; 3] = [
    OnFailure::Open,
    OnFailure::Closed,
    OnFailure::Local(Replicas::Fixed(NonZeroU32::MIN)),
];
/// Tasks per policy and kind of request.
const TASKS: usize = 2;
/// Between two calls of one task.
const CALL_INTERVAL: Duration = Duration::from_millis(4);
/// Consecutive decisions by the store after which it counts as healthy.
const HEALTHY_RUN: u64 = 60;

/// Tasks that send requests continuously.
pub(crate) struct Traffic {
    limiter: Limiter<RedisStore>,
    /// The keys of each kind of request.
    kinds: Vec<Vec<&'static str>>,
    counts: Arc<Counts>,
    tasks: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Counts {
    stop: AtomicBool,
    /// Decisions by the store, per kind of request.
    exact: Vec<AtomicU64>,
    /// Decisions without the store, per kind of request.
    degraded: Vec<AtomicU64>,
    /// Decisions without the store, per policy.
    by_policy: [AtomicU64; 3],
    /// Consecutive decisions by the store.
    healthy_run: AtomicU64,
}

impl Traffic {
    /// Starts with one key, and waits until the store decides.
    pub(crate) fn start(store: &RedisStore, deadline: Duration) -> Self {
        let traffic = Self::start_unchecked(store, deadline);
        traffic.wait_healthy();
        traffic
    }

    /// Starts with one key, without waiting.
    pub(crate) fn start_unchecked(store: &RedisStore, deadline: Duration) -> Self {
        let limiter = limiter(store, LARGE_QUOTA).deadline(deadline);
        Self::with_keys(limiter, vec![vec!["load"]], deadline)
    }

    /// Starts several kinds of request; each checks all limits on all its keys.
    pub(crate) fn with_keys(
        limiter: Limiter<RedisStore>,
        kinds: Vec<Vec<&'static str>>,
        deadline: Duration,
    ) -> Self {
        let zeros = || kinds.iter().map(|_| AtomicU64::new(0)).collect();
        let counts = Arc::new(Counts {
            exact: zeros(),
            degraded: zeros(),
            ..Counts::default()
        });
        let mut tasks = Vec::new();
        for (kind, keys) in kinds.iter().enumerate() {
            for task in 0..TASKS * POLICIES.len() {
                let policy = task % POLICIES.len();
                let limiter = limiter.clone().on_failure(POLICIES[policy]);
                let (keys, counts) = (keys.clone(), Arc::clone(&counts));
                let task = send_requests(limiter, kind, policy, keys, deadline, counts);
                tasks.push(runtime().spawn(task));
            }
        }
        Traffic {
            limiter,
            kinds,
            counts,
            tasks,
        }
    }

    /// Waits until the store decides all requests.
    #[track_caller]
    pub(crate) fn wait_healthy(&self) {
        self.counts.healthy_run.store(0, Relaxed);
        let healthy = || self.counts.healthy_run.load(Relaxed) >= HEALTHY_RUN || self.has_failed();
        poll::until(TIMEOUT, "the store decides", healthy);
        assert!(!self.has_failed(), "a wrong decision, see above");
    }

    /// Waits for `more` further degraded decisions of every policy.
    #[track_caller]
    pub(crate) fn wait_degraded(&self, more: u64) {
        let before = self.counts.by_policy.each_ref().map(|n| n.load(Relaxed));
        poll::until(TIMEOUT, "decisions are degraded", || {
            let counts = self.counts.by_policy.iter().zip(before);
            counts
                .into_iter()
                .all(|(n, before)| n.load(Relaxed) >= before + more)
        });
    }

    /// Whether the breaker is open.
    pub(crate) fn store_is_down(&self) -> bool {
        self.limiter.store_is_down()
    }

    /// Aborts all calls.
    pub(crate) fn abandon(self) {
        for task in self.tasks {
            task.abort();
            let _ = block_on(task);
        }
    }

    fn has_failed(&self) -> bool {
        self.tasks.iter().any(JoinHandle::is_finished)
    }

    /// Waits until the store has recovered, stops, and checks that nothing was counted twice: every
    /// decision of the store is counted, and every failed call at most once. After a loss of data
    /// only the upper bound holds. Returns the number of degraded decisions.
    #[track_caller]
    pub(crate) fn finish(self, data: Data) -> u64 {
        self.wait_healthy();
        self.counts.stop.store(true, Relaxed);
        for task in self.tasks {
            block_on(task).unwrap();
        }
        let exact = |kind: usize| self.counts.exact[kind].load(Relaxed);
        let degraded = |kind: usize| self.counts.degraded[kind].load(Relaxed);
        let indices = 0..self.kinds.len();
        let mut keys: Vec<&str> = self.kinds.iter().flatten().copied().collect();
        keys.dedup();
        for key in keys {
            let uses_key = |kind: &usize| self.kinds[*kind].contains(&key);
            let min: u64 = indices.clone().filter(uses_key).map(exact).sum();
            let more: u64 = indices.clone().filter(uses_key).map(degraded).sum();
            for limit in self.limiter.limits() {
                let counted = used(&self.limiter.with_limit(limit.clone()), key);
                let max = min + more;
                assert!(counted <= max, "{counted} counted of {min} + {more}");
                match data {
                    Data::Kept => assert!(counted >= min, "{counted} counted of {min}"),
                    Data::Lost => {}
                    Data::KeptExact => assert_eq!(counted, min, "{more} failed"),
                }
            }
        }
        limits_are_exact(self.limiter.store());
        indices.map(degraded).sum()
    }
}

/// What a fault does to the counters.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Data {
    /// All counters are kept.
    Kept,
    /// Some counters may be lost.
    Lost,
    /// All counters are kept, and no failed call has run.
    KeptExact,
}

/// Sends requests until stopped.
async fn send_requests(
    limiter: Limiter<RedisStore>,
    kind: usize,
    policy: usize,
    keys: Vec<&'static str>,
    deadline: Duration,
    counts: Arc<Counts>,
) {
    while !counts.stop.load(Relaxed) {
        let request = request(&keys, limiter.limits());
        let started = Instant::now();
        let decision = limiter.decide(&request).await;
        let elapsed = started.elapsed();
        assert!(elapsed < 20 * deadline, "a decision took {elapsed:?}");
        check_policy(&decision, POLICIES[policy]);
        if decision.degraded() {
            counts.healthy_run.store(0, Relaxed);
            counts.degraded[kind].fetch_add(1, Relaxed);
            counts.by_policy[policy].fetch_add(1, Relaxed);
        } else {
            counts.exact[kind].fetch_add(1, Relaxed);
            counts.healthy_run.fetch_add(1, Relaxed);
        }
        tokio::time::sleep(CALL_INTERVAL).await;
    }
}

fn request<'a>(keys: &[&'static str], limits: &'a [Limit]) -> Request<'a> {
    let mut request = Request::with_limits(keys[0], limits).unwrap();
    for &key in &keys[1..] {
        for limit in limits {
            request = request.and(key, limit).unwrap();
        }
    }
    request
}

/// A failure must not look like a refusal by a quota.
fn check_policy(decision: &Decision, policy: OnFailure) {
    if !decision.degraded() {
        assert!(decision.allowed(), "refused: {decision:?}");
        return;
    }
    match policy {
        // Before the server counts as down, a missed deadline is overload, which is counted here.
        OnFailure::Open => assert!(decision.allowed(), "{decision:?}"),
        OnFailure::Closed => {
            assert!(!decision.allowed(), "{decision:?}");
            assert!(decision.unavailable(), "{decision:?}");
            assert_eq!(decision.retry_after(), None);
        }
        OnFailure::Local(_) => {
            assert!(decision.allowed(), "{decision:?}");
            assert!(!decision.verdicts().is_empty(), "{decision:?}");
        }
    }
}
