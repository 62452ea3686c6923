//! Scenarios of `tallygate simulate`: any bytes produce a scenario or a report in bounded time. The
//! requests of a scenario are in order and within its bounds; a small one is run, and every request
//! is accounted for.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use tallygate::simulation::{Bound, Scenario, simulate};

/// How many requests of a scenario are looked at.
const MAX_ARRIVALS: usize = 2_000;
/// Runs of more requests, processes, servers or time take too long here.
const MAX_SIMULATED: usize = 300;
const MAX_NODES: u32 = 4;
const MAX_SHARDS: u32 = 4;
const MAX_DURATION: Duration = Duration::from_secs(2);

fuzz_target!(|bytes: &[u8]| {
    match Scenario::from_bytes("scenario.yaml", bytes) {
        Ok(scenario) => check(&scenario),
        Err(report) => {
            assert!(report.errors() > 0);
            let text = report.to_string();
            assert!(text.contains("scenario::"), "{text}");
        }
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        check_bound(text);
    }
});

fn check(scenario: &Scenario) {
    assert!((1..=1_000).contains(&scenario.nodes()));
    assert!((1..=100).contains(&scenario.shards()));
    assert!(scenario.limits().count() > 0);
    let duration_us = u64::try_from(scenario.duration().as_micros()).unwrap_or(u64::MAX);
    let arrivals: Vec<_> = scenario.traffic().take(MAX_ARRIVALS).collect();
    assert!(arrivals.is_sorted_by_key(|arrival| arrival.at_us));
    for arrival in &arrivals {
        assert!(arrival.at_us < duration_us, "{arrival:?}");
        assert!(arrival.node < scenario.nodes(), "{arrival:?}");
        assert!(arrival.key >= 1 && arrival.cost >= 1, "{arrival:?}");
    }
    for (at, _, fault) in scenario.faults() {
        assert!(at <= scenario.duration() && !fault.is_empty(), "{fault}");
    }
    let is_small = arrivals.len() <= MAX_SIMULATED
        && scenario.nodes() <= MAX_NODES
        && scenario.shards() <= MAX_SHARDS
        && scenario.duration() <= MAX_DURATION;
    if is_small {
        let results = simulate(scenario, |done| assert!((0.0..=1.0).contains(&done)));
        assert_eq!(results.requests, arrivals.len() as u64);
        assert_eq!(results.admitted + results.refused, results.decisions);
        assert_eq!(results.decisions + results.unanswered, results.requests);
        assert_eq!(results.worst.len(), scenario.limits().count());
    }
}

/// Any text as a bound.
fn check_bound(text: &str) {
    match text.parse::<Bound>() {
        Ok(bound) => {
            let again = bound.to_string().parse::<Bound>();
            assert_eq!(again.as_ref(), Ok(&bound), "{text:?}");
        }
        Err(error) => {
            assert!(text.get(error.span()).is_some(), "{error:?} of {text:?}");
            assert!(!error.to_string().is_empty() && !error.problem().is_empty());
        }
    }
}
