//! Metrics: every specified name, label and outcome, and bounded cardinality.

use std::collections::BTreeMap;

use super::Server;

/// All samples by metric family.
fn samples(text: &str) -> BTreeMap<String, Vec<(String, f64)>> {
    let mut types = BTreeMap::new();
    let mut samples: BTreeMap<String, Vec<(String, f64)>> = BTreeMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            types.insert(name.to_owned(), kind.to_owned());
        } else if !line.starts_with('#') {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let name = series.split('{').next().unwrap();
            let base = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|end| name.strip_suffix(end));
            let family =
                base.filter(|name| types.get(*name).is_some_and(|kind| kind == "histogram"));
            let family = family.unwrap_or(name);
            assert!(types.contains_key(family), "no type: {line}");
            let sample = (series.to_owned(), value.parse().unwrap());
            samples.entry(family.to_owned()).or_default().push(sample);
        }
    }
    samples
}

#[test]
fn every_name_label_and_outcome_exists_from_the_start() {
    let server = Server::start(&[]);
    let answer = server.admin("GET", "/metrics", "");
    assert!(
        answer
            .header("content-type")
            .unwrap()
            .starts_with("text/plain; version=0.0.4")
    );
    let samples = samples(&answer.body);
    for name in [
        "tallygate_decisions_total",
        "tallygate_decision_duration_seconds",
        "tallygate_store_duration_seconds",
        "tallygate_store_errors_total",
        "tallygate_breaker_state",
        "tallygate_store_evicts",
        "tallygate_overload_total",
        "tallygate_refusal_cache_total",
        "tallygate_queue_depth",
        "tallygate_keys",
        "tallygate_keys_capacity",
        "tallygate_shared_budgets_total",
        "tallygate_reloads_total",
    ] {
        assert!(samples.contains_key(name), "{name}");
    }
    assert_eq!(samples.len(), 13);
    let has = |family: &str, label: &str| {
        let mut series = samples[family].iter();
        assert!(
            series.any(|(series, _)| series.contains(label)),
            "{family} {label}"
        );
    };
    for outcome in [
        "admitted",
        "delayed",
        "refused",
        "shadow_refused",
        "degraded_admitted",
        "degraded_refused",
    ] {
        has(
            "tallygate_decisions_total",
            &format!("{{outcome=\"{outcome}\",rule=\"login\"}}"),
        );
    }
    has("tallygate_store_duration_seconds", "store=\"memory\"");
    has("tallygate_queue_depth", "{rule=\"login\"}");
    has("tallygate_reloads_total", "{result=\"ok\"}");
    has("tallygate_reloads_total", "{result=\"error\"}");
    has("tallygate_store_errors_total", "{kind=\"timeout\"}");
}

#[test]
fn decisions_are_counted_and_keys_are_not_labels() {
    let server = Server::start(&[]);
    let before = server.admin("GET", "/metrics", "").body.lines().count();
    for key in 0..200 {
        let body = format!(
            r#"{{"key":"k{key}","quota":"sliding-window-log {}/h"}}"#,
            key + 1
        );
        assert_eq!(server.check(&body).status, 200);
    }
    for _ in 0..7 {
        server.check(r#"{"rule":"login","attributes":{"ip":"192.0.2.1"}}"#);
    }
    server.check(r#"{"key":"k0","quota":"sliding-window-log 1/h"}"#);
    server.check(r#"{"key":"k0","quota":"sliding-window-log 1/h","verb":"peek"}"#);
    let text = server.admin("GET", "/metrics", "").body;
    assert_eq!(text.lines().count(), before);
    assert!(!text.contains("k0"));
    let counted = |outcome: &str, rule: &str| {
        let series = format!("tallygate_decisions_total{{outcome=\"{outcome}\",rule=\"{rule}\"}}");
        server.metric(&series).unwrap()
    };
    assert_eq!(counted("admitted", "(none)"), 200.0);
    assert_eq!(counted("refused", "(none)"), 1.0);
    assert_eq!(counted("admitted", "login"), 5.0);
    assert_eq!(counted("refused", "login"), 2.0);
    assert_eq!(server.metric("tallygate_keys"), Some(201.0));
    assert_eq!(
        server.metric("tallygate_decision_duration_seconds_count"),
        Some(209.0)
    );
    assert_eq!(
        server.metric("tallygate_store_duration_seconds_count{store=\"memory\"}"),
        Some(209.0)
    );
}
