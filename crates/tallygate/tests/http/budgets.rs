//! Rules that spend one budget.

use http::StatusCode;
use tallygate::Quota;
use tallygate::http::Outcome;
use tallygate::rules::{Rule, RuleSet, RuleSetError, Rules};
use tallygate::tower::RateLimitLayer;

use crate::support::{
    assert_outcomes, call, call_with_status, from, header, manual_store, record_outcomes, with,
};

fn quota(text: &str) -> Quota {
    text.parse().unwrap()
}

/// A rule of budget `api`, by address.
fn spends(name: &str, text: &str) -> Rule {
    Rule::new(name, quota(text)).by_ip().budget("api")
}

const DAY: &str = "sliding-window-log 10/d";

#[tokio::test]
async fn rules_of_a_budget_share_counters_and_a_request_costs_their_sum() {
    let (_, store) = manual_store();
    let post = |head: &tallygate::http::Head<'_>| head.headers().contains_key("x-search");
    let layer = RateLimitLayer::with_store(store, spends("read", DAY))
        .and(spends("search", DAY).when(post).cost(|_| 4));
    let (layer, outcomes) = record_outcomes(layer);
    let search = || with(from("192.0.2.1"), "x-search", "1");
    for (request, status, remaining) in [
        (from("192.0.2.1"), 200, "9"),
        (search(), 200, "4"),
        (search(), 429, "4"),
        (from("192.0.2.1"), 200, "3"),
        (from("192.0.2.2"), 200, "9"),
    ] {
        let response = call(&layer, request).await;
        assert_eq!(response.status(), status);
        assert_eq!(header(&response, "x-ratelimit-remaining"), Some(remaining));
    }
    assert_outcomes(
        &outcomes,
        &[
            ("read", Outcome::Admitted),
            ("read", Outcome::Admitted),
            ("search", Outcome::Admitted),
            ("read", Outcome::Refused),
            ("search", Outcome::Refused),
            ("read", Outcome::Admitted),
            ("read", Outcome::Admitted),
        ],
    );
}

#[tokio::test]
async fn a_rule_takes_back_its_own_cost_only() {
    let (_, store) = manual_store();
    let found = |status: StatusCode, _: &http::HeaderMap| status != 404;
    let layer = RateLimitLayer::with_store(store, spends("every", DAY))
        .and(spends("found", DAY).cost(|_| 3).count_if(found));
    call_with_status(&layer, from("192.0.2.1"), StatusCode::NOT_FOUND).await;
    let response = call(&layer, from("192.0.2.1")).await;
    assert_eq!(header(&response, "x-ratelimit-remaining"), Some("5"));
}

#[tokio::test]
async fn a_budget_is_not_that_of_a_rule_of_its_name_or_of_a_shadow_rule() {
    let (_, store) = manual_store();
    let own = Rule::new("api", quota(DAY)).by_ip().cost(|_| 2);
    let layer = RateLimitLayer::with_store(store, own)
        .and(spends("enforced", DAY))
        .and(spends("shadow", DAY).cost(|_| 9).shadow());
    for _ in 0..5 {
        assert_eq!(call(&layer, from("192.0.2.1")).await.status(), 200);
    }
    assert_eq!(call(&layer, from("192.0.2.1")).await.status(), 429);
}

#[tokio::test]
async fn a_sum_beyond_every_cost_never_fits() {
    let (_, store) = manual_store();
    let layer = RateLimitLayer::with_store(store, spends("a", DAY).cost(|_| u32::MAX))
        .and(spends("b", DAY).cost(|_| u32::MAX));
    let refused = call(&layer, from("192.0.2.1")).await;
    assert_eq!(refused.status(), 429);
    assert_eq!(header(&refused, "retry-after"), None);
    let body: serde_json::Value = serde_json::from_slice(refused.body()).unwrap();
    assert_eq!(body["type"], "urn:tallygate:problem:never-fits");
    assert_eq!(body["violated-policies"][0], "api");
}

#[tokio::test]
async fn rules_that_share_some_counters_share_only_these() {
    let (_, store) = manual_store();
    let hour = "sliding-window-log 8/h";
    let layer = RateLimitLayer::with_store(store, spends("both", DAY).limit(quota(hour)))
        .and(spends("hour", hour).cost(|_| 2))
        .and(Rule::new("other", quota("sliding-window-log 100/d")).by_ip());
    let response = call(&layer, from("192.0.2.1")).await;
    assert_eq!(
        header(&response, "ratelimit-policy"),
        Some(
            "\"api sliding-window-log/d\";q=10;w=86400, \"api sliding-window-log/h\";q=8;w=3600, \
             \"other\";q=100;w=86400"
        )
    );
    assert_eq!(header(&response, "x-ratelimit-limit"), Some("8"));
    assert_eq!(header(&response, "x-ratelimit-remaining"), Some("5"));
    for _ in 0..2 {
        call(&layer, from("192.0.2.1")).await;
    }
    // 8 of the hour's units would be 9.
    assert_eq!(call(&layer, from("192.0.2.1")).await.status(), 429);
}

#[tokio::test]
async fn rules_of_a_budget_with_different_quotas_are_an_error_and_never_a_panic() {
    let set = RuleSet::from([
        spends("a", "sliding-window-log 5/d"),
        spends("b", "sliding-window-log 10/d"),
    ]);
    let error = Rules::new(set).unwrap_err();
    let budget = "api".parse().unwrap();
    assert_eq!(error, RuleSetError::DifferentBudget { rule: 1, budget });
    let same = |name| spends(name, DAY).by(|head| Some(head.method().as_str().to_owned()));
    assert!(Rules::new(RuleSet::from([same("a"), same("b")])).is_ok());
    // `and` accepts them; the first one's quota counts.
    let (_, store) = manual_store();
    let layer = RateLimitLayer::with_store(store, spends("a", "sliding-window-log 5/d"))
        .and(spends("b", "sliding-window-log 10/d"));
    for status in [200, 200, 429] {
        assert_eq!(call(&layer, from("192.0.2.1")).await.status(), status);
    }
}
