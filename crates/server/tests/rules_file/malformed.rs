//! Mistakes that people make, and what they are told: `tests/malformed_rules/NNN-name.yaml` beside
//! the golden text. `UPDATE_GOLDEN=1` writes the texts anew; read the difference.

use std::fs;
use std::path::{Path, PathBuf};

use tollgate_server::config::{Style, load_with};

const FOLDER: &str = "tests/malformed_rules";

/// What must never be shown.
const SECRETS: [&str; 4] = ["hunter2", "sk-live-123456", "sk-live-654321", "\u{1b}"];

fn environment(name: &str) -> Option<String> {
    match name {
        "TEST_SECRET" => Some("hunter2".into()),
        "TEST_BAD_URL" => Some("redis://ann:hunter2@db:port".into()),
        "TEST_FOLDER" => Some("hunter2".into()),
        _ => None,
    }
}

fn cases() -> Vec<PathBuf> {
    let entries = fs::read_dir(FOLDER).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "yaml"));
    paths.sort();
    paths
}

fn told(path: &Path) -> String {
    match load_with(path, &environment) {
        Ok(_) => panic!("{} is read as if it were right", path.display()),
        Err(report) => report.text(Style::Plain),
    }
}

#[test]
fn every_mistake_is_told_as_its_golden_text() {
    let update = std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1");
    let mut changed = Vec::new();
    for path in cases() {
        let text = told(&path);
        let golden = path.with_extension("txt");
        if update {
            fs::write(&golden, &text).unwrap();
        } else if fs::read_to_string(&golden).unwrap_or_default() != text {
            changed.push(format!("{}\n{text}", path.display()));
        }
    }
    assert!(changed.is_empty(), "not as before:\n{}", changed.join("\n"));
}

#[test]
fn there_are_at_least_a_hundred_of_them() {
    assert!(cases().len() >= 100);
}

#[test]
fn every_text_names_a_code_and_a_place_and_no_secret() {
    for path in cases() {
        let text = told(&path);
        let shown = path.display();
        assert!(text.contains("rules::"), "{shown}: {text}");
        let empty = fs::metadata(&path).unwrap().len() == 0;
        assert!(empty || text.contains(".yaml:"), "{shown}: {text}");
        for secret in SECRETS {
            assert!(!text.contains(secret), "{shown} shows a secret: {text}");
        }
        assert!(
            text.lines().all(|line| line.chars().count() <= 320),
            "{shown}"
        );
    }
}
