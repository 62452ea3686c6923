//! Scenarios that make no sense: errors name the place, the value and its bound, and say what to
//! write.

use serde_json::Value;
use tallygate::simulation::Scenario;

/// The start of a good scenario, in two lines.
const GOOD: &str = "limits: 100/s\ntraffic: 1000/s\n";

/// The errors of a scenario as `line:column code message (help)`.
fn errors(text: &str) -> Vec<String> {
    let Err(report) = Scenario::from_bytes("s.yaml", text.as_bytes()) else {
        return Vec::new();
    };
    let errors = serde_json::to_value(report.to_json()).unwrap();
    let shown = errors.as_array().unwrap().iter().map(|error| {
        let field = |name: &str| match &error[name] {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            other => other.to_string(),
        };
        assert_eq!(field("file"), "s.yaml");
        format!(
            "{}:{} {} {} ({})",
            field("line"),
            field("column"),
            field("code"),
            field("message"),
            field("help")
        )
    });
    shown.collect()
}

#[track_caller]
fn only_error(text: &str) -> String {
    let errors = errors(text);
    let [error] = &errors[..] else {
        panic!("{errors:#?}\n{text}");
    };
    error.clone()
}

#[test]
fn a_field_out_of_its_bounds_is_named_with_value_and_bound() {
    assert_eq!(errors(GOOD), [""; 0]);
    for (line, expected) in [
        (
            "nodes: 0",
            "3:8 scenario::out-of-range `nodes` 0 is below the minimum of 1",
        ),
        (
            "nodes: 1001",
            "3:8 scenario::out-of-range `nodes` 1001 is above the maximum of 1000",
        ),
        (
            "nodes: few",
            "3:8 scenario::wrong-type `nodes`: expected an integer, found `few`",
        ),
        (
            "shards: 0",
            "3:9 scenario::out-of-range `shards` 0 is below the minimum of 1",
        ),
        (
            "shards: 101",
            "3:9 scenario::out-of-range `shards` 101 is above the maximum of 100",
        ),
        (
            "duration: 0s",
            "3:11 scenario::duration `duration` `0s` is below the minimum of 1us",
        ),
        (
            "duration: 2h",
            "3:11 scenario::duration `duration` `2h` is above the maximum of 3600s",
        ),
        (
            "duration: soon",
            "3:11 scenario::duration `duration` `soon` is not a duration",
        ),
        (
            "network: { loss: 1.5 }",
            "3:18 scenario::out-of-range `loss` `1.5` is above the maximum of 1 \
             (expected a number from 0 to 1",
        ),
        (
            "network: { loss: -1 }",
            "3:18 scenario::out-of-range `loss` `-1` is below the minimum of 0",
        ),
        (
            "network: { loss: some }",
            "3:18 scenario::out-of-range `loss` `some` is not a number",
        ),
        (
            "network: { delay: 11s }",
            "3:19 scenario::duration `delay` `11s` is above the maximum of 10s",
        ),
        (
            "clocks: { drift_ppm: 100001 }",
            "above the maximum of 100000",
        ),
        (
            "service: { call: 2s }",
            "`call` `2s` is above the maximum of 1s",
        ),
        (
            "on_failure: opne",
            "3:13 scenario::unknown-word `on_failure`: expected",
        ),
        ("refusal_cache: { max_age: 2min }", "at most 1min"),
        (
            "node: 3",
            "3:1 scenario::unknown-field unknown field `node` in a scenario (did you mean `nodes`?)",
        ),
        ("defects: [one-braker]", "(did you mean `one-breaker`?)"),
        (
            "title: a\ntitle: b",
            "4:1 scenario::duplicate-field duplicate field `title`",
        ),
    ] {
        let error = only_error(&format!("{GOOD}{line}\n"));
        assert!(error.contains(expected), "{line}: {error}");
    }
}

#[test]
fn limits_that_cannot_be_simulated_or_leased_are_errors() {
    let traffic = "traffic: 1000/s\n";
    for (limits, expected) in [
        ("100/fortnight", "2:13 scenario::quota"),
        ("fast", "scenario::quota"),
        ("[]", "`limits` is an empty list (such as `limits: 100/s`)"),
        (
            "leaky-bucket 10/s queue 20",
            "`leaky-bucket 10/s queue 20` cannot be simulated: nobody waits for its delays (use a quota \
             that refuses",
        ),
        (
            "concurrent 10 for 30s",
            "`concurrent 10 for 30s` cannot be simulated: its requests have no members and no owners",
        ),
        (
            "token-bucket 10/s burst 100 shared 4",
            "cannot be simulated: its requests have no members",
        ),
        (
            "{ quota: leaky-bucket 10/s queue 20, lease: true }",
            "2:18 scenario::contradiction `leaky-bucket 10/s queue 20` cannot be simulated",
        ),
        (
            "{ quota: 100/s, lease: { hold: 0s } }",
            "`hold` `0s` is not 10ms to 1min",
        ),
        (
            "{ quota: 100/s, lease: { max: 1 } }",
            "`max` 1 is below the minimum of 2",
        ),
        (
            "{ quota: 100/s, lease: often }",
            "expected `true`, `false` or `auto`",
        ),
        (
            "{ quota: 100/s, by: user }",
            "expected `key` or `all`, found `user`",
        ),
        ("{ name: a }", "missing field `quota` in a limit"),
        (
            "[{ quota: 1/s, name: a }, { quota: 2/s, name: a }]",
            "duplicate limit name",
        ),
        (
            "[1/s, 2/s, 3/s, 4/s, 5/s, 6/s, 7/s, 8/s, 9/s]",
            "more than 8 limits",
        ),
    ] {
        let error = only_error(&format!("{traffic}limits: {limits}\n"));
        assert!(error.contains(expected), "{limits}: {error}");
    }
    assert!(only_error("traffic: 1/s\n").contains("missing field `limits` in a scenario"));
    assert!(only_error("limits: 1/s\n").contains("missing field `traffic` in a scenario"));
}

