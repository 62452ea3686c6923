//! Invalid files: `tests/malformed_rules/NNN-name.yaml` and its expected report. `UPDATE_GOLDEN=1`
//! rewrites the reports; review the difference.

use std::fs;
use std::path::{Path, PathBuf};

use tallygate_server::config::{Style, load_bytes, load_with_env};

const FOLDER: &str = "tests/malformed_rules";

/// Must not occur in a report.
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

fn report(path: &Path) -> String {
    match load_with_env(path, &environment) {
        Ok(_) => panic!("{} loads without errors", path.display()),
        Err(report) => report.render(Style::Plain),
    }
}

#[test]
fn every_report_equals_its_golden_file() {
    let update = std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1");
    let mut changed = Vec::new();
    for path in cases() {
        let text = report(&path);
        let golden = path.with_extension("txt");
        if update {
            fs::write(&golden, &text).unwrap();
        } else if fs::read_to_string(&golden).unwrap_or_default() != text {
            changed.push(format!("{}\n{text}", path.display()));
        }
    }
    assert!(
        changed.is_empty(),
        "reports changed:\n{}",
        changed.join("\n")
    );
}

#[test]
fn there_are_at_least_100_cases() {
    assert!(cases().len() >= 100);
}

#[test]
fn values_from_the_environment_are_never_shown() {
    let fields = [
        "store: $",
        "store: { url: $ }",
        "store: { url: memory, ca_cert: $ }",
        "store: { url: memory, hmac_secret: $ }",
        "trusted_proxies: [$]",
        "trusted_proxies: { hops: $ }",
        "forwarded: $",
        "ipv6_prefix: $",
        "headers: $",
        "headers: { jitter: $ }",
        "headers: { ratelimit: $ }",
        "on_failure: $",
        "on_failure: { deadline: $ }",
        "on_missing: $",
        "include: $",
        "gateway: $",
        "gateway: { listen: $, upstreams: [$], host: $ }",
        "gateway: { upstreams: http://a, upstream_ca_cert: $, tls: { cert: $, key: $ } }",
        "gateway: { timeouts: { header: $ }, sizes: { connections: $, head_bytes: $ } }",
        "rules: $",
        "budgets: { api: { key: [$], limits: $, keys: $ } }",
        "budgets: { api: { key: [{ path: $ }], limits: 5/s } }\nrules: [{ name: a, budget: api }]",
        "overrides: [{ for: $, deny: true }]",
        "overrides: [{ for: { key: $ }, rule: $, limits: $ }]",
    ];
    let rule = [
        "name: $",
        "enabled: $",
        "match: $",
        "match: { path: $ }",
        "match: { method: $ }",
        "match: { host: $ }",
        "match: { grpc: $ }",
        "match: { header: { x-a: $ } }",
        "key: $",
        "key: [{ header: $ }]",
        "key: [{ path: $ }]",
        "key: [{ claim: $, header: $ }]",
        "limits: $",
        "limits: [{ quota: $, name: $ }, $]",
        "cost: $",
        "cost: { method: { GET: $ } }",
        "cost: { path: { /a: $ } }",
        "match: { path: $ }\n    cost: { path: { /b: 2 } }",
        "budget: $",
        "headers: { reported: $, x_ratelimit: $ }",
        "cost: { header: $, default: $, at_least: $, at_most: $ }",
        "allow: $",
        "deny: [{ key: $ }]",
        "on_failure: { policy: $, replicas: $ }",
        "shadow: $",
        "count: { only: $ }",
        "longest_delay: $",
        "lease: $",
        "lease: { max: $, hold: $, hot_only: $ }",
        "single_flight: $",
        "single_flight: { by: [$, { header: $ }] }",
        "tier: { header: $, default: $ }",
        "tier: { keys: { a: $ }, default: a }",
    ];
    let whole = fields.iter().map(|field| format!("{field}\n"));
    let inside = rule.iter().map(|field| {
        let rest = match field.split_once(':').unwrap().0 {
            "name" => "limits: 5/s",
            "limits" => "name: a",
            "tier" => "name: a\n    tiers: { a: 1/s }",
            _ => "name: a\n    limits: 5/s",
        };
        format!("rules:\n  - {rest}\n    {field}\n")
    });
    let values = [
        "hunter2",
        "0/31337ms",
        "31337/s",
        "31337",
        "/login/:hunter2",
        "10.31.33.7/8",
    ];
    for text in whole.chain(inside) {
        for value in values {
            let environment = |_: &str| Some(value.to_owned());
            let text = format!("version: 1\n{}", text.replace('$', "\"${VALUE}\""));
            let report = match load_bytes("rules.yaml", text.as_bytes(), &environment) {
                Ok(config) => config.warnings,
                Err(report) => report,
            };
            let messages = report.to_string();
            assert!(!messages.contains(value), "{text}{messages}");
        }
    }
}

#[test]
fn every_report_has_a_code_and_a_location_but_no_secret() {
    for path in cases() {
        let text = report(&path);
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
