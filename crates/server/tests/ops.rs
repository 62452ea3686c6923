//! Checks the service unit, the image and the Compose file of `ops/`.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::net::SocketAddr;
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
        ("compose.yaml", "    entrypoint: [tallygate"),
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

/// The values of a field of a service that is written as a list in one line.
fn list<'t>(service: &'t str, field: &str) -> Vec<&'t str> {
    let prefix = format!("    {field}: [");
    let line = service.lines().find_map(|line| line.strip_prefix(&*prefix));
    let items = line.unwrap_or_default().trim_end_matches(']').split(", ");
    items.map(|item| item.trim_matches('"')).collect()
}

#[test]
fn in_compose_the_app_reaches_neither_the_store_nor_the_check_api() {
    let text = fs::read_to_string(ops("compose.yaml")).unwrap();
    let service = |name: &str| {
        let rest = text.split(&format!("\n  {name}:\n")).nth(1).unwrap();
        let end = rest.match_indices('\n').map(|(at, _)| at).find(|at| {
            let line = rest[at + 1..].trim_end_matches(' ');
            !line.starts_with("    ")
        });
        rest[..end.unwrap_or(rest.len())].to_owned()
    };
    let (app, store, limiter) = (service("app"), service("valkey"), service("tallygate"));
    let networks = |service: &str| -> Vec<String> {
        let networks = list(service, "networks");
        // Without any, a service is in the default network, as all others are.
        assert!(networks.iter().all(|name| !name.is_empty()), "{service}");
        networks.into_iter().map(str::to_owned).collect()
    };
    let shared = |one: &str, other: &str| {
        let others = networks(other);
        networks(one).iter().any(|name| others.contains(name))
    };
    assert!(shared(&app, &limiter) && shared(&store, &limiter));
    assert!(!shared(&app, &store));
    let entrypoint = list(&limiter, "entrypoint");
    let listen = entrypoint.iter().position(|flag| *flag == "--listen");
    let address: SocketAddr = entrypoint[listen.unwrap() + 1].parse().unwrap();
    assert!(address.ip().is_loopback(), "{address}");
}
