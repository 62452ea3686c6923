//! What a request that is turned away gets, and who hears of it.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::combinators::{BoxBody, UnsyncBoxBody};
use http_body_util::{BodyExt, Empty, Full};
use tallygate::Quota;
use tallygate::http::{Head, Outcome, Refusal};
use tallygate::rules::Rule;
use tallygate::tower::{FromBytes, RateLimitBody, RateLimitLayer};
use tower::{Layer, Service, service_fn};

use crate::support::{Asked, call, from, header, manual, with};

#[test]
fn a_name_of_any_letters_is_quoted_as_json_has_it() {
    let all: String = ('\0'..='\u{ff}').collect();
    for limit in [
        "plain",
        "",
        "with \"quotes\"",
        "back\\slash",
        "line\nend",
        "é",
        &all,
    ] {
        let retry_after = Duration::from_micros(1_000_001);
        let refusal = Refusal::Quota { limit, retry_after };
        let response = refusal.response(&Head::from(&Request::new(())));
        let json: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(json["violated-policies"][0], *limit);
        let detail = format!("`{limit}` is used up; there is room again in 2 s");
        assert_eq!(json["detail"], *detail);
        assert_eq!(json["status"], 429);
    }
}

#[tokio::test]
async fn a_refusal_is_a_problem_in_json() {
    let (_, store) = manual();
    let layer = RateLimitLayer::with_store(store, Rule::new("login", Quota::per_minute(1)).by_ip());
    assert_eq!(call(&layer, from("192.0.2.1")).await.body(), "hello");
    let refused = call(&layer, from("192.0.2.1")).await;
    assert_eq!(refused.status(), 429);
    assert_eq!(
        header(&refused, "content-type"),
        Some("application/problem+json")
    );
    let body: serde_json::Value = serde_json::from_slice(refused.body()).unwrap();
    let r#type = "https://iana.org/assignments/http-problem-types#quota-exceeded";
    assert_eq!(body["type"], r#type);
    assert_eq!(body["status"], 429);
    assert_eq!(
        body["violated-policies"][0],
        "login sliding-window-counter/min"
    );
    assert!(
        !refused.body().windows(9).any(|part| part == b"192.0.2.1"),
        "a key shows"
    );
}

/// What a service that answers with bodies of this kind answers through a layer, refused.
async fn refused_in<B>() -> String
where
    B: Body<Data = Bytes> + FromBytes + Send + 'static,
    B::Error: std::fmt::Debug,
{
    let (_, store) = manual();
    let layer = RateLimitLayer::with_store(store, Rule::new("r", Quota::per_minute(1)));
    let inner = service_fn(|_: Asked| async {
        Ok::<_, Infallible>(Response::new(B::from_bytes(Bytes::from_static(b"hello"))))
    });
    let mut service = layer.layer(inner);
    let mut answers = Vec::new();
    for _ in 0..2 {
        let response: Response<B> = service.call(from("192.0.2.1")).await.unwrap();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        answers.push(String::from_utf8(body.to_vec()).unwrap());
    }
    assert_eq!(answers[0], "hello");
    answers.remove(1)
}

#[tokio::test]
async fn a_gate_answers_in_the_services_own_kind_of_body() {
    let said = [
        refused_in::<Full<Bytes>>().await,
        refused_in::<BoxBody<Bytes, std::io::Error>>().await,
        refused_in::<UnsyncBoxBody<Bytes, std::io::Error>>().await,
        refused_in::<axum::body::Body>().await,
        refused_in::<tonic::body::Body>().await,
        refused_in::<RateLimitBody<Empty<Bytes>>>().await,
    ];
    for text in said {
        let body: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(body["status"], 429);
    }
}

#[tokio::test]
async fn a_name_of_any_text_makes_json() {
    for name in ["plain", "a\"b\\c\n\u{e9}", "\0\u{1f}", "\u{1f600}"] {
        let (_, store) = manual();
        let layer = RateLimitLayer::with_store(store, Rule::new(name, Quota::per_minute(1)));
        call(&layer, from("192.0.2.1")).await;
        let refused = call(&layer, from("192.0.2.1")).await;
        let body: serde_json::Value = serde_json::from_slice(refused.body()).unwrap();
        let limit = format!("{name} sliding-window-counter/min");
        assert_eq!(body["violated-policies"][0], limit.as_str());
    }
}

#[tokio::test]
async fn all_rules_or_none_are_charged() {
    let (_, store) = manual();
    let layer = RateLimitLayer::with_store(store, Rule::new("client", Quota::per_hour(2)).by_ip())
        .and(
            Rule::new("tenant", Quota::per_hour(3))
                .by_header("x-tenant")
                .cost(|_| 2),
        );
    let request = |ip: &str| with(from(ip), "x-tenant", "acme");
    assert_eq!(call(&layer, request("192.0.2.1")).await.status(), 200);
    // The tenant has 1 left of 3 and every request costs it 2.
    for _ in 0..5 {
        let refused = call(&layer, request("192.0.2.1")).await;
        assert_eq!(refused.status(), 429);
        let body: serde_json::Value = serde_json::from_slice(refused.body()).unwrap();
        assert_eq!(
            body["violated-policies"][0],
            "tenant sliding-window-counter/h"
        );
    }
    // The client was charged for none of those.
    let other = call(&layer, with(from("192.0.2.1"), "x-tenant", "other")).await;
    assert_eq!(other.status(), 200);
    assert_eq!(
        call(&layer, with(from("192.0.2.1"), "x-tenant", "third"))
            .await
            .status(),
        429
    );
}

#[tokio::test]
async fn the_hook_sees_why_and_changes_the_answer() {
    let (_, store) = manual();
    let rule = Rule::new("r", Quota::per_minute(1));
    let layer = RateLimitLayer::with_store(store, rule).on_refused(
        |refusal: &Refusal<'_>, head: &Head<'_>, mut response: Response<_>| {
            assert!(matches!(
                refusal,
                Refusal::Quota {
                    limit: "r sliding-window-counter/min",
                    ..
                }
            ));
            assert_eq!(head.uri().path(), "/");
            *response.body_mut() = "slow down".into();
            response
        },
    );
    call(&layer, from("192.0.2.1")).await;
    let refused = call(&layer, from("192.0.2.1")).await;
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.body(), "slow down");
    assert!(header(&refused, "retry-after").is_some());
}

