//! Responses to refused requests, and the hooks of the layer.

use std::convert::Infallible;
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

use crate::support::{
    TestRequest, assert_outcomes, call, from, header, manual_store, record_outcomes, with,
};

#[test]
fn a_problem_escapes_any_limit_name_as_json() {
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
        let refusal = Refusal::Quota {
            limit,
            reported: true,
            retry_after,
        };
        let response = refusal.response(&Head::from(&Request::new(())));
        let json: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(json["violated-policies"][0], *limit);
        let detail = format!("`{limit}` is used up; there is room again in 2 s");
        assert_eq!(json["detail"], *detail);
        assert_eq!(json["status"], 429);
    }
}

#[tokio::test]
async fn a_refusal_is_a_problem_json_response() {
    let (_, store) = manual_store();
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
    assert_eq!(body["violated-policies"][0], "login");
    assert!(
        !refused.body().windows(9).any(|part| part == b"192.0.2.1"),
        "the body contains a key"
    );
}

/// The body of a refusal if the service has bodies of type `B`.
async fn refusal_body<B>() -> String
where
    B: Body<Data = Bytes> + FromBytes + Send + 'static,
    B::Error: std::fmt::Debug,
{
    let (_, store) = manual_store();
    let layer = RateLimitLayer::with_store(store, Rule::new("r", Quota::per_minute(1)));
    let inner = service_fn(|_: TestRequest| async {
        Ok::<_, Infallible>(Response::new(B::from_bytes(Bytes::from_static(b"hello"))))
    });
    let mut service = layer.layer(inner);
    let mut bodies = Vec::new();
    for _ in 0..2 {
        let response: Response<B> = service.call(from("192.0.2.1")).await.unwrap();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        bodies.push(String::from_utf8(body.to_vec()).unwrap());
    }
    assert_eq!(bodies[0], "hello");
    bodies.remove(1)
}

#[tokio::test]
async fn a_refusal_has_the_body_type_of_the_service() {
    let bodies = [
        refusal_body::<Full<Bytes>>().await,
        refusal_body::<BoxBody<Bytes, std::io::Error>>().await,
        refusal_body::<UnsyncBoxBody<Bytes, std::io::Error>>().await,
        refusal_body::<axum::body::Body>().await,
        refusal_body::<tonic::body::Body>().await,
        refusal_body::<RateLimitBody<Empty<Bytes>>>().await,
    ];
    for text in bodies {
        let body: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(body["status"], 429);
    }
}

#[tokio::test]
async fn a_refusal_by_a_rule_with_any_name_is_valid_json() {
    for name in ["plain", "a\"b\\c\n\u{e9}", "\0\u{1f}", "\u{1f600}"] {
        let (_, store) = manual_store();
        let layer =
            RateLimitLayer::with_store(store, Rule::new(name, Quota::per_minute(1)).by_ip());
        call(&layer, from("192.0.2.1")).await;
        let refused = call(&layer, from("192.0.2.1")).await;
        let body: serde_json::Value = serde_json::from_slice(refused.body()).unwrap();
        assert_eq!(body["violated-policies"][0], name);
    }
}

#[tokio::test]
async fn a_request_is_charged_to_all_rules_or_to_none() {
    let (_, store) = manual_store();
    let layer = RateLimitLayer::with_store(store, Rule::new("client", Quota::per_hour(2)).by_ip())
        .and(
            Rule::new("tenant", Quota::per_hour(3))
                .by_header("x-tenant")
                .cost(|_| 2),
        );
    let request = |ip: &str| with(from(ip), "x-tenant", "acme");
    assert_eq!(call(&layer, request("192.0.2.1")).await.status(), 200);
    // The tenant has 1 of 3 remaining; a request costs 2.
    for _ in 0..5 {
        let refused = call(&layer, request("192.0.2.1")).await;
        assert_eq!(refused.status(), 429);
        let body: serde_json::Value = serde_json::from_slice(refused.body()).unwrap();
        assert_eq!(body["violated-policies"][0], "tenant");
    }
    // The refused requests were not charged to the client.
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
async fn on_refused_gets_the_reason_and_may_change_the_response() {
    let (_, store) = manual_store();
    let rule = Rule::new("r", Quota::per_minute(1));
    let layer = RateLimitLayer::with_store(store, rule).on_refused(
        |refusal: &Refusal<'_>, head: &Head<'_>, mut response: Response<_>| {
            assert!(matches!(
                refusal,
                Refusal::Quota {
                    limit: "r",
                    reported: false,
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
async fn on_decision_is_called_once_for_every_request() {
    let (_, store) = manual_store();
    let layer = RateLimitLayer::with_store(store, Rule::new("a", Quota::per_minute(2)))
        .and(Rule::new("b", Quota::per_minute(1)))
        .and(Rule::new("c", Quota::per_minute(1)).shadow().cost(|_| 2));
    let (layer, outcomes) = record_outcomes(layer);
    call(&layer, from("192.0.2.1")).await;
    call(&layer, from("192.0.2.1")).await;
    let expected = [
        ("a", Outcome::Admitted),
        ("b", Outcome::Admitted),
        ("c", Outcome::ShadowRefused),
        // Only the rule that refuses is reported; a shadow rule sees admitted requests only.
        ("b", Outcome::Refused),
    ];
    assert_outcomes(&outcomes, &expected);
}

#[tokio::test]
async fn the_error_of_the_service_is_passed_through() {
    #[derive(Debug, PartialEq)]
    struct ServiceError(u8);
    let (_, store) = manual_store();
    let layer = RateLimitLayer::with_store(store, Rule::new("r", Quota::per_minute(5)));
    let inner = service_fn(|_: TestRequest| async {
        Err::<Response<Full<bytes::Bytes>>, _>(ServiceError(7))
    });
    let error: ServiceError = layer
        .layer(inner)
        .call(from("192.0.2.1"))
        .await
        .unwrap_err();
    assert_eq!(error, ServiceError(7));
}

#[tokio::test]
async fn a_rule_applies_only_if_its_condition_holds() {
    let (_, store) = manual_store();
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
        "no rule applied, so there are no headers"
    );
}

#[tokio::test]
async fn a_tier_has_its_own_quotas_and_a_client_that_changes_tiers_keeps_its_count() {
    let (_, store) = manual_store();
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
        call(&layer, ann("unknown")).await.status(),
        429,
        "an unknown tier has the quotas of the rule"
    );
    let promoted = call(&layer, ann("pro")).await;
    assert_eq!(promoted.status(), 200);
    assert_eq!(header(&promoted, "x-ratelimit-remaining"), Some("1"));
}
