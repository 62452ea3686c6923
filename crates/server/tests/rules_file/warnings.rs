//! Lints: each warning where it applies, and none where it does not.

use tallygate_server::config::Style;

use crate::load_valid;

fn codes(rules: &str) -> Vec<String> {
    let text = format!("version: 1\n{rules}");
    let config = load_valid(&text);
    let codes = config.warnings.codes();
    codes
        .map(|code| code.trim_start_matches("rules::").to_owned())
        .collect()
}

#[test]
fn a_rule_after_one_that_stops_all_its_requests_never_applies() {
    let two = |first: &str, second: &str| {
        codes(&format!(
            "rules:\n  - {{ name: a, limits: 9/s, {first} }}\n  - {{ name: b, limits: 8/min, {second} }}"
        ))
    };
    let reached: Vec<String> = Vec::new();
    let never = ["never-reached".to_owned()];
    assert_eq!(two("stop: true", "match: { path: /x }"), never);
    assert_eq!(
        two(
            "stop: true, match: { path: /api/** }",
            "match: { path: /api/v1 }"
        ),
        never
    );
    assert_eq!(
        two(
            "stop: true, match: { method: [GET, POST] }",
            "match: { method: POST, path: /x }"
        ),
        never
    );
    assert_eq!(
        two(
            "stop: true, match: { header: { x-a: { present: true } } }",
            "match: { header: { x-a: b } }"
        ),
        ["spoofable-stop", "never-reached"]
    );
    for first in [
        "stop: false",
        "stop: true, shadow: true",
        "stop: true, enabled: false",
        "stop: true, match: { path: /y }",
        "stop: true, match: { method: GET }",
        "stop: true, allow: [10.0.0.0/8]",
        "stop: true, key: [{ header: x-user }], on_missing: pass",
    ] {
        assert_eq!(
            two(first, "match: { path: /x }, key: ip"),
            reached,
            "{first}"
        );
    }
}

#[test]
fn a_cost_above_the_capacity_is_reported() {
    for (cost, expected) in [
        ("cost: 5", true),
        ("cost: 3", false),
        ("cost: { header: x-cost, default: 4 }", true),
        ("cost: { header: x-cost, default: 1 }", false),
        ("cost: { method: { POST: 10 } }", true),
        ("cost: { path: { /a: 3 } }", false),
        ("cost: { path: { /a: 4 } }", true),
        ("cost: { path: { /a: 1 }, default: 4 }", true),
        ("cost: { json: n, at_most: 4 }", false),
        ("cost: { json: m, map: { large: 3 } }", false),
        ("cost: { json: m, map: { large: 4, small: 1 } }", true),
        ("cost: { json: m, map: { small: 1 }, default: 4 }", true),
    ] {
        let rules = format!("rules: [{{ name: a, limits: 3/s, {cost} }}]");
        let found = codes(&format!("trusted_proxies: {{ hops: 1 }}\n{rules}"));
        assert_eq!(found == ["never-fits"], expected, "{cost}");
        assert_eq!(found.is_empty(), !expected, "{cost}: {found:?}");
    }
}

#[test]
fn limits_that_tell_callers_apart_are_checked() {
    let shared = "limits: token-bucket 100/s burst 100 shared";
    for (rule, gateway, expected) in [
        (shared.to_owned(), false, &["no-members"][..]),
        (format!("{shared}, share: {{ by: ip }}"), false, &[]),
        (
            "limits: concurrent 5 for 30s".to_owned(),
            false,
            &["cannot-release"],
        ),
        ("limits: concurrent 5 for 30s".to_owned(), true, &[]),
        // What is in flight has no cost.
        (
            "limits: concurrent 5 for 30s, cost: 9".to_owned(),
            true,
            &[],
        ),
    ] {
        let gateway = match gateway {
            true => "gateway: { upstreams: ['http://127.0.0.1:1'] }\n",
            false => "",
        };
        let text = format!("{gateway}rules: [{{ name: a, key: ip, {rule} }}]");
        assert_eq!(codes(&text), expected, "{rule}");
    }
}

#[test]
fn a_redundant_limit_is_reported() {
    let rule = |limits: &str| codes(&format!("rules: [{{ name: a, limits: [{limits}] }}]"));
    assert_eq!(
        rule("sliding-window-log 1/s, sliding-window-log 1000/min"),
        ["never-binds"]
    );
    let buckets = "token-bucket 10/s burst 5, { quota: token-bucket 20/s burst 50, name: b }";
    assert_eq!(rule(buckets), ["never-binds"]);
    let buckets = "token-bucket 10/s burst 50, { quota: token-bucket 20/s burst 5, name: b }";
    assert_eq!(rule(buckets), Vec::<String>::new());
    assert_eq!(rule("10/s, 100/min, 1000/h"), Vec::<String>::new());
    assert_eq!(rule("token-bucket 1/s burst 10, 100000/h"), ["never-binds"]);
}

