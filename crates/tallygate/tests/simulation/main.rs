//! Simulated fleets: shipped scenarios, defects that are switched on again, and bounds under random
//! faults.
#![allow(clippy::unwrap_used)]

mod bad_scenarios;
mod random;
mod real;

use std::fs;
use std::path::{Path, PathBuf};

use tallygate::simulation::{Results, Scenario, simulate};

fn shipped() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ops/scenarios");
    let files = fs::read_dir(folder).unwrap();
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

fn shipped_text(name: &str) -> String {
    let files = shipped();
    let file = files.iter().find(|file| file.ends_with(name));
    fs::read_to_string(file.unwrap()).unwrap()
}

#[track_caller]
fn scenario(text: &str) -> Scenario {
    let scenario = Scenario::from_bytes("scenario.yaml", text.as_bytes());
    scenario.unwrap_or_else(|report| panic!("{report}\n{text}"))
}

#[track_caller]
fn run(text: &str) -> Results {
    simulate(&scenario(text), |_| {})
}

/// Whether a bound of the scenario holds.
#[track_caller]
fn holds(results: &Results, bound: &str) -> bool {
    let mut bounds = results.bounds.iter();
    let found = bounds.find(|checked| checked.bound == bound);
    found.expect("the scenario has the bound").holds
}

fn with_defect(text: &str, defect: &str) -> String {
    format!("{text}\ndefects: [{defect}]\n")
}

