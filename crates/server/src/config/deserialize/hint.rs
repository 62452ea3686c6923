//! What was probably meant. Knows the words that other limiters use.

use crate::config::diagnostic::did_you_mean;
use crate::config::yaml::{Kind, Node};

/// Words that others use for our fields.
const OTHER_WORDS: [(&str, &str); 30] = [
    ("quota", "limits"),
    ("quotas", "limits"),
    ("rate", "limits"),
    ("rates", "limits"),
    ("rate_limit", "limits"),
    ("rate_limits", "limits"),
    ("id", "name"),
    ("when", "match"),
    ("matches", "match"),
    ("route", "match"),
    ("routes", "match"),
    ("by", "key"),
    ("key_by", "key"),
    ("descriptors", "key"),
    ("weight", "cost"),
    ("plan", "tier"),
    ("plans", "tiers"),
    ("fallback", "on_failure"),
    ("fail", "on_failure"),
    ("on_error", "on_failure"),
    ("dry_run", "shadow"),
    ("report_only", "shadow"),
    ("whitelist", "allow"),
    ("allowlist", "allow"),
    ("exempt", "allow"),
    ("blacklist", "deny"),
    ("denylist", "deny"),
    ("block", "deny"),
    ("redis", "store"),
    ("proxies", "trusted_proxies"),
];

/// Fields that belong one level deeper: of what, which, and where.
const DEEPER: [(&str, &[&str], &str); 4] = [
    (
        "an override",
        &["key", "keys", "network", "ip"],
        "say for whom under `for`: `for: { key: … }` or `for: 192.0.2.0/24`",
    ),
    (
        "a rule",
        &[
            "path", "paths", "method", "methods", "host", "hosts", "header", "grpc", "url", "uri",
        ],
        "put it under `match`, such as `match: { method: POST }`",
    ),
    (
        "a rule",
        &[
            "burst",
            "queue",
            "period",
            "window",
            "limit_per",
            "requests",
            "algorithm",
        ],
        "a quota is one text: `limits: token-bucket 10/s burst 50`",
    ),
    (
        "a rule",
        &["deadline", "timeout", "replicas"],
        "it goes with the policy: `on_failure: { policy: local, replicas: 4, deadline: 20ms }`",
    ),
];

/// What may help where a field is not known.
pub(super) fn for_unknown(what: &str, name: &str, known: &[&'static str]) -> Option<String> {
    let lower = name.to_lowercase().replace('-', "_");
    let deeper = DEEPER
        .iter()
        .find(|(of, names, _)| *of == what && names.contains(&lower.as_str()));
    if let Some((.., hint)) = deeper {
        return Some((*hint).to_owned());
    }
    let other = OTHER_WORDS
        .iter()
        .find(|(word, ours)| *word == lower && known.contains(ours));
    match other {
        Some((_, ours)) => Some(format!("did you mean `{ours}`?")),
        None => did_you_mean(name, known.iter().copied()),
    }
}

/// Whether what stands in an unknown field is probably a secret.
pub(super) fn is_secret(name: &str) -> bool {
    let lower = name.to_lowercase();
    let words = ["key", "token", "secret", "password", "url", "store"];
    words.iter().any(|word| lower.contains(word))
}

/// What may help where a field is missing.
pub(super) fn for_missing(what: &str, field: &str) -> Option<String> {
    let example = match (what, field) {
        ("a rules file", "version") => "the first line should be `version: 1`",
        ("a rule", "name") => "such as `name: login-by-ip`: counters and metrics go by it",
        ("a tier's lookup", "default") => "whoever is in no tier needs limits too: `default: free`",
        ("an override", "for") => "say for whom: `for: { key: … }` or `for: 192.0.2.0/24`",
        _ => return None,
    };
    Some(example.to_owned())
}

/// What may help where a value is of the wrong kind.
pub(super) fn for_type(node: &Node, field: &str, expected: &str) -> Option<String> {
    let example = match (field, expected) {
        ("", "a mapping") => "a rules file begins with `version: 1`",
        ("rules", "a list") => "each rule begins with `- name: …`",
        ("rules", "a mapping") => "a rule has at least `name: …` and `limits: …`",
        ("overrides", "a list") => "each override begins with `- for: …`",
        ("match", _) => "such as `match: { path: /api/** }`",
        ("header", "a mapping") => "such as `header: { x-env: prod }`",
        ("tier", _) => "such as `tier: { header: x-plan, default: free }`",
        ("tiers", _) => "such as `tiers: { free: 100/h, pro: 1000/h }`",
        ("count", _) => "such as `count: { only: [401, 403] }`",
        (_, "text") => "text that begins with `{` or `[` needs quotes",
        _ => "",
    };
    if !example.is_empty() {
        return Some(example.to_owned());
    }
    let Kind::Scalar(scalar) = &node.kind else {
        return None;
    };
    // Not a word of what came from the environment.
    if !scalar.variables.is_empty() {
        return None;
    }
    let text = scalar.text.as_str();
    match expected {
        "true or false" => match text.to_lowercase().as_str() {
            "yes" | "on" | "y" | "1" | "true" => Some("write `true`".into()),
            "no" | "off" | "n" | "0" | "false" => Some("write `false`".into()),
            _ => None,
        },
        "a whole number" => {
            let digits: String = text
                .chars()
                .filter(|c| !matches!(c, '_' | ',' | ' '))
                .collect();
            let number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            let short = digits.len() < 20 && digits != text;
            match text.strip_suffix(".0") {
                Some(whole) => Some(format!("write `{whole}`")),
                None => (number && short).then(|| format!("write `{digits}`")),
            }
        }
        "a mapping" if text.contains(':') && !text.contains(": ") => {
            Some("a space is needed after `:`".into())
        }
        _ => None,
    }
}
