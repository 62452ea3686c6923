//! `tallygate config`.

use std::fs;
use std::path::Path;

use crate::golden::golden;
use crate::{CommandOutput, run, tallygate};

const EXAMPLE: &str = "tests/good_rules/example.yaml";
const CHANGED: &str = "tests/good_rules/changed.yaml";
const WARNED: &str = "tests/good_rules/warned.yaml";
const INVALID: &str = "tests/malformed_rules/073-several-mistakes-at-once.yaml";

fn config(args: &[&str]) -> CommandOutput {
    let args: Vec<&str> = ["config"].iter().chain(args).copied().collect();
    run(&args, "")
}

fn explain(args: &[&str]) -> CommandOutput {
    let args: Vec<&str> = ["explain", EXAMPLE].iter().chain(args).copied().collect();
    config(&args)
}

#[test]
fn check_reports_sizes_errors_and_warnings() {
    for (name, args, code) in [
        ("good", &["check", EXAMPLE][..], 0),
        ("warned", &["check", WARNED], 0),
        ("strict", &["check", "--strict", EXAMPLE, WARNED], 1),
        ("invalid", &["check", EXAMPLE, INVALID], 2),
        ("json", &["check", "--json", EXAMPLE, WARNED, INVALID], 2),
    ] {
        let output = config(args);
        assert_eq!(
            (output.code, output.stderr.as_str()),
            (code, ""),
            "{args:?}"
        );
        golden(&format!("config-check-{name}.txt"), &output.stdout);
    }
    assert_eq!(config(&["check", "--strict", EXAMPLE]).code, 0);
}

#[test]
fn a_missing_file_is_an_error() {
    let output = config(&["check", "/no/such/file.yaml"]);
    assert_eq!(output.code, 2);
    assert!(
        output.stdout.contains("rules::unreadable"),
        "{}",
        output.stdout
    );
    for args in [
        &["explain", "/no/such/file.yaml", "--request", "GET /"][..],
        &["diff", EXAMPLE, "/no/such/file.yaml"],
        &["diff", INVALID, EXAMPLE],
    ] {
        let output = config(args);
        assert_eq!((output.code, output.stdout.as_str()), (2, ""), "{args:?}");
        assert!(
            output.stderr.starts_with("tallygate: cannot use "),
            "{}",
            output.stderr
        );
    }
}

#[test]
fn check_json_prints_one_line_per_file() {
    let output = config(&["check", "--json", EXAMPLE, INVALID]);
    let lines: Vec<serde_json::Value> = output
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(
        (&lines[0]["good"], &lines[0]["rules"]),
        (&true.into(), &2.into())
    );
    let problems = lines[1]["problems"].as_array().unwrap();
    assert_eq!(lines[1]["errors"], problems.len());
    assert!(
        problems
            .iter()
            .all(|problem| problem["line"].as_u64() >= Some(2))
    );
}

#[test]
fn explain_matches_its_golden_files() {
    for (name, args) in [
        (
            "login",
            &["--request", "POST /login", "--ip", "198.51.100.7"][..],
        ),
        ("spelling", &["--request", "POST //x/../%6cogin/"]),
        (
            "pro",
            &[
                "--request",
                "GET https://example.com/api/things?token=hunter2",
                "--header",
                "x-api-key: hunter2",
                "--header",
                "x-plan: pro",
                "--header",
                "x-cost: 7",
                "--ip",
                "198.51.100.7",
                "--peer",
                "10.1.2.3",
            ],
        ),
        (
            "ignored",
            &[
                "--request",
                "GET /api/x",
                "--header",
                "x-plan: pro",
                "--header",
                "x-cost: 7",
                "--ip",
                "198.51.100.7",
            ],
        ),
        (
            "method",
            &["--request", "post //evil/login", "--ip", "198.51.100.7"],
        ),
        (
            "proxied",
            &[
                "--request",
                "GET /api/",
                "--peer",
                "10.1.2.3",
                "--ip",
                "2001:db8::7",
            ],
        ),
        ("allowed", &["--request", "/api/x", "--ip", "192.0.2.9"]),
        (
            "never",
            &[
                "--request",
                "GET /api/x",
                "--ip",
                "198.51.100.7",
                "--peer",
                "10.1.2.3",
                "--header",
                "x-cost: 1000",
            ],
        ),
        ("no-rule", &["--request", "GET /other"]),
        (
            "grpc",
            &[
                "--request",
                "POST /login",
                "--header",
                "content-type: application/grpc",
            ],
        ),
    ] {
        let output = explain(args);
        assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{args:?}");
        assert!(!output.stdout.contains("hunter2"), "{}", output.stdout);
        golden(&format!("config-explain-{name}.txt"), &output.stdout);
    }
    let output = explain(&["--request", "POST /login", "--json"]);
    golden("config-explain-login.json", &output.stdout);
    serde_json::from_str::<serde_json::Value>(&output.stdout).unwrap();
}