#[test]
fn a_budget_that_no_rule_spends_is_reported() {
    let with = |budget: &str| {
        codes(&format!(
            "budgets: {{ api: {{ key: ip, limits: 5/s }} }}\nrules: [{{ name: a, {budget} }}]"
        ))
    };
    assert_eq!(with("key: ip, limits: 5/s"), ["unused-budget"]);
    assert_eq!(with("budget: api"), [""; 0]);
    assert_eq!(with("budget: api, enabled: false"), [""; 0]);
}

#[test]
fn a_warning_about_a_budget_is_reported_once() {
    let rules = "rules: [{ name: a, budget: api }, { name: b, budget: api }]";
    let budget = "key: { header: x-forwarded-for }, limits: [sliding-window-log 1/s, \
                  sliding-window-log 1000/min]";
    let found = codes(&format!("budgets: {{ api: {{ {budget} }} }}\n{rules}"));
    assert_eq!(found, ["spoofable-key", "never-binds"]);
}

#[test]
fn redundant_rules_are_reported() {
    let two = |a: &str, b: &str| {
        codes(&format!(
            "rules:\n  - {{ name: a, key: ip, {a} }}\n  - {{ name: b, key: ip, {b} }}"
        ))
    };
    let contradictory = ["contradictory-limits".to_owned()];
    assert_eq!(two("limits: 100/min", "limits: 200/min"), contradictory);
    assert_eq!(two("limits: 200/min", "limits: 100/min"), contradictory);
    assert_eq!(
        two("limits: 50/min", "limits: 100/min, match: { path: /x }"),
        contradictory
    );
    let none: Vec<String> = Vec::new();
    assert_eq!(
        two("limits: 100/min", "limits: 50/min, match: { path: /x }"),
        none
    );
    assert_eq!(two("limits: 10/s", "limits: 100/min"), none);
    assert_eq!(
        two("limits: 100/min", "limits: 200/min, shadow: true"),
        none
    );
    assert_eq!(two("limits: 100/min", "limits: 200/min, cost: 2"), none);
}

#[test]
fn a_login_that_fails_open_is_reported() {
    let login = |rest: &str| {
        codes(&format!(
            "rules: [{{ name: a, key: ip, limits: 5/min, {rest} }}]"
        ))
    };
    for path in [
        "/login",
        "/api/v1/auth/**",
        "/oauth/token",
        "/users/password",
    ] {
        assert_eq!(
            login(&format!("match: {{ path: {path} }}, on_failure: open")),
            ["login-fails-open"],
            "{path}"
        );
    }
    for rest in [
        "match: { path: /login }, on_failure: closed",
        "match: { path: /login }, on_failure: local",
        "match: { path: /login }",
        "match: { path: /login }, on_failure: open, shadow: true",
        "match: { path: /authors }, on_failure: open",
        "match: { path: /blog/in }, on_failure: open",
    ] {
        assert_eq!(login(rest), Vec::<String>::new(), "{rest}");
    }
}

#[test]
fn spoofable_keys_are_reported() {
    let key = |top: &str, key: &str| {
        codes(&format!(
            "{top}\nrules: [{{ name: a, key: [{key}], limits: 5/s }}]"
        ))
    };
    let proxies = "trusted_proxies: [10.0.0.0/8]";
    assert_eq!(key("", "{ header: x-forwarded-for }"), ["spoofable-key"]);
    assert_eq!(
        key(proxies, "{ header: X-Forwarded-For }"),
        ["spoofable-key"]
    );
    assert_eq!(key("", "{ header: x-real-ip, or: ip }"), ["spoofable-key"]);
    assert_eq!(
        key(proxies, "{ header: cf-connecting-ip }"),
        Vec::<String>::new()
    );
    assert_eq!(key("", "ip"), Vec::<String>::new());
    assert_eq!(key("", "{ header: x-api-key }"), Vec::<String>::new());
}

#[test]
fn keys_that_clients_invent_are_reported_for_a_memory_store() {
    let file = |top: &str, rules: &str| codes(&format!("{top}\nrules: [{rules}]"));
    let api = "{ name: api, key: [{ header: x-api-key, or: ip }], limits: 9/s }";
    let by_ip = "{ name: each, key: ip, limits: 5/s }";
    let both = format!("{by_ip}, {api}");
    let login = format!("{{ name: each, match: {{ path: /a }}, key: ip, limits: 5/s }}, {api}");
    for memory in ["store: memory", "store: { url: memory, keys: 5 }"] {
        assert_eq!(file(memory, api), ["invented-keys"], "{memory}");
        assert_eq!(file(memory, &both), Vec::<String>::new(), "{memory}");
        assert_eq!(file(memory, &login), ["invented-keys"], "{memory}");
        assert_eq!(file(memory, by_ip), Vec::<String>::new(), "{memory}");
    }
    for other in ["", "store: ${NONE:-memory}", "store: redis://db"] {
        assert_eq!(file(other, api), Vec::<String>::new(), "{other}");
    }
}

