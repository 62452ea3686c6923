//! The store fails: each rule's own policy, and never a 429.

use std::num::NonZeroU32;
use std::time::Duration;

use tallygate::http::Outcome;
use tallygate::rules::Rule;
use tallygate::tower::RateLimitLayer;
use tallygate::{OnFailure, Quota, RedisStore, Replicas};
use tallygate_testkit::ports;

use crate::support::{call, from, header};

/// A store that nobody serves.
fn lost() -> RedisStore {
    let url = format!("redis://127.0.0.1:{}", ports::free());
    RedisStore::builder(&url).open().unwrap()
}

fn rule(name: &str, policy: OnFailure) -> Rule {
    Rule::new(name, Quota::per_hour(4))
        .on_failure(policy)
        .deadline(Duration::from_millis(20))
}

#[tokio::test]
async fn an_open_rule_lets_through_and_tells_no_counts() {
    let layer = RateLimitLayer::with_store(lost(), rule("r", OnFailure::Open));
    for _ in 0..6 {
        let response = call(&layer, from("192.0.2.1")).await;
        assert_eq!(response.status(), 200);
        assert_eq!(header(&response, "ratelimit"), None);
    }
}

#[tokio::test]
async fn a_closed_rule_answers_503_and_never_429() {
    let layer = RateLimitLayer::with_store(lost(), rule("open", OnFailure::Open))
        .and(rule("closed", OnFailure::Closed));
    for _ in 0..6 {
        let response = call(&layer, from("192.0.2.1")).await;
        assert_eq!(response.status(), 503);
        let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(body["type"], "urn:tallygate:problem:store-unavailable");
    }
}

#[tokio::test]
async fn a_local_rule_counts_its_share() {
    let replicas = Replicas::Fixed(NonZeroU32::new(2).unwrap());
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let heard = std::sync::Arc::clone(&seen);
    let layer = RateLimitLayer::with_store(lost(), rule("local", OnFailure::Local(replicas)))
        .on_decision(move |enforcement, _| {
            heard
                .lock()
                .unwrap()
                .extend(enforcement.outcomes().map(|(_, outcome)| outcome));
        });
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(call(&layer, from("192.0.2.1")).await.status().as_u16());
    }
    assert_eq!(statuses, [200, 200, 429], "half of four");
    let expected = [
        Outcome::DegradedAdmitted,
        Outcome::DegradedAdmitted,
        Outcome::DegradedRefused,
    ];
    assert_eq!(*seen.lock().unwrap(), expected);
}
