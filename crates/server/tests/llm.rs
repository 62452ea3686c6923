//! docs/llm.md is true: its rules are those of ops/llm, and its commands print what it shows, with the
//! fake completion server behind a gateway.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tallygate_testkit::ServerProcess;

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

/// The blocks of a language in the page.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    let blocks = page.split(&fence).skip(1);
    blocks
        .map(|rest| rest.split("```").next().unwrap().to_owned())
        .collect()
}

/// Rules without comments and empty lines.
fn bare(rules: &str) -> Vec<&str> {
    let lines = rules.lines();
    lines
        .filter(|line| !line.trim_start().starts_with('#') && !line.is_empty())
        .collect()
}

#[test]
fn the_page_shows_the_rules() {
    let page = fs::read_to_string(repository("docs/llm.md")).unwrap();
    let rules = fs::read_to_string(repository("ops/llm/rules.yaml")).unwrap();
    assert_eq!(bare(&blocks(&page, "yaml")[0]), bare(&rules));
}

#[test]
fn the_commands_print_what_the_page_shows() {
    let completions = ServerProcess::start(
        Command::new("python3")
            .arg(repository("ops/llm/completions.py"))
            .args(["--port", "0"]),
    );
    let line: Value = serde_json::from_str(&completions.first_line).unwrap();
    let server = ServerProcess::start(
        Command::new(env!("CARGO_BIN_EXE_tallygate"))
            .args(["serve", "--config"])
            .arg(repository("ops/llm/rules.yaml"))
            .args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
            .args(["--gateway", "127.0.0.1:0"])
            .env("COMPLETIONS_URL", line["url"].as_str().unwrap()),
    );
    let addresses: Value = serde_json::from_str(&server.first_line).unwrap();
    let page = fs::read_to_string(repository("docs/llm.md")).unwrap();
    let sessions = blocks(&page, "console");
    assert_eq!(sessions.len(), 5);
    // One shell runs all of them: a function that one defines is used by the next.
    let mut script = String::new();
    let mut expected = String::new();
    for session in &sessions {
        let (command, output) = session.split_once('\n').unwrap();
        let command = command.strip_prefix("$ ").unwrap();
        let command = command
            .replace("127.0.0.1:8000", addresses["gateway"].as_str().unwrap())
            .replace("127.0.0.1:8080", addresses["api"].as_str().unwrap());
        script += &format!("{command}\necho; echo ----\n");
        expected += &format!("{}\n----\n", output.trim_end());
    }
    let ran = Command::new("bash").args(["-c", &script]).output().unwrap();
    let printed = String::from_utf8(ran.stdout).unwrap();
    let trimmed: String = printed
        .split("----\n")
        .filter(|output| !output.is_empty())
        .map(|output| format!("{}\n----\n", output.trim_end()))
        .collect();
    // The bucket refills while the commands run.
    let refilled = trimmed
        .lines()
        .find_map(|line| line.strip_prefix("\"remaining\":"))
        .unwrap_or_else(|| panic!("{trimmed}"));
    let left: u32 = refilled.parse().unwrap();
    assert!((999_985..=1_000_000).contains(&left), "{left}");
    let same = trimmed.replace(&format!("\"remaining\":{left}"), "\"remaining\":999985");
    assert_eq!(same, expected, "{}", String::from_utf8_lossy(&ran.stderr));
}
