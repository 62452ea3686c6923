//! Shaping over a link: the store decides half a round trip after a request is sent, by its own
//! clock, and replies may arrive in any order.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tallygate::store::TailRefund;
use tallygate::{
    AcquireError, Decision, Limit, Limiter, MemoryStore, OnFailure, Quota, Request, Retry, Store,
    StoreError, Verb, Wait,
};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use super::queue::{RuntimeClock, cancel, paused_store, settle};

const MS: Duration = Duration::from_millis(1);

/// A memory store behind a link.
struct LinkStore {
    memory: MemoryStore<RuntimeClock>,
    /// The time to the store, and back if the list below is empty.
    one_way: Duration,
    /// The times of the next replies.
    replies: Mutex<VecDeque<Duration>>,
    hangs: bool,
    /// Whether the end of a schedule can be returned.
    refunds: bool,
}

impl Store for LinkStore {
    async fn decide(&self, request: &Request<'_>) -> Result<Decision, StoreError> {
        if self.hangs {
            pending::<()>().await;
        }
        let reply = self.replies.lock().unwrap().pop_front();
        sleep(self.one_way).await;
        let decision = self.memory.decide(request);
        sleep(reply.unwrap_or(self.one_way)).await;
        Ok(decision)
    }

    fn submit(&self, request: &Request<'_>) {
        self.memory.submit(request);
    }

    fn undo(&self, request: &Request<'_>, decision: &Decision) {
        self.memory.undo(request, decision);
    }

    fn refund_tail(
        &self,
        request: &Request<'_>,
        ends_us: &[u64],
        done: impl FnOnce(TailRefund) + Send + 'static,
    ) {
        if self.refunds {
            return Store::refund_tail(&self.memory, request, ends_us, done);
        }
        done(TailRefund::NotLast);
    }
}

struct Link {
    limiter: Limiter<Arc<LinkStore>>,
    start: Instant,
    started: Arc<Mutex<Vec<(usize, u64)>>>,
}

type Task = JoinHandle<Result<Decision, AcquireError>>;

impl Link {
    fn new(quota: &str, one_way_ms: u64, replies_ms: &[u64], hangs: bool) -> Self {
        let start = Instant::now();
        let replies = replies_ms.iter().map(|&ms| Duration::from_millis(ms));
        let store = LinkStore {
            memory: paused_store(start),
            one_way: Duration::from_millis(one_way_ms),
            replies: Mutex::new(replies.collect()),
            hangs,
            refunds: false,
        };
        let quota: Quota = quota.parse().unwrap();
        Link {
            limiter: Limiter::with_store(Arc::new(store), Limit::named("link", quota)),
            start,
            started: Arc::default(),
        }
    }

    async fn admit(&self, name: usize, wait: Wait) -> Task {
        let (limiter, started, start) =
            (self.limiter.clone(), Arc::clone(&self.started), self.start);
        let task = tokio::spawn(async move {
            let outcome = limiter.admit(&limiter.request("k"), wait).await;
            if outcome.as_ref().is_ok_and(Decision::allowed) {
                let at = start.elapsed().as_millis() as u64;
                started.lock().unwrap().push((name, at));
            }
            outcome
        });
        settle().await;
        task
    }

    async fn until_ms(&self, ms: u64) {
        sleep_until(self.start + MS * u32::try_from(ms).unwrap()).await;
        settle().await;
    }

    fn started(&self) -> Vec<(usize, u64)> {
        self.started.lock().unwrap().clone()
    }

    fn stored_delay(&self) -> Duration {
        let memory = &self.limiter.store().memory;
        let peek = self.limiter.request("k").verb(Verb::Peek);
        memory.decide(&peek).delay()
    }
}