#[test]
fn the_bounds_of_shipped_scenarios_hold() {
    let files = shipped();
    assert_eq!(files.len(), 5, "{files:?}");
    for file in files {
        let scenario = Scenario::load(&file).unwrap_or_else(|report| panic!("{report}"));
        let mut last = 0.0;
        let results = simulate(&scenario, |done| {
            assert!(done > last && done <= 1.0);
            last = done;
        });
        assert!(last > 0.9, "{}", file.display());
        let answered = results.admitted + results.refused;
        assert_eq!(results.requests, answered + results.unanswered);
        assert!(!results.bounds.is_empty(), "{}", file.display());
        for bound in &results.bounds {
            assert!(bound.holds, "{}: {bound:?}", file.display());
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_results_and_another_one_others() {
    let text = shipped_text("crashes.yaml").replace("duration: 20s", "duration: 10s");
    let text = text.replace("  - { at: 15s, fail_over: 1, for: 100ms }\n", "");
    let seeded = |seed| simulate(&scenario(&text).with_seed(seed), |_| {});
    let shown = |seed| format!("{:?}", seeded(seed));
    assert_eq!(shown(7), shown(7));
    let (one, other) = (seeded(7), seeded(8));
    assert_eq!((one.seed, other.seed), (7, 8));
    assert_ne!(one.requests, other.requests);
}

#[test]
fn without_faults_servers_decide_as_the_exact_limiter() {
    let results = run("
duration: 5s
nodes: 5
shards: 2
limits: [token-bucket 5/s burst 10, 100/s]
traffic: { rate: 1000/s, keys: 50, skew: 1 }
refusal_cache: off
bounds: [worst <= 1x, admitted >= 0.99x, admitted <= 1.01x, degraded <= 0%, healthy >= 100%]
");
    for bound in &results.bounds {
        assert!(bound.holds, "{bound:?}");
    }
    assert_eq!(results.decisions, results.answers.servers);
    assert!(results.refused > 500, "{}", results.refused);
}

#[test]
fn zero_has_any_unit() {
    for zero in ["0", "0us", "0ms", "0s", "0min"] {
        let text = format!(
            "limits: 9/s\ntraffic: {{ rate: 1/s, from: {zero} }}\nnetwork: {{ delay: {zero}, jitter: {zero} }}\n"
        );
        assert_eq!(scenario(&text).faults().count(), 0);
    }
}

#[test]
fn equal_checks_of_a_hot_key_are_one_step() {
    let text = "
duration: 2s
nodes: 1
limits: token-bucket 1000/s burst 100000
traffic: { rate: 20000/s, keys: 1 }
network: { delay: 2ms, jitter: 0us }
";
    let results = run(text);
    assert!(results.steps_per_decision() < 0.05, "{results:?}");
    let apart = run(&format!("{text}batching: false\n"));
    assert!(apart.steps_per_decision() > 0.9);
    assert!(apart.latency.at(500) > results.latency.at(500));
}

/// Two batches of 128 in a round trip of 20 ms are 12,800 requests a second.
#[test]
fn batches_in_flight_follow_a_long_round_trip() {
    let results = run("
duration: 2s
nodes: 1
limits: 100/s
traffic: { rate: 20000/s, keys: 100000, skew: 0 }
network: { delay: 10ms, jitter: 100us }
bounds: degraded <= 30%
");
    assert!(results.bounds[0].holds, "{:?}", results.answers);
    // None is late once there are enough.
    let late = results.series.iter().skip(results.series.len() / 2);
    let degraded: u64 = late.map(|point| point.degraded).sum();
    assert_eq!(degraded, 0, "{:?}", results.answers);
}

#[test]
fn a_spent_key_costs_few_calls_with_the_refusal_cache_and_many_without() {
    let text = "
duration: 3s
nodes: 2
limits: fixed-window 10/min
traffic: { rate: 3000/s, keys: 1 }
bounds: [calls <= 0.05, cached >= 90%, admitted <= 1x]
";
    let results = run(text);
    assert!(
        results.bounds.iter().all(|bound| bound.holds),
        "{results:?}"
    );
    let without = run(&format!("{text}refusal_cache: off\n"));
    assert!(!holds(&without, "cached >= 90%"));
    assert!(holds(&without, "admitted <= 1x"));
}

/// Step 7: a missed deadline counted as a failure, so that a flood switched limits off.
#[test]
fn a_flood_opens_the_limiter_if_overload_is_a_failure() {
    let text = shipped_text("flood.yaml");
    let bound = "worst(user) <= 2x";
    assert!(holds(&run(&text), bound));
    let defective = run(&with_defect(&text, "overload-is-failure"));
    assert!(!holds(&defective, bound));
    assert!(defective.worst[0].ratio() > 3.0);
}

/// Step 8: one breaker for all shards, which a dead shard opens for the others too.
#[test]
fn a_dead_shard_switches_off_the_others_if_they_share_a_breaker() {
    let text = shipped_text("dead-shard.yaml");
    let bound = "healthy >= 99.9%";
    assert!(holds(&run(&text), bound));
    let defective = run(&with_defect(&text, "one-breaker"));
    assert!(!holds(&defective, bound));
    assert!(defective.healthy < 0.8, "{}", defective.healthy);
}

/// Step 8: a refusal by one shard was thrown away if another one failed.
#[test]
fn a_dead_shard_admits_what_another_one_refuses_if_refusals_are_forgotten() {
    let text = "
duration: 6s
nodes: 2
shards: 2
limits:
  - { name: user, quota: token-bucket 5/s burst 10 }
  - { name: service, quota: fixed-window 100000/min, by: all }
on_failure: open
traffic: { rate: 500/s, keys: 40, skew: 0 }
faults: { at: 1s, dead: 1, for: 5s }
bounds: refused >= 0.5x
";
    assert!(holds(&run(text), "refused >= 0.5x"));
    let defective = run(&with_defect(text, "forgotten-refusals"));
    assert!(!holds(&defective, "refused >= 0.5x"));
    assert!(defective.refused < 100, "{}", defective.refused);
}

#[test]
fn shutdown_returns_leases_and_a_kill_strands_them() {
    let text = |fault: &str| {
        format!(
            "
duration: 4s
nodes: 4
limits: {{ quota: token-bucket 100/s burst 40000, lease: {{ hold: 10s }} }}
traffic: {{ rate: 1000/s, keys: 3 }}
faults: {{ at: 2s, {fault}, for: 10s }}
bounds: stranded <= 0
"
        )
    };
    let stopped = run(&text("stop: 4"));
    assert!(stopped.leases.returned > 100, "{:?}", stopped.leases);
    assert!(stopped.bounds[0].holds, "{:?}", stopped.leases);
    let killed = run(&text("kill: 4"));
    assert!(!killed.bounds[0].holds);
    assert!(killed.leases.stranded > 1_000, "{:?}", killed.leases);
    // Nobody is left.
    assert!(killed.unanswered > 1_000);
}