#[test]
fn traffic_that_makes_no_sense_is_an_error() {
    let limits = "limits: 100/s\n";
    for (traffic, expected) in [
        (
            "fast",
            "2:10 scenario::quota invalid rate `fast` (a number of requests and a time, such as `1000/s`",
        ),
        ("0/s", "invalid rate `0/s`"),
        (
            "{ rate: 1000/s, keys: 0 }",
            "`keys` 0 is below the minimum of 1",
        ),
        (
            "{ rate: 1000/s, keys: 10000001 }",
            "`keys` 10000001 is above the maximum of 10000000",
        ),
        (
            "{ rate: 1000/s, skew: 6 }",
            "`skew` `6` is above the maximum of 5",
        ),
        (
            "{ rate: 1000/s, cost: 0 }",
            "`cost` 0 is below the minimum of 1",
        ),
        (
            "{ rate: 1000/s, from: 5s, until: 4s }",
            "`from` is not before `until`",
        ),
        (
            "{ rate: 1000/s, from: 20s }",
            "`from` is not before `until`, or the end of the simulation",
        ),
        (
            "{ rate: 100000000/s }",
            "about 1000000000 requests are more than 100000000 (lower the rates",
        ),
        ("{ keys: 5 }", "missing field `rate` in a stream of traffic"),
        ("[]", "`traffic` is an empty list"),
    ] {
        let error = only_error(&format!("{limits}traffic: {traffic}\n"));
        assert!(error.contains(expected), "{traffic}: {error}");
    }
}

#[test]
fn faults_and_bounds_that_make_no_sense_are_errors() {
    let start = format!("{GOOD}nodes: 3\nshards: 2\n");
    for (line, expected) in [
        (
            "faults: { at: 5s }",
            "missing field in a fault: expected `kill`, `stop`, `dead`",
        ),
        (
            "faults: { at: 5s, kill: 1, dead: 1 }",
            "a fault: expected only one of",
        ),
        ("faults: { kill: 1 }", "missing field `at` in a fault"),
        (
            "faults: { at: 5s, kill: 4 }",
            "`kill` 4 is above the maximum of 3",
        ),
        (
            "faults: { at: 5s, kill: 0 }",
            "`kill` 0 is below the minimum of 1",
        ),
        (
            "faults: { at: 5s, dead: 3 }",
            "`dead` 3 is above the maximum of 2",
        ),
        (
            "faults: { at: 11s, dead: 1 }",
            "the fault begins after the end of the simulation",
        ),
        (
            "faults: { at: 5s, dead: 1, for: 0s }",
            "`for` `0s` is below the minimum of 1us",
        ),
        (
            "faults: { at: 1s, fail_over: 1, for: 2s }",
            "`for` is longer than `at`: the replica cannot lack writes from before the start",
        ),
        (
            "bounds: admited <= 1x",
            "5:9 scenario::unknown-word invalid bound: unknown metric (did you mean `admitted`?)",
        ),
        (
            "bounds: [worst <= 1x, p99 <= 5]",
            "5:30 scenario::unknown-word invalid bound: the value of `p99`",
        ),
        (
            "bounds: worst(user) <= 1x",
            "5:15 scenario::unknown-word invalid bound: no limit is named `user` (there is `limit1`)",
        ),
    ] {
        let error = only_error(&format!("{start}{line}\n"));
        assert!(error.contains(expected), "{line}: {error}");
    }
}

#[test]
fn what_is_no_scenario_is_rejected() {
    for (text, expected) in [
        (
            "",
            "1:1 scenario::empty-file the file is empty (a scenario has at least `limits",
        ),
        (
            "- a",
            "expected a mapping, found a list (a scenario has at least",
        ),
        ("limits: [", "scenario::yaml invalid YAML"),
        (
            "limits: 1/s\n---\nlimits: 1/s",
            "scenario::several-documents",
        ),
    ] {
        let error = only_error(text);
        assert!(error.contains(expected), "{text}: {error}");
    }
    let report = Scenario::load("/none/scenario.yaml".as_ref()).unwrap_err();
    assert!(
        report
            .to_string()
            .contains("cannot read /none/scenario.yaml"),
        "{report}"
    );
    // All mistakes at once.
    let many = errors("nodes: 0\nshards: 0\nlimits: 1/x\ntraffic: x\nnetwork: { loss: 2 }\n");
    assert_eq!(many.len(), 5, "{many:#?}");
}