/// The store decides at `one_way`; the schedule starts there.
#[tokio::test(start_paused = true)]
async fn requests_over_a_link_start_at_their_scheduled_instants() {
    for one_way in [1, 5] {
        let link = Link::new("leaky-bucket 1/2ms queue 200", one_way, &[], false);
        for name in 0..100 {
            link.admit(name, Wait::forever()).await;
        }
        link.until_ms(2_000).await;
        // Time is known only up to the round trip: it may be late by the way back, and no more.
        let late = |name: usize, at: u64| at as i64 - (one_way + 2 * name as u64) as i64;
        let started = link.started();
        assert_eq!(started.len(), 100);
        for (name, at) in started {
            let late = late(name, at);
            assert!(
                (0..=one_way as i64).contains(&late),
                "{name}: {late} ms late"
            );
        }
        assert_eq!(link.limiter.waiting(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn replies_in_any_order_start_in_the_order_of_the_schedule() {
    let link = Link::new("leaky-bucket 1/10ms queue 9", 1, &[1, 9, 5, 2, 7], false);
    for name in 0..5 {
        link.admit(name, Wait::forever()).await;
    }
    link.until_ms(1_000).await;
    let expected = [(0, 1), (1, 11), (2, 21), (3, 31), (4, 41)];
    let started = link.started();
    assert_eq!(started.len(), expected.len());
    for ((name, at), (expected, scheduled)) in started.into_iter().zip(expected) {
        assert_eq!(name, expected);
        // The shortest way back of a delayed request is 2 ms.
        assert!((scheduled..=scheduled + 2).contains(&at), "{name} at {at}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_slot_over_a_link_passes_on_and_is_not_refunded() {
    let link = Link::new("leaky-bucket 1/100ms queue 9", 1, &[], false);
    let mut tasks = Vec::new();
    for name in 0..4 {
        tasks.push(link.admit(name, Wait::forever()).await);
    }
    link.until_ms(50).await;
    cancel(tasks.remove(1)).await;
    let scheduled = link.stored_delay();
    cancel(tasks.remove(2)).await;
    assert_eq!(link.stored_delay(), scheduled, "nothing is refunded");
    // It moves up into the slot that 3 has left to 2's successor.
    link.admit(4, Wait::forever()).await;
    link.until_ms(2_000).await;
    let started = link.started();
    let names: Vec<usize> = started.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, [0, 2, 4]);
    for ((_, at), scheduled) in started.iter().zip([1, 101, 201]) {
        assert!((scheduled..=scheduled + 1).contains(at), "{started:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slot_after_the_deadline_is_refused_and_used_by_a_later_request() {
    let link = Link::new("leaky-bucket 1/100ms queue 20", 1, &[], false);
    let wait = Wait::at_most(MS * 250);
    let mut tasks = Vec::new();
    for name in 0..6 {
        tasks.push(link.admit(name, wait).await);
    }
    link.until_ms(20).await;
    for task in tasks.drain(3..) {
        let refused = task.await.unwrap().unwrap();
        assert!(!refused.allowed() && !refused.degraded());
        assert!(matches!(refused.retry_after(), Some(Retry::After(_))));
    }
    link.until_ms(120).await;
    link.admit(6, wait).await;
    link.until_ms(2_000).await;
    let names: Vec<usize> = link.started().iter().map(|(name, _)| *name).collect();
    assert_eq!(names, [0, 1, 2, 6]);
    let at = link.started()[3].1;
    assert!((301..=303).contains(&at), "it started at {at} ms");
}

/// The bound is the deadline of the store, not a lock that others hold.
#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_delays_no_request_beyond_its_deadline() {
    let mut link = Link::new("leaky-bucket 1/ms queue 200", 1, &[], true);
    link.limiter = link.limiter.deadline(MS * 40).on_failure(OnFailure::Closed);
    let wait = Wait::at_most(MS * 100);
    let mut tasks = Vec::new();
    for name in 0..50 {
        tasks.push(link.admit(name, wait).await);
        let limiter = link.limiter.clone();
        tasks.push(tokio::spawn(async move {
            let request = limiter.request("k");
            limiter.acquire_with(&request, wait).await
        }));
    }
    link.until_ms(100).await;
    for task in tasks {
        assert!(task.is_finished());
        match task.await.unwrap() {
            Ok(decision) => assert!(decision.unavailable()),
            Err(error) => assert!(matches!(error, AcquireError::Unavailable), "{error}"),
        }
    }
    assert_eq!(link.limiter.waiting(), 0);
}

/// A store that answers after 60 ms.
fn slow_limiter(limit: Limit) -> Limiter<Arc<LinkStore>> {
    let store = LinkStore {
        memory: paused_store(Instant::now()),
        one_way: MS * 30,
        replies: Mutex::default(),
        hangs: false,
        refunds: true,
    };
    Limiter::with_store(Arc::new(store), limit).deadline(Duration::from_secs(1))
}

#[tokio::test(start_paused = true)]
async fn acquire_ends_with_its_wait_and_what_is_taken_later_is_returned() {
    let quotas = [
        "fixed-window 9/h",
        "sliding-window-log 9/h",
        "9/h",
        "token-bucket 9/h",
        "leaky-bucket 9/h burst 9",
        "leaky-bucket 9/h queue 9",
    ];
    for quota in quotas {
        for others in [0, 2] {
            let limiter = slow_limiter(Limit::named("slow", quota.parse().unwrap()));
            let memory = &limiter.store().memory;
            if others > 0 {
                assert!(memory.decide(&limiter.request("k").cost(others)).allowed());
            }
            let used = || {
                let peek = memory.decide(&limiter.request("k").verb(Verb::Peek));
                peek.limit() - peek.remaining()
            };
            let request = limiter.request("k").cost(3);
            let started = Instant::now();
            // Long enough for the request, not for the reply.
            let outcome = limiter.acquire_with(&request, Wait::at_most(MS * 40)).await;
            let late = matches!(outcome, Err(AcquireError::TooLate { wait }) if wait <= MS * 40);
            assert!(late, "{quota}: {outcome:?}");
            assert_eq!(started.elapsed(), MS * 40, "{quota}");
            assert_eq!(used(), others + 3, "{quota}: the store has decided");
            sleep(MS * 30).await;
            settle().await;
            assert_eq!(used(), others, "{quota}: it is returned");
            assert_eq!(limiter.waiting(), 0);
            let wait = Wait::at_most(Duration::from_secs(3_600));
            assert!(
                limiter.acquire_with(&request, wait).await.is_ok(),
                "{quota}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn acquire_over_a_link_waits_for_room_no_longer_than_allowed() {
    let limiter = slow_limiter("fixed-window 1/s".parse::<Quota>().unwrap().into());
    let memory = &limiter.store().memory;
    assert!(memory.decide(&limiter.request("k")).allowed());
    let peek = memory.decide(&limiter.request("k").verb(Verb::Peek));
    let Some(room) = peek.retry_after().and_then(Retry::duration) else {
        panic!("{peek:?}");
    };
    for (max, fits) in [(room + MS * 30, false), (room + MS * 200, true)] {
        let limiter = slow_limiter(limiter.limits()[0].clone());
        let started = Instant::now();
        assert!(
            limiter
                .store()
                .memory
                .decide(&limiter.request("k"))
                .allowed()
        );
        let request = limiter.request("k");
        let outcome = limiter.acquire_with(&request, Wait::at_most(max)).await;
        assert_eq!(outcome.is_ok(), fits, "{max:?}: {outcome:?}");
        assert!(
            started.elapsed() <= max,
            "{:?} of {max:?}",
            started.elapsed()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn acquire_with_a_store_that_hangs_ends_with_its_wait() {
    let mut link = Link::new("fixed-window 9/h", 1, &[], true);
    link.limiter = link.limiter.deadline(Duration::from_secs(1));
    let mut tasks = Vec::new();
    for ms in [0, 1, 20, 500] {
        let limiter = link.limiter.clone();
        tasks.push(tokio::spawn(async move {
            let started = Instant::now();
            let request = limiter.request("k");
            let outcome = limiter.acquire_with(&request, Wait::at_most(MS * ms)).await;
            assert!(matches!(outcome, Err(AcquireError::TooLate { .. })));
            assert_eq!(started.elapsed(), MS * ms);
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(link.limiter.waiting(), 0);
}
