//! Traffic while something breaks: every answer is looked at, and in the end what was admitted is
//! compared with what was counted.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tallygate::{Decision, Limit, Limiter, OnFailure, RedisStore, Replicas, Request};
use tallygate_testkit::poll;
use tokio::task::JoinHandle;

use crate::fixtures::{PATIENCE, limiter, limits_are_exact, runtime, used, wait};

/// So much that nobody is ever refused by it, and next to nothing comes back during a test.
pub(crate) const PLENTY: &str = "token-bucket 1/d burst 50000";
/// The default deadline.
pub(crate) const SHORT: Duration = Duration::from_millis(50);

const POLICIES: [OnFailure; 3] = [
    OnFailure::Open,
    OnFailure::Closed,
    OnFailure::Local(Replicas::Fixed(NonZeroU32::MIN)),
];
/// Each policy has so many tasks for each thing that is asked.
const TASKS: usize = 2;
/// Between the calls of one task.
const PACE: Duration = Duration::from_millis(4);
/// So many answers in a row from the store, and it counts as well.
const WELL: u64 = 60;

/// Tasks that ask without a pause.
pub(crate) struct Load {
    limiter: Limiter<RedisStore>,
    /// The keys of each kind of request.
    asks: Vec<Vec<&'static str>>,
    counts: Arc<Counts>,
    tasks: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Counts {
    stop: AtomicBool,
    /// Answers from the store, for each kind of request.
    exact: Vec<AtomicU64>,
    /// Answers without it.
    degraded: Vec<AtomicU64>,
    /// Answers without it, by policy.
    by_policy: [AtomicU64; 3],
    /// Answers from it, since the last one without.
    in_a_row: AtomicU64,
}

impl Load {
    /// Begins to ask for one key.
    pub(crate) fn start(store: &Arc<RedisStore>, deadline: Duration) -> Self {
        let load = Self::begin(store, deadline);
        load.flows();
        load
    }

    /// Begins to ask for one key, whether the store answers or not.
    pub(crate) fn begin(store: &Arc<RedisStore>, deadline: Duration) -> Self {
        let limiter = limiter(store, PLENTY).deadline(deadline);
        Self::of(limiter, vec![vec!["load"]], deadline)
    }

    /// Begins to ask; each request asks for all of its keys before all limits.
    pub(crate) fn of(
        limiter: Limiter<RedisStore>,
        asks: Vec<Vec<&'static str>>,
        deadline: Duration,
    ) -> Self {
        let zeros = || asks.iter().map(|_| AtomicU64::new(0)).collect();
        let counts = Arc::new(Counts {
            exact: zeros(),
            degraded: zeros(),
            ..Counts::default()
        });
        let mut tasks = Vec::new();
        for (kind, keys) in asks.iter().enumerate() {
            for task in 0..TASKS * POLICIES.len() {
                let policy = task % POLICIES.len();
                let limiter = limiter.on_failure(POLICIES[policy]);
                let (keys, counts) = (keys.clone(), Arc::clone(&counts));
                let ask = ask_on(limiter, kind, policy, keys, deadline, counts);
                tasks.push(runtime().spawn(ask));
            }
        }
        Load {
            limiter,
            asks,
            counts,
            tasks,
        }
    }

    /// Waits until the store answers everybody.
    #[track_caller]
    pub(crate) fn flows(&self) {
        self.counts.in_a_row.store(0, Relaxed);
        let well = || self.counts.in_a_row.load(Relaxed) >= WELL || self.has_failed();
        poll::until(PATIENCE, "the store answers", well);
        assert!(!self.has_failed(), "a wrong answer, see above");
    }

    /// Waits until so many more answers of every policy came without the store.
    #[track_caller]
    pub(crate) fn does_without(&self, more: u64) {
        let before = self.counts.by_policy.each_ref().map(|n| n.load(Relaxed));
        poll::until(PATIENCE, "the store is done without", || {
            let grown = self.counts.by_policy.iter().zip(before);
            grown
                .into_iter()
                .all(|(n, before)| n.load(Relaxed) >= before + more)
        });
    }

    /// Whether the store is left alone.
    pub(crate) fn store_is_down(&self) -> bool {
        self.limiter.store_is_down()
    }

    /// Drops every call where it stands.
    pub(crate) fn abandon(self) {
        for task in self.tasks {
            task.abort();
            let _ = wait(task);
        }
    }

    fn has_failed(&self) -> bool {
        self.tasks.iter().any(JoinHandle::is_finished)
    }

    /// Waits until the store answers again, ends, and checks that nothing was counted twice: what
    /// the store admitted is counted, and of what it did not answer no more than there was. After
    /// a loss of data only the latter holds. Gives how many answers came without the store.
    #[track_caller]
    pub(crate) fn end(self, data: Data) -> u64 {
        self.flows();
        self.counts.stop.store(true, Relaxed);
        for task in self.tasks {
            wait(task).unwrap();
        }
        let exact = |kind: usize| self.counts.exact[kind].load(Relaxed);
        let degraded = |kind: usize| self.counts.degraded[kind].load(Relaxed);
        let kinds = 0..self.asks.len();
        let mut keys: Vec<&str> = self.asks.iter().flatten().copied().collect();
        keys.dedup();
        for key in keys {
            let asks = |kind: &usize| self.asks[*kind].contains(&key);
            let least: u64 = kinds.clone().filter(asks).map(exact).sum();
            let more: u64 = kinds.clone().filter(asks).map(degraded).sum();
            for limit in self.limiter.limits() {
                let counted = used(&self.limiter.with(limit.clone()), key);
                let most = least + more;
                assert!(counted <= most, "{counted} counted of {least} + {more}");
                match data {
                    Data::Kept => assert!(counted >= least, "{counted} counted of {least}"),
                    Data::Lost => {}
                    Data::NothingElse => assert_eq!(counted, least, "{more} failed"),
                }
            }
        }
        limits_are_exact(self.limiter.store());
        kinds.map(degraded).sum()
    }
}

/// What a fault may have done to the counters.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Data {
    /// They are all there.
    Kept,
    /// Some are gone.
    Lost,
    /// They are all there, and no call that failed has run.
    NothingElse,
}

/// Asks until told to stop.
async fn ask_on(
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
        let took = started.elapsed();
        assert!(took < 20 * deadline, "an answer took {took:?}");
        keeps_to_policy(&decision, POLICIES[policy]);
        if decision.degraded() {
            counts.in_a_row.store(0, Relaxed);
            counts.degraded[kind].fetch_add(1, Relaxed);
            counts.by_policy[policy].fetch_add(1, Relaxed);
        } else {
            counts.exact[kind].fetch_add(1, Relaxed);
            counts.in_a_row.fetch_add(1, Relaxed);
        }
        tokio::time::sleep(PACE).await;
    }
}

fn request<'a>(keys: &[&'static str], limits: &'a [Limit]) -> Request<'a> {
    let mut request = Request::of(keys[0], limits).unwrap();
    for &key in &keys[1..] {
        for limit in limits {
            request = request.and(key, limit).unwrap();
        }
    }
    request
}

/// A failure never looks like a refusal by quota.
fn keeps_to_policy(decision: &Decision, policy: OnFailure) {
    if !decision.degraded() {
        assert!(decision.allowed(), "refused: {decision:?}");
        return;
    }
    match policy {
        OnFailure::Open => {
            assert!(decision.allowed(), "{decision:?}");
            assert!(decision.verdicts().is_empty(), "{decision:?}");
        }
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
