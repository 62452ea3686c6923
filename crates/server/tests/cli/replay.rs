//! Replay: output, keys, files and stores.

use std::fs;
use std::path::PathBuf;

use crate::run;

const LOG: [&str; 3] = ["replay", "--quota", "sliding-window-log 10/10s"];

fn file(name: &str, text: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn the_output_has_an_exact_form() {
    let output = run(
        &LOG,
        "{\"t_us\": 1500000, \"key\": \"a\", \"cost\": 1, \"verb\": \"check\"}\n\
         {\"t_us\": 1500000, \"key\": \"a\", \"cost\": 10}\n\
         {\"t_us\": 1500000, \"key\": \"a\", \"cost\": 11}\n",
    );
    assert_eq!(
        output.stdout,
        "{\"t_us\":1500000,\"key\":\"a\",\"allowed\":true,\"granted\":1,\"limit\":10,\
         \"remaining\":9,\"retry_after_us\":null,\"reset_after_us\":10000000,\"delay_us\":0}\n\
         {\"t_us\":1500000,\"key\":\"a\",\"allowed\":false,\"granted\":0,\"limit\":10,\
         \"remaining\":9,\"retry_after_us\":10000000,\"reset_after_us\":10000000,\"delay_us\":0}\n\
         {\"t_us\":1500000,\"key\":\"a\",\"allowed\":false,\"granted\":0,\"limit\":10,\
         \"remaining\":9,\"retry_after_us\":null,\"reset_after_us\":10000000,\"delay_us\":0}\n"
    );
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
}

#[test]
fn several_quotas_are_decided_all_or_nothing_and_listed_in_canonical_form() {
    let args = [
        "replay",
        "--quota",
        "gcra 2/sec",
        "--quota",
        "fixed-window 1/60s",
    ];
    let line = "{\"t_us\":0,\"key\":\"a\"}\n";
    let output = run(&args, line.repeat(2));
    assert_eq!(
        output.stdout,
        "{\"t_us\":0,\"key\":\"a\",\"allowed\":true,\"granted\":1,\"limit\":1,\"remaining\":0,\
         \"retry_after_us\":null,\"reset_after_us\":60000000,\"delay_us\":0,\"quotas\":[\
         {\"quota\":\"token-bucket 2/s burst 2\",\"allowed\":true,\"granted\":1,\"limit\":2,\
         \"remaining\":1,\"retry_after_us\":null,\"reset_after_us\":500000,\"delay_us\":0},\
         {\"quota\":\"fixed-window 1/min\",\"allowed\":true,\"granted\":1,\"limit\":1,\
         \"remaining\":0,\"retry_after_us\":null,\"reset_after_us\":60000000,\"delay_us\":0}]}\n\
         {\"t_us\":0,\"key\":\"a\",\"allowed\":false,\"granted\":0,\"limit\":1,\"remaining\":0,\
         \"retry_after_us\":60000000,\"reset_after_us\":60000000,\"delay_us\":0,\"quotas\":[\
         {\"quota\":\"token-bucket 2/s burst 2\",\"allowed\":true,\"granted\":0,\"limit\":2,\
         \"remaining\":1,\"retry_after_us\":null,\"reset_after_us\":500000,\"delay_us\":0},\
         {\"quota\":\"fixed-window 1/min\",\"allowed\":false,\"granted\":0,\"limit\":1,\
         \"remaining\":0,\"retry_after_us\":60000000,\"reset_after_us\":60000000,\
         \"delay_us\":0}]}\n"
    );
}

#[test]
fn equal_quotas_are_distinguished_by_position() {
    let args = ["replay", "--quota", "1/s", "--quota", "1/s"];
    let output = run(&args, "{\"t_us\":0,\"key\":\"a\"}\n");
    assert_eq!(output.stdout.matches("\"remaining\":0").count(), 3);
}

#[test]
fn keys_are_counted_separately_and_written_as_json() {
    let long = "k".repeat(1 << 20);
    let controls: String = (0..0x21).filter_map(char::from_u32).collect();
    let escaped = "\u{1}".repeat(1 << 20);
    let keys = [
        "",
        "\0",
        "\0\0",
        "a",
        "a ",
        "A",
        "\"\\/",
        "é",
        "e\u{301}",
        "😀",
        "\u{7f}\u{2028}",
        &controls,
        &long,
        &escaped,
    ];
    let text = |key: &&str| serde_json::to_string(key).unwrap();
    let line = |key: &&str| format!("{{\"t_us\":0,\"key\":{}}}\n", text(key));
    let input: String = keys.iter().map(line).collect();
    let output = run(&["replay", "--quota", "fixed-window 1/min"], input);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    let expected = keys
        .iter()
        .map(|key| format!("{{\"t_us\":0,\"key\":{},\"allowed\":true,", text(key)));
    for (line, expected) in output.stdout.lines().zip(expected) {
        assert!(line.starts_with(&expected), "{}", &expected[..40]);
    }
    assert_eq!(output.stdout.lines().count(), keys.len());
}

#[test]
fn escaped_and_plain_text_are_the_same_key() {
    let input = "{\"t_us\":0,\"key\":\"a/é\"}\n{\"t_us\":0,\"key\":\"\\u0061\\/\\u00e9\"}\n";
    let output = run(&["replay", "--quota", "fixed-window 1/min"], input);
    assert!(
        output
            .stdout
            .lines()
            .nth(1)
            .unwrap()
            .contains("\"key\":\"a/é\",\"allowed\":false")
    );
}

#[test]
fn blank_lines_are_skipped_and_the_last_line_end_is_optional() {
    let input = "\n  \t\r\n{\"t_us\":0,\"key\":\"a\"}\r\n\n{\"t_us\":0,\"key\":\"a\"}";
    let output = run(&LOG, input);
    assert_eq!(output.stdout.lines().count(), 2);
    let empty = run(&LOG, "");
    assert_eq!((empty.code, empty.stdout.as_str()), (0, ""));
}

#[test]
fn the_ends_of_every_range_are_accepted() {
    let mut input = String::new();
    for t_us in ["0", "4503599627370496", "0"] {
        for cost in ["0", "1", "4294967295"] {
            for verb in ["check", "peek", "take", "charge", "refund", "reset"] {
                input += &format!(
                    "{{\"t_us\":{t_us},\"key\":\"a\",\"cost\":{cost},\"verb\":\"{verb}\"}}\n"
                );
            }
        }
    }
    for quota in [
        "1/ms",
        "leaky-bucket 1/366d queue 142",
        "token-bucket 1000000000/ms",
    ] {
        let output = run(&["replay", "--quota", quota], input.as_str());
        assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{quota}");
        assert_eq!(
            output.stdout.lines().count(),
            input.lines().count(),
            "{quota}"
        );
    }
}

#[test]
fn a_file_a_dash_and_standard_input_give_the_same_output() {
    let line = "{\"t_us\":0,\"key\":\"a\"}\n";
    let path = file("same.jsonl", line);
    let from_stdin = run(&LOG, line);
    let from_dash = run(&[&LOG[..], &["-"]].concat(), line);
    let from_file = run(&[&LOG[..], &[path.to_str().unwrap()]].concat(), "");
    assert_eq!(from_stdin.stdout, from_dash.stdout);
    assert_eq!(from_stdin.stdout, from_file.stdout);
}

#[test]
fn an_unreadable_file_is_exit_2() {
    for path in ["/no/such/file", env!("CARGO_TARGET_TMPDIR")] {
        let output = run(&[&LOG[..], &[path]].concat(), "");
        assert_eq!(output.code, 2);
        assert!(
            output.stderr.contains("cannot read") && output.stderr.contains(path),
            "{}",
            output.stderr
        );
    }
}

#[test]
fn memory_is_accepted_as_a_store() {
    let output = run(&[&LOG[..], &["--store", "memory"]].concat(), "");
    assert_eq!(output.code, 0);
}

#[test]
fn an_error_points_at_the_bad_part_of_a_quota() {
    let output = run(
        &["replay", "--quota", "10/s", "--quota", "token-bucket 0/s"],
        "",
    );
    assert_eq!(output.code, 2);
    assert!(
        output.stderr.contains("limit 0 is below 1"),
        "{}",
        output.stderr
    );
    assert!(
        output.stderr.contains("\n                 ^\n"),
        "{}",
        output.stderr
    );
    assert_eq!(run(&["replay"], "").code, 2, "a quota is needed");
}
