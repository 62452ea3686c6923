//! Shadow rules count and never refuse.

use tallygate::Quota;
use tallygate::http::Outcome;
use tallygate::rules::{Missing, Rule};
use tallygate::tower::RateLimitLayer;

use crate::support::{assert_outcomes, call, from, header, manual_store, record_outcomes};

/// The outcomes of three requests to a shadow rule with a limit of 1.
const ONE_ADMITTED: [(&str, Outcome); 3] = [
    ("new", Outcome::Admitted),
    ("new", Outcome::ShadowRefused),
    ("new", Outcome::ShadowRefused),
];

#[tokio::test]
async fn a_shadow_refusal_is_admitted_and_reported() {
    let (_, store) = manual_store();
    let rule = Rule::new("new", Quota::per_hour(1)).shadow();
    let (layer, outcomes) = record_outcomes(RateLimitLayer::with_store(store, rule));
    for _ in 0..3 {
        let response = call(&layer, from("192.0.2.1")).await;
        assert_eq!(response.status(), 200);
        assert_eq!(
            header(&response, "ratelimit"),
            None,
            "a shadow rule sends no headers"
        );
    }
    assert_outcomes(&outcomes, &ONE_ADMITTED);
}

#[tokio::test]
async fn a_shadow_rule_counts_only_requests_that_are_admitted() {
    let (_, store) = manual_store();
    let layer = RateLimitLayer::with_store(store, Rule::new("old", Quota::per_hour(1)))
        .and(Rule::new("new", Quota::per_hour(2)).shadow());
    for _ in 0..5 {
        call(&layer, from("192.0.2.1")).await;
    }
    // One was admitted, so the shadow rule has counted one.
    let limiter = layer.engine();
    let limit = tallygate::Limit::named("new sliding-window-counter/h", Quota::per_hour(2));
    let peek = tallygate::Request::new("all", &limit).verb(tallygate::Verb::Peek);
    assert_eq!(limiter.decide(&peek).await.remaining(), 1);
}

#[tokio::test]
async fn a_shadow_rule_admits_requests_without_its_key() {
    let (_, store) = manual_store();
    let rule = Rule::new("new", Quota::per_hour(1))
        .by_header("x-user")
        .missing(Missing::Refuse);
    let layer = RateLimitLayer::with_store(store, rule.shadow());
    assert_eq!(call(&layer, from("192.0.2.1")).await.status(), 200);
}

#[tokio::test]
async fn a_single_shadow_rule_counts_in_redis() {
    let server = tallygate_testkit::redis::Server::start();
    let store = tallygate::RedisStore::connect(&server.url()).await.unwrap();
    let deadline = std::time::Duration::from_secs(10);
    let rule = Rule::new("new", Quota::per_hour(1)).deadline(deadline);
    let (layer, outcomes) = record_outcomes(RateLimitLayer::with_store(store, rule.shadow()));
    for _ in 0..3 {
        assert_eq!(call(&layer, from("192.0.2.1")).await.status(), 200);
    }
    assert_outcomes(&outcomes, &ONE_ADMITTED);
}

#[tokio::test]
async fn shadow_rules_take_no_room_from_enforced_rules() {
    let (_, store) = manual_store();
    let mut layer =
        RateLimitLayer::with_store(store, Rule::new("0", Quota::per_hour(1_000)).shadow());
    for i in 1..64 {
        layer = layer.and(Rule::new(i.to_string(), Quota::per_hour(1_000)).shadow());
    }
    let layer = layer.and(Rule::new("login", Quota::per_hour(1)));
    assert_eq!(call(&layer, from("192.0.2.1")).await.status(), 200);
    assert_eq!(call(&layer, from("192.0.2.1")).await.status(), 429);
}
