//! Undo by the servers' clocks, in the background.

use std::time::Duration;

use tallygate::{Algorithm, Decision, Limit, Limiter, Quota, RedisStore, Request, Verb};
use tallygate_testkit::poll;
use tallygate_testkit::proxy::{Mode, Proxy};
use tallygate_testkit::redis::Cluster;

use crate::fixtures::{
    HEALTHY, LONG_DEADLINE, TIMEOUT, block_on, builder, connected, namespace, patient_limiter,
    runtime, store, used,
};

/// A limit of each algorithm; nothing drains or expires within a test.
fn limits() -> Vec<Limit> {
    let quota = |&algorithm: &Algorithm| {
        let quota = Quota::new(algorithm, 20, Duration::from_secs(86_400)).unwrap();
        Limit::named(algorithm.behaviour(), quota)
    };
    Algorithm::ALL.iter().map(quota).collect()
}

fn undo(limiter: &Limiter<RedisStore>, request: &Request<'_>, decision: &Decision) {
    runtime().block_on(async { limiter.undo(request, decision) });
}

/// The remaining units of each limit of a request.
#[track_caller]
fn left(limiter: &Limiter<RedisStore>, request: &Request<'_>) -> Vec<u32> {
    let peek = block_on(limiter.decide(&request.clone().verb(Verb::Peek).cost(1)));
    assert!(!peek.degraded(), "the store fails");
    peek.verdicts().iter().map(|v| v.remaining).collect()
}

#[test]
fn a_request_is_undone_by_the_servers_clock() {
    let store = store(&HEALTHY.url());
    let limits = limits();
    let limiter = Limiter::with_store(store, limits[0].clone()).deadline(LONG_DEADLINE);
    let request = Request::with_limits("a", &limits).unwrap().cost(4);
    let kept = block_on(limiter.decide(&request.clone().cost(3)));
    let decision = block_on(limiter.decide(&request));
    assert!(kept.allowed() && decision.allowed());
    assert_eq!(left(&limiter, &request), [13; 6]);
    let some = Request::with_limits("a", &limits[..4]).unwrap().cost(4);
    undo(&limiter, &some, &decision);
    poll::until(TIMEOUT, "some of it is undone", || {
        left(&limiter, &request)[..4] == [17; 4]
    });
    assert_eq!(left(&limiter, &request)[4..], [13; 2]);
}

/// Each server has its own clock, and a log entry is undone by its exact microsecond.
#[test]
fn limits_in_different_slots_are_undone_at_their_own_times() {
    let cluster = Cluster::start();
    let store = connected(builder(&cluster.url()));
    let limits = limits();
    let limiter = Limiter::with_store(store, limits[0].clone()).deadline(LONG_DEADLINE);
    for _ in 0..5 {
        let key = namespace();
        let mut request = Request::with_limits(key.clone(), &limits).unwrap();
        for other in ["b", "c", "d"] {
            for limit in &limits {
                request = request.and(format!("{key}{other}"), limit).unwrap();
            }
        }
        let request = request.cost(4);
        let decision = block_on(limiter.decide(&request));
        assert!(decision.allowed());
        assert_eq!(left(&limiter, &request), [16; 24]);
        undo(&limiter, &request, &decision);
        poll::until(TIMEOUT, "all of it is undone", || {
            left(&limiter, &request) == [20; 24]
        });
    }
}

/// One of two requests is undone and the reply is lost: the other request stays counted.
#[test]
fn an_undo_with_a_lost_reply_is_not_repeated() {
    for mode in [Mode::ResetAfter, Mode::Garbage] {
        let proxy = Proxy::to(HEALTHY.port());
        let store = connected(builder(&proxy.url()));
        let limiter = patient_limiter(&store, "fixed-window 20/d");
        let request = limiter.request("lost").cost(4);
        let decisions = [0, 1].map(|_| block_on(limiter.decide(&request)));
        proxy.once("EVALSHA", mode.clone());
        undo(&limiter, &request, &decisions[0]);
        poll::until(TIMEOUT, "the undo is sent", || !proxy.is_waiting());
        let answers = || !block_on(limiter.decide(&request.clone().verb(Verb::Peek))).degraded();
        poll::until(TIMEOUT, "it reconnects", answers);
        assert_eq!(used(&limiter, "lost"), 4, "{mode:?}");
    }
}

#[test]
fn an_undo_that_never_arrives_refunds_nothing() {
    let proxy = Proxy::to(HEALTHY.port());
    let store = connected(builder(&proxy.url()));
    let limiter = patient_limiter(&store, "fixed-window 20/d");
    let request = limiter.request("never").cost(4);
    let decision = block_on(limiter.decide(&request));
    proxy.once("EVALSHA", Mode::ResetBefore);
    undo(&limiter, &request, &decision);
    poll::until(TIMEOUT, "the undo is sent", || !proxy.is_waiting());
    let answers = || !block_on(limiter.decide(&request.clone().verb(Verb::Peek))).degraded();
    poll::until(TIMEOUT, "it reconnects", answers);
    assert_eq!(used(&limiter, "never"), 4);
    // One from a thread without a runtime is sent.
    limiter.undo(&request, &decision);
    poll::until(TIMEOUT, "the undo runs", || used(&limiter, "never") == 0);
}

/// An undo on a log reaches its newest 256 entries.
#[test]
fn an_entry_older_than_the_newest_256_stays_charged() {
    let limit = Limit::from("sliding-window-log 2000/h".parse::<Quota>().unwrap());
    let start = 1_700_000_000_000_000;
    let store = store(&HEALTHY.url());
    for (depth, reached) in [(1, true), (255, true), (256, true), (257, false)] {
        let request = Request::new(depth.to_string(), &limit).cost(2);
        let decide = |i: u64| block_on(store.decide_at(&request, start + i)).unwrap();
        let decisions: Vec<Decision> = (0..300).map(decide).collect();
        let undone = &decisions[300 - depth];
        block_on(store.undo_at(&request, undone, start + 300)).unwrap();
        let peek = request.clone().verb(Verb::Peek);
        let peek = block_on(store.decide_at(&peek, start + 300)).unwrap();
        let used = if reached { 598 } else { 600 };
        assert_eq!(2_000 - peek.remaining(), used, "depth {depth}");
    }
}
