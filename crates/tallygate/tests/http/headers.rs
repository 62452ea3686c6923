//! Rate limit headers, parsed by a strict parser of structured fields.

use http::StatusCode;
use sfv::{BareItem, ListEntry, Parser};
use tallygate::http::{Draft, Headers};
use tallygate::rules::{Rule, Rules};
use tallygate::tower::RateLimitLayer;
use tallygate::{Engine, Quota};

use crate::header_cases::{CASES, NAMES};
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
async fn every_limit_has_a_policy_and_only_one_a_state() {
    let (_, store) = manual_store();
    let rule = Rule::new("api", quota("token-bucket 10/s burst 25"))
        .limit(quota("fixed-window 100/min"))
        .by_ip();
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
    let layer = RateLimitLayer::with_store(
        store,
        Rule::new("short", quota("fixed-window 5/100ms")).by_ip(),
    );
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
        let layer = RateLimitLayer::with_store(store, Rule::new(name, quota("5/min")).by_ip());
        let response = call(&layer, from("192.0.2.1")).await;
        let policy = items(header(&response, "ratelimit-policy").unwrap());
        let state = items(header(&response, "ratelimit").unwrap());
        assert_eq!(policy[0].0, state[0].0, "{name:?}");
    }
}

#[tokio::test]
async fn draft_seven_is_a_dictionary() {
    let headers = Headers::none().draft(Some(Draft::Seven));
    let (_, store) = manual_store();
    let rule = Rule::new("r", quota("fixed-window 2/min"))
        .limit(quota("fixed-window 90/h"))
        .by_ip();
    let layer = RateLimitLayer::with_store(store, rule.by_ip().headers(headers));
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
            Rule::new("r", quota("fixed-window 1/min"))
                .by_ip()
                .headers(headers),
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
    let rule = Rule::new("r", quota("fixed-window 10/min"))
        .by_ip()
        .cost(|_| 4);
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
        let outer =
            RateLimitLayer::with_store(store, Rule::new("outer", Quota::per_hour(outer)).by_ip());
        let (_, store) = manual_store();
        let inner =
            RateLimitLayer::with_store(store, Rule::new("inner", Quota::per_hour(inner)).by_ip());
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

/// A layer with the rules of a file, on a manual clock.
fn layer(
    rules: &str,
) -> RateLimitLayer<Rules, tallygate::MemoryStore<std::sync::Arc<tallygate::ManualClock>>> {
    let file = format!("version: 1\n{rules}");
    let config = tallygate::config::load_bytes("rules.yaml", file.as_bytes(), &|_| None);
    let config = config.unwrap_or_else(|report| panic!("{report}\n{file}"));
    let (_, store) = manual_store();
    let rules = Rules::new(config.rules).unwrap();
    RateLimitLayer::with_engine(Engine::new(store), rules)
}

#[tokio::test]
async fn every_rule_set_has_its_headers() {
    for case in CASES {
        let layer = layer(case.rules);
        let mut response = call(&layer, from("192.0.2.1")).await;
        for _ in 1..case.requests {
            assert_eq!(response.status(), 200, "{}", case.name);
            response = call(&layer, from("192.0.2.1")).await;
        }
        assert_eq!(response.status(), case.status, "{}", case.name);
        let line = |name| Some(format!("{name}: {}", header(&response, name)?));
        let headers: Vec<String> = NAMES.into_iter().filter_map(line).collect();
        assert_eq!(headers, case.headers, "{}", case.name);
    }
}

#[tokio::test]
async fn a_refusal_names_only_reported_limits() {
    let body = |response: &http::Response<bytes::Bytes>| -> serde_json::Value {
        serde_json::from_slice(response.body()).unwrap()
    };
    let hidden = layer("rules: [{ name: internal, limits: sliding-window-log 1/d }]");
    call(&hidden, from("192.0.2.1")).await;
    let refused = body(&call(&hidden, from("192.0.2.1")).await);
    assert_eq!(refused["violated-policies"], serde_json::Value::Null);
    let detail = "a limit is used up; there is room again in 86400 s";
    assert_eq!(refused["detail"], detail);
    let never = layer(
        "rules:
  - { name: internal, limits: sliding-window-log 1/d, cost: 2 }
  - { name: client, key: ip, limits: sliding-window-log 1/d }",
    );
    let refused = body(&call(&never, from("192.0.2.1")).await);
    assert_eq!(refused["type"], "urn:tallygate:problem:never-fits");
    assert!(!refused.to_string().contains("internal"), "{refused}");
    let told = layer(
        "rules:
  - { name: internal, limits: sliding-window-log 1/d }
  - { name: client, key: ip, limits: sliding-window-log 1/h }",
    );
    call(&told, from("192.0.2.1")).await;
    let refused = body(&call(&told, from("192.0.2.1")).await);
    assert_eq!(refused["violated-policies"][0], "client");
    let detail = "`client` is used up; there is room again in 86400 s";
    assert_eq!(refused["detail"], detail);
}

#[tokio::test]
async fn the_reset_may_be_a_time() {
    let now = || {
        let now = std::time::SystemTime::now();
        now.duration_since(std::time::UNIX_EPOCH).unwrap()
    };
    let layer = layer(
        "headers: { x_ratelimit: epoch, ratelimit: off }
rules: [{ name: client, key: ip, limits: sliding-window-log 1/d }]",
    );
    for status in [200, 429] {
        let before = now().as_secs();
        let response = call(&layer, from("192.0.2.1")).await;
        assert_eq!(response.status(), status);
        let reset: u64 = header(&response, "x-ratelimit-reset")
            .unwrap()
            .parse()
            .unwrap();
        let day = 86_400;
        let latest = now().as_secs() + 1 + day;
        assert!((before + day..=latest).contains(&reset), "{reset}");
        assert_eq!(header(&response, "ratelimit"), None);
        assert_eq!(header(&response, "x-ratelimit-limit"), Some("1"));
    }
}

#[tokio::test]
async fn scripts_of_other_origins_can_read_the_headers() {
    use std::convert::Infallible;
    use tower::{Layer, Service, service_fn};
    let layer = layer(
        "rules:
  - { name: all, limits: sliding-window-log 10/d }
  - { name: client, key: ip, limits: sliding-window-log 1/d, headers: { ratelimit: off } }",
    );
    let service = service_fn(|_: crate::support::TestRequest| async {
        let body = http_body_util::Full::<bytes::Bytes>::default();
        let response = http::Response::builder()
            .header("access-control-allow-origin", "https://app.example")
            .header("access-control-expose-headers", "ETag");
        Ok::<_, Infallible>(response.body(body).unwrap())
    });
    let mut service = layer.layer(service);
    let response = service.call(from("192.0.2.1")).await.unwrap();
    assert_eq!(
        response.headers()["access-control-expose-headers"],
        "ETag, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset"
    );
    // The service did not see the refusal.
    let response = service.call(from("192.0.2.1")).await.unwrap();
    assert_eq!(response.status(), 429);
    assert!(
        !response
            .headers()
            .contains_key("access-control-expose-headers")
    );
}
