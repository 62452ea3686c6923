//! A rule in shadow counts and refuses nobody.

use tallygate::Quota;
use tallygate::http::Outcome;
use tallygate::rules::{Missing, Rule};
use tallygate::tower::RateLimitLayer;

use crate::support::{call, from, header, manual};

#[tokio::test]
async fn what_it_would_refuse_passes_and_is_seen() {
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let heard = std::sync::Arc::clone(&seen);
    let (_, store) = manual();
    let layer = RateLimitLayer::with_store(store, Rule::new("new", Quota::per_hour(1)).shadow())
        .on_decision(move |enforcement, _| {
            heard
                .lock()
                .unwrap()
                .extend(enforcement.outcomes().map(|(_, outcome)| outcome));
        });
    for _ in 0..3 {
        let response = call(&layer, from("192.0.2.1")).await;
        assert_eq!(response.status(), 200);
        assert_eq!(
            header(&response, "ratelimit"),
            None,
            "clients hear nothing of it"
        );
    }
    let expected = [
        Outcome::Admitted,
        Outcome::ShadowRefused,
        Outcome::ShadowRefused,
    ];
    assert_eq!(*seen.lock().unwrap(), expected);
}

#[tokio::test]
async fn it_is_asked_only_what_the_others_let_through() {
    let (_, store) = manual();
    let layer = RateLimitLayer::with_store(store, Rule::new("old", Quota::per_hour(1)))
        .and(Rule::new("new", Quota::per_hour(2)).shadow());
    for _ in 0..5 {
        call(&layer, from("192.0.2.1")).await;
    }
    // One passed: the rule in shadow has counted one.
    let limiter = layer.engine();
    let limit = tallygate::Limit::named("new sliding-window-counter/h", Quota::per_hour(2));
    let peek = tallygate::Request::new("all", &limit).verb(tallygate::Verb::Peek);
    assert_eq!(limiter.decide(&peek).await.remaining(), 1);
}

#[tokio::test]
async fn a_missing_key_stops_nobody() {
    let (_, store) = manual();
    let rule = Rule::new("new", Quota::per_hour(1))
        .by_header("x-user")
        .missing(Missing::Refuse);
    let layer = RateLimitLayer::with_store(store, rule.shadow());
    assert_eq!(call(&layer, from("192.0.2.1")).await.status(), 200);
}

#[tokio::test]
async fn by_itself_over_redis_it_counts_too() {
    let server = tallygate_testkit::redis::Server::start();
    let store = tallygate::RedisStore::connect(&server.url()).await.unwrap();
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let heard = std::sync::Arc::clone(&seen);
    let patient = std::time::Duration::from_secs(10);
    let rule = Rule::new("new", Quota::per_hour(1)).deadline(patient);
    let layer =
        RateLimitLayer::with_store(store, rule.shadow()).on_decision(move |enforcement, _| {
            let outcomes = enforcement.outcomes().map(|(_, outcome)| outcome);
            heard.lock().unwrap().extend(outcomes);
        });
    for _ in 0..3 {
        assert_eq!(call(&layer, from("192.0.2.1")).await.status(), 200);
    }
    let expected = [
        Outcome::Admitted,
        Outcome::ShadowRefused,
        Outcome::ShadowRefused,
    ];
    assert_eq!(*seen.lock().unwrap(), expected);
}

#[tokio::test]
async fn it_takes_no_room_from_rules_that_enforce() {
    let (_, store) = manual();
    let mut layer =
        RateLimitLayer::with_store(store, Rule::new("0", Quota::per_hour(1_000)).shadow());
    for i in 1..64 {
        layer = layer.and(Rule::new(i.to_string(), Quota::per_hour(1_000)).shadow());
    }
    let layer = layer.and(Rule::new("login", Quota::per_hour(1)));
    assert_eq!(call(&layer, from("192.0.2.1")).await.status(), 200);
    assert_eq!(call(&layer, from("192.0.2.1")).await.status(), 429);
}
