//! Allow and deny lists, and overrides.

use tallygate::http::StopReason;
use tallygate::rules::{
    ListedBy, Override, OverrideAction, Part, Rule, RuleOutcome, RuleSet, Rules, Source,
};

use super::{applied, ask, by, from, header, key, network, plan, quotas, rule, rules, set, with};

fn by_user(name: &str) -> Rule {
    let mut rule = rule(name);
    rule.key = by(header("x-user"));
    rule
}

fn overriding(rules: Vec<Rule>, overrides: Vec<Override>) -> Rules {
    Rules::new(RuleSet {
        overrides,
        ..set(rules)
    })
    .unwrap()
}

fn instead(
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
    let ann = with("x-user", "ann", ask("GET /"));
    let bob = with("x-user", "bob", ask("GET /"));
    assert_eq!(applied(&rules, &ann), ["second"]);
    assert_eq!(applied(&rules, &bob), ["first"]);
    assert_eq!(applied(&rules, &from("192.0.2.9", bob)), ["second"]);
    let trace = rules.trace(&(&ann).into());
    assert!(matches!(
        trace.rules[0].outcome,
        RuleOutcome::Allowed(ListedBy::List(1))
    ));
}

#[test]
fn an_ipv4_mapped_network_is_an_ipv4_network() {
    for text in [
        "::ffff:203.0.113.0/120",
        "::ffff:203.0.113.7",
        "::ffff:0:0/96",
    ] {
        let mut only = rule("only");
        only.deny = vec![network(text)];
        let rules = rules(vec![only]);
        assert!(plan(&rules, &ask("GET /")).stopped().is_some(), "{text}");
        let mapped = from("::ffff:203.0.113.7", ask("GET /"));
        assert!(plan(&rules, &mapped).stopped().is_some(), "{text}");
        let other = from("2001:db8::1", ask("GET /"));
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
    let eve = with("x-user", "eve", ask("GET /"));
    assert_eq!(
        plan(&rules, &eve).stopped().unwrap().reason,
        StopReason::Denied
    );
    assert!(plan(&rules, &ask("GET /")).stopped().is_none());
}

#[test]
fn a_listed_network_is_compared_with_the_full_address() {
    let mut only = rule("only");
    only.key = by(Source::Ip);
    only.deny = vec![network("2001:db8::5/128")];
    let rules = rules(vec![only]);
    let asked = |ip| plan(&rules, &from(ip, ask("GET /")));
    assert!(asked("2001:db8::5").stopped().is_some());
    assert!(asked("2001:db8::6").stopped().is_none());
}

#[test]
fn a_listed_address_stands_for_its_ipv6_prefix() {
    let mut only = rule("only");
    only.key = by(Source::Ip);
    only.allow = vec![key(&["2001:db8::5"]), key(&["::ffff:203.0.113.7"])];
    let rules = rules(vec![only]);
    assert!(applied(&rules, &from("2001:db8::6", ask("GET /"))).is_empty());
    assert!(applied(&rules, &ask("GET /")).is_empty());
    assert_eq!(
        applied(&rules, &from("203.0.113.8", ask("GET /"))),
        ["only"]
    );
}

#[test]
fn a_listed_key_never_matches_a_fallback_source() {
    let mut only = rule("only");
    only.key = vec![Part::new(Source::Query("u".into())).or(header("x-user"))];
    only.allow = vec![key(&["ann"])];
    let rules = rules(vec![only]);
    assert!(applied(&rules, &ask("GET /?u=ann")).is_empty());
    let elsewhere = with("x-user", "ann", ask("GET /"));
    assert_eq!(applied(&rules, &elsewhere), ["only"]);
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
        ask("GET http://example.com/"),
    );
    assert!(plan(&rules, &request).stopped().is_some());
}

#[test]
fn an_override_changes_the_limits_and_keeps_the_counters() {
    let mut list = vec![by_user("api"), rule("all")];
    list[0].limits = super::same(&["10/min", "fixed-window 100/d"]);
    let more = OverrideAction::Limits(quotas(&["500/min", "token-bucket 9/s"]));
    let rules = overriding(list, vec![instead(Some("api"), key(&["acme"]), more)]);
    let acme = plan(&rules, &with("x-user", "acme", ask("GET /")));
    let other = plan(&rules, &with("x-user", "ann", ask("GET /")));
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
    let rules = overriding(
        vec![api, by_user("other")],
        vec![
            instead(Some("api"), key(&["ann"]), OverrideAction::Deny),
            instead(None, key(&["bob"]), OverrideAction::Allow),
            instead(
                Some("api"),
                network("203.0.113.0/24"),
                OverrideAction::Allow,
            ),
            instead(Some("api"), key(&["eve"]), OverrideAction::Deny),
        ],
    );
    let asked = |user: &str| with("x-user", user.as_bytes(), ask("GET /"));
    assert_eq!(
        plan(&rules, &asked("ann")).stopped().unwrap().reason,
        StopReason::Denied
    );
    assert!(plan(&rules, &asked("bob")).stopped().is_none());
    assert!(applied(&rules, &asked("bob")).is_empty());
    // Eve is in the network, which is listed earlier.
    assert_eq!(applied(&rules, &asked("eve")), ["other"]);
    let elsewhere = from("198.51.100.1", asked("eve"));
    let trace = rules.trace(&(&elsewhere).into());
    assert!(matches!(
        trace.rules[0].outcome,
        RuleOutcome::Denied(ListedBy::Override(3))
    ));
}
