//! Rules swapped while requests come in.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use tollgate::http::{Head, Policy};
use tollgate_server::rules::{Live, Rules, Source};

use super::{ask, by, counters, decide, rule, rules, same};

const REQUESTS: u64 = 100_000;
const THREADS: u64 = 4;

/// The kept limit is in both; the others come and go, and one changes its limit.
fn generation(odd: bool) -> Rules {
    let mut kept = rule("kept");
    kept.key = by(Source::Ip);
    kept.limits = same(&["fixed-window 1000000/d"]);
    let mut changing = rule("changing");
    changing.limits = same(match odd {
        true => &["fixed-window 400000/d", "token-bucket 1000000/s"],
        false => &["fixed-window 300000/d"],
    });
    match odd {
        true => rules(vec![rule_of("new"), changing, kept]),
        false => rules(vec![kept, changing]),
    }
}

fn rule_of(name: &str) -> tollgate_server::rules::Rule {
    let mut new = rule(name);
    new.limits = same(&["1000000/h"]);
    new
}

#[test]
fn swapping_rules_loses_no_request_and_no_count() {
    let limiter = counters();
    let live = Live::new(generation(false));
    let (admitted, planned_by_odd) = (AtomicU64::new(0), AtomicU64::new(0));
    let done = AtomicBool::new(false);
    let mut swaps = 0u64;
    thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    let request = ask("GET /");
                    for _ in 0..REQUESTS / THREADS {
                        let plan = live.plan(&Head::from(&request));
                        assert!(plan.stopped().is_none());
                        // Of one generation or the other, never of both.
                        let rules = plan.charges().len() as u64;
                        assert!(rules == 2 || rules == 3);
                        planned_by_odd.fetch_add(rules - 2, Ordering::Relaxed);
                        let decision = decide(&limiter, &plan);
                        assert!(!decision.degraded());
                        admitted.fetch_add(decision.allowed().into(), Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let swapper = scope.spawn(|| {
            let mut odd = true;
            let mut swaps = 0;
            while !done.load(Ordering::Relaxed) {
                live.swap(generation(odd));
                odd = !odd;
                swaps += 1;
                // So many more that most of them were planned after the swap.
                let enough = admitted.load(Ordering::Relaxed) + 25 * THREADS;
                while admitted.load(Ordering::Relaxed) < enough && !done.load(Ordering::Relaxed) {
                    thread::yield_now();
                }
            }
            swaps
        });
        workers
            .into_iter()
            .for_each(|worker| worker.join().unwrap());
        done.store(true, Ordering::Relaxed);
        swaps = swapper.join().unwrap();
    });
    assert_eq!(admitted.into_inner(), REQUESTS);
    let odd = planned_by_odd.into_inner();
    assert!(
        swaps > 1 && odd > 0 && odd < REQUESTS,
        "{swaps} swaps, {odd}"
    );

    live.swap(generation(false));
    let plan = live.plan(&Head::from(&ask("GET /")));
    let decision = decide(&limiter, &plan);
    let left: Vec<u64> = decision
        .verdicts()
        .iter()
        .map(|verdict| verdict.remaining.into())
        .collect();
    assert_eq!(left, [1_000_000 - REQUESTS - 1, 300_000 - REQUESTS - 1]);
}

#[test]
fn rules_in_force_stay_until_those_who_hold_them_let_go() {
    let live = Live::new(generation(true));
    let held = live.current();
    let before = live.swap(generation(false));
    let plan = |rules: &Rules| rules.plan(&Head::from(&ask("GET /"))).charges().len();
    assert_eq!(
        [plan(&held), plan(&before), plan(&live.current())],
        [3, 3, 2]
    );
}
