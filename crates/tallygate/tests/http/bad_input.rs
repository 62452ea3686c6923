//! Malformed and hostile requests: decided without an error, and never a bypass.

use http::{HeaderMap, HeaderValue};
use tallygate::rules::{Missing, Rule};
use tallygate::tower::RateLimitLayer;
use tallygate::{Key, Quota};

use crate::support::{call, from, header, manual_store, with};

#[tokio::test]
async fn header_values_of_any_bytes_are_separate_keys() {
    let (_, store) = manual_store();
    let layer = RateLimitLayer::with_store(
        store,
        Rule::new("r", Quota::per_hour(1)).by_header("x-user"),
    );
    let values: [&[u8]; 6] = [
        b"",
        b"plain",
        b"caf\xe9",
        b"\xff\xfe",
        b"a,b",
        b"\"quoted\"",
    ];
    for value in values {
        assert_eq!(
            call(&layer, with(from("192.0.2.1"), "x-user", value))
                .await
                .status(),
            200
        );
        assert_eq!(
            call(&layer, with(from("192.0.2.1"), "x-user", value))
                .await
                .status(),
            429
        );
    }
    let long = "x".repeat(64 * 1024);
    let longer = "x".repeat(64 * 1024 + 1);
    assert_eq!(
        call(&layer, with(from("192.0.2.1"), "x-user", &long))
            .await
            .status(),
        200
    );
    assert_eq!(
        call(&layer, with(from("192.0.2.1"), "x-user", &long))
            .await
            .status(),
        429
    );
    assert_eq!(
        call(&layer, with(from("192.0.2.1"), "x-user", &longer))
            .await
            .status(),
        200
    );
}

#[test]
fn a_header_value_cannot_contain_a_line_break() {
    // `HeaderValue` rejects them, so the layer need not check.
    for value in ["a\r\nb", "a\nb", "a\rb", "a\0b"] {
        assert!(HeaderValue::from_str(value).is_err());
    }
}

#[tokio::test]
async fn conflicting_duplicate_headers_count_as_missing() {
    for (missing, status) in [
        (Missing::Shared, 200),
        (Missing::Pass, 200),
        (Missing::Refuse, 400),
    ] {
        let (_, store) = manual_store();
        let rule = Rule::new("r", Quota::per_hour(1))
            .by_header("x-user")
            .missing(missing);
        let layer = RateLimitLayer::with_store(store, rule);
        let twice = |second: &str| with(with(from("192.0.2.1"), "x-user", "ann"), "x-user", second);
        assert_eq!(call(&layer, twice("1")).await.status(), status);
        if missing != Missing::Refuse {
            // A conflicting value does not open a new budget.
            assert_eq!(call(&layer, twice("2")).await.status(), 429);
        }
        // Equal duplicates count as one value.
        assert_eq!(call(&layer, twice("ann")).await.status(), 200);
        let ann = with(from("192.0.2.1"), "x-user", "ann");
        assert_eq!(call(&layer, ann).await.status(), 429);
    }
}

#[tokio::test]
async fn an_empty_header_counts_as_missing() {
    let (_, store) = manual_store();
    let rule = Rule::new("r", Quota::per_hour(1)).by_header("x-user");
    let layer = RateLimitLayer::with_store(store, rule.missing(Missing::Refuse));
    assert_eq!(
        call(&layer, with(from("192.0.2.1"), "x-user", ""))
            .await
            .status(),
        400
    );
}

#[tokio::test]
async fn parts_of_a_key_are_separated() {
    let (_, store) = manual_store();
    let rule = Rule::new("r", Quota::per_hour(1))
        .by_header("x-a")
        .by_header("x-b");
    let layer = RateLimitLayer::with_store(store, rule);
    let request = |a: &str, b: &str| with(with(from("192.0.2.1"), "x-a", a), "x-b", b);
    for (a, b) in [("ab", "c"), ("a", "bc"), ("a:b", "c"), ("a", "b:c")] {
        assert_eq!(call(&layer, request(a, b)).await.status(), 200, "{a} {b}");
        assert_eq!(call(&layer, request(a, b)).await.status(), 429, "{a} {b}");
    }
}

#[tokio::test]
async fn a_function_and_an_address_are_parts_of_one_key() {
    let (_, store) = manual_store();
    let rule = Rule::new("r", Quota::per_hour(1))
        .by_ip()
        .by(|head| Some(Key::from_parts(["path", head.uri().path()])));
    let layer = RateLimitLayer::with_store(store, rule);
    let request = |ip: &str, path: &str| {
        let mut request = from(ip);
        *request.uri_mut() = path.parse().unwrap();
        request
    };
    for (ip, path) in [
        ("192.0.2.1", "/a"),
        ("192.0.2.1", "/b"),
        ("192.0.2.2", "/a"),
    ] {
        assert_eq!(call(&layer, request(ip, path)).await.status(), 200);
        assert_eq!(call(&layer, request(ip, path)).await.status(), 429);
    }
}

