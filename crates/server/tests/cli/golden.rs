//! Help texts, `explain` and `demo` against golden files.

use std::fs;
use std::path::PathBuf;

pub(crate) use crate::golden_file::golden;
use crate::run;

fn page(args: &[&str]) -> String {
    let output = run(args, "");
    assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{args:?}");
    output.stdout
}

#[test]
fn explain_matches_its_golden_files() {
    for (name, quota) in [
        ("explain-fixed-window.txt", "fixed-window 100/min"),
        ("explain-sliding-window-log.txt", "sliding-window-log 5/min"),
        ("explain-sliding-window-counter.txt", "100/min"),
        ("explain-token-bucket.txt", "token-bucket 10/s burst 50"),
        ("explain-leaky-policing.txt", "leaky-bucket 10/s burst 20"),
        ("explain-leaky-shaping.txt", "leaky-bucket 10/s queue 20"),
        (
            "explain-large.txt",
            "token-bucket 1000000000/30d burst 1000000",
        ),
        ("explain-uneven.txt", "leaky-bucket 7/1h30min queue 3"),
        (
            "explain-shared.txt",
            "token-bucket 100/s burst 100 shared 4",
        ),
        ("explain-concurrent.txt", "concurrent 10 for 30s"),
    ] {
        golden(name, &page(&["explain", quota]));
    }
    for (name, quota) in [
        ("explain-token-bucket.json", "token-bucket 10/s burst 50"),
        (
            "explain-shared.json",
            "token-bucket 100/s burst 100 shared 4",
        ),
        ("explain-concurrent.json", "concurrent 10 for 30s"),
    ] {
        let json = page(&["explain", "--json", quota]);
        golden(name, &json);
        serde_json::from_str::<serde_json::Value>(&json).unwrap();
    }
}

#[test]
fn quotes_around_a_quota_may_be_omitted() {
    let quoted = page(&["explain", "token-bucket 10/s burst 50"]);
    assert_eq!(
        page(&["explain", "token-bucket", "10/s", "burst", "50"]),
        quoted
    );
}

#[test]
fn an_invalid_quota_is_marked_in_the_error() {
    let output = run(&["explain", "token-bucket 10/s queue 5"], "");
    assert_eq!((output.code, output.stdout.as_str()), (2, ""));
    golden("explain-bad-quota.txt", &output.stderr);
    for text in [
        "",
        " ",
        "10",
        "10/s burst",
        "💥/s",
        "0/s",
        "1/367d",
        &"9".repeat(1 << 16),
    ] {
        let output = run(&["explain", text], "");
        assert_eq!(output.code, 2);
        assert!(output.stderr.contains("bad quota") && output.stderr.contains("a correct quota"));
    }
}

#[test]
fn a_misspelt_quota_is_answered_with_what_was_meant() {
    let mut page = String::new();
    for text in [
        "tokenbucket 10/s",
        "10/s burst 5",
        "100 per minute",
        "100 requests/minute",
        "100rpm",
        "sliding-window 10/s",
        "10/s token-bucket",
        "fixed-window 10/s queue 5",
        "100/week",
        "7 apples per minute",
    ] {
        let output = run(&["explain", text], "");
        assert_eq!((output.code, output.stdout.as_str()), (2, ""), "{text}");
        page += &output.stderr;
        page.push('\n');
    }
    golden("quota-hints.txt", &page);
}

#[test]
fn the_demo_matches_its_golden_files() {
    let plain = page(&["demo"]);
    golden("demo.txt", &plain);
    assert!(plain.lines().all(|line| line.chars().count() <= 80));
    assert_eq!(plain, page(&["demo", "--color", "never"]));

    let coloured = page(&["demo", "--color=always"]);
    golden("demo-color.txt", &coloured);
    let mut bare = coloured;
    for code in ["0", "1", "2", "31", "32", "36"] {
        bare = bare.replace(&format!("\x1b[{code}m"), "");
    }
    assert_eq!(bare, plain, "only colours differ");
}

#[test]
fn every_help_text_has_examples() {
    golden("help.txt", &page(&["--help"]));
    for command in [
        "serve",
        "top",
        "replay",
        "explain",
        "demo",
        "race",
        "simulate",
        "doctor",
        "config",
        "config check",
        "config explain",
        "config diff",
        "config schema",
        "completions",
        "man",
    ] {
        let words: Vec<&str> = command.split(' ').chain(["--help"]).collect();
        let help = page(&words);
        assert!(help.contains("Examples:"), "{command}");
        golden(&format!("help-{}.txt", command.replace(' ', "-")), &help);
    }
    assert!(page(&["--version"]).starts_with("tallygate 0."));
}

#[test]
fn wrong_usage_is_exit_2() {
    for args in [
        &[][..],
        &["nonsense"],
        &["explain"],
        &["demo", "--color", "pink"],
        &["race", "--clients", "0"],
        &["race", "--limit", "100001"],
        &["doctor", "--client-cert", "half.pem"],
        &["doctor", "--ca-cert", "ca.pem"],
        &["config"],
        &["config", "check"],
        &["config", "explain", "rules.yaml"],
        &["config", "diff", "rules.yaml"],
    ] {
        assert_eq!(run(args, "").code, 2, "{args:?}");
    }
}

#[test]
fn completions_exist_for_every_shell() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = page(&["completions", shell]);
        assert!(
            ["tallygate", "replay", "race", "doctor", "ca-cert", "strict"]
                .iter()
                .all(|word| script.contains(word)),
            "{shell}"
        );
    }
}

#[test]
fn the_manual_has_a_page_for_every_command() {
    assert!(page(&["man"]).contains(".TH tallygate 1"));
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("man");
    fs::create_dir_all(&dir).unwrap();
    assert_eq!(page(&["man", "--dir", dir.to_str().unwrap()]), "");
    for command in [
        "",
        "-top",
        "-replay",
        "-explain",
        "-demo",
        "-race",
        "-simulate",
        "-doctor",
        "-config",
        "-config-check",
        "-config-explain",
        "-config-diff",
        "-config-schema",
        "-completions",
        "-man",
    ] {
        let text = fs::read_to_string(dir.join(format!("tallygate{command}.1"))).unwrap();
        assert!(text.contains(".TH"), "{command}");
    }
    assert_eq!(run(&["man", "--dir", "/no/such/directory"], "").code, 2);
}
