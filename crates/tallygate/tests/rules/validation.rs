//! Errors between the rules of a set.

use tallygate::rules::{
    Cost, KeyText, ListKind, MAX_PARTS, Override, OverrideAction, Part, Rule, RuleLimits, RuleSet,
    RuleSetError, Rules, Source, TierBy, Tiers,
};

use super::{header, key, key_by, path_matcher, quotas, rule, rule_set, same_limits};

fn faults(set: &RuleSet) -> Vec<RuleSetError> {
    let faults = set.validate();
    let refused = Rules::new(set.clone()).err();
    assert_eq!(refused.as_ref(), faults.first());
    assert!(faults.iter().all(|fault| !fault.to_string().is_empty()));
    faults
}

#[test]
fn rule_names_are_unique() {
    let twice = rule_set(vec![rule("a"), rule("b"), rule("a")]);
    let name = "a".parse().unwrap();
    assert_eq!(
        faults(&twice),
        [RuleSetError::DuplicateName { rule: 2, name }]
    );
}

#[test]
fn a_path_parameter_must_be_in_every_path() {
    let mut one = rule("one");
    one.key = key_by(Source::Path("id".into()));
    let parameter = "id".to_owned();
    let fault = RuleSetError::UnknownParameter { rule: 0, parameter };
    assert_eq!(faults(&rule_set(vec![one.clone()])), vec![fault.clone()]);
    one.matcher = path_matcher("/a/{id}");
    assert_eq!(faults(&rule_set(vec![one.clone()])), []);
    one.matcher.paths.push("/b/{other}".parse().unwrap());
    assert_eq!(faults(&rule_set(vec![one])), [fault]);
}

#[test]
fn a_listed_key_has_as_many_parts_as_the_key_of_the_rule() {
    let mut one = rule("one");
    one.key = key_by(header("x-user"));
    one.allow = vec![key(&["a"]), key(&["a", "b"])];
    one.deny = vec![key(&[])];
    let tier = ("free".parse().unwrap(), quotas(&["1/s"]));
    let keys = TierBy::Keys(vec![(KeyText::new(["a", "b"]), "free".parse().unwrap())]);
    let tiers = Tiers::new(keys, "free".parse().unwrap(), vec![tier]);
    one.limits = RuleLimits::Tiered(tiers.unwrap());
    let fault = |list, entry| RuleSetError::ListedKey {
        rule: 0,
        list,
        entry,
    };
    let expected = [
        fault(ListKind::Allow, 1),
        fault(ListKind::Deny, 0),
        fault(ListKind::Tier, 0),
    ];
    assert_eq!(faults(&rule_set(vec![one])), expected);
}

#[test]
fn a_listed_key_must_be_possible() {
    let mut one = rule("one");
    one.key = vec![
        Part::new(Source::Ip).or(header("x-user")),
        Part::new(header("x-team")),
    ];
    one.allow = vec![
        key(&["192.0.2.1", "a"]),
        key(&["2001:db8::1", "a"]),
        key(&["::ffff:192.0.2.1", "a"]),
        key(&["192.0.2.0/24", "a"]),
        key(&["ann", "a"]),
        key(&["", "a"]),
        key(&["192.0.2.1", " "]),
    ];
    let list = ListKind::Allow;
    let fault = |entry| RuleSetError::ListedKey {
        rule: 0,
        list,
        entry,
    };
    assert_eq!(faults(&rule_set(vec![one])), [3, 4, 5, 6].map(fault));
    // A rule without a key has no keys to list.
    let mut all = rule("all");
    all.allow = vec![key(&[])];
    assert_eq!(faults(&rule_set(vec![all])), [fault(0)]);
}

#[test]
fn the_number_of_parts_and_sources_is_bounded() {
    let mut one = rule("one");
    one.key = vec![Part::new(Source::Ip); MAX_PARTS];
    assert_eq!(faults(&rule_set(vec![one.clone()])), []);
    one.key.push(Part::new(Source::Ip));
    assert_eq!(
        faults(&rule_set(vec![one.clone()])),
        [RuleSetError::TooManyParts { rule: 0 }]
    );
    let place = |part: Part, _| part.or(Source::Ip);
    one.key = vec![(0..MAX_PARTS).fold(Part::new(Source::Ip), place)];
    assert_eq!(
        faults(&rule_set(vec![one])),
        [RuleSetError::TooManyParts { rule: 0 }]
    );
}

#[test]
fn the_default_cost_is_within_its_bounds() {
    let with = |default, least, most| {
        let mut one = rule("one");
        one.cost = Cost::Header {
            name: "x-cost".parse().unwrap(),
            default,
            min: least,
            max: most,
        };
        faults(&rule_set(vec![one]))
    };
    assert_eq!(with(1, 0, 1), []);
    for (default, least, most) in [(0, 1, 5), (6, 1, 5), (3, 5, 1)] {
        assert_eq!(
            with(default, least, most),
            [RuleSetError::CostBounds { rule: 0 }]
        );
    }
}

