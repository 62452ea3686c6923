//! Requests whose address the server does not record are not counted together.

use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use http::{Method, Request, Response};
use http_body_util::Full;
use serde_json::Value;
use tallygate::http::Outcome;
use tallygate::rules::{ListEntry, Missing, Rule, RuleSet, Rules};
use tallygate::tower::RateLimitLayer;
use tallygate::{Engine, MemoryStore, Quota};
use tokio::net::TcpListener;
use tower::ServiceExt;

use crate::support::{
    TestRequest, assert_outcomes, call, from, header, manual_store, record_outcomes, with,
};

const AXUM_CALL: &str = "into_make_service_with_connect_info::<SocketAddr>()";

fn without_address() -> TestRequest {
    Request::new(Full::default())
}

fn body(response: &Response<bytes::Bytes>) -> Value {
    serde_json::from_slice(response.body()).unwrap()
}

#[tokio::test]
async fn without_an_address_by_ip_answers_500_with_the_axum_call_to_write() {
    for missing in [Missing::Shared, Missing::Pass, Missing::Refuse] {
        let (_, store) = manual_store();
        let rule = Rule::new("login", Quota::per_hour(1))
            .by_ip()
            .missing(missing);
        let (layer, outcomes) = record_outcomes(RateLimitLayer::with_store(store, rule));
        for _ in 0..3 {
            let response = call(&layer, without_address()).await;
            assert_eq!(response.status(), 500, "{missing:?}");
            let body = body(&response);
            assert_eq!(body["type"], "urn:tallygate:problem:unknown-address");
            let detail = body["detail"].as_str().unwrap();
            assert!(
                detail.contains(AXUM_CALL) && detail.contains("`login`"),
                "{detail}"
            );
            assert_eq!(header(&response, "retry-after"), None);
            assert_eq!(header(&response, "ratelimit"), None);
        }
        assert_outcomes(&outcomes, &[("login", Outcome::Refused); 3]);
        assert_eq!(call(&layer, from("192.0.2.1")).await.status(), 200);
        assert_eq!(call(&layer, from("192.0.2.1")).await.status(), 429);
    }
}

#[tokio::test]
async fn a_grpc_request_without_an_address_gets_an_internal_error() {
    let rule = Rule::new("login", Quota::per_hour(1)).by_ip();
    let layer = RateLimitLayer::new(rule);
    let mut request = with(without_address(), "content-type", "application/grpc");
    *request.method_mut() = Method::POST;
    let response = call(&layer, request).await;
    assert_eq!(header(&response, "grpc-status"), Some("13"));
    assert!(
        header(&response, "grpc-message")
            .unwrap()
            .contains(AXUM_CALL)
    );
}

#[tokio::test]
async fn a_header_identifies_a_client_before_its_address_does() {
    let (_, store) = manual_store();
    let rule = Rule::new("api", Quota::per_hour(1))
        .by_header("x-api-key")
        .or_ip();
    let layer = RateLimitLayer::with_store(store, rule);
    let mut statuses = Vec::new();
    for request in [
        with(from("192.0.2.1"), "x-api-key", "k1"),
        with(from("192.0.2.2"), "x-api-key", "k1"),
        with(from("192.0.2.1"), "x-api-key", "k2"),
        from("192.0.2.1"),
        from("192.0.2.1"),
        from("192.0.2.2"),
        // The value of a header is no address.
        with(from("192.0.2.9"), "x-api-key", "192.0.2.1"),
        with(from("192.0.2.9"), "x-api-key", ""),
        // With a key, the address is not needed.
        with(without_address(), "x-api-key", "k3"),
        with(without_address(), "x-api-key", "k3"),
        without_address(),
    ] {
        statuses.push(call(&layer, request).await.status().as_u16());
    }
    let expected = [200, 429, 200, 200, 429, 200, 200, 200, 200, 429, 500];
    assert_eq!(statuses, expected);
}

