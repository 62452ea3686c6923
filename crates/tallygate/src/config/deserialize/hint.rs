//! Hints for errors: fields of other rate limiters, misplaced fields, values of the wrong type.

use crate::config::diagnostic::{did_you_mean, either};
use crate::config::yaml::{Kind, Node};

/// Fields, and what other rate limiters call them.
const SYNONYMS: [(&str, &str); 13] = [
    ("limits", "quota quotas rate rates rate_limit rate_limits"),
    ("name", "id"),
    ("match", "when matches route routes"),
    ("key", "by key_by descriptors"),
    ("cost", "weight"),
    ("tier", "plan"),
    ("tiers", "plans"),
    ("on_failure", "fallback fail on_error"),
    ("shadow", "dry_run report_only"),
    ("allow", "whitelist allowlist exempt"),
    ("deny", "blacklist denylist block"),
    ("store", "redis"),
    ("trusted_proxies", "proxies"),
];

/// Fields that belong one level deeper: the mapping, the fields and the hint.
const NESTED: [(&str, &str, &str); 4] = [
    (
        "an override",
        "key keys network ip",
        "name the client under `for`: `for: { key: … }` or `for: 192.0.2.0/24`",
    ),
    (
        "a rule",
        "path paths method methods host hosts header grpc url uri",
        "put it under `match`, such as `match: { method: POST }`",
    ),
    (
        "a rule",
        "burst queue period window limit_per requests algorithm",
        "a quota is one text: `limits: token-bucket 10/s burst 50`",
    ),
    (
        "a rule",
        "deadline timeout replicas",
        "put it under `on_failure`: `on_failure: { policy: local, replicas: 4, deadline: 20ms }`",
    ),
];

pub(super) fn unknown_field(name: &str, field: &str, known: &[&'static str]) -> String {
    let lower = field.to_lowercase().replace('-', "_");
    let has = |words: &str| words.split(' ').any(|word| word == lower);
    let mut nested = NESTED.iter();
    if let Some((.., hint)) = nested.find(|(of, fields, _)| *of == name && has(fields)) {
        return (*hint).to_owned();
    }
    let mut synonyms = SYNONYMS.iter();
    if let Some((ours, _)) = synonyms.find(|(ours, words)| has(words) && known.contains(ours)) {
        return format!("did you mean `{ours}`?");
    }
    did_you_mean(field, known.iter().copied())
        .unwrap_or_else(|| format!("expected {}", either(known)))
}

pub(super) fn is_secret(name: &str) -> bool {
    let lower = name.to_lowercase();
    let words = ["key", "token", "secret", "password", "url", "store"];
    words.iter().any(|word| lower.contains(word))
}

pub(super) fn missing_field(name: &str, field: &str) -> Option<String> {
    let hint = match (name, field) {
        ("a rules file", "version") => "the first line should be `version: 1`",
        ("a rule", "name") => "such as `name: login-by-ip`; counters and metrics use it",
        ("`tier`", "default") => "clients without a tier need limits too: `default: free`",
        ("an override", "for") => "name the client: `for: { key: … }` or `for: 192.0.2.0/24`",
        _ => return None,
    };
    Some(hint.to_owned())
}

/// Another word for yes or no, as it is written here.
pub(super) fn switch(text: &str, words: &[&str]) -> Option<String> {
    let meant = match text.to_lowercase().as_str() {
        "yes" | "on" | "y" | "1" | "true" => ["on", "true"],
        "no" | "off" | "n" | "0" | "false" => ["off", "false"],
        _ => return None,
    };
    let word = meant.into_iter().find(|word| words.contains(word))?;
    Some(format!("write `{word}`"))
}

pub(super) fn wrong_type(node: &Node, field: &str, expected: &str) -> Option<String> {
    let example = match (field, expected) {
        ("rules", "a list") => "each rule starts with `- name: …`",
        ("rules", "a mapping") => "a rule has at least `name: …` and `limits: …`",
        ("overrides", "a list") => "each override starts with `- for: …`",
        ("match", _) => "such as `match: { path: /api/** }`",
        ("header", "a mapping") => "such as `header: { x-env: prod }`",
        ("tier", _) => "such as `tier: { header: x-plan, default: free }`",
        ("tiers", _) => "such as `tiers: { free: 100/h, pro: 1000/h }`",
        ("count", _) => "such as `count: { only: [401, 403] }`",
        (_, "text") => "quote text that starts with `{` or `[`",
        _ => "",
    };
    if !example.is_empty() {
        return Some(example.to_owned());
    }
    let Kind::Scalar(scalar) = &node.kind else {
        return None;
    };
    // Values from the environment are not shown.
    if !scalar.variables.is_empty() {
        return None;
    }
    let text = scalar.text.as_str();
    match expected {
        super::BOOL => switch(text, &["true", "false"]),
        super::INTEGER => {
            if let Some(integer) = text.strip_suffix(".0") {
                return Some(format!("write `{integer}`"));
            }
            let digits = text.replace(['_', ',', ' '], "");
            let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            (is_number && digits.len() < 20 && digits != text).then(|| format!("write `{digits}`"))
        }
        "a mapping" if text.contains(':') && !text.contains(": ") => {
            Some("add a space after `:`".into())
        }
        _ => None,
    }
}
