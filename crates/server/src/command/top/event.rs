//! An event of `/live/events`. Fields that are not shown are ignored, so that versions may differ.

// For display only.
#![allow(clippy::float_arithmetic)]

use serde::Deserialize;
use tallygate::http::NO_RULE;

use crate::error::Failure;

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Event {
    pub(super) t_ms: u64,
    #[serde(default)]
    pub(super) version: String,
    #[serde(default)]
    pub(super) uptime_s: u64,
    #[serde(default, rename = "try")]
    pub(super) sample: String,
    pub(super) store: Store,
    pub(super) keys: u64,
    pub(super) shared: u64,
    #[serde(default)]
    pub(super) reload_errors: u64,
    pub(super) kill_switch: String,
    pub(super) rules: Vec<Rule>,
    pub(super) top: Top,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Store {
    pub(super) kind: String,
    pub(super) breaker: String,
    pub(super) p50_us: Option<f64>,
    pub(super) p99_us: Option<f64>,
    pub(super) errors: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Rule {
    name: String,
    #[serde(default)]
    pub(super) limits: Vec<String>,
    pub(super) shadow: bool,
    pub(super) enabled: bool,
    pub(super) per_second: Outcomes,
    pub(super) total: Outcomes,
}

/// Rates or totals by outcome.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Outcomes {
    pub(super) admitted: f64,
    pub(super) delayed: f64,
    pub(super) refused: f64,
    pub(super) shadow_refused: f64,
    degraded_admitted: f64,
    degraded_refused: f64,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Top {
    pub(super) refused: Vec<TopKey>,
    pub(super) hottest: Vec<TopKey>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct TopKey {
    rule: String,
    pub(super) key: String,
    pub(super) count: u64,
    source: Option<String>,
}

impl Event {
    pub(super) fn parse(json: &str) -> Result<Self, Failure> {
        serde_json::from_str(json).map_err(|error| {
            Failure::Outside(format!(
                "the server sends another format of events: {error}"
            ))
        })
    }

    /// The rates of all rules together.
    pub(super) fn per_second(&self) -> Outcomes {
        let mut sum = Outcomes::default();
        for Rule { per_second, .. } in &self.rules {
            sum.admitted += per_second.admitted;
            sum.delayed += per_second.delayed;
            sum.refused += per_second.refused;
            sum.shadow_refused += per_second.shadow_refused;
            sum.degraded_admitted += per_second.degraded_admitted;
            sum.degraded_refused += per_second.degraded_refused;
        }
        sum
    }

    /// The time of day in UTC.
    pub(super) fn time(&self) -> String {
        let seconds = self.t_ms / 1_000 % 86_400;
        let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
        format!("{hours:02}:{minutes:02}:{:02} UTC", seconds % 60)
    }

    pub(super) fn uptime(&self) -> String {
        match self.uptime_s {
            seconds @ ..120 => format!("{seconds} s"),
            seconds @ ..7_200 => format!("{} min", seconds / 60),
            seconds @ ..172_800 => format!("{} h", seconds / 3_600),
            seconds => format!("{} days", seconds / 86_400),
        }
    }
}

impl Outcomes {
    pub(super) fn degraded(&self) -> f64 {
        self.degraded_admitted + self.degraded_refused
    }

    pub(super) fn sum(&self) -> f64 {
        self.admitted + self.delayed + self.refused + self.shadow_refused + self.degraded()
    }
}

impl Rule {
    pub(super) fn name(&self) -> &str {
        shown_rule(&self.name)
    }

    /// `shadow`, `disabled`, or nothing.
    pub(super) fn flag(&self) -> &'static str {
        match (self.enabled, self.shadow) {
            (false, _) => " (disabled)",
            (true, true) => " (shadow)",
            (true, false) => "",
        }
    }
}

impl TopKey {
    /// The rule, and where it read the key from.
    pub(super) fn origin(&self) -> String {
        let rule = shown_rule(&self.rule);
        match &self.source {
            Some(source) => format!("{rule}, as {source}"),
            None => rule.to_owned(),
        }
    }
}

fn shown_rule(name: &str) -> &str {
    match name == NO_RULE {
        true => "no rule",
        false => name,
    }
}

/// A rate with one decimal below 100.
pub(super) fn rate(rate: f64) -> String {
    match rate {
        0.0 => "0".to_owned(),
        ..100.0 => format!("{rate:.1}"),
        _ => count(rate.round() as u64),
    }
}

pub(super) fn count(count: u64) -> String {
    crate::format::count(count)
}

/// A latency, or `-` if there was no request.
pub(super) fn latency(us: Option<f64>) -> String {
    match us {
        None => "-".to_owned(),
        Some(us @ ..1_000.0) => format!("{us:.0} µs"),
        Some(us) => format!("{:.1} ms", us / 1_000.0),
    }
}