#[tokio::test]
async fn sources_are_tried_in_order_for_the_last_part_of_the_key() {
    let (_, store) = manual_store();
    let rule = Rule::new("api", Quota::per_hour(1))
        .by_header("x-tenant")
        .by_header("x-user")
        .or_header("x-session")
        .or_ip();
    let layer = RateLimitLayer::with_store(store, rule);
    let acme = |request| with(request, "x-tenant", "acme");
    let other = |request| with(request, "x-tenant", "other");
    for (request, status) in [
        (with(acme(from("192.0.2.1")), "x-user", "ann"), 200),
        (with(other(from("192.0.2.1")), "x-user", "ann"), 200),
        (with(acme(from("192.0.2.1")), "x-session", "ann"), 200),
        (with(acme(from("192.0.2.2")), "x-session", "ann"), 429),
        (acme(from("192.0.2.1")), 200),
        (acme(from("192.0.2.1")), 429),
        (other(from("192.0.2.1")), 200),
    ] {
        assert_eq!(call(&layer, request).await.status(), status);
    }
    let alone = Rule::new("alone", Quota::per_hour(1)).or_ip();
    assert_eq!(
        alone.key,
        Rule::new("alone", Quota::per_hour(1)).by_ip().key
    );
}

#[tokio::test]
async fn a_list_of_networks_needs_an_address() {
    let (_, store) = manual_store();
    let mut rule = Rule::new("api", Quota::per_hour(1)).by_header("x-api-key");
    rule.deny = vec![ListEntry::Network("192.0.2.0/24".parse().unwrap())];
    let layer = RateLimitLayer::with_store(store, rule);
    let key = |request| with(request, "x-api-key", "k");
    assert_eq!(call(&layer, key(without_address())).await.status(), 500);
    assert_eq!(call(&layer, key(from("192.0.2.1"))).await.status(), 403);
    assert_eq!(call(&layer, key(from("198.51.100.1"))).await.status(), 200);
}

#[tokio::test]
async fn a_rule_in_shadow_mode_refuses_nothing_without_an_address() {
    let rule = Rule::new("login", Quota::per_hour(1)).by_ip().shadow();
    let layer = RateLimitLayer::new(rule);
    for _ in 0..3 {
        assert_eq!(call(&layer, without_address()).await.status(), 200);
    }
}

#[tokio::test]
async fn rules_that_do_not_match_need_no_address() {
    let rule = Rule::new("login", Quota::per_hour(1))
        .when(|head| head.uri().path() == "/login")
        .by_ip();
    let layer = RateLimitLayer::new(rule);
    assert_eq!(call(&layer, without_address()).await.status(), 200);
}

#[cfg(feature = "config")]
#[tokio::test]
async fn rules_from_a_file_need_an_address_too() {
    let text = "version: 1\nrules:\n  - { name: login, key: [ip], limits: 1/h }\n";
    let config = tallygate::config::load_bytes("rules.yaml", text.as_bytes(), &|_| None);
    let rules = Rules::new(config.unwrap().rules).unwrap();
    let layer = RateLimitLayer::with_engine(Engine::new(MemoryStore::new()), rules);
    assert_eq!(call(&layer, without_address()).await.status(), 500);
    assert_eq!(call(&layer, from("192.0.2.1")).await.status(), 200);
}

#[tokio::test]
async fn an_axum_application_without_connect_info_says_what_to_write() {
    let rule = Rule::new("all", Quota::per_hour(9)).by_ip();
    let set = Rules::new(RuleSet::from([rule])).unwrap();
    let layer = RateLimitLayer::with_engine(Engine::new(MemoryStore::new()), set);
    let app = Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(layer);
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    tokio::spawn({
        let app = app.clone();
        async move { axum::serve(listener, app).await }
    });
    let response = reqwest::get(format!("http://{address}/")).await.unwrap();
    assert_eq!(response.status(), 500);
    assert!(response.text().await.unwrap().contains(AXUM_CALL));
    let request = Request::new(axum::body::Body::empty());
    assert_eq!(app.oneshot(request).await.unwrap().status(), 500);
}
