//! `tallygate simulate`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::golden::golden;
use crate::{CommandOutput, run};

const SCENARIO: &str = "\
title: A <b>small</b> fleet & more
duration: 2s
nodes: 3
shards: 2
limits: { name: user, quota: token-bucket 20/s burst 40 }
traffic: { rate: 1000/s, keys: 20 }
faults: { at: 1s, dead: 2, for: 500ms }
bounds: worst(user) <= 2x
";

/// A folder of this test's own.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("simulate-{name}"));
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn scenario(name: &str, text: &str) -> String {
    let path = folder(name).join("fleet.yaml");
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn simulate(args: &[&str]) -> CommandOutput {
    let args: Vec<&str> = ["simulate"].iter().chain(args).copied().collect();
    run(&args, "")
}

#[test]
fn a_fleet_is_compared_with_the_exact_limiter() {
    let file = scenario("text", SCENARIO);
    let output = simulate(&[&file]);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    for text in [
        "A <b>small</b> fleet & more\n3 nodes, 2 shards, 2 s, seed 1\n",
        "1 s  shard 2 dead, 500 ms",
        "; by an exact limiter ",
        "per decision",
        "Time to a decision",
        "Most of one key       `user`: ",
        "Bounds:\n  holds   worst(user) <= 2x  found ",
    ] {
        assert!(output.stdout.contains(text), "{text}: {}", output.stdout);
    }
    for line in output.stdout.lines() {
        assert!(line.chars().count() <= 120, "{line}");
    }
}

#[test]
fn a_broken_bound_is_exit_1_and_the_others_are_shown_too() {
    let file = scenario("bounds", SCENARIO);
    let good = simulate(&[&file, "--check", "admitted >= 0.5x", "--check", "p99<1s"]);
    assert_eq!((good.code, good.stderr.as_str()), (0, ""));
    assert!(good.stdout.contains("holds   admitted >= 0.5x"));
    let broken = simulate(&[&file, "--check", "calls <= 0.001"]);
    assert_eq!((broken.code, broken.stderr.as_str()), (1, ""));
    assert!(
        broken.stdout.contains("BROKEN  calls <= 0.001"),
        "{}",
        broken.stdout
    );
    assert!(broken.stdout.contains("holds   worst(user) <= 2x"));
    // So is one of the scenario.
    let text = SCENARIO.replace("<= 2x", "<= 0.01x");
    assert_eq!(simulate(&[&scenario("broken", &text)]).code, 1);
}

#[test]
fn bad_scenarios_and_bounds_are_exit_2_and_point_at_the_mistake() {
    let file = scenario("good", SCENARIO);
    for (bound, text) in [
        (
            "admited <= 1x",
            "bad bound: unknown metric\n\n    admited <= 1x\n    ^^^^^^^\n\ndid you mean `admitted`?",
        ),
        ("p99 <= fast", "the value of `p99` is not a duration"),
        (
            "worst(team) <= 1x",
            "    worst(team) <= 1x\n          ^^^^\n\nthere is `user`",
        ),
        ("", "a bound has no comparison"),
    ] {
        let output = simulate(&[&file, "--check", bound]);
        assert_eq!((output.code, output.stdout.as_str()), (2, ""), "{bound}");
        assert!(output.stderr.contains(text), "{}", output.stderr);
    }
    let file = scenario(
        "bad",
        "nodes: 0\nlimits: 100/fortnight\ntraffic: 1/s\nnetwork: { loss: 2 }\n",
    );
    let output = simulate(&[&file]);
    assert_eq!((output.code, output.stdout.as_str()), (2, ""));
    let error = output.stderr.replace(&file, "fleet.yaml");
    golden("simulate-bad-scenario.txt", &error);
    let missing = simulate(&["/no/such/scenario.yaml"]);
    assert_eq!(missing.code, 2);
    assert!(
        missing
            .stderr
            .contains("cannot read /no/such/scenario.yaml")
    );
    assert_eq!(simulate(&[]).code, 2);
    assert_eq!(simulate(&[&file, "--seed", "-1"]).code, 2);
}

#[test]
fn json_has_every_figure_and_depends_on_the_seed_alone() {
    let file = scenario("json", SCENARIO);
    let json = |args: &[&str]| {
        let args: Vec<&str> = [&*file, "--json"].iter().chain(args).copied().collect();
        let output = simulate(&args);
        assert_eq!((output.code, output.stderr.as_str()), (0, ""));
        output.stdout
    };
    let text = json(&[]);
    assert_eq!(text, json(&["--seed", "1"]));
    assert_ne!(text, json(&["--seed", "2"]));
    let results: Value = serde_json::from_str(&text).unwrap();
    let number = |name: &str| results[name].as_u64().unwrap();
    assert_eq!(
        number("requests"),
        number("admitted") + number("refused") + number("unanswered")
    );
    let decided = results["decided_by"].as_object().unwrap().values();
    let decided: u64 = decided.map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(decided, number("admitted") + number("refused"));
    let series = results["series"].as_array().unwrap().iter();
    let admitted: u64 = series
        .map(|point| point["admitted"].as_u64().unwrap())
        .sum();
    assert_eq!(admitted, number("admitted"));
    assert_eq!(results["shards"].as_array().unwrap().len(), 2);
    assert_eq!(results["worst"][0]["limit"], "user");
    assert_eq!(results["bounds"][0]["holds"], true);
    assert!(results["latency_us"]["p99"].as_u64().unwrap() > 0);
}

#[test]
fn the_report_is_one_page_without_foreign_resources() {
    let file = scenario("html", SCENARIO);
    let folder = folder("html");
    let (html, svg) = (folder.join("report.html"), folder.join("plots.svg"));
    let (html_path, svg_path) = (html.to_str().unwrap(), svg.to_str().unwrap());
    let output = simulate(&[&file, "--html", html_path, "--svg", svg_path]);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    for path in [&html, &svg] {
        let text = fs::read_to_string(path).unwrap();
        let own = text.replace("http://www.w3.org/2000/svg", "");
        for foreign in [
            "http:", "https:", "<script", "src=", "href=", "@import", "url(",
        ] {
            assert!(!own.contains(foreign), "{foreign} in {}", path.display());
        }
        assert!(text.contains("prefers-color-scheme:dark"));
        assert!(text.contains("<polyline"));
        assert!(text.contains("A &lt;b&gt;small&lt;/b&gt; fleet &amp; more"));
        assert!(!text.contains("<b>small"));
        assert!(text.contains("shard 2 dead"));
        assert!(
            !text.contains("NaN") && !text.contains("inf"),
            "{}",
            path.display()
        );
    }
    let page = fs::read_to_string(&html).unwrap();
    assert_eq!(page.matches("<svg").count(), 4);
    assert!(page.contains("Content-Security-Policy"));
    let unwritable = simulate(&[&file, "--html", "/no/such/folder/report.html"]);
    assert_eq!(unwritable.code, 1);
    assert!(
        unwritable
            .stderr
            .contains("cannot write /no/such/folder/report.html")
    );
}

/// `script` runs a command on a terminal of its own.
#[test]
fn a_terminal_gets_a_progress_bar() {
    let file = scenario("progress", SCENARIO);
    let command = format!(
        "{} simulate {file} > /dev/null",
        env!("CARGO_BIN_EXE_tallygate")
    );
    let output = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains("\r[####################"), "{shown}");
    assert!(shown.contains(" 50 %"), "{shown}");
    // Removed in the end.
    assert!(shown.ends_with("\r\x1b[K"), "{shown}");
}
