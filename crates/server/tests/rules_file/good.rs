//! Valid files and the rules they produce.

use std::time::Duration;

use tallygate::http::{ActualCost, ActualSource, ClientAddress, Draft, ForwardedBy, Headers};
use tallygate::rules::{
    CoalesceBy, Cost, CostSource, HeaderCondition, ListEntry, Missing, OverrideAction, Rule,
    RuleLimits, StatusFilter, TierBy,
};
use tallygate::{LeaseSettings, OnFailure, Replicas};
use tallygate_server::config::{GatewaySizes, GatewayTimeouts, load_bytes};

use crate::{load, load_valid};

const EXAMPLE: &str = "
version: 1
store: ${REDIS_URL:-memory}
trusted_proxies: [10.0.0.0/8]
rules:
  - name: login
    match: { method: POST, path: /login }
    key: [ip]
    limits: [sliding-window-log 5/min, fixed-window 50/day]
    on_failure: closed
  - name: api
    match: { path: /api/** }
    key: [{ header: x-api-key, or: ip }]
    tier: { header: x-plan, default: free }
    tiers: { free: [100/h], pro: [10000/h, token-bucket 50/s burst 200] }
    cost: { header: x-cost, default: 1 }
    allow: [192.0.2.0/24]
    shadow: false
";

fn only(text: &str) -> Rule {
    let text = format!("version: 1\nrules:\n  - {}", text.replace('\n', "\n    "));
    let mut rules = load_valid(&text).rules.rules;
    assert_eq!(rules.len(), 1);
    rules.remove(0)
}

#[test]
fn the_example_of_the_specification_loads_without_warnings() {
    let config = load_valid(EXAMPLE);
    assert_eq!(config.warnings.codes().count(), 0, "{}", config.warnings);
    assert_eq!(config.store.url, "memory");
    let network = "10.0.0.0/8".parse().unwrap();
    assert_eq!(config.rules.client, ClientAddress::behind([network]));
    let [login, api] = &config.rules.rules[..] else {
        panic!("two rules");
    };
    assert_eq!(login.name.as_str(), "login");
    assert_eq!(login.on_failure, Some(OnFailure::Closed));
    let RuleLimits::Same(quotas) = &login.limits else {
        panic!("no tiers");
    };
    let quotas: Vec<String> = quotas.iter().map(|(_, quota)| quota.to_string()).collect();
    assert_eq!(quotas, ["sliding-window-log 5/min", "fixed-window 50/d"]);
    let RuleLimits::Tiered(tiers) = &api.limits else {
        panic!("tiers");
    };
    assert!(matches!(tiers.by(), TierBy::Header(name) if name == "x-plan"));
    assert_eq!(tiers.default_tier().as_str(), "free");
    assert_eq!(tiers.tiers().len(), 2);
    assert!(matches!(&api.cost, Cost::Header { name, default: 1, min: 1, .. } if name == "x-cost"));
    let sources: Vec<String> = api.key[0].sources().map(ToString::to_string).collect();
    assert_eq!(sources, ["header x-api-key", "ip"]);
    assert_eq!(api.allow.len(), 1);
}

#[test]
fn the_store_url_is_expanded_and_never_printed() {
    let environment = |name: &str| (name == "REDIS_URL").then(|| "redis://u:hunter2@db".to_owned());
    let config = load_bytes("rules.yaml", EXAMPLE.as_bytes(), &environment).unwrap();
    assert_eq!(config.store.url, "redis://u:hunter2@db");
    assert!(!format!("{config:?}").contains("hunter2"));
}

#[test]
fn the_hmac_secret_is_expanded_and_never_printed() {
    let file = "version: 1\nstore: { url: \"redis://db\", hmac_secret: \"${SECRET}\" }\n";
    let load = |secret: &str| {
        let environment = |name: &str| (name == "SECRET").then(|| secret.to_owned());
        load_bytes("rules.yaml", file.as_bytes(), &environment)
    };
    let config = load("sixteen bytes..!").unwrap();
    let secret = config.store.hmac_secret.as_deref();
    assert_eq!(secret, Some("sixteen bytes..!"));
    assert!(!format!("{config:?}").contains("sixteen"));
    for short in ["", "fifteen bytes.."] {
        let report = load(short).unwrap_err().to_string();
        let expected = format!("`hmac_secret` has {} bytes, which is below 16", short.len());
        assert!(report.contains(&expected), "{report}");
        assert!(!report.contains("fifteen"), "{report}");
    }
    assert_eq!(
        load_valid("version: 1\nstore: memory").store.hmac_secret,
        None
    );
}

#[test]
fn short_forms_equal_long_forms() {
    for (short, long) in [
        ("name: a\nlimits: 5/s", "name: a\nlimits: [{ quota: 5/s }]"),
        (
            "name: a\nkey: ip\nlimits: 5/s",
            "name: a\nkey: [ip]\nlimits: [5/s]",
        ),
        (
            "name: a\nmatch: { path: /a, method: GET }\nlimits: 5/s",
            "name: a\nmatch: { path: [/a], method: [GET] }\nlimits: 5/s",
        ),
        (
            "name: a\nlimits: 5/s\non_failure: closed",
            "name: a\nlimits: 5/s\non_failure: { policy: closed }",
        ),
        (
            "name: a\nkey: [{ header: a, or: [{ cookie: b }, ip] }]\nlimits: 5/s",
            "name: a\nkey: { header: a, or: { cookie: b, or: ip } }\nlimits: 5/s",
        ),
        (
            "name: a\nkey: ip\nallow: 10.0.0.0/8\nlimits: 5/s",
            "name: a\nkey: ip\nallow: [10.0.0.0/8]\nlimits: 5/s",
        ),
        (
            "name: a\nlimits: 5/s\ncount: { only: 401 }",
            "name: a\nlimits: 5/s\ncount: { only: ['401'] }",
        ),
        ("name: 123\nlimits: 5/s", "name: '123'\nlimits: 5/s"),
    ] {
        assert_eq!(only(short), only(long), "{short}");
    }
}

#[test]
fn rules_inherit_the_settings_of_the_file() {
    let rules = load_valid(
        "
version: 1
headers: { x_ratelimit: false, jitter: 5s }
on_failure: { policy: local, replicas: 3, deadline: 20ms }
on_missing: refuse
rules:
  - { name: plain, limits: 5/s }
  - name: own
    limits: 5/s
    headers: { ratelimit: draft-07 }
    on_failure: { deadline: 1s }
    on_missing: pass
  - { name: silent, limits: 5/s, headers: off, on_failure: open }
",
    );
    let [plain, own, silent] = &rules.rules.rules[..] else {
        panic!("three rules");
    };
    let inherited = Headers::default()
        .x_ratelimit(false)
        .jitter(Duration::from_secs(5));
    let three = OnFailure::Local(Replicas::Fixed(3.try_into().unwrap()));
    assert_eq!(plain.headers, inherited);
    assert_eq!(
        (plain.on_failure, plain.deadline),
        (Some(three), Some(Duration::from_millis(20)))
    );
    assert_eq!(plain.on_missing, Missing::Refuse);
    assert_eq!(own.headers, inherited.draft(Some(Draft::Seven)));
    assert_eq!(
        (own.on_failure, own.deadline),
        (Some(three), Some(Duration::from_secs(1)))
    );
    assert_eq!(own.on_missing, Missing::Pass);
    assert_eq!(silent.headers, inherited.reported(false));
    assert_eq!(silent.on_failure, Some(OnFailure::Open));
    assert_eq!(silent.deadline, Some(Duration::from_millis(20)));
}

#[test]
fn every_field_of_a_rule_is_read() {
    let rule = only(
        "name: all
enabled: false
match:
  header: { x-env: [prod, stage*], x-debug: { present: false }, x-id: { present: true } }
  grpc: shop.v1.Carts/*
key: [{ claim: sub, header: x-jwt }, { query: q }, { constant: eu }, method, route, host]
limits: 5/s
cost: { method: { GET: 1, POST: 4 }, default: 2 }
deny: [{ key: [a, b, eu, d, e, f] }, 192.0.2.7]
stop: true
shadow: true
count: { except: [304, 5xx] }
longest_delay: 1min30s
single_flight: { by: [{ header: x-tenant }] }",
    );
    assert!(!rule.enabled && rule.stop && rule.shadow);
    assert_eq!(rule.matcher.headers.len(), 3);
    assert!(matches!(
        rule.matcher.headers[1].condition,
        HeaderCondition::Absent
    ));
    assert_eq!(rule.matcher.grpc[0].to_string(), "shop.v1.Carts/*");
    assert_eq!(rule.key.len(), 6);
    assert!(matches!(&rule.cost, Cost::Method { costs, default: 2 } if costs.len() == 2));
    assert!(matches!(&rule.deny[0], ListEntry::Key(key) if key.parts() == 6));
    assert!(matches!(&rule.count_if, StatusFilter::Except(list) if list.len() == 2));
    assert_eq!(rule.max_delay, Some(Duration::from_secs(90)));
    assert!(matches!(&rule.coalesce, Some(CoalesceBy::Parts(parts)) if parts.len() == 1));
}

#[test]
fn costs_in_json_and_actual_costs_are_read() {
    let rule = |cost: &str| only(&format!("name: a\nlimits: 1000/s\ncost: {cost}"));
    let header = |name: &str| name.parse().unwrap();
    let json = |path: &str| path.parse().unwrap();
    let texts = CostSource::JsonText {
        path: json("model"),
        costs: vec![
            ("gpt-large".parse().unwrap(), 20),
            ("gpt-*".parse().unwrap(), 5),
        ],
    };
    for (text, sources, default, min, max) in [
        (
            "{ json: model, map: { gpt-large: 20, gpt-*: 5 } }",
            vec![texts.clone()],
            1,
            0,
            u32::MAX,
        ),
        (
            "{ json: n, default: 7, at_most: 9 }",
            vec![CostSource::Json(json("n"))],
            7,
            1,
            9,
        ),
        (
            "{ header: x-n, default: 7, or: [{ json: n }, { json: model, map: { gpt-large: 20, gpt-*: 5 } }] }",
            vec![
                CostSource::Header(header("x-n")),
                CostSource::Json(json("n")),
                texts,
            ],
            7,
            1,
            u32::MAX,
        ),
    ] {
        let expected = Cost::FirstOf {
            sources,
            default,
            min,
            max,
        };
        assert_eq!(rule(text).cost, expected, "{text}");
        assert_eq!(rule(text).actual, None);
    }
    let sources = [
        ActualSource::Header("x-tokens".parse().unwrap()),
        ActualSource::Json(json("usage.total_tokens")),
    ];
    let actual = Some(ActualCost::new(sources));
    let header = Cost::Header {
        name: header("x-max-tokens"),
        default: 1_000,
        min: 1,
        max: u32::MAX,
    };
    for (text, cost) in [
        (
            "{ header: x-max-tokens, default: 1000, actual: { header: x-tokens, or: { json: usage.total_tokens } } }",
            header,
        ),
        (
            "{ default: 1000, actual: { header: x-tokens, json: usage.total_tokens } }",
            Cost::Constant(1_000),
        ),
        (
            "{ actual: { header: x-tokens, or: [{ json: usage.total_tokens }] } }",
            Cost::Constant(1),
        ),
    ] {
        let rule = rule(text);
        assert_eq!((rule.cost, &rule.actual), (cost, &actual), "{text}");
    }
}

#[test]
fn shares_are_read() {
    let rule = only(
        "name: tenants
limits: [token-bucket 100/s burst 100 shared, concurrent 5 for 30s]
share: { by: [{ header: x-tenant, or: ip }], weights: { acme: 4, zeta: 1000 }, default: 2 }",
    );
    let RuleLimits::Same(quotas) = &rule.limits else {
        panic!("no tiers");
    };
    let quotas: Vec<String> = quotas.iter().map(|(_, quota)| quota.to_string()).collect();
    let expected = [
        "token-bucket 100/s burst 100 shared 4",
        "concurrent 5 for 30s",
    ];
    assert_eq!(quotas, expected);
    let share = rule.share.unwrap();
    let sources: Vec<String> = share.by[0].sources().map(ToString::to_string).collect();
    assert_eq!(sources, ["header x-tenant", "ip"]);
    let weights = share.weights.iter().map(|(member, weight)| {
        let member: Vec<_> = member.texts().collect();
        (member.concat(), weight.get())
    });
    let expected = [("acme".to_owned(), 4), ("zeta".to_owned(), 1_000)];
    assert_eq!(weights.collect::<Vec<_>>(), expected);
    assert_eq!(share.default.get(), 2);
    let config = load_valid(
        "version: 1
budgets:
  spend: { key: [{ header: x-team }], limits: token-bucket 1000/d burst 1000 shared, share: { by: [{ header: x-user }] } }
rules:
  - { name: chat, budget: spend, stop: true }
  - { name: images, budget: spend, cost: 20 }",
    );
    let [chat, images] = &config.rules.rules[..] else {
        panic!("two rules");
    };
    assert!(chat.share.is_some() && chat.share == images.share);
}

#[test]
fn leases_are_read() {
    let lease = |text: &str| only(&format!("name: a\nlimits: 1000/s\n{text}")).lease;
    let default = LeaseSettings::default();
    assert_eq!(lease(""), None);
    assert_eq!(lease("lease: false"), None);
    assert_eq!(lease("lease: true"), Some(default));
    assert_eq!(lease("lease: auto"), Some(default.hot_only()));
    assert_eq!(lease("lease: {}"), Some(default));
    let own = default.max(200).hold(Duration::from_millis(1_500));
    assert_eq!(lease("lease: { max: 200, hold: 1s500ms }"), Some(own));
    assert_eq!(lease("lease: { hot_only: true }"), Some(default.hot_only()));
}

#[test]
fn single_flight_compares_credentials_by_default() {
    let shared = |text: &str| only(&format!("name: a\nlimits: 5/s\n{text}")).coalesce;
    assert_eq!(shared(""), None);
    assert_eq!(shared("single_flight: false"), None);
    assert_eq!(shared("single_flight: true"), Some(CoalesceBy::Credentials));
}

#[test]
fn every_field_of_the_gateway_is_read() {
    let config = load_valid(
        "
version: 1
trusted_proxies: 10.0.0.0/8
gateway:
  listen: '[::1]:8443'
  upstreams: [http://10.0.0.1:3000, https://api.internal, h2c://a:1, h2://b]
  host: upstream
  upstream_ca_cert: certs/ca.pem
  proxy_protocol: on
  tls: { cert: certs/gateway.pem, key: /run/secrets/gateway.key }
  timeouts: { header: 5s, body_idle: 10s, body_grace: 8s, keep_alive: 1min, write: 11s, connect: 500ms,
              first_byte: 12s, answer_idle: 13s, whole: 2h, tunnel_idle: 1h, pool_idle: 3s,
              down: 250ms }
  sizes: { connections: 100, connections_per_client: 0, head_bytes: 16384, headers: 50, body_bytes: 1000, body_rate: 2000, streams: 10,
           pool: 7 }
",
    );
    let gateway = config.gateway.unwrap();
    assert_eq!(gateway.listen, Some("[::1]:8443".parse().unwrap()));
    let upstreams: Vec<String> = gateway.upstreams.iter().map(ToString::to_string).collect();
    let wanted = [
        "http://10.0.0.1:3000/",
        "https://api.internal/",
        "h2c://a:1/",
        "h2://b/",
    ];
    assert_eq!(upstreams, wanted);
    assert!(gateway.upstream_host);
    assert!(gateway.proxy_protocol);
    assert_eq!(gateway.upstream_ca_cert, Some("certs/ca.pem".into()));
    let tls = (
        "certs/gateway.pem".into(),
        "/run/secrets/gateway.key".into(),
    );
    assert_eq!(gateway.tls, Some(tls));
    let ms = |ms| Some(Duration::from_millis(ms));
    let s = |s| Some(Duration::from_secs(s));
    let timeouts = GatewayTimeouts {
        header: s(5),
        body_idle: s(10),
        body_grace: s(8),
        keep_alive: s(60),
        write: s(11),
        connect: ms(500),
        first_byte: s(12),
        answer_idle: s(13),
        whole: s(7200),
        tunnel_idle: s(3600),
        pool_idle: s(3),
        down: ms(250),
    };
    assert_eq!(gateway.timeouts, timeouts);
    let sizes = GatewaySizes {
        connections: Some(100),
        connections_per_client: Some(0),
        head_bytes: Some(16384),
        headers: Some(50),
        body_bytes: Some(1000),
        body_rate: Some(2000),
        streams: Some(10),
        pool: Some(7),
    };
    assert_eq!(gateway.sizes, sizes);
}

#[test]
fn proxy_protocol_is_a_switch() {
    for (value, is_on) in [
        ("true", true),
        ("on", true),
        ("false", false),
        ("off", false),
    ] {
        let text = format!(
            "version: 1\ntrusted_proxies: 10.0.0.0/8\ngateway: {{ proxy_protocol: {value} }}\nrules: []"
        );
        let gateway = load_valid(&text).gateway.unwrap();
        assert_eq!(gateway.proxy_protocol, is_on, "{value}");
    }
    // Without proxies it may be off.
    load_valid("version: 1\ngateway: { proxy_protocol: false }\nrules: []");
}

#[test]
fn the_gateway_has_defaults() {
    assert_eq!(load_valid("version: 1\nrules: []").gateway, None);
    let config = load_valid("version: 1\ngateway: { upstreams: http://a }");
    let gateway = config.gateway.unwrap();
    assert_eq!(gateway.listen, None);
    assert_eq!(gateway.timeouts, GatewayTimeouts::default());
    assert_eq!(gateway.sizes, GatewaySizes::default());
}

#[test]
fn overrides_keep_their_order() {
    let config = load_valid(
        "
version: 1
trusted_proxies: { hops: 2 }
forwarded: forwarded
ipv6_prefix: 48
rules:
  - { name: api, key: [{ header: x-api-key }], limits: 100/min }
overrides:
  - { for: { key: k1 }, rule: api, limits: 5000/min }
  - { for: 203.0.113.0/24, deny: true }
  - { for: 192.0.2.10, rule: api, allow: true }
",
    );
    let instead: Vec<&OverrideAction> = config.rules.overrides.iter().map(|o| &o.action).collect();
    assert!(matches!(
        instead[..],
        [
            OverrideAction::Limits(_),
            OverrideAction::Deny,
            OverrideAction::Allow
        ]
    ));
    let client = ClientAddress::behind_hops(2).header(ForwardedBy::Forwarded);
    assert_eq!(config.rules.client, client.ipv6_prefix(48));
    assert!(config.rules.overrides[1].rule.is_none());
}

#[test]
fn aliases_replace_whole_values() {
    let config = load_valid(
        "
version: 1
rules:
  - { name: a, match: { path: /a }, limits: &usual [100/min, 1000/h] }
  - { name: b, match: { path: /b }, limits: *usual }
",
    );
    assert_eq!(config.rules.rules[0].limits, config.rules.rules[1].limits);
}

#[test]
fn byte_order_marks_and_carriage_returns_are_accepted() {
    let text = "\u{feff}version: 1\r\nrules:\r\n  - name: a\r\n    limits: 5/s\r\n";
    assert_eq!(load_valid(text).rules.rules.len(), 1);
}

#[test]
fn json_is_accepted() {
    let text = r#"{ "version": 1, "rules": [{ "name": "a", "key": ["ip"], "limits": ["5/s"] }] }"#;
    assert_eq!(load_valid(text).rules.rules.len(), 1);
}

#[test]
fn at_most_40_diagnostics_are_rendered() {
    let rules: String = (0..100)
        .map(|n| format!("  - {{ name: r{n}, limits: 0/s }}\n"))
        .collect();
    let report = load(&format!("version: 1\nrules:\n{rules}")).unwrap_err();
    assert_eq!(report.errors(), 100);
    let text = report.to_string();
    assert!(text.ends_with("and 60 more"), "{text}");
}

#[test]
fn a_file_that_is_too_large_is_rejected() {
    let text = "#".repeat((4 << 20) + 1);
    let report = load(&text).unwrap_err();
    assert_eq!(report.codes().collect::<Vec<_>>(), ["rules::too-large"]);
}