#[tokio::test]
async fn the_observer_hears_of_every_request_once() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&seen);
    let (_, store) = manual();
    let layer = RateLimitLayer::with_store(store, Rule::new("a", Quota::per_minute(2)))
        .and(Rule::new("b", Quota::per_minute(1)))
        .and(Rule::new("c", Quota::per_minute(1)).shadow().cost(|_| 2))
        .on_decision(move |enforcement, _| {
            let outcomes = enforcement
                .outcomes()
                .map(|(rule, outcome)| (rule.to_owned(), outcome));
            heard.lock().unwrap().extend(outcomes);
        });
    call(&layer, from("192.0.2.1")).await;
    call(&layer, from("192.0.2.1")).await;
    let expected = [
        ("a", Outcome::Admitted),
        ("b", Outcome::Admitted),
        ("c", Outcome::ShadowRefused),
        // Rule a would have let it through: it had no say. Rule c is asked only what passes.
        ("b", Outcome::Refused),
    ];
    let expected = expected.map(|(rule, outcome)| (rule.to_owned(), outcome));
    assert_eq!(*seen.lock().unwrap(), expected);
}

#[tokio::test]
async fn the_services_own_error_comes_through() {
    #[derive(Debug, PartialEq)]
    struct Own(u8);
    let (_, store) = manual();
    let layer = RateLimitLayer::with_store(store, Rule::new("r", Quota::per_minute(5)));
    let inner = service_fn(|_: Asked| async { Err::<Response<Full<bytes::Bytes>>, _>(Own(7)) });
    let error: Own = layer
        .layer(inner)
        .call(from("192.0.2.1"))
        .await
        .unwrap_err();
    assert_eq!(error, Own(7));
}

#[tokio::test]
async fn a_rule_applies_only_when_it_says_so() {
    let (_, store) = manual();
    let rule =
        Rule::new("writes", Quota::per_minute(1)).when(|head| head.method() == http::Method::POST);
    let layer = RateLimitLayer::with_store(store, rule);
    let post = || {
        let mut request = from("192.0.2.1");
        *request.method_mut() = http::Method::POST;
        request
    };
    assert_eq!(call(&layer, post()).await.status(), 200);
    assert_eq!(call(&layer, post()).await.status(), 429);
    let read = call(&layer, from("192.0.2.1")).await;
    assert_eq!(read.status(), 200);
    assert_eq!(
        header(&read, "ratelimit"),
        None,
        "nothing was limited, so nothing is told"
    );
}

#[tokio::test]
async fn a_tier_has_quotas_of_its_own_and_a_client_that_moves_keeps_its_count() {
    let (_, store) = manual();
    let rule = Rule::new("api", Quota::per_hour(1))
        .tier("pro", [Quota::per_hour(3)])
        .by_header("x-user")
        .tier_by(|head| {
            head.headers()
                .get("x-plan")?
                .to_str()
                .ok()
                .map(str::to_owned)
        });
    let layer = RateLimitLayer::with_store(store, rule);
    let ann = |plan: &str| with(with(from("192.0.2.1"), "x-user", "ann"), "x-plan", plan);
    assert_eq!(call(&layer, ann("free")).await.status(), 200);
    assert_eq!(call(&layer, ann("free")).await.status(), 429);
    assert_eq!(
        call(&layer, ann("unheard-of")).await.status(),
        429,
        "the rule's own quotas hold"
    );
    let promoted = call(&layer, ann("pro")).await;
    assert_eq!(promoted.status(), 200);
    assert_eq!(header(&promoted, "x-ratelimit-remaining"), Some("1"));
}
