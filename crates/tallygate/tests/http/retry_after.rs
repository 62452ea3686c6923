//! `Retry-After` is sufficient and minimal: a second earlier the request is refused.

use http::StatusCode;
use tallygate::Quota;
use tallygate::rules::Rule;
use tallygate::tower::RateLimitLayer;

use crate::support::{call, from, header, manual_store, with};

const QUOTAS: [&str; 6] = [
    "fixed-window 7/10s",
    "sliding-window-log 7/10s",
    "sliding-window-counter 7/10s",
    "token-bucket 7/10s burst 7",
    "leaky-bucket 7/10s burst 7",
    "leaky-bucket 7/10s queue 7",
];

#[tokio::test(start_paused = true)]
async fn a_client_that_waits_for_retry_after_is_admitted() {
    for quota in QUOTAS {
        for cost in 1..=7 {
            let (clock, store) = manual_store();
            clock.advance(std::time::Duration::from_micros(1_234_567));
            let rule = Rule::new("r", quota.parse::<Quota>().unwrap())
                .by_ip()
                .cost(|head| head.headers()["x-cost"].to_str().unwrap().parse().unwrap());
            let layer = RateLimitLayer::with_store(store, rule);
            let request = || with(from("192.0.2.1"), "x-cost", cost.to_string());
            let mut admitted = 0;
            let refused = loop {
                let response = call(&layer, request()).await;
                if response.status() == StatusCode::TOO_MANY_REQUESTS {
                    break response;
                }
                assert_eq!(header(&response, "retry-after"), None);
                admitted += 1;
                assert!(admitted <= 7, "{quota} of cost {cost}");
            };
            let seconds: u64 = header(&refused, "retry-after").unwrap().parse().unwrap();
            assert!(seconds >= 1, "{quota} of cost {cost}");
            clock.advance(std::time::Duration::from_secs(seconds - 1));
            let early = call(&layer, request()).await;
            assert_eq!(
                early.status(),
                429,
                "{quota} of cost {cost} after {seconds} s less one"
            );
            assert_eq!(header(&early, "retry-after"), Some("1"));
            clock.advance(std::time::Duration::from_secs(1));
            let later = call(&layer, request()).await;
            assert_eq!(
                later.status(),
                200,
                "{quota} of cost {cost} after {seconds} s"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_cost_above_the_capacity_has_no_retry_after() {
    for quota in QUOTAS {
        let (_, store) = manual_store();
        let rule = Rule::new("r", quota.parse::<Quota>().unwrap()).cost(|_| 8);
        let response = call(&RateLimitLayer::with_store(store, rule), from("192.0.2.1")).await;
        assert_eq!(response.status(), 429, "{quota}");
        assert_eq!(header(&response, "retry-after"), None, "{quota}");
        let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(body["type"], "urn:tallygate:problem:never-fits", "{quota}");
    }
}

#[tokio::test]
async fn jitter_only_lengthens_retry_after() {
    let jitter = std::time::Duration::from_secs(5);
    let headers = tallygate::http::Headers::default().jitter(jitter);
    let (_, store) = manual_store();
    let rule = Rule::new("r", "fixed-window 1/10s".parse::<Quota>().unwrap()).headers(headers);
    let layer = RateLimitLayer::with_store(store, rule);
    assert_eq!(call(&layer, from("192.0.2.1")).await.status(), 200);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..200 {
        let response = call(&layer, from("192.0.2.1")).await;
        let seconds: u64 = header(&response, "retry-after").unwrap().parse().unwrap();
        assert!((10..=15).contains(&seconds), "{seconds}");
        seen.insert(seconds);
    }
    assert!(seen.len() > 1, "no jitter: {seen:?}");
}
