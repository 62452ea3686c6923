//! Allow and deny lists, and overrides.

use tallygate::http::StopReason;
use tallygate::rules::{
    ListedBy, Override, OverrideAction, Part, Rule, RuleOutcome, RuleSet, Rules, Source,
};

use super::{
    applied_rules, from, header, key, key_by, network, parse_request, plan, quotas, rule, rule_set,
    rules, with,
};

fn by_user(name: &str) -> Rule {
    let mut rule = rule(name);
    rule.key = key_by(header("x-user"));
    rule
}

fn rules_with_overrides(rules: Vec<Rule>, overrides: Vec<Override>) -> Rules {
    Rules::new(RuleSet {
        overrides,
        ..rule_set(rules)
    })
    .unwrap()
}

fn override_for(
    rule: Option<&str>,
    client: tallygate::rules::ListEntry,
    action: OverrideAction,
) -> Override {
    Override {
        rule: rule.map(|name| name.parse().unwrap()),
        client,
        action,
    }
}

#[test]
fn a_rule_with_its_stop_does_not_apply_to_allowed_clients() {
    let mut first = by_user("first");
    first.allow = vec![network("192.0.2.0/24"), key(&["ann"])];
    first.stop = true;
    let rules = rules(vec![first, rule("second")]);
    let ann = with("x-user", "ann", parse_request("GET /"));
    let bob = with("x-user", "bob", parse_request("GET /"));
    assert_eq!(applied_rules(&rules, &ann), ["second"]);
    assert_eq!(applied_rules(&rules, &bob), ["first"]);
    assert_eq!(applied_rules(&rules, &from("192.0.2.9", bob)), ["second"]);
    let trace = rules.trace(&(&ann).into());
    assert!(matches!(
        trace.rules[0].outcome,
        RuleOutcome::Allowed(ListedBy::List(1))
    ));
}

#[test]
fn a_network_of_ipv4_addresses_in_ipv6_is_an_ipv4_network() {
    for text in [
        "::ffff:203.0.113.0/120",
        "::ffff:203.0.113.7",
        "::ffff:0:0/96",
        "64:ff9b::203.0.113.7",
        "64:ff9b::203.0.113.0/120",
    ] {
        let mut only = rule("only");
        only.deny = vec![network(text)];
        let rules = rules(vec![only]);
        assert!(
            plan(&rules, &parse_request("GET /")).stopped().is_some(),
            "{text}"
        );
        for same in ["::ffff:203.0.113.7", "64:ff9b::203.0.113.7"] {
            let same = from(same, parse_request("GET /"));
            assert!(plan(&rules, &same).stopped().is_some(), "{text}");
        }
        let other = from("2001:db8::1", parse_request("GET /"));
        assert!(plan(&rules, &other).stopped().is_none(), "{text}");
    }
    for wrong in [
        "::ffff:203.0.113.0/24",
        "::ffff:0:0/80",
        "::ffff:203.0.113.7/120",
        "::/+0",
        "::/",
    ] {
        assert!(
            wrong.parse::<tallygate::http::Network>().is_err(),
            "{wrong}"
        );
    }
    let number = "10.0.0.0/x"
        .parse::<tallygate::http::Network>()
        .unwrap_err();
    assert!(
        number.to_string().contains("has no number of bits"),
        "{number}"
    );
}

#[test]
fn deny_takes_precedence_over_allow() {
    let mut only = by_user("only");
    only.allow = vec![network("203.0.113.0/24")];
    only.deny = vec![key(&["eve"])];
    let rules = rules(vec![only]);
    let eve = with("x-user", "eve", parse_request("GET /"));
    assert_eq!(
        plan(&rules, &eve).stopped().unwrap().reason,
        StopReason::Denied
    );
    assert!(plan(&rules, &parse_request("GET /")).stopped().is_none());
}

#[test]
fn a_listed_network_is_compared_with_the_full_address() {
    let mut only = rule("only");
    only.key = key_by(Source::Ip);
    only.deny = vec![network("2001:db8::5/128")];
    let rules = rules(vec![only]);
    let entries = |ip| plan(&rules, &from(ip, parse_request("GET /")));
    assert!(entries("2001:db8::5").stopped().is_some());
    assert!(entries("2001:db8::6").stopped().is_none());
}

