//! Only what should count counts: what others took is given back once they are answered.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use tallygate::rules::Rule;
use tallygate::tower::RateLimitLayer;
use tallygate::{ManualClock, Quota};
use tower::{Layer, Service, service_fn};

use crate::support::{Asked, answered, call, from, header, manual};

const QUOTAS: [&str; 5] = [
    "fixed-window 2/10s",
    "sliding-window-log 2/10s",
    "sliding-window-counter 2/10s",
    "token-bucket 2/10s burst 2",
    "leaky-bucket 2/10s burst 2",
];

fn failed_only(quota: &str) -> Rule {
    let quota: Quota = quota.parse().unwrap();
    Rule::new("login", quota)
        .by_ip()
        .count_if(|status, _| status == StatusCode::UNAUTHORIZED)
}

#[tokio::test]
async fn only_failed_logins_count() {
    for quota in QUOTAS {
        let (_, store) = manual();
        let layer = RateLimitLayer::with_store(store, failed_only(quota));
        for _ in 0..5 {
            assert_eq!(
                call(&layer, from("192.0.2.1")).await.status(),
                200,
                "{quota}"
            );
        }
        for _ in 0..2 {
            let failed = answered(&layer, from("192.0.2.1"), StatusCode::UNAUTHORIZED).await;
            assert_eq!(failed.status(), 401, "{quota}");
        }
        assert_eq!(
            call(&layer, from("192.0.2.1")).await.status(),
            429,
            "{quota}"
        );
    }
}

#[tokio::test]
async fn of_several_rules_each_decides_for_itself() {
    let (_, store) = manual();
    let not_modified = |status: StatusCode, _: &http::HeaderMap| status != StatusCode::NOT_MODIFIED;
    let layer = RateLimitLayer::with_store(store, Rule::new("all", Quota::per_hour(10)))
        .and(Rule::new("fresh", Quota::per_hour(2)).count_if(not_modified));
    for _ in 0..5 {
        let response = answered(&layer, from("192.0.2.1"), StatusCode::NOT_MODIFIED).await;
        assert_eq!(response.status(), 304);
    }
    let response = call(&layer, from("192.0.2.1")).await;
    assert_eq!(
        header(&response, "x-ratelimit-limit"),
        Some("2"),
        "the tighter one binds"
    );
    assert_eq!(header(&response, "x-ratelimit-remaining"), Some("1"));
    call(&layer, from("192.0.2.1")).await;
    let refused = call(&layer, from("192.0.2.1")).await;
    let body: serde_json::Value = serde_json::from_slice(refused.body()).unwrap();
    assert_eq!(
        body["violated-policies"][0],
        "fresh sliding-window-counter/h"
    );
}

/// A service whose answer comes after the clock was moved.
async fn answered_after(
    layer: &RateLimitLayer<tallygate::rules::Rules, tallygate::MemoryStore<Arc<ManualClock>>>,
    clock: &Arc<ManualClock>,
    wait: Duration,
) -> StatusCode {
    let clock = Arc::clone(clock);
    let slow = service_fn(move |_: Asked| {
        clock.advance(wait);
        async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())) }
    });
    layer
        .layer(slow)
        .call(from("192.0.2.1"))
        .await
        .unwrap()
        .status()
}

#[tokio::test]
async fn an_answer_that_comes_late_gives_back_nothing_that_is_forgotten_already() {
    for quota in QUOTAS {
        let (clock, store) = manual();
        let layer = RateLimitLayer::with_store(store, failed_only(quota));
        // Twice the period later nothing of it weighs any more.
        assert_eq!(
            answered_after(&layer, &clock, Duration::from_secs(21)).await,
            200
        );
        for _ in 0..2 {
            answered(&layer, from("192.0.2.1"), StatusCode::UNAUTHORIZED).await;
        }
        // Now one more that takes so long that the window turns and others use up the new one.
        clock.advance(Duration::from_secs(40));
        let (inner, taken) = (layer.clone(), Arc::clone(&clock));
        let slow = service_fn(move |_: Asked| {
            let (layer, clock) = (inner.clone(), Arc::clone(&taken));
            async move {
                clock.advance(Duration::from_secs(21));
                for _ in 0..2 {
                    let failed =
                        answered(&layer, from("192.0.2.1"), StatusCode::UNAUTHORIZED).await;
                    assert_eq!(failed.status(), 401);
                }
                Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
            }
        });
        assert_eq!(
            layer
                .layer(slow)
                .call(from("192.0.2.1"))
                .await
                .unwrap()
                .status(),
            200
        );
        assert_eq!(
            call(&layer, from("192.0.2.1")).await.status(),
            429,
            "{quota} gave back what it should not"
        );
    }
}

#[tokio::test]
async fn a_request_that_is_abandoned_counts() {
    let (_, store) = manual();
    let layer = RateLimitLayer::with_store(store, failed_only("fixed-window 1/h"));
    let never =
        service_fn(|_: Asked| std::future::pending::<Result<Response<Full<Bytes>>, Infallible>>());
    let mut behind = layer.layer(never);
    let future = behind.call(from("192.0.2.1"));
    // The client leaves in the middle of its body.
    drop(future);
    assert_eq!(call(&layer, from("192.0.2.1")).await.status(), 429);
}

#[tokio::test]
async fn a_service_that_fails_counts() {
    let (_, store) = manual();
    let layer = RateLimitLayer::with_store(store, failed_only("fixed-window 1/h"));
    let broken = service_fn(|_: Asked| async { Err::<Response<Full<Bytes>>, _>("broken") });
    assert!(layer.layer(broken).call(from("192.0.2.1")).await.is_err());
    assert_eq!(call(&layer, from("192.0.2.1")).await.status(), 429);
}

#[tokio::test]
async fn a_refused_request_gives_back_nothing() {
    let (_, store) = manual();
    let rule = Rule::new("r", Quota::per_hour(1)).count_if(|status, _| status.is_success());
    let layer = RateLimitLayer::with_store(store, rule);
    assert_eq!(call(&layer, from("192.0.2.1")).await.status(), 200);
    for _ in 0..3 {
        assert_eq!(call(&layer, from("192.0.2.1")).await.status(), 429);
    }
}
