//! Requests undone on the servers' own clocks, without anybody waiting for it.

use std::time::Duration;

use tallygate::{Algorithm, Decision, Limit, Limiter, Quota, RedisStore, Request, Verb};
use tallygate_testkit::poll;
use tallygate_testkit::proxy::{Mode, Proxy};
use tallygate_testkit::redis::Cluster;

use crate::fixtures::{
    LONG, PATIENCE, UNHARMED, builder, connected, namespace, patient, runtime, store, used, wait,
};

/// A limit of each behaviour; a day is so long that nothing drains or ends meanwhile.
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

/// What is left of each limit of a request.
#[track_caller]
fn left(limiter: &Limiter<RedisStore>, request: &Request<'_>) -> Vec<u32> {
    let peek = wait(limiter.decide(&request.clone().verb(Verb::Peek).cost(1)));
    assert!(!peek.degraded(), "the store does not answer");
    peek.verdicts().iter().map(|v| v.remaining).collect()
}

#[test]
fn a_request_is_undone_on_the_servers_clock() {
    let store = store(&UNHARMED.url());
    let limits = limits();
    let limiter = Limiter::over(store, limits[0].clone()).deadline(LONG);
    let request = Request::of("a", &limits).unwrap().cost(4);
    let kept = wait(limiter.decide(&request.clone().cost(3)));
    let decision = wait(limiter.decide(&request));
    assert!(kept.allowed() && decision.allowed());
    assert_eq!(left(&limiter, &request), [13; 6]);
    let some = Request::of("a", &limits[..4]).unwrap().cost(4);
    undo(&limiter, &some, &decision);
    poll::until(PATIENCE, "some of it is undone", || {
        left(&limiter, &request)[..4] == [17; 4]
    });
    assert_eq!(left(&limiter, &request)[4..], [13; 2]);
}

/// Each server has a clock of its own, and a log is undone as of the very microsecond.
#[test]
fn limits_in_different_slots_are_each_undone_as_of_their_own_moment() {
    let cluster = Cluster::start();
    let store = connected(builder(&cluster.url()));
    let limits = limits();
    let limiter = Limiter::over(store, limits[0].clone()).deadline(LONG);
    for _ in 0..5 {
        let key = namespace();
        let mut request = Request::of(key.clone(), &limits).unwrap();
        for other in ["b", "c", "d"] {
            for limit in &limits {
                request = request.and(format!("{key}{other}"), limit).unwrap();
            }
        }
        let request = request.cost(4);
        let decision = wait(limiter.decide(&request));
        assert!(decision.allowed());
        assert_eq!(left(&limiter, &request), [16; 24]);
        undo(&limiter, &request, &decision);
        poll::until(PATIENCE, "all of it is undone", || {
            left(&limiter, &request) == [20; 24]
        });
    }
}

/// Of two requests one is undone, and the answer is lost: the other one stays.
#[test]
fn an_undo_whose_answer_is_lost_is_not_sent_again() {
    for mode in [Mode::ResetAfter, Mode::Garbage] {
        let proxy = Proxy::to(UNHARMED.port());
        let store = connected(builder(&proxy.url()));
        let limiter = patient(&store, "fixed-window 20/d");
        let request = limiter.request("lost").cost(4);
        let decisions = [0, 1].map(|_| wait(limiter.decide(&request)));
        proxy.once("EVALSHA", mode.clone());
        undo(&limiter, &request, &decisions[0]);
        poll::until(PATIENCE, "the undo is sent", || !proxy.is_waiting());
        let answers = || !wait(limiter.decide(&request.clone().verb(Verb::Peek))).degraded();
        poll::until(PATIENCE, "it connects again", answers);
        assert_eq!(used(&limiter, "lost"), 4, "{mode:?}");
    }
}

#[test]
fn an_undo_that_never_arrives_gives_nothing_back() {
    let proxy = Proxy::to(UNHARMED.port());
    let store = connected(builder(&proxy.url()));
    let limiter = patient(&store, "fixed-window 20/d");
    let request = limiter.request("never").cost(4);
    let decision = wait(limiter.decide(&request));
    proxy.once("EVALSHA", Mode::ResetBefore);
    undo(&limiter, &request, &decision);
    poll::until(PATIENCE, "the undo is sent", || !proxy.is_waiting());
    let answers = || !wait(limiter.decide(&request.clone().verb(Verb::Peek))).degraded();
    poll::until(PATIENCE, "it connects again", answers);
    assert_eq!(used(&limiter, "never"), 4);
    // Nor does one without a runtime to send it on.
    limiter.undo(&request, &decision);
    assert_eq!(used(&limiter, "never"), 4);
}
