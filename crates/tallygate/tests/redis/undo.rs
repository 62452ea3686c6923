//! Undo by the servers' clocks, in the background.

use std::time::{Duration, Instant};

use tallygate::{
    AcquireError, Algorithm, Decision, Limit, Limiter, Quota, RedisStore, Request, Verb, Wait,
};
use tallygate_testkit::poll;
use tallygate_testkit::proxy::{Mode, Proxy};
use tallygate_testkit::redis::{Cluster, Server};

use crate::fixtures::{
    HEALTHY, LONG_DEADLINE, TIMEOUT, block_on, builder, calls, connected, namespace,
    patient_limiter, runtime, store, used,
};

/// A limit of each algorithm; nothing drains or expires within a test.
fn limits() -> Vec<Limit> {
    let quota = |&algorithm: &Algorithm| {
        let quota = Quota::new(algorithm, 20, Duration::from_secs(86_400)).unwrap();
        Limit::named(algorithm.behaviour(), quota)
    };
    Algorithm::BASIC.iter().map(quota).collect()
}

fn undo(limiter: &Limiter<RedisStore>, request: &Request<'_>, decision: &Decision) {
    runtime().block_on(async { limiter.undo_request(request, decision) });
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
    limiter.undo_request(&request, &decision);
    poll::until(TIMEOUT, "the undo runs", || used(&limiter, "never") == 0);
}

#[test]
fn what_the_server_takes_after_an_acquire_has_given_up_is_returned() {
    let server = Server::start();
    for quota in ["fixed-window 20/d", "leaky-bucket 20/d queue 20"] {
        let proxy = Proxy::to(server.port());
        let store = connected(builder(&proxy.url()));
        let limiter = patient_limiter(&store, quota);
        assert_eq!(used(&limiter, "late"), 0);
        proxy.set(Mode::Delay(Duration::from_millis(150)));
        let before = calls(&server, "evalsha");
        let wait = Duration::from_millis(50);
        let started = Instant::now();
        let outcome = block_on(async {
            let request = limiter.request("late").cost(4);
            limiter.acquire_with(&request, Wait::at_most(wait)).await
        });
        assert!(matches!(outcome, Err(AcquireError::TooLate { .. })));
        assert!(started.elapsed() < 20 * wait);
        poll::until(TIMEOUT, "it is taken and returned", || {
            calls(&server, "evalsha") == before + 2
        });
        assert_eq!(used(&limiter, "late"), 0);
        assert_eq!(limiter.waiting(), 0);
    }
}
