//! Store failures: the policy of each rule applies, and a 429 is never due to the failure.

use std::num::NonZeroU32;
use std::time::Duration;

use tallygate::http::Outcome;
use tallygate::rules::Rule;
use tallygate::tower::RateLimitLayer;
use tallygate::{OnFailure, Quota, RedisStore, Replicas};
use tallygate_testkit::ports;

use crate::support::{assert_outcomes, call, from, header, record_outcomes};

/// A store whose server does not exist.
fn unreachable_store() -> RedisStore {
    let url = format!("redis://127.0.0.1:{}", ports::free());
    RedisStore::builder(&url).open().unwrap()
}

fn rule(name: &str, policy: OnFailure) -> Rule {
    Rule::new(name, Quota::per_hour(4))
        .on_failure(policy)
        .deadline(Duration::from_millis(20))
}

#[tokio::test]
async fn an_open_rule_admits_and_sends_no_headers() {
    let layer = RateLimitLayer::with_store(unreachable_store(), rule("r", OnFailure::Open));
    for _ in 0..6 {
        let response = call(&layer, from("192.0.2.1")).await;
        assert_eq!(response.status(), 200);
        assert_eq!(header(&response, "ratelimit"), None);
    }
}

#[tokio::test]
async fn a_closed_rule_responds_with_503_and_never_429() {
    let layer = RateLimitLayer::with_store(unreachable_store(), rule("open", OnFailure::Open))
        .and(rule("closed", OnFailure::Closed));
    for _ in 0..6 {
        let response = call(&layer, from("192.0.2.1")).await;
        assert_eq!(response.status(), 503);
        let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(body["type"], "urn:tallygate:problem:store-unavailable");
    }
}

#[tokio::test]
async fn the_strictest_policy_of_a_budget_applies() {
    let local = OnFailure::Local(Replicas::Fixed(NonZeroU32::MIN));
    for (policies, statuses) in [
        ([OnFailure::Open, OnFailure::Closed], [503, 503, 503]),
        ([OnFailure::Closed, OnFailure::Open], [503, 503, 503]),
        // 4 units, of which a request costs 2.
        ([OnFailure::Open, local], [200, 200, 429]),
        ([OnFailure::Open, OnFailure::Open], [200, 200, 200]),
    ] {
        let [first, second] = policies;
        let layer =
            RateLimitLayer::with_store(unreachable_store(), rule("a", first).budget("shared"))
                .and(rule("b", second).budget("shared"));
        for status in statuses {
            let response = call(&layer, from("192.0.2.1")).await;
            assert_eq!(response.status(), status, "{policies:?}");
        }
    }
}

#[tokio::test]
async fn a_local_rule_counts_its_share() {
    let replicas = Replicas::Fixed(NonZeroU32::new(2).unwrap());
    let rule = rule("local", OnFailure::Local(replicas));
    let (layer, outcomes) = record_outcomes(RateLimitLayer::with_store(unreachable_store(), rule));
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(call(&layer, from("192.0.2.1")).await.status().as_u16());
    }
    assert_eq!(statuses, [200, 200, 429], "half of four");
    let expected = [
        ("local", Outcome::DegradedAdmitted),
        ("local", Outcome::DegradedAdmitted),
        ("local", Outcome::DegradedRefused),
    ];
    assert_outcomes(&outcomes, &expected);
}
