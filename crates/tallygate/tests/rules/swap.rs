//! Rules that are swapped while requests are planned.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use tallygate::http::{Head, Policy};
use tallygate::rules::{
    Override, OverrideAction, RuleLimits, Rules, Source, SwappableRules, TierBy, Tiers,
};

use super::{
    counters, decide, header, key, key_by, parse_request, quotas, rule, rule_set, rules,
    same_limits,
};

const REQUESTS: u64 = 100_000;
const THREADS: u64 = 4;

/// One limit is the same in both generations; the others change.
fn generation(odd: bool) -> Rules {
    let mut kept = rule("kept");
    kept.key = key_by(Source::Ip);
    kept.limits = same_limits(&["fixed-window 1000000/d"]);
    let mut changing = rule("changing");
    changing.limits = same_limits(match odd {
        true => &["fixed-window 400000/d", "token-bucket 1000000/s"],
        false => &["fixed-window 300000/d"],
    });
    match odd {
        true => rules(vec![rule_of("new"), changing, kept]),
        false => rules(vec![kept, changing]),
    }
}

fn rule_of(name: &str) -> tallygate::rules::Rule {
    let mut new = rule(name);
    new.limits = same_limits(&["1000000/h"]);
    new
}

#[test]
fn swapping_rules_loses_no_count() {
    let limiter = counters();
    let live = SwappableRules::new(generation(false));
    let (admitted, planned_by_odd) = (AtomicU64::new(0), AtomicU64::new(0));
    let swaps = AtomicU64::new(0);
    let work = || {
        let request = parse_request("GET /");
        for number in 0..REQUESTS / THREADS {
            if number % 100 == 99 {
                let odd = swaps.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
                live.swap(generation(odd));
            }
            let plan = live.plan(&Head::from(&request));
            assert!(plan.stopped().is_none());
            // A plan is of one generation.
            let rules = plan.charges().len() as u64;
            assert!(rules == 2 || rules == 3);
            planned_by_odd.fetch_add(rules - 2, Ordering::Relaxed);
            let decision = decide(&limiter, &plan);
            assert!(!decision.degraded());
            admitted.fetch_add(decision.allowed().into(), Ordering::Relaxed);
        }
    };
    thread::scope(|scope| (0..THREADS).for_each(|_| drop(scope.spawn(work))));
    assert_eq!(admitted.into_inner(), REQUESTS);
    let odd = planned_by_odd.into_inner();
    assert!(odd > 0 && odd < REQUESTS, "{odd}");

    live.swap(generation(false));
    let plan = live.plan(&Head::from(&parse_request("GET /")));
    let decision = decide(&limiter, &plan);
    let remaining: Vec<u64> = decision
        .verdicts()
        .iter()
        .map(|verdict| verdict.remaining.into())
        .collect();
    assert_eq!(
        remaining,
        [1_000_000 - REQUESTS - 1, 300_000 - REQUESTS - 1]
    );
}

#[test]
fn previous_rules_stay_valid_while_they_are_referenced() {
    let live = SwappableRules::new(generation(true));
    let previous = live.current();
    let before = live.swap(generation(false));
    let plan = |rules: &Rules| {
        rules
            .plan(&Head::from(&parse_request("GET /")))
            .charges()
            .len()
    };
    assert_eq!(
        [plan(&previous), plan(&before), plan(&live.current())],
        [3, 3, 2]
    );
}

#[test]
fn the_policy_lists_every_limit_of_the_current_rules() {
    let mut tiered = rule("tiered");
    tiered.key = key_by(header("x-user"));
    let name = |name: &str| name.parse().unwrap();
    let tiers = vec![
        (name("free"), quotas(&["1/s"])),
        (name("pro"), quotas(&["5/s", "7/h"])),
    ];
    let by_plan = TierBy::Header("x-plan".parse().unwrap());
    tiered.limits = RuleLimits::Tiered(Tiers::new(by_plan, name("free"), tiers).unwrap());
    let mut set = rule_set(vec![rule("plain"), tiered]);
    set.overrides = vec![Override {
        rule: Some(name("tiered")),
        client: key(&["ann"]),
        action: OverrideAction::Limits(quotas(&["9/d"])),
    }];
    let heard = |policy: &dyn Policy| {
        let mut names = Vec::new();
        policy.limits(&mut |limit| names.push(limit.name().to_owned()));
        names
    };
    let all = Rules::new(set).unwrap();
    let names = [
        "plain sliding-window-counter/min",
        "tiered sliding-window-counter/s",
        "tiered sliding-window-counter/s",
        "tiered sliding-window-counter/h",
        "tiered sliding-window-counter/d",
    ];
    assert_eq!(heard(&all), names);
    let live = SwappableRules::new(rules(vec![rule("first")]));
    assert_eq!(heard(&live), ["first sliding-window-counter/min"]);
    live.swap(all);
    assert_eq!(heard(&live), names);
}