#[test]
fn an_invalid_request_is_exit_2_and_shows_no_header() {
    for args in [
        &["--request", ""][..],
        &["--request", "GET  "],
        &["--request", "G(T /"],
        &["--request", "GET /", "--ip", "localhost"],
        &["--request", "GET /", "--header", "hunter2"],
        &["--request", "GET /", "--header", "x: hunter2\n"],
        &["--request", "GET /", "--header", "x y: hunter2"],
    ] {
        let output = explain(args);
        let is_valid = args.iter().any(|word| word.ends_with('\n'));
        assert_eq!(output.code, if is_valid { 0 } else { 2 }, "{args:?}");
        assert!(!output.stderr.contains("hunter2"), "{}", output.stderr);
    }
}

#[test]
fn diff_shows_changes_and_which_counters_are_kept() {
    let same = config(&["diff", EXAMPLE, EXAMPLE]);
    assert_eq!((same.code, same.stdout.as_str()), (0, "No differences.\n"));
    let output = config(&["diff", EXAMPLE, CHANGED]);
    assert_eq!((output.code, output.stderr.as_str()), (1, ""));
    assert!(!output.stdout.contains("hunter2"));
    golden("config-diff.txt", &output.stdout);
    let output = config(&["diff", "--json", EXAMPLE, CHANGED]);
    assert_eq!(output.code, 1);
    golden("config-diff.json", &output.stdout);
    serde_json::from_str::<serde_json::Value>(&output.stdout).unwrap();
}

#[test]
fn leases_are_explained_and_compared() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("leases");
    fs::create_dir_all(&folder).unwrap();
    let file = |name: &str, lease: &str| {
        let path = folder.join(name);
        let rule = format!("name: api, key: ip, limits: 1000/min, lease: {lease}");
        let text = format!("version: 1\nstore: redis://db\nrules: [{{ {rule} }}]\n");
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (on, auto) = (
        file("on", "true"),
        file("auto", "{ max: 200, hot_only: true }"),
    );
    let output = config(&["explain", &auto, "--request", "GET /"]);
    let line = "    lease: at most 200 units for 1s, hot keys only\n";
    assert!(output.stdout.contains(line), "{}", output.stdout);
    let output = config(&["diff", &on, &auto]);
    assert_eq!(output.code, 1);
    for text in ["lease", "its share of the units for 1s", "hot keys only"] {
        assert!(output.stdout.contains(text), "{}", output.stdout);
    }
}

#[test]
fn the_schema_equals_the_one_in_the_docs() {
    let output = config(&["schema"]);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    let expected = fs::read_to_string("../../docs/rules.schema.json").unwrap();
    assert!(
        output.stdout == expected,
        "docs/rules.schema.json is out of date"
    );
}

#[test]
fn environment_variables_are_used_and_not_shown() {
    let output = tallygate(&["config", "check", EXAMPLE])
        .env("REDIS_URL", "redis://ann:hunter2@db:port")
        .output()
        .unwrap();
    let output = CommandOutput::from(output);
    assert_eq!(output.code, 2);
    assert!(output.stdout.contains("rules::store"), "{}", output.stdout);
    assert!(
        !output.stdout.contains("hunter2") && !output.stdout.contains("db:port"),
        "{}",
        output.stdout
    );
}
