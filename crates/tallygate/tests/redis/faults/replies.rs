//! One call goes wrong, at the one moment: whether it was counted is known to the unit.

use std::time::Duration;

use tallygate::{Algorithm, Limit, OnFailure, Quota, Request, Verb};
use tallygate_testkit::poll;
use tallygate_testkit::proxy::{Mode, Proxy};
use tallygate_testkit::redis::Server;

use crate::fixtures::{PATIENCE, UNHARMED, builder, connected, patient, store, used, wait};
use crate::traffic::PLENTY;

/// Sends calls one after another, one of which meets a fault; gives how many of them the store
/// answered, and how many it counted.
fn one_meets(mode: &Mode, batching: bool) -> [u64; 2] {
    let proxy = Proxy::to(UNHARMED.port());
    let store = connected(builder(&proxy.url()).batching(batching));
    let limiter = patient(&store, PLENTY).on_failure(OnFailure::Closed);
    let is_answered = || !wait(limiter.decide(&limiter.request("one"))).degraded();
    assert!((0..10).all(|_| is_answered()));
    proxy.once("EVALSHA", mode.clone());
    assert!(!is_answered(), "{mode:?} went unnoticed");
    assert!(!proxy.is_waiting());
    // It connects again by itself; what finds no connection meanwhile is not sent.
    let mut answered = 10;
    poll::until(PATIENCE, "it connects again", || {
        answered += u64::from(is_answered());
        answered == 30
    });
    [answered, used(&limiter, "one")]
}

#[test]
fn a_call_that_never_arrived_is_not_counted() {
    for batching in [true, false] {
        let [answered, counted] = one_meets(&Mode::ResetBefore, batching);
        assert_eq!(counted, answered);
    }
}

#[test]
fn a_call_that_ran_is_not_sent_again() {
    for mode in [
        Mode::ResetAfter,
        Mode::Cut,
        Mode::Garbage,
        Mode::Answer(b"+OK\r\n".to_vec()),
        Mode::Answer(b"$-1\r\n".to_vec()),
        Mode::Answer(b"$7\r\n1 2 \x09ab\r\n".to_vec()),
        Mode::Answer(b"*1\r\n:1\r\n".to_vec()),
        Mode::Answer(b"+OK\r\n+OK\r\n".to_vec()),
    ] {
        for batching in [true, false] {
            let [answered, counted] = one_meets(&mode, batching);
            assert_eq!(counted, answered + 1, "{mode:?}");
        }
    }
}

#[test]
fn a_call_whose_script_was_lost_is_sent_once_more_and_counted_once() {
    // A server of its own: elsewhere a call must not meet two faults at once.
    let server = Server::start();
    let limiter = patient(&store(&server.url()), PLENTY);
    for counted in 1..=20 {
        server.command(&["SCRIPT", "FLUSH"]);
        let decision = wait(limiter.decide(&limiter.request("lost")));
        assert!(!decision.degraded());
        assert_eq!(used(&limiter, "lost"), counted);
    }
}

#[test]
fn calls_in_one_go_keep_their_order_when_every_script_was_lost() {
    let server = Server::start();
    let store = store(&server.url());
    // Each behaviour has a script of its own, and several together have another.
    let limits: Vec<Limit> = Algorithm::ALL
        .iter()
        .map(|&algorithm| Quota::new(algorithm, 1_000, Duration::from_secs(60)).unwrap())
        .map(Limit::from)
        .collect();
    let mut seen = 0;
    for round in 0..5 {
        server.command(&["SCRIPT", "FLUSH"]);
        let requests: Vec<(Request<'_>, u64)> = (0..60)
            .map(|i| match i % 7 {
                6 => Request::of("order", &limits).unwrap(),
                one => Request::new("order", &limits[one]),
            })
            .map(|request| (request, 1_000_000_000 + round))
            .collect();
        for decision in wait(store.decide_many_at(&requests)).unwrap() {
            assert!(decision.allowed());
            seen += decision.verdicts().len();
        }
    }
    let left: u32 = limits
        .iter()
        .map(|limit| Request::new("order", limit).verb(Verb::Peek))
        .map(|peek| wait(store.decide_at(&peek, 1_000_000_005)).unwrap())
        .map(|decision| decision.limit() - decision.remaining())
        .sum();
    assert_eq!(usize::try_from(left).unwrap(), seen);
}