#[tokio::test]
async fn a_cost_of_any_size_is_decided() {
    let (_, store) = manual_store();
    let rule = Rule::new("r", Quota::per_hour(10)).cost(|head| {
        head.headers()
            .get("x-cost")
            .and_then(|cost| cost.to_str().ok()?.parse().ok())
            .unwrap_or(1)
    });
    let layer = RateLimitLayer::with_store(store, rule);
    for (cost, status) in [
        ("0", 200),
        ("4294967295", 429),
        ("11", 429),
        ("10", 200),
        ("0", 200),
        ("-1", 429),
        ("x", 429),
    ] {
        let response = call(&layer, with(from("192.0.2.1"), "x-cost", cost)).await;
        assert_eq!(response.status(), status, "{cost}");
    }
}

#[tokio::test]
async fn rate_limit_headers_of_the_service_are_replaced() {
    use std::convert::Infallible;
    use tower::{Layer, Service, service_fn};
    let (_, store) = manual_store();
    let layer = RateLimitLayer::with_store(store, Rule::new("r", Quota::per_hour(10)).by_ip());
    let inner = service_fn(|_: crate::support::TestRequest| async {
        let mut response = http::Response::new(http_body_util::Full::<bytes::Bytes>::default());
        let forged: &mut HeaderMap = response.headers_mut();
        forged.append("ratelimit", HeaderValue::from_static("\"x\";r=999"));
        forged.append("ratelimit", HeaderValue::from_static("\"y\";r=999"));
        Ok::<_, Infallible>(response)
    });
    let response = layer.layer(inner).call(from("192.0.2.1")).await.unwrap();
    let response = response.map(|_| bytes::Bytes::new());
    assert_eq!(header(&response, "ratelimit"), Some("\"r\";r=9;t=801"));
}

#[tokio::test]
async fn a_request_with_too_many_limits_is_rejected() {
    let (_, store) = manual_store();
    let mut layer = RateLimitLayer::with_store(store, Rule::new("0", Quota::per_hour(1_000)));
    for i in 1..65 {
        layer = layer.and(Rule::new(i.to_string(), Quota::per_hour(1_000)));
    }
    let response = call(&layer, from("192.0.2.1")).await;
    assert_eq!(response.status(), 503);
    let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
    assert_eq!(body["type"], "urn:tallygate:problem:too-many-limits");
}

#[tokio::test]
async fn the_spelling_of_bearer_does_not_change_the_key() {
    let (_, store) = manual_store();
    let rule = Rule::new("r", Quota::per_hour(1)).by_header("authorization");
    let layer = RateLimitLayer::with_store(store, rule);
    let spellings = ["Bearer tok", "bearer tok", "BEARER  tok ", "bEarer tok"];
    let mut admitted = 0;
    for spelling in spellings {
        let request = with(from("192.0.2.1"), "authorization", spelling);
        admitted += u32::from(call(&layer, request).await.status() == 200);
    }
    assert_eq!(admitted, 1);
}

#[tokio::test]
async fn a_grpc_content_type_on_http1_is_not_grpc() {
    let (_, store) = manual_store();
    let layer = RateLimitLayer::with_store(store, Rule::new("r", Quota::per_hour(1)));
    call(&layer, from("192.0.2.1")).await;
    let request = with(from("192.0.2.1"), "content-type", "application/grpc");
    assert_eq!(call(&layer, request).await.status(), 429);
}

#[test]
fn the_debug_output_of_a_head_shows_no_secret() {
    let mut request = with(from("192.0.2.1"), "authorization", "Bearer hunter2");
    *request.uri_mut() = "/a?token=hunter3".parse().unwrap();
    let shown = format!("{:?}", tallygate::http::Head::from(&request));
    assert_eq!(shown, "GET /a");
}

#[test]
fn is_secret_knows_the_usual_names_of_secrets() {
    for name in [
        "authorization",
        "X-Api-Key",
        "x-auth",
        "x-jwt",
        "cookie",
        "access_token",
        "ocp-apim-subscription-key",
    ] {
        assert!(tallygate::http::is_secret(name), "{name}");
    }
    for name in ["x-user", "x-tenant", "accept", "keyboard"] {
        assert!(!tallygate::http::is_secret(name), "{name}");
    }
}
