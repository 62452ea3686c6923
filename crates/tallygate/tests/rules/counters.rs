//! Counters are separate for each rule and survive changes.

use std::time::Duration;

use tallygate::OnFailure;
use tallygate::rules::{Name, Quotas, QuotasError, Source};

use super::{counters, decide, key_by, parse_request, plan, rule, rules, same_limits};

#[test]
fn rules_with_the_same_key_and_quota_have_separate_counters() {
    let mut list = vec![rule("one"), rule("two")];
    for rule in &mut list {
        rule.key = key_by(Source::Ip);
    }
    let limiter = counters();
    let both = rules(list.clone());
    let one = rules(vec![list.swap_remove(0)]);
    decide(&limiter, &plan(&both, &parse_request("GET /")));
    decide(&limiter, &plan(&one, &parse_request("GET /")));
    let decision = decide(&limiter, &plan(&both, &parse_request("GET /")));
    let remaining: Vec<u32> = decision
        .verdicts()
        .iter()
        .map(|verdict| verdict.remaining)
        .collect();
    assert_eq!(remaining, [7, 8]);
}

#[test]
fn a_changed_or_added_limit_keeps_the_counts() {
    let limiter = counters();
    let with = |limits: &[&str]| {
        let mut rule = rule("only");
        rule.limits = same_limits(limits);
        rules(vec![rule])
    };
    for _ in 0..3 {
        decide(&limiter, &plan(&with(&["10/min"]), &parse_request("GET /")));
    }
    let changed = with(&["fixed-window 100/d", "20/min"]);
    let decision = decide(&limiter, &plan(&changed, &parse_request("GET /")));
    let remaining: Vec<u32> = decision
        .verdicts()
        .iter()
        .map(|verdict| verdict.remaining)
        .collect();
    assert_eq!(remaining, [99, 16]);
}

#[test]
fn quotas_have_different_names() {
    let quota = |text: &str| text.parse().unwrap();
    let named = |text: &str| Some(text.parse::<Name>().unwrap());
    let quotas = vec![(None, quota("10/min")), (named("burst"), quota("20/min"))];
    let quotas = Quotas::new(quotas).unwrap();
    let rule = "api".parse().unwrap();
    let names: Vec<String> = quotas.under(&rule).map(|(name, _)| name).collect();
    assert_eq!(names, ["api sliding-window-counter/min", "api burst"]);

    let twice = Quotas::new(vec![(None, quota("10/min")), (None, quota("20/min"))]);
    assert!(matches!(twice, Err(QuotasError::SameName { index: 1, .. })));
    let twice = Quotas::new(vec![(named("a"), quota("1/s")), (named("a"), quota("1/h"))]);
    assert!(matches!(twice, Err(QuotasError::SameName { index: 1, .. })));
    assert_eq!(Quotas::new(Vec::new()), Err(QuotasError::Empty));
    let many = (1..=65)
        .map(|s| (None, quota(&format!("1/{s}s"))))
        .collect();
    assert_eq!(Quotas::new(many), Err(QuotasError::TooMany { number: 65 }));
}

#[test]
fn every_limit_has_the_failure_policy_of_its_rule_and_shadow_rules_never_refuse() {
    let mut closed = rule("closed");
    closed.limits = same_limits(&["10/min", "100/h"]);
    closed.on_failure = Some(OnFailure::Closed);
    closed.deadline = Some(Duration::from_millis(20));
    let mut watching = closed.clone();
    watching.name = "watching".parse().unwrap();
    watching.shadow = true;
    let rules = rules(vec![closed, watching, rule("plain")]);
    assert_eq!(rules.limits().count(), 5);
    let plan = plan(&rules, &parse_request("GET /"));
    let policies = plan.charges().iter().map(|charge| {
        let own: Vec<_> = charge
            .limits
            .iter()
            .map(|limit| limit.own_policy())
            .collect();
        (own, charge.limits[0].own_deadline())
    });
    let deadline = Some(Duration::from_millis(20));
    let (open, closed) = (Some(OnFailure::Open), Some(OnFailure::Closed));
    let expected = [
        (vec![closed; 2], deadline),
        (vec![open; 2], deadline),
        (vec![None], None),
    ];
    assert_eq!(policies.collect::<Vec<_>>(), expected);
}