#[test]
fn rules_that_match_together_must_not_exceed_the_limits_of_a_request() {
    let periods: Vec<String> = (1..=33).map(|s| format!("10/{s}s")).collect();
    let texts: Vec<&str> = periods.iter().map(String::as_str).collect();
    let mut list = vec![rule("a"), rule("b")];
    for rule in &mut list {
        rule.limits = same_limits(&texts);
    }
    let crowded = [RuleSetError::TooManyLimits { rule: 1 }];
    let found = |change: &dyn Fn(&mut [Rule])| {
        let mut list = list.clone();
        change(&mut list);
        faults(&rule_set(list))
    };
    assert_eq!(found(&|_| {}), crowded);
    assert_eq!(found(&|list| list[1].matcher = path_matcher("/x")), crowded);
    // The first covers the second, in either order.
    assert_eq!(
        found(&|list| list[0].matcher = path_matcher("/x/y")),
        crowded
    );
    let mut paths = path_matcher("/x");
    paths.paths.push("/y/{id}".parse().unwrap());
    let below = |list: &mut [Rule]| {
        list[0].matcher = path_matcher("/y/**");
        list[1].matcher = paths.clone();
    };
    assert_eq!(found(&below), crowded);

    let apart = |list: &mut [Rule]| {
        (list[0].matcher, list[1].matcher) = (path_matcher("/x"), path_matcher("/y"))
    };
    assert_eq!(found(&apart), []);
    assert_eq!(found(&|list| list[0].stop = true), []);
    assert_eq!(found(&|list| list[1].enabled = false), []);
    assert_eq!(found(&|list| list[0].shadow = true), []);
    let by_host = |list: &mut [Rule]| {
        list[0].matcher.hosts = vec!["a.example.com".parse().unwrap()];
        list[1].matcher.hosts = vec!["b.example.com".parse().unwrap()];
    };
    assert_eq!(found(&by_host), []);
}

#[test]
fn an_override_names_an_existing_rule() {
    let mut one = rule("one");
    one.key = key_by(header("x-user"));
    let other = |rule: Option<&str>, texts: &[&str]| Override {
        rule: rule.map(|name| name.parse().unwrap()),
        client: key(texts),
        action: OverrideAction::Allow,
    };
    let with = |overrides| {
        faults(&RuleSet {
            overrides,
            ..rule_set(vec![one.clone(), rule("two")])
        })
    };
    assert_eq!(
        with(vec![other(None, &["a"]), other(Some("one"), &["a"])]),
        []
    );
    let name = "three".parse().unwrap();
    assert_eq!(
        with(vec![other(Some("three"), &["a"])]),
        [RuleSetError::UnknownRule { index: 0, name }]
    );
    assert_eq!(
        with(vec![other(Some("two"), &["a"]), other(None, &["a", "b"])]),
        [
            RuleSetError::OverrideKey { index: 0 },
            RuleSetError::OverrideKey { index: 1 }
        ]
    );
}

#[test]
fn an_override_key_for_all_rules_needs_the_same_sources() {
    let keyed = |name: &str, key: Vec<Part>| {
        let mut rule = rule(name);
        rule.key = key;
        rule
    };
    let with = |list: Vec<Rule>| {
        let overrides = vec![Override {
            rule: None,
            client: key(&["192.0.2.1"]),
            action: OverrideAction::Allow,
        }];
        faults(&RuleSet {
            overrides,
            ..rule_set(list)
        })
    };
    let user = || key_by(header("x-user"));
    let mixed = [RuleSetError::AmbiguousOverrideKey { index: 0 }];
    // Clients can send any address in a header.
    assert_eq!(
        with(vec![keyed("a", user()), keyed("b", key_by(Source::Ip))]),
        mixed
    );
    assert_eq!(
        with(vec![
            keyed("a", user()),
            keyed("b", key_by(header("x-team")))
        ]),
        mixed
    );
    // A listed key never stands for fallback sources.
    let or_ip = vec![Part::new(header("x-user")).or(Source::Ip)];
    let two = vec![Part::new(Source::Ip), Part::new(header("x-user"))];
    assert_eq!(
        with(vec![keyed("a", user()), keyed("b", or_ip), keyed("c", two)]),
        []
    );

    let id = |name: &str, path: &str| {
        let mut rule = keyed(name, key_by(Source::Path("id".into())));
        rule.matcher = path_matcher(path);
        rule
    };
    assert_eq!(
        with(vec![id("a", "/users/{id}"), id("b", "/users/{id}")]),
        []
    );
    assert_eq!(
        with(vec![id("a", "/users/{id}"), id("b", "/teams/{id}")]),
        mixed
    );
}
