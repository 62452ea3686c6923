//! Invariants of the workspace that the compiler does not check, tested on the sources.
#![allow(clippy::unwrap_used)]

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every Rust source below a folder, by its path from the root.
fn sources(folder: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if path.is_dir() && name != "target" {
                folders.push(path);
            } else if name.ends_with(".rs") {
                let shown = path.strip_prefix(root()).unwrap().display().to_string();
                found.push((shown, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    assert!(!found.is_empty(), "nothing below {folder}");
    found
}

/// A source without its comments.
fn code(text: &str) -> String {
    let comment = |line: &&str| line.trim_start().starts_with("//");
    let lines: Vec<&str> = text.lines().filter(|line| !comment(line)).collect();
    lines.join("\n")
}

fn all_sources() -> Vec<(String, String)> {
    [sources("crates"), sources("fuzz/src")].concat()
}

#[test]
fn every_file_starts_with_a_module_comment() {
    for (path, text) in all_sources() {
        assert!(text.starts_with("//!"), "{path} does not open with //!");
    }
}

/// A version such as `1.88` or `1.88.0`.
fn version(text: &str) -> (u32, u32) {
    let mut numbers = text.split('.').map(|number| number.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap_or(0))
}

#[test]
fn no_dependency_of_a_published_crate_needs_a_newer_rust() {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args([
        "metadata",
        "--format-version=1",
        "--all-features",
        "--locked",
        "--offline",
    ]);
    // What other platforms need may not have been downloaded.
    let host = Command::new("rustc").arg("-vV").output().unwrap().stdout;
    let host = String::from_utf8(host).unwrap();
    let host = host.lines().find_map(|line| line.strip_prefix("host: "));
    cargo.args(["--filter-platform", host.unwrap()]);
    let output = cargo.current_dir(root()).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let list = |value: &Value| value.as_array().unwrap().clone();
    let nodes = list(&metadata["resolve"]["nodes"]);
    let node = |id: &Value| nodes.iter().find(|node| node["id"] == *id).unwrap();
    let packages = list(&metadata["packages"]);
    let package = |id: &Value| {
        packages
            .iter()
            .find(|package| package["id"] == *id)
            .unwrap()
    };
    let published = ["tallygate-core", "tallygate", "tallygate-server"];
    let is_published = |package: &&Value| published.iter().any(|name| package["name"] == *name);
    let mut todo: Vec<Value> = packages
        .iter()
        .filter(is_published)
        .map(|p| p["id"].clone())
        .collect();
    let own = version(package(&todo[0])["rust_version"].as_str().unwrap());
    let mut seen = HashSet::new();
    while let Some(id) = todo.pop() {
        if !seen.insert(id.to_string()) {
            continue;
        }
        let found = package(&id);
        if let Some(needed) = found["rust_version"].as_str() {
            assert!(
                version(needed) <= own,
                "{} needs Rust {needed}",
                found["name"]
            );
        }
        for dependency in list(&node(&id)["deps"]) {
            let mut kinds = list(&dependency["dep_kinds"]).into_iter();
            if kinds.any(|kind| kind["kind"] != "dev") {
                todo.push(dependency["pkg"].clone());
            }
        }
    }
    assert!(seen.len() > 100, "only {} packages", seen.len());
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let stated = format!("Minimum Rust version: {}.{}.", own.0, own.1);
    assert!(readme.contains(&stated), "README.md does not say {stated}");
}

#[test]
fn no_file_is_named_mod_rs() {
    for (path, _) in all_sources() {
        assert!(!path.ends_with("/mod.rs"), "{path}: name.rs beside name/");
    }
}

#[test]
fn only_algorithm_rs_matches_on_algorithm() {
    // Descriptions differ by algorithm too.
    let allowed = [
        "crates/core/src/algorithm.rs",
        "crates/server/src/describe.rs",
    ];
    for (path, text) in sources("crates") {
        if path.contains("/tests/") || path.contains("/bench/") || allowed.contains(&path.as_str())
        {
            continue;
        }
        let arm = |line: &&str| {
            let pattern = line.split_once("=>").map(|(pattern, _)| pattern);
            pattern.is_some_and(|pattern| pattern.contains("Algorithm::"))
        };
        let found = text.lines().find(arm);
        assert!(found.is_none(), "{path} matches on Algorithm: {found:?}");
    }
}

#[test]
fn the_core_has_no_dependencies_and_reads_no_clock() {
    let manifest = fs::read_to_string(root().join("crates/core/Cargo.toml")).unwrap();
    assert!(
        !manifest.contains("\n[dependencies]"),
        "the core has dependencies"
    );
    for (path, text) in sources("crates/core/src") {
        let text = code(&text);
        for name in [
            "std::",
            "Instant",
            "SystemTime",
            "f32",
            "f64",
            "async fn",
            "unsafe",
        ] {
            assert!(!text.contains(name), "{path} contains {name}");
        }
    }
}

#[test]
fn only_memory_hints_are_unsafe() {
    let uses = |line: &str| line.contains("unsafe ") || line.contains("allow(unsafe_code)");
    for (path, text) in sources("crates") {
        let found = code(&text).lines().filter(|line| uses(line)).count();
        let expected = match path.as_str() {
            "crates/tallygate/src/store/memory/prefetch.rs" => 4,
            // Contains the search term.
            "crates/core/tests/workspace_invariants.rs" => found,
            _ => 0,
        };
        assert_eq!(found, expected, "{path}");
    }
}

#[test]
fn only_the_schema_is_read_from_the_rules_file() {
    for (path, text) in sources("crates/tallygate/src/config") {
        let found = code(&text).contains("FromNode for");
        let is_schema = path.starts_with("crates/tallygate/src/config/schema");
        assert!(!found || is_schema, "{path}");
    }
}

#[test]
fn stores_and_limiters_use_no_http_types() {
    // These modules translate between HTTP and decisions.
    let is_http_module = |path: &str| {
        ["config", "http", "rules", "tower", "outbound"]
            .iter()
            .any(|module| {
                let rest = path.strip_prefix("crates/tallygate/src/").unwrap();
                rest.strip_prefix(module)
                    .is_some_and(|rest| rest.starts_with(['.', '/']))
            })
    };
    for (path, text) in sources("crates/tallygate/src") {
        let text = code(&text);
        for name in ["http::", "hyper", "serde"] {
            // Claims of a token are JSON.
            let claim = path == "crates/tallygate/src/rules/extract/claim.rs";
            let allowed = match name {
                "http::" => is_http_module(&path),
                "serde" => claim || path.starts_with("crates/tallygate/src/config"),
                _ => false,
            };
            assert!(!text.contains(name) || allowed, "{path} contains {name}");
        }
        for name in ["axum", "tonic"] {
            // The peer address and the body types of these frameworks.
            let allowed = [
                "http/peer.rs",
                "lib.rs",
                "tower/body.rs",
                "tower/read_ahead.rs",
            ];
            let allowed = allowed.contains(&path.strip_prefix("crates/tallygate/src/").unwrap());
            assert!(!text.contains(name) || allowed, "{path} contains {name}");
        }
    }
}