#[test]
fn a_listed_address_stands_for_its_ipv6_prefix() {
    let mut only = rule("only");
    only.key = key_by(Source::Ip);
    only.allow = vec![key(&["2001:db8::5"]), key(&["::ffff:203.0.113.7"])];
    let rules = rules(vec![only]);
    assert!(applied_rules(&rules, &from("2001:db8::6", parse_request("GET /"))).is_empty());
    assert!(applied_rules(&rules, &parse_request("GET /")).is_empty());
    assert_eq!(
        applied_rules(&rules, &from("203.0.113.8", parse_request("GET /"))),
        ["only"]
    );
}

#[test]
fn a_listed_key_never_matches_a_fallback_source() {
    let mut only = rule("only");
    only.key = vec![Part::new(Source::Query("u".into())).or(header("x-user"))];
    only.allow = vec![key(&["ann"])];
    let rules = rules(vec![only]);
    assert!(applied_rules(&rules, &parse_request("GET /?u=ann")).is_empty());
    let elsewhere = with("x-user", "ann", parse_request("GET /"));
    assert_eq!(applied_rules(&rules, &elsewhere), ["only"]);
}

#[test]
fn a_listed_secret_matches() {
    let mut only = rule("only");
    only.key = vec![Part::new(header("authorization")), Part::new(Source::Host)];
    only.deny = vec![key(&["Bearer abc", "Example.com"])];
    let shown = format!("{only:?}");
    assert!(!shown.contains("abc"), "{shown}");
    let rules = rules(vec![only]);
    let request = with(
        "authorization",
        "bearer abc",
        parse_request("GET http://example.com/"),
    );
    assert!(plan(&rules, &request).stopped().is_some());
}

#[test]
fn an_override_changes_the_limits_and_keeps_the_counters() {
    let mut list = vec![by_user("api"), rule("all")];
    list[0].limits = super::same_limits(&["10/min", "fixed-window 100/d"]);
    let more = OverrideAction::Limits(quotas(&["500/min", "token-bucket 9/s"]));
    let rules = rules_with_overrides(list, vec![override_for(Some("api"), key(&["acme"]), more)]);
    let acme = plan(&rules, &with("x-user", "acme", parse_request("GET /")));
    let other = plan(&rules, &with("x-user", "ann", parse_request("GET /")));
    let (acme, other) = (&acme.charges()[0].limits, &other.charges()[0].limits);
    assert_eq!(acme[0].quota().limit(), 500);
    assert_eq!(other[0].quota().limit(), 10);
    assert_eq!(acme[0].name(), other[0].name());
    assert_eq!(acme[0].name(), "api sliding-window-counter/min");
    assert_eq!(acme[1].name(), "api token-bucket/s");
}

#[test]
fn overrides_take_precedence_over_lists_and_the_first_applies() {
    let mut api = by_user("api");
    api.allow = vec![key(&["ann"])];
    api.deny = vec![key(&["bob"])];
    let rules = rules_with_overrides(
        vec![api, by_user("other")],
        vec![
            override_for(Some("api"), key(&["ann"]), OverrideAction::Deny),
            override_for(None, key(&["bob"]), OverrideAction::Allow),
            override_for(
                Some("api"),
                network("203.0.113.0/24"),
                OverrideAction::Allow,
            ),
            override_for(Some("api"), key(&["eve"]), OverrideAction::Deny),
        ],
    );
    let entries = |user: &str| with("x-user", user.as_bytes(), parse_request("GET /"));
    assert_eq!(
        plan(&rules, &entries("ann")).stopped().unwrap().reason,
        StopReason::Denied
    );
    assert!(plan(&rules, &entries("bob")).stopped().is_none());
    assert!(applied_rules(&rules, &entries("bob")).is_empty());
    // Eve is in the network, which is listed earlier.
    assert_eq!(applied_rules(&rules, &entries("eve")), ["other"]);
    let elsewhere = from("198.51.100.1", entries("eve"));
    let trace = rules.trace(&(&elsewhere).into());
    assert!(matches!(
        trace.rules[0].outcome,
        RuleOutcome::Denied(ListedBy::Override(3))
    ));
}