#[test]
fn spoofable_stops_are_reported() {
    let found = |top: &str, first: &str, second: &str| {
        codes(&format!(
            "{top}\nrules:\n  - {{ name: a, limits: 9/s, {first} }}\n  \
             - {{ name: b, limits: 8/min, key: ip, {second} }}"
        ))
    };
    for header in [
        "x-a: b",
        "x-a: { present: true }",
        "x-a: { present: false }",
    ] {
        let first = format!("stop: true, match: {{ header: {{ {header} }} }}");
        assert_eq!(found("", &first, ""), ["spoofable-stop"], "{header}");
        let none: Vec<String> = Vec::new();
        assert_eq!(found("trusted_proxies: { hops: 1 }", &first, ""), none);
        // There is no later rule to evade.
        assert_eq!(found("", &first, "enabled: false"), none);
        assert_eq!(found("", &first, "shadow: true"), none);
        assert_eq!(found("", &format!("{first}, shadow: true"), ""), none);
        let last = first.replace("stop: true, ", "");
        assert_eq!(found("", "match: { path: /x }, stop: true", &last), none);
    }
}

#[test]
fn a_limit_by_address_behind_an_untrusted_proxy_is_reported() {
    let tiered =
        "rules: [{ name: a, key: ip, tier: { header: x-plan, default: f }, tiers: { f: 5/s } }]";
    assert_eq!(codes(tiered), ["spoofable-header", "untrusted-proxy"]);
    assert_eq!(
        codes(&format!("trusted_proxies: {{ hops: 1 }}\n{tiered}")),
        Vec::<String>::new()
    );
    let claim = "rules:\n  - { name: a, key: ip, limits: 5/s }\n  - { name: b, key: [{ claim: sub, header: x-jwt }], limits: 9/s }";
    assert_eq!(codes(claim), ["untrusted-proxy", "spoofable-header"]);
}

#[test]
fn headers_of_a_proxy_are_reported_without_a_proxy() {
    let rule = |rest: &str| format!("rules: [{{ name: a, {rest} }}]");
    let report = |rules: &str| load_valid(&format!("version: 1\n{rules}")).warnings;
    for (rest, what) in [
        (
            "tier: { header: x-plan, default: f }, tiers: { f: 5/s }",
            "tier",
        ),
        ("limits: 5/s, cost: { header: x-cost, default: 1 }", "cost"),
        (
            "limits: 5/s, key: [{ claim: sub, header: x-jwt }]",
            "claims",
        ),
        (
            "limits: 5/s, key: [{ claim: a, header: x-b }, { claim: c, header: x-d }], \
             cost: { header: x-cost, default: 1 }",
            "cost and claims",
        ),
    ] {
        let report = report(&rule(rest)).render(Style::Plain);
        assert!(report.contains("rules::spoofable-header"), "{report}");
        let message = format!("clients can choose their own {what}\n");
        assert!(report.contains(&message), "{report}");
        for proxies in [
            "trusted_proxies: [10.0.0.0/8]",
            "trusted_proxies: { hops: 1 }",
        ] {
            let found = codes(&format!("{proxies}\n{}", rule(rest)));
            assert_eq!(found, [""; 0], "{rest}");
        }
    }
    let by_keys = "tier: { keys: { f: [k] }, default: f }, tiers: { f: 5/s }, \
                   key: [{ header: x-user }]";
    assert_eq!(codes(&rule(by_keys)), [""; 0]);
}

#[test]
fn methods_that_an_override_header_evades_are_reported() {
    let file = |rules: &[&str]| {
        let rules = rules.iter().enumerate();
        let rules =
            rules.map(|(i, rest)| format!("  - {{ name: r{i}, limits: 5/{}s, {rest} }}", i + 1));
        codes(&format!("rules:\n{}", rules.collect::<Vec<_>>().join("\n")))
    };
    let delete = "match: { method: DELETE, path: /items/** }";
    let found = ["method-override"];
    assert_eq!(file(&[delete]), found);
    assert_eq!(file(&["match: { method: [PUT, PATCH] }"]), found);
    assert_eq!(
        file(&[delete, "match: { method: POST, path: /other }"]),
        found
    );
    assert_eq!(
        file(&[delete, "match: { method: POST }, shadow: true"]),
        found
    );
    for good in [
        &["match: { method: POST, path: /login }"][..],
        &["match: { method: [GET, HEAD] }"],
        &["match: { method: [POST, DELETE], path: /items/** }"],
        &[delete, "match: { path: /items/** }"],
        &[delete, "match: { method: [GET, POST] }, key: ip"],
        &[
            delete,
            "match: { header: { x-http-method-override: DELETE } }",
        ],
        &["match: { method: DELETE }, shadow: true"],
    ] {
        assert_eq!(file(good), [""; 0], "{good:?}");
    }
}

