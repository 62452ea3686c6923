//! A fault in exactly one call: whether it was counted is known.

use std::time::Duration;

use tallygate::{Algorithm, Limit, OnFailure, Quota, Request, Verb};
use tallygate_testkit::poll;
use tallygate_testkit::proxy::{Mode, Proxy};
use tallygate_testkit::redis::{Flavour, Server};

use crate::fixtures::{
    HEALTHY, TIMEOUT, block_on, builder, connected, patient_limiter, store, used,
};
use crate::traffic::LARGE_QUOTA;

/// Sends calls in sequence, one of them with a fault; returns how many the store decided and how
/// many it counted.
fn with_one_fault(mode: &Mode, batching: bool) -> [u64; 2] {
    let proxy = Proxy::to(HEALTHY.port());
    let store = connected(builder(&proxy.url()).batching(batching));
    let limiter = patient_limiter(&store, LARGE_QUOTA).on_failure(OnFailure::Closed);
    let is_answered = || !block_on(limiter.decide(&limiter.request("one"))).degraded();
    assert!((0..10).all(|_| is_answered()));
    proxy.once("EVALSHA", mode.clone());
    assert!(!is_answered(), "{mode:?} went unnoticed");
    assert!(!proxy.is_waiting());
    // It reconnects; calls without a connection meanwhile are not sent.
    let mut answered = 10;
    poll::until(TIMEOUT, "it reconnects", || {
        answered += u64::from(is_answered());
        answered == 30
    });
    [answered, used(&limiter, "one")]
}

#[test]
fn a_call_that_never_arrived_is_not_counted() {
    for batching in [true, false] {
        let [answered, counted] = with_one_fault(&Mode::ResetBefore, batching);
        assert_eq!(counted, answered);
    }
}

#[test]
fn a_call_that_ran_is_not_repeated() {
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
            let [answered, counted] = with_one_fault(&mode, batching);
            assert_eq!(counted, answered + 1, "{mode:?}");
        }
    }
}

#[test]
fn a_call_with_a_missing_script_is_repeated_and_counted_once() {
    // Its own server: other tests must not see a second fault.
    let server = Server::start();
    let limiter = patient_limiter(&store(&server.url()), LARGE_QUOTA);
    for counted in 1..=20 {
        server.command(&["SCRIPT", "FLUSH"]);
        let decision = block_on(limiter.decide(&limiter.request("lost")));
        assert!(!decision.degraded());
        assert_eq!(used(&limiter, "lost"), counted);
    }
}

/// Newer servers evict scripts that came by `EVAL` when there are more than 500.
#[test]
fn scripts_of_other_clients_do_not_evict_ours() {
    let server = Server::start_as(Flavour::Valkey, &[]);
    let limiter = patient_limiter(&store(&server.url()), LARGE_QUOTA);
    let decide = || {
        let decision = block_on(limiter.decide(&limiter.request("kept")));
        assert!(!decision.degraded());
    };
    decide();
    let missing = server.info("errorstat_NOSCRIPT");
    for i in 0..600 {
        server.command(&["EVAL", &format!("return {i}"), "0"]);
    }
    let evicted = server.info("evicted_scripts").unwrap();
    assert!(evicted.parse::<u32>().unwrap() > 0);
    decide();
    assert_eq!(server.info("errorstat_NOSCRIPT"), missing);
}

#[test]
fn a_batch_keeps_its_order_when_all_scripts_are_missing() {
    let server = Server::start();
    let store = store(&server.url());
    // Each combination of algorithms has its own script.
    let limits: Vec<Limit> = Algorithm::BASIC
        .iter()
        .map(|&algorithm| Quota::new(algorithm, 1_000, Duration::from_secs(60)).unwrap())
        .map(Limit::from)
        .collect();
    let mut seen = 0;
    for round in 0..5 {
        server.command(&["SCRIPT", "FLUSH"]);
        let requests: Vec<(Request<'_>, u64)> = (0..60)
            .map(|i| match i % 7 {
                6 => Request::with_limits("order", &limits).unwrap(),
                one => Request::new("order", &limits[one]),
            })
            .map(|request| (request, 1_000_000_000 + round))
            .collect();
        for decision in block_on(store.decide_many_at(&requests)).unwrap() {
            assert!(decision.allowed());
            seen += decision.verdicts().len();
        }
    }
    let left: u32 = limits
        .iter()
        .map(|limit| Request::new("order", limit).verb(Verb::Peek))
        .map(|peek| block_on(store.decide_at(&peek, 1_000_000_005)).unwrap())
        .map(|decision| decision.limit() - decision.remaining())
        .sum();
    assert_eq!(usize::try_from(left).unwrap(), seen);
}
