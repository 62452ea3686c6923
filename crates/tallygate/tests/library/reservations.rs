//! Estimates that are charged first and settled later.

use std::sync::Arc;
use std::time::Duration;

use tallygate::{Decision, Limit, Limiter, Quota, Request, ReserveError, Retry, Verb, Wait};

use crate::fixtures::{MINUTE, SECOND, Store, T0, limiter, remaining_by_limit, store};

const HOUR: u64 = 60 * MINUTE;

fn limiter_of(quota: &str) -> (Arc<tallygate::ManualClock>, Limiter<Arc<Store>>) {
    limiter(quota.parse().unwrap())
}

#[tokio::test]
async fn less_is_returned_as_far_as_it_still_counts_and_more_is_charged() {
    let (clock, limiter) = limiter_of("token-bucket 10/s burst 1000");
    let reservation = limiter.reserve("k", 600).await.unwrap();
    assert_eq!(reservation.decision().remaining(), 400);
    clock.set(T0 + SECOND);
    // 400 less, of which 10 have drained.
    assert_eq!(reservation.settle(200).await.remaining(), 800);
    let reservation = limiter.reserve("k", 600).await.unwrap();
    let settled = reservation.settle(900).await;
    assert_eq!((settled.granted(), settled.remaining()), (300, 0));
    assert!(settled.allowed());
}

#[tokio::test]
async fn a_dropped_reservation_stays_charged() {
    let (_, limiter) = limiter_of("fixed-window 100/h");
    drop(limiter.reserve("k", 60).await.unwrap());
    assert_eq!(limiter.peek("k", 0).remaining(), 40);
    let refused = limiter.reserve("k", 41).await.unwrap_err();
    let ReserveError::Refused(refused) = refused else {
        panic!("{refused}");
    };
    assert!(matches!(
        refused.decision().retry_after(),
        Some(Retry::After(_))
    ));
}

#[tokio::test]
async fn an_admitted_reserve_is_remembered_and_one_that_waits_too_long_is_not() {
    let (_, limiter) = limiter_of("leaky-bucket 10/s queue 10");
    let request = |verb, cost, id| limiter.request("k").verb(verb).cost(cost).id(id);
    for (id, admitted) in [("a", true), ("b", false)] {
        let reserve = request(Verb::Reserve, 5, id);
        let wait = Wait::at_most(Duration::ZERO);
        let decision = limiter.admit(&reserve, wait).await.unwrap();
        assert_eq!(decision.allowed(), admitted, "{id}");
        assert_eq!(limiter.peek("k", 0).remaining(), 5, "{id}");
    }
    for (id, remaining) in [("b", 5), ("a", 9)] {
        let settled = limiter.decide_now(&request(Verb::Settle, 1, id));
        assert_eq!(settled.remaining(), remaining, "{id}");
    }
}

#[tokio::test]
async fn an_id_is_charged_once_and_another_estimate_is_a_conflict() {
    let (_, limiter) = limiter_of("fixed-window 100/h");
    let request = limiter.request("k").id("r1");
    let engine = limiter.engine();
    let first = engine.reserve(&request.clone().cost(30)).await.unwrap();
    let again = engine.reserve(&request.clone().cost(30)).await.unwrap();
    assert_eq!(limiter.peek("k", 0).remaining(), 70);
    match engine.reserve(&request.clone().cost(31)).await {
        Err(ReserveError::Conflict { estimate: 30 }) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(first.settle(10).await.remaining(), 90);
    // The id is forgotten.
    assert_eq!(again.settle(0).await.remaining(), 90);
}

/// A second undo, of a repeated reserve, returns nothing.
#[test]
fn an_undone_reserve_is_forgotten_and_a_repeated_one_took_nothing() {
    for quota in [
        "fixed-window 100/h",
        "token-bucket 1/h burst 100",
        "sliding-window-log 100/h",
        "token-bucket 1/h burst 100 shared",
    ] {
        let (_, limiter) = limiter_of(quota);
        let request = limiter.request("k").member("m").id("r1");
        let reserve = request.verb(Verb::Reserve).cost(30);
        let peek = limiter.request("k").member("m").verb(Verb::Peek).cost(0);
        let remaining = || limiter.decide_now(&peek).remaining();
        let others = limiter.request("k").member("m").cost(50);
        assert!(limiter.decide_now(&others).allowed(), "{quota}");
        let first = limiter.decide_now(&reserve);
        let again = limiter.decide_now(&reserve);
        assert_eq!((again.granted(), remaining()), (30, 20), "{quota}");
        limiter.undo_request(&reserve, &again);
        assert_eq!(remaining(), 20, "{quota}");
        limiter.undo_request(&reserve, &first);
        assert_eq!(remaining(), 50, "{quota}");
        limiter.undo_request(&reserve, &first);
        assert_eq!(remaining(), 50, "{quota}");
        // The id is unknown again.
        assert_eq!(limiter.decide_now(&reserve.clone().cost(10)).granted(), 10);
        assert_eq!(remaining(), 40, "{quota}");
    }
}

#[test]
fn an_id_is_remembered_for_an_hour() {
    let (clock, limiter) = limiter_of("fixed-window 100/d");
    let decide = |verb, cost| -> Decision {
        let request = limiter.request("k").id("r1").verb(verb).cost(cost);
        limiter.decide_now(&request)
    };
    assert_eq!(decide(Verb::Reserve, 30).remaining(), 70);
    clock.set(T0 + HOUR - 1);
    assert_eq!(decide(Verb::Reserve, 30).remaining(), 70);
    clock.set(T0 + HOUR);
    assert_eq!(decide(Verb::Settle, 0).remaining(), 70);
    assert_eq!(decide(Verb::Reserve, 30).remaining(), 40);
}

#[test]
fn each_limit_of_a_request_settles_its_own_cost() {
    let (_, store) = store(100);
    let requests = Limit::named("requests", Quota::fixed_window(10).per_hour());
    let tokens = Limit::named("tokens", Quota::fixed_window(10_000).per_hour());
    let decide = |verb, cost| {
        let request = Request::new("k", &tokens).cost(cost);
        let request = request.and_cost("k", &requests, 1).unwrap();
        store.decide(&request.id("r1").verb(verb))
    };
    let remaining = |decision: &Decision| remaining_by_limit(decision);
    assert_eq!(remaining(&decide(Verb::Reserve, 1_000)), [9_000, 9]);
    assert_eq!(remaining(&decide(Verb::Settle, 812)), [9_188, 9]);
}

#[test]
fn ids_count_as_keys_and_without_a_place_the_estimate_stays_charged() {
    let (_, store) = store(1);
    let limit = Limit::from(Quota::token_bucket(1_000).per_day().burst(1_000_000));
    let mut forgotten = 0;
    for n in 0..2_000 {
        let request = Request::new("k", &limit).id(format!("id{n}"));
        let reserved = store.decide(&request.clone().verb(Verb::Reserve).cost(10));
        assert!(reserved.allowed());
        let before = reserved.remaining();
        if n % 2 == 0 {
            continue;
        }
        let settled = store.decide(&request.verb(Verb::Settle).cost(0));
        let given_back = settled.remaining() - before;
        // Whoever is not remembered is told so.
        assert_eq!(given_back, if reserved.shared() { 0 } else { 10 });
        forgotten += u32::from(reserved.shared());
    }
    assert!(forgotten > 100, "{forgotten}");
}
