//! Rate limit headers, parsed by a strict parser of structured fields.

use http::StatusCode;
use sfv::{BareItem, ListEntry, Parser};
use tallygate::Quota;
use tallygate::http::{Draft, Headers};
use tallygate::rules::Rule;
use tallygate::tower::RateLimitLayer;

use crate::support::{call, from, header, manual_store};

/// The items of a list with their parameters.
fn items(text: &str) -> Vec<(String, Vec<(String, i64)>)> {
    let list: sfv::List = Parser::new(text).parse().unwrap();
    let item = |entry: &ListEntry| match entry {
        ListEntry::Item(item) => {
            let BareItem::String(name) = &item.bare_item else {
                panic!("{text}: a name is a string");
            };
            let params = item.params.iter().map(|(key, value)| {
                let BareItem::Integer(number) = value else {
                    panic!("{text}: {key:?} is not whole");
                };
                (key.as_str().to_owned(), i64::from(*number))
            });
            (name.as_str().to_owned(), params.collect())
        }
        ListEntry::InnerList(_) => panic!("{text}: a list in a list"),
    };
    list.iter().map(item).collect()
}

fn quota(text: &str) -> Quota {
    text.parse().unwrap()
}

fn params(pairs: &[(&str, i64)]) -> Vec<(String, i64)> {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), *value))
        .collect()
}

#[tokio::test]
async fn every_limit_has_a_policy_and_only_the_binding_one_a_state() {
    let (_, store) = manual_store();
    let rule =
        Rule::new("api", quota("token-bucket 10/s burst 25")).limit(quota("fixed-window 100/min"));
    let layer = RateLimitLayer::with_store(store, rule);
    let response = call(&layer, from("192.0.2.1")).await;
    let policy = items(header(&response, "ratelimit-policy").unwrap());
    assert_eq!(
        policy,
        [
            // A full drain of 2.5 s, rounded up.
            (
                "api token-bucket/s".to_owned(),
                params(&[("q", 25), ("w", 3)])
            ),
            (
                "api fixed-window/min".to_owned(),
                params(&[("q", 100), ("w", 60)])
            ),
        ]
    );
    let state = items(header(&response, "ratelimit").unwrap());
    let [(name, numbers)] = &state[..] else {
        panic!("{state:?}")
    };
    assert_eq!(name, "api token-bucket/s");
    // The unit returns after 100 ms, rounded up to a second.
    assert_eq!(numbers, &params(&[("r", 24), ("t", 1)]));
    assert_eq!(header(&response, "x-ratelimit-limit"), Some("25"));
    assert_eq!(header(&response, "x-ratelimit-remaining"), Some("24"));
    assert_eq!(header(&response, "x-ratelimit-reset"), Some("1"));
}

#[tokio::test]
async fn a_period_below_a_second_is_rounded_up() {
    let (_, store) = manual_store();
    let layer =
        RateLimitLayer::with_store(store, Rule::new("short", quota("fixed-window 5/100ms")));
    let response = call(&layer, from("192.0.2.1")).await;
    let policy = items(header(&response, "ratelimit-policy").unwrap());
    assert_eq!(policy[0].1, params(&[("q", 5), ("w", 1)]));
}

#[tokio::test]
async fn any_rule_name_is_a_valid_structured_string() {
    for name in [
        "plain",
        "with \"quotes\"",
        "back\\slash",
        "caf\u{e9}",
        "a\r\nb",
        "\u{1f600}",
        "",
    ] {
        let (_, store) = manual_store();
        let layer = RateLimitLayer::with_store(store, Rule::new(name, quota("5/min")));
        let response = call(&layer, from("192.0.2.1")).await;
        let policy = items(header(&response, "ratelimit-policy").unwrap());
        let state = items(header(&response, "ratelimit").unwrap());
        assert_eq!(policy[0].0, state[0].0, "{name:?}");
        assert!(
            policy[0].0.ends_with(" sliding-window-counter/min"),
            "{name:?}"
        );
    }
}

