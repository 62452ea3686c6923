//! `undo`: which units are returned and which are not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;

use tallygate::{
    Decision, Limit, Limiter, ManualClock, MemoryStore, Quota, Request, Store as AnyStore,
    StoreError, Verb,
};

use crate::conformance::{self, TestStore, UndoStore};
use crate::fixtures::{
    self, MINUTE, Store, T0, limiter, quotas_per_minute, remaining_by_limit, store,
};

/// The store with supplied times.
struct SuppliedTime(Arc<Store>);

impl TestStore for SuppliedTime {
    fn decide(&mut self, request: &Request<'_>, now_us: u64) -> Decision {
        self.0.decide_at(request, now_us)
    }
}

impl UndoStore for SuppliedTime {
    fn undo(&mut self, request: &Request<'_>, decision: &Decision, now_us: u64) {
        self.0.undo_at(request, decision, now_us);
    }
}

/// A limiter on a clock that is set before each request.
struct SetClock {
    clock: Arc<ManualClock>,
    limiter: Limiter<Arc<Store>>,
}

impl TestStore for SetClock {
    fn decide(&mut self, request: &Request<'_>, now_us: u64) -> Decision {
        self.clock.set(now_us);
        let mut decisions = self.limiter.decide_many(std::slice::from_ref(request));
        decisions.pop().unwrap()
    }
}

impl UndoStore for SetClock {
    fn undo(&mut self, request: &Request<'_>, decision: &Decision, now_us: u64) {
        self.clock.set(now_us);
        self.limiter.undo_request(request, decision);
    }
}

#[test]
fn the_store_undoes_exactly() {
    conformance::undone_decisions_restore_the_counters(|| SuppliedTime(store(1_000).1));
}

#[test]
fn a_store_without_spare_slots_undoes_exactly() {
    conformance::undone_decisions_restore_the_counters(|| SuppliedTime(store(360).1));
}

#[test]
fn a_limiter_on_a_manual_clock_undoes_exactly() {
    conformance::undone_decisions_restore_the_counters(|| {
        let (clock, limiter) = limiter(Quota::per_second(1));
        SetClock { clock, limiter }
    });
}

#[test]
fn an_entry_older_than_the_newest_256_stays_charged() {
    conformance::an_undo_reaches_the_newest_256_entries_of_a_log(|| SuppliedTime(store(1_000).1));
}

#[test]
fn every_method_of_a_limiter_can_be_undone() {
    for quota in quotas_per_minute(10) {
        let (_, limiter) = limiter(quota);
        let request = limiter.request("a");
        let calls = [
            (limiter.check("a"), request.clone()),
            (limiter.check_cost("a", 2), request.clone().cost(2)),
            (limiter.take("a", 3), request.clone().cost(3)),
            (limiter.charge("a", 50), request.clone().cost(50)),
            (
                limiter.check_many(["a", "b"]).swap_remove(1),
                limiter.request("b"),
            ),
        ];
        for (decision, request) in &calls {
            limiter.undo_request(request, decision);
        }
        assert_eq!(limiter.peek("a", 1).remaining(), 10, "{quota}");
        assert_eq!(limiter.peek("b", 1).remaining(), 10, "{quota}");
        assert_eq!(limiter.store().live_keys(), 0, "{quota}");
    }
}

#[test]
fn undoing_a_take_returns_the_granted_units() {
    for quota in quotas_per_minute(10) {
        let (_, limiter) = limiter(quota);
        assert!(limiter.check_cost("a", 7).allowed());
        let request = limiter.request("a").verb(Verb::Take).cost(100);
        let decision = limiter.decide_now(&request);
        assert_eq!(decision.granted(), 3);
        limiter.undo_request(&request, &decision);
        assert_eq!(limiter.peek("a", 1).remaining(), 3, "{quota}");
    }
}

/// Unlike a refund.
#[test]
fn units_are_not_returned_to_a_later_window() {
    for text in ["fixed-window 10/min", "sliding-window-log 10/min", "10/min"] {
        let (clock, limiter) = limiter(text.parse().unwrap());
        let request = limiter.request("a").cost(4);
        let decision = limiter.decide_now(&request);
        clock.set(T0 + 2 * MINUTE);
        assert!(limiter.check_cost("a", 9).allowed());
        limiter.undo_request(&request, &decision);
        assert_eq!(limiter.peek("a", 1).remaining(), 1, "{text}");
    }
}

#[test]
fn some_limits_of_a_request_are_undone_and_the_others_count() {
    let limits = quotas_per_minute(10).map(|quota| Limit::named(quota.to_string(), quota));
    let (_, store) = store(100);
    let limiter = Limiter::with_store(store, limits[0].clone());
    let request = Request::with_limits("a", &limits).unwrap().cost(4);
    let decision = limiter.decide_now(&request);
    let some = Request::with_limits("a", limits.iter().skip(1).step_by(2)).unwrap();
    limiter.undo_request(&some.cost(4), &decision);
    let after = limiter.decide_now(&request.verb(Verb::Peek));
    let remaining = remaining_by_limit(&after);
    assert_eq!(remaining, [6, 10, 6, 10, 6, 10]);
}

#[test]
fn limits_with_their_own_costs_are_returned_those() {
    let requests = Limit::named("requests", Quota::per_minute(60));
    let tokens = Limit::named("tokens", Quota::per_minute(10_000));
    let (_, store) = store(100);
    let limiter = Limiter::with_store(store, requests.clone());
    let request = Request::new("a", &requests);
    let request = request.and_cost("a", &tokens, 1_200).unwrap();
    let decision = limiter.decide_now(&request);
    assert_eq!(
        limiter.with_limit(tokens.clone()).peek("a", 1).remaining(),
        8_800
    );
    limiter.undo_request(&request, &decision);
    assert_eq!(limiter.peek("a", 1).remaining(), 60);
    assert_eq!(
        limiter.with_limit(tokens.clone()).peek("a", 1).remaining(),
        10_000
    );
}

