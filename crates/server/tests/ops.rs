//! Checks the service unit, the image and the Compose file of `ops/`.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn ops(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../ops")
        .join(name)
}

/// The flags of `tallygate serve` in a line.
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
fn every_flag_in_ops_exists() {
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
fn systemd_accepts_the_unit() {
    let text = fs::read_to_string(ops("tallygate.service")).unwrap();
    // systemd checks that the program exists.
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
    // systemd is not installed everywhere.
    let Ok(verified) = verified else { return };
    let stderr = String::from_utf8_lossy(&verified.stderr);
    assert!(!stderr.contains("tallygate.service"), "{stderr}");
}

#[test]
fn the_image_runs_unprivileged_and_has_a_health_check() {
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
    assert!(ops("../.dockerignore").is_file());
}
