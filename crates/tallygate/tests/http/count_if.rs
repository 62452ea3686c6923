//! `count_if`: requests that should not count are undone after the response.

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

use crate::support::{TestRequest, call, call_with_status, from, header, manual_store};

const QUOTAS: [&str; 5] = [
    "fixed-window 2/10s",
    "sliding-window-log 2/10s",
    "sliding-window-counter 2/10s",
    "token-bucket 2/10s burst 2",
    "leaky-bucket 2/10s burst 2",
];

fn count_unauthorized(quota: &str) -> Rule {
    let quota: Quota = quota.parse().unwrap();
    Rule::new("login", quota)
        .by_ip()
        .count_if(|status, _| status == StatusCode::UNAUTHORIZED)
}

#[tokio::test]
async fn only_failed_logins_count() {
    for quota in QUOTAS {
        let (_, store) = manual_store();
        let layer = RateLimitLayer::with_store(store, count_unauthorized(quota));
        for _ in 0..5 {
            assert_eq!(
                call(&layer, from("192.0.2.1")).await.status(),
                200,
                "{quota}"
            );
        }
        for _ in 0..2 {
            let failed =
                call_with_status(&layer, from("192.0.2.1"), StatusCode::UNAUTHORIZED).await;
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
async fn every_rule_has_its_own_condition() {
    let (_, store) = manual_store();
    let not_modified = |status: StatusCode, _: &http::HeaderMap| status != StatusCode::NOT_MODIFIED;
    let layer = RateLimitLayer::with_store(store, Rule::new("all", Quota::per_hour(100)).by_ip())
        .and(
            Rule::new("fresh", Quota::per_hour(2))
                .by_ip()
                .count_if(not_modified),
        );
    for _ in 0..5 {
        let response = call_with_status(&layer, from("192.0.2.1"), StatusCode::NOT_MODIFIED).await;
        assert_eq!(response.status(), 304);
    }
    let response = call(&layer, from("192.0.2.1")).await;
    assert_eq!(
        header(&response, "x-ratelimit-limit"),
        Some("2"),
        "the one with less of its capacity left"
    );
    assert_eq!(header(&response, "x-ratelimit-remaining"), Some("1"));
    call(&layer, from("192.0.2.1")).await;
    let refused = call(&layer, from("192.0.2.1")).await;
    let body: serde_json::Value = serde_json::from_slice(refused.body()).unwrap();
    assert_eq!(body["violated-policies"][0], "fresh");
}

/// Calls a service during which the clock advances.
async fn call_slow_service(
    layer: &RateLimitLayer<tallygate::rules::Rules, tallygate::MemoryStore<Arc<ManualClock>>>,
    clock: &Arc<ManualClock>,
    wait: Duration,
) -> StatusCode {
    let clock = Arc::clone(clock);
    let slow = service_fn(move |_: TestRequest| {
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
async fn a_late_response_does_not_undo_expired_units() {
    for quota in QUOTAS {
        let (clock, store) = manual_store();
        let layer = RateLimitLayer::with_store(store, count_unauthorized(quota));
        // After two periods its units have expired.
        assert_eq!(
            call_slow_service(&layer, &clock, Duration::from_secs(21)).await,
            200
        );
        for _ in 0..2 {
            call_with_status(&layer, from("192.0.2.1"), StatusCode::UNAUTHORIZED).await;
        }
        // During this request the window ends, and other requests exhaust the next one.
        clock.advance(Duration::from_secs(40));
        let (inner, taken) = (layer.clone(), Arc::clone(&clock));
        let slow = service_fn(move |_: TestRequest| {
            let (layer, clock) = (inner.clone(), Arc::clone(&taken));
            async move {
                clock.advance(Duration::from_secs(21));
                for _ in 0..2 {
                    let failed =
                        call_with_status(&layer, from("192.0.2.1"), StatusCode::UNAUTHORIZED).await;
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
            "{quota}: expired units were returned"
        );
    }
}

#[tokio::test]
async fn an_abandoned_request_counts() {
    let (_, store) = manual_store();
    let layer = RateLimitLayer::with_store(store, count_unauthorized("fixed-window 1/h"));
    let never = service_fn(|_: TestRequest| {
        std::future::pending::<Result<Response<Full<Bytes>>, Infallible>>()
    });
    let mut limited = layer.layer(never);
    let future = limited.call(from("192.0.2.1"));
    // As when the client disconnects.
    drop(future);
    assert_eq!(call(&layer, from("192.0.2.1")).await.status(), 429);
}

#[tokio::test]
async fn a_request_counts_if_the_service_fails() {
    let (_, store) = manual_store();
    let layer = RateLimitLayer::with_store(store, count_unauthorized("fixed-window 1/h"));
    let broken = service_fn(|_: TestRequest| async { Err::<Response<Full<Bytes>>, _>("broken") });
    assert!(layer.layer(broken).call(from("192.0.2.1")).await.is_err());
    assert_eq!(call(&layer, from("192.0.2.1")).await.status(), 429);
}

#[tokio::test]
async fn a_refused_request_returns_no_units() {
    let (_, store) = manual_store();
    let rule = Rule::new("r", Quota::per_hour(1)).count_if(|status, _| status.is_success());
    let layer = RateLimitLayer::with_store(store, rule);
    assert_eq!(call(&layer, from("192.0.2.1")).await.status(), 200);
    for _ in 0..3 {
        assert_eq!(call(&layer, from("192.0.2.1")).await.status(), 429);
    }
}
