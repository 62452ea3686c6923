//! What `ops/` ships for those who run it: checked as far as this machine can.

// A test that cannot go on may say so by panicking.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn ops(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../ops")
        .join(name)
}

/// The arguments of `tallygate serve` in a line, without its quotes and commas.
fn flags(line: &str) -> Vec<String> {
    let words = line.split(|c: char| c.is_whitespace() || "[]\",".contains(c));
    let flags = words.filter(|word| word.starts_with("--"));
    flags.map(str::to_owned).collect()
}

fn known_flags() -> String {
    let help = Command::new(env!("CARGO_BIN_EXE_tallygate"))
        .args(["serve", "--help"])
        .output()
        .unwrap();
    String::from_utf8(help.stdout).unwrap()
}

#[test]
fn every_argument_that_is_shipped_is_one() {
    let known = known_flags();
    let mut seen = 0;
    for (name, start) in [
        ("tallygate.service", "ExecStart"),
        ("Dockerfile", "ENTRYPOINT"),
        ("compose.yaml", "    command: [--"),
    ] {
        let text = fs::read_to_string(ops(name)).unwrap();
        for line in text.lines().filter(|line| line.starts_with(start)) {
            for flag in flags(line) {
                assert!(
                    known.contains(&format!("{flag} ")) || known.contains(&format!("{flag}\n")),
                    "{name}: {flag}"
                );
                seen += 1;
            }
        }
    }
    assert!(seen >= 8, "{seen} arguments");
}

#[test]
fn the_unit_is_one_where_systemd_can_tell() {
    let text = fs::read_to_string(ops("tallygate.service")).unwrap();
    // The program is not where the unit says, and its rules are not there either.
    let program = env!("CARGO_BIN_EXE_tallygate");
    let text = text.replace("/usr/local/bin/tallygate", program);
    let folder = std::env::temp_dir().join(format!("tallygate-unit-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let unit = folder.join("tallygate.service");
    fs::write(&unit, text).unwrap();
    let verified = Command::new("systemd-analyze")
        .arg("verify")
        .arg(&unit)
        .output();
    let _ = fs::remove_dir_all(&folder);
    // Not everybody has systemd.
    let Ok(verified) = verified else { return };
    let said = String::from_utf8_lossy(&verified.stderr);
    let about_it = said
        .lines()
        .filter(|line| line.contains("tallygate.service"));
    let about_it: Vec<&str> = about_it.collect();
    assert!(about_it.is_empty(), "{said}");
}

#[test]
fn the_image_runs_as_nobody_and_says_whether_it_is_well() {
    let text = fs::read_to_string(ops("Dockerfile")).unwrap();
    let last = text.rsplit("\nFROM ").next().unwrap();
    let user = last
        .lines()
        .find_map(|line| line.strip_prefix("USER "))
        .unwrap();
    assert!(
        user.split(':')
            .all(|id| id.parse::<u32>().is_ok_and(|id| id > 0)),
        "{user}"
    );
    assert!(last.contains("/healthz"));
    // What is copied exists: a build from another folder would have nothing.
    assert!(ops("../.dockerignore").is_file());
}