#[test]
fn tiers_with_too_many_limits_are_reported() {
    let quotas: Vec<String> = (1..=33).map(|seconds| format!("9/{seconds}s")).collect();
    let many = quotas.join(", ");
    let file = |path: &str| {
        let rule = |name: &str, path: &str| {
            format!(
                "  - {{ name: {name}, match: {{ path: {path} }}, key: [{{ header: x-user }}], \
                 tier: {{ keys: {{ big: [ann] }}, default: small }}, \
                 tiers: {{ small: 9/s, big: [{many}] }} }}"
            )
        };
        let mut found = codes(&format!(
            "rules:\n{}\n{}",
            rule("a", "/x/**"),
            rule("b", path)
        ));
        found.retain(|code| !code.starts_with("never-") && !code.starts_with("contra"));
        found
    };
    assert_eq!(file("/x/y"), ["no-room"]);
    assert_eq!(file("/y"), Vec::<String>::new());
}

#[test]
fn the_other_lints_are_reported() {
    for (text, code) in [
        (
            "trusted_proxies: [0.0.0.0/0]\nrules: [{ name: a, key: ip, limits: 1/s }]",
            "trusts-everybody",
        ),
        (
            "ipv6_prefix: 128\nrules: [{ name: a, key: ip, limits: 1/s }]",
            "ipv6-rotation",
        ),
        (
            "rules: [{ name: a, match: { path: '/users/:id' }, limits: 1/s }]",
            "colon-parameter",
        ),
        ("rules: [{ name: a, cost: 0, limits: 1/s }]", "cost-zero"),
        (
            "rules: [{ name: a, match: { method: PSOT }, limits: 1/s }]",
            "unusual-method",
        ),
        ("rules: []", "no-rules"),
    ] {
        assert_eq!(codes(text), [code], "{text}");
    }
    assert_eq!(
        codes("rules: [{ name: a, match: { method: PURGE }, limits: 1/s }]"),
        Vec::<String>::new()
    );
}

#[test]
fn leases_that_never_happen_are_reported() {
    let leased = |store: &str, rule: &str| {
        codes(&format!(
            "store: {store}\nrules: [{{ name: a, key: ip, lease: auto, {rule} }}]"
        ))
    };
    let redis = "redis://db";
    assert_eq!(leased("memory", "limits: 100/s"), ["lease-in-memory"]);
    assert_eq!(leased(redis, "limits: 7/s"), ["lease-too-small"]);
    assert_eq!(leased(redis, "limits: 8/s"), Vec::<String>::new());
    let fleet = "on_failure: { policy: local, replicas: 20 }";
    let limits = format!("limits: [159/s, 9999/h], {fleet}");
    assert_eq!(leased(redis, &limits), ["lease-too-small"]);
    let limits = format!("limits: 160/s, {fleet}");
    assert_eq!(leased(redis, &limits), Vec::<String>::new());
}

#[test]
fn only_a_terminal_gets_unicode_and_colour() {
    let warnings = load_valid("version: 1").warnings;
    let coloured = warnings.render(Style::Terminal { colour: true });
    let plain = warnings.render(Style::Terminal { colour: false });
    assert!(
        coloured.contains("\u{1b}[") && coloured.contains('╭'),
        "{coloured}"
    );
    assert!(!plain.contains('\u{1b}') && plain.contains('╭'), "{plain}");
    assert!(warnings.render(Style::Plain).is_ascii());
}

#[test]
fn a_warning_points_at_both_spans() {
    let text = "version: 1
rules:
  - { name: wide, key: ip, limits: 100/min }
  - { name: wider, key: ip, limits: 200/min }
";
    let report = load_valid(text).warnings.render(Style::Plain);
    let expected = "rules::contradictory-limits

  ! this limit of `wider` never refuses a request
   ,-[rules.yaml:4:37]
 3 |   - { name: wide, key: ip, limits: 100/min }
   :                                    ^^^|^^^
   :                                       `-- `wide` limits the same requests by the same key
 4 |   - { name: wider, key: ip, limits: 200/min }
   :                                     ^^^^^^^
   `----
  help: both rules apply to such requests; keep the intended one
";
    assert_eq!(report, expected, "{report}");
}