#[tokio::test]
async fn draft_seven_is_a_dictionary() {
    let headers = Headers::none().draft(Some(Draft::Seven));
    let (_, store) = manual_store();
    let rule = Rule::new("r", quota("fixed-window 2/min")).limit(quota("fixed-window 90/h"));
    let layer = RateLimitLayer::with_store(store, rule.headers(headers));
    let response = call(&layer, from("192.0.2.1")).await;
    let text = header(&response, "ratelimit").unwrap();
    let dictionary: sfv::Dictionary = Parser::new(text).parse().unwrap();
    assert_eq!(dictionary.len(), 3, "{text}");
    assert_eq!(text, "limit=2, remaining=1, reset=20");
    assert_eq!(
        header(&response, "ratelimit-policy"),
        Some("2;w=60, 90;w=3600")
    );
    let _: sfv::List = Parser::new("2;w=60, 90;w=3600").parse().unwrap();
    assert_eq!(header(&response, "x-ratelimit-limit"), None);
}

#[tokio::test]
async fn every_header_family_can_be_disabled() {
    let all = [
        "retry-after",
        "ratelimit",
        "ratelimit-policy",
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
    ];
    let cases: [(Headers, &[&str]); 5] = [
        (Headers::default(), &all),
        (Headers::default().retry_after(false), &all[1..]),
        (
            Headers::default().draft(None),
            &[
                "retry-after",
                "x-ratelimit-limit",
                "x-ratelimit-remaining",
                "x-ratelimit-reset",
            ],
        ),
        (Headers::default().x_ratelimit(false), &all[..3]),
        (Headers::none(), &[]),
    ];
    for (headers, sent) in cases {
        let (_, store) = manual_store();
        let layer = RateLimitLayer::with_store(
            store,
            Rule::new("r", quota("fixed-window 1/min")).headers(headers),
        );
        call(&layer, from("192.0.2.1")).await;
        let refused = call(&layer, from("192.0.2.1")).await;
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        for name in all {
            assert_eq!(
                header(&refused, name).is_some(),
                sent.contains(&name),
                "{name} of {headers:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_refusal_reports_the_unchanged_remaining_units() {
    let (_, store) = manual_store();
    let rule = Rule::new("r", quota("fixed-window 10/min")).cost(|_| 4);
    let layer = RateLimitLayer::with_store(store, rule);
    call(&layer, from("192.0.2.1")).await;
    call(&layer, from("192.0.2.1")).await;
    let refused = call(&layer, from("192.0.2.1")).await;
    assert_eq!(refused.status(), 429);
    assert_eq!(header(&refused, "x-ratelimit-remaining"), Some("2"));
}

#[tokio::test]
async fn nested_layers_report_the_smaller_limit() {
    use std::convert::Infallible;
    use tower::{Layer, Service, service_fn};
    for (outer, inner) in [(100, 1), (1, 100)] {
        let (_, store) = manual_store();
        let outer = RateLimitLayer::with_store(store, Rule::new("outer", Quota::per_hour(outer)));
        let (_, store) = manual_store();
        let inner = RateLimitLayer::with_store(store, Rule::new("inner", Quota::per_hour(inner)));
        let service = service_fn(|_: crate::support::TestRequest| async {
            let body = http_body_util::Full::<bytes::Bytes>::default();
            Ok::<_, Infallible>(http::Response::new(body))
        });
        let mut service = outer.layer(inner.layer(service));
        for status in [200, 429] {
            let response = service.call(from("192.0.2.1")).await.unwrap();
            assert_eq!(response.status(), status);
            assert_eq!(response.headers()["x-ratelimit-remaining"], "0");
            assert_eq!(response.headers()["x-ratelimit-limit"], "1");
        }
    }
}

#[tokio::test]
async fn a_rule_without_headers_is_not_listed_and_does_not_hide_others() {
    let (_, store) = manual_store();
    let hidden = Rule::new("hidden", quota("fixed-window 2/h")).headers(Headers::none());
    let layer = RateLimitLayer::with_store(store, Rule::new("public", quota("fixed-window 1/h")))
        .and(hidden);
    let response = call(&layer, from("192.0.2.1")).await;
    let policy = items(header(&response, "ratelimit-policy").unwrap());
    assert_eq!(policy.len(), 1, "{policy:?}");
    // If it refuses, only `Retry-After` is sent.
    let (_, store) = manual_store();
    let hidden = Rule::new("hidden", quota("fixed-window 1/h")).headers(Headers::none());
    let layer = RateLimitLayer::with_store(store, Rule::new("public", quota("fixed-window 9/h")))
        .and(hidden);
    call(&layer, from("192.0.2.1")).await;
    let refused = call(&layer, from("192.0.2.1")).await;
    assert_eq!(refused.status(), 429);
    assert!(header(&refused, "retry-after").is_some());
    assert_eq!(header(&refused, "ratelimit-policy"), None);
}