#[test]
fn undo_returns_at_most_what_was_taken() {
    for quota in quotas_per_minute(10) {
        let (_, limiter) = limiter(quota);
        assert!(limiter.check_cost("a", 5).allowed());
        let decision = limiter.check_cost("a", 2);
        limiter.undo_request(&limiter.request("a").cost(9), &decision);
        assert_eq!(limiter.peek("a", 1).remaining(), 5, "{quota}");
    }
}

#[test]
fn a_decision_that_took_nothing_returns_nothing() {
    for quota in quotas_per_minute(10) {
        let (_, limiter) = limiter(quota);
        assert!(limiter.check_cost("a", 8).allowed());
        let request = limiter.request("a").cost(5);
        for verb in [Verb::Check, Verb::Peek, Verb::Refund, Verb::Reset] {
            if verb == Verb::Refund {
                assert!(limiter.check_cost("a", 2).allowed());
            }
            let request = request.clone().verb(verb);
            let decision = limiter.decide_now(&request);
            let before = limiter.peek("a", 1).remaining();
            limiter.undo_request(&request, &decision);
            assert_eq!(limiter.peek("a", 1).remaining(), before, "{quota} {verb}");
        }
    }
}

#[test]
fn nothing_is_undone_on_a_shared_budget() {
    for quota in quotas_per_minute(10) {
        let (_, store) = store(1);
        let limiter = Limiter::with_store(store, quota);
        let keys: Vec<String> = (0..2_000).map(|key| key.to_string()).collect();
        let decisions: Vec<Decision> = keys.iter().map(|key| limiter.check(key)).collect();
        let remaining = |key: &String| limiter.peek(key, 1).remaining();
        let mut shared = 0;
        for (key, decision) in keys.iter().zip(&decisions) {
            let before = remaining(key);
            limiter.undo_request(&limiter.request(key), decision);
            let after = remaining(key);
            if decision.shared() {
                shared += 1;
                assert_eq!(after, before, "{quota}");
            } else {
                assert!(after <= 10, "{quota}");
            }
        }
        assert!(shared > 100, "{quota}: only {shared} were shared");
    }
}

/// Threads take from two limits and undo it: the limits always agree.
#[test]
fn undoing_is_atomic_over_all_limits() {
    const THREADS: u32 = 4;
    let log: Quota = "sliding-window-log 8/min".parse().unwrap();
    let bucket: Quota = "token-bucket 8/min".parse().unwrap();
    let (_, store) = store(100);
    let limiter = Limiter::with_store(store, log).and(bucket).unwrap();
    let kept = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for i in 0..2_000 {
                    let request = limiter.request("a").cost(2);
                    let decision = limiter.decide_now(&request);
                    let peek = limiter.decide_now(&request.clone().verb(Verb::Peek));
                    let remaining = remaining_by_limit(&peek);
                    assert_eq!(remaining[0], remaining[1]);
                    if decision.allowed() && i == 1_000 && kept.fetch_add(1, Relaxed) < 2 {
                        continue;
                    }
                    limiter.undo_request(&request, &decision);
                }
            });
        }
    });
    let kept = kept.into_inner().min(2);
    assert_eq!(limiter.peek("a", 1).remaining(), 8 - 2 * kept);
}

/// A store that fails and counts the calls of `undo`.
#[derive(Default)]
struct FailingStore(AtomicU32);

impl AnyStore for FailingStore {
    async fn decide(&self, _: &Request<'_>) -> Result<Decision, StoreError> {
        Err(StoreError::new("down"))
    }

    fn submit(&self, _: &Request<'_>) {}

    fn undo(&self, _: &Request<'_>, _: &Decision) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[tokio::test]
async fn a_degraded_decision_is_not_undone_in_the_store() {
    use tallygate::{OnFailure, Replicas};
    let fixed = Replicas::Fixed(1.try_into().unwrap());
    for policy in [OnFailure::Open, OnFailure::Closed, OnFailure::Local(fixed)] {
        let limiter = Limiter::with_store(FailingStore::default(), Quota::per_minute(10));
        let limiter = limiter.on_failure(policy);
        let request = limiter.request("a");
        let decision = limiter.decide(&request).await;
        assert!(decision.degraded());
        limiter.undo_request(&request, &decision);
        assert_eq!(limiter.store().0.load(Relaxed), 0, "{policy:?}");
    }
}

/// The maximum cost, unknown keys, decisions of another store.
#[test]
fn invalid_undos_are_harmless() {
    for quota in quotas_per_minute(10) {
        let (_, limiter) = limiter(quota);
        let (_, other) = fixtures::limiter(quota);
        assert!(limiter.check_cost("a", 3).allowed());
        let request = limiter.request("a").cost(u32::MAX);
        limiter.undo_request(&limiter.request("b"), &other.check("b"));
        limiter.undo_request(&request, &Decision::from(Vec::new()));
        let forged = other.check("a");
        let forged = Decision::from(forged.verdicts().to_vec());
        limiter.undo_request(&request, &forged);
        assert_eq!(limiter.peek("a", 1).remaining(), 7, "{quota}");
        assert_eq!(limiter.peek("b", 1).remaining(), 10, "{quota}");
        assert_eq!(limiter.store().live_keys(), 1, "{quota}");
    }
    let empty = Arc::new(MemoryStore::new());
    let limit = Limit::from(Quota::per_minute(1));
    let taken = MemoryStore::new().decide(&Request::new("a", &limit));
    empty.undo(&Request::new("a", &limit), &taken);
}
