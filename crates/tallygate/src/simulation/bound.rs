//! Bounds on the results of a simulation: `admitted <= 1.25x`, `p99 < 5ms`, `worst(tenant) <= 1x`.

use std::error::Error;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use super::results::Results;
use crate::config::{did_you_mean, either};

/// A bound on a result: a metric, `<=`, `<`, `>=` or `>`, and a value.
///
/// | metric | value | is |
/// |---|---|---|
/// | `admitted`, `refused` | `1.25x` or a number | relative to the exact limiter, or requests |
/// | `worst`, `worst(LIMIT)` | `1x` | the most that was admitted of a key in any span, relative to the limit's worst case |
/// | `calls`, `steps` | a number | script calls, and counters they decided, per decision |
/// | `p50 p90 p99 p999 max` | `800us`, `5ms`, `1s` | percentiles of the time to a decision |
/// | `leased`, `cached`, `degraded`, `unanswered` | `5%` | a share of the requests |
/// | `healthy` | `99.9%` | while servers are lost: of the requests for others, those that they decided |
/// | `stranded` | a number | units that stay charged although nobody spends them |
/// | `busy` | `80%` | the share of the time that the busiest server works |
///
/// ```
/// use tallygate::simulation::Bound;
///
/// assert!("admitted <= 1.25x".parse::<Bound>().is_ok());
/// let error = "admited<=1.25x".parse::<Bound>().unwrap_err();
/// assert_eq!(error.hint(), "did you mean `admitted`?");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    text: String,
    metric: Metric,
    /// The name of a limit, of `worst`.
    limit: Option<String>,
    comparison: Comparison,
    value: f64,
    unit: Unit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Metric {
    Admitted,
    Refused,
    Worst,
    Calls,
    Steps,
    /// A percentile of the latency, in thousandths.
    Latency(u16),
    Leased,
    Cached,
    Degraded,
    Unanswered,
    Healthy,
    Stranded,
    Busy,
}

const METRICS: [(&str, Metric); 17] = [
    ("admitted", Metric::Admitted),
    ("refused", Metric::Refused),
    ("worst", Metric::Worst),
    ("calls", Metric::Calls),
    ("steps", Metric::Steps),
    ("p50", Metric::Latency(500)),
    ("p90", Metric::Latency(900)),
    ("p99", Metric::Latency(990)),
    ("p999", Metric::Latency(999)),
    ("max", Metric::Latency(1_000)),
    ("leased", Metric::Leased),
    ("cached", Metric::Cached),
    ("degraded", Metric::Degraded),
    ("unanswered", Metric::Unanswered),
    ("healthy", Metric::Healthy),
    ("stranded", Metric::Stranded),
    ("busy", Metric::Busy),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    AtMost,
    Below,
    AtLeast,
    Above,
}

/// The longer ones first.
const COMPARISONS: [(&str, Comparison); 4] = [
    ("<=", Comparison::AtMost),
    (">=", Comparison::AtLeast),
    ("<", Comparison::Below),
    (">", Comparison::Above),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Number,
    Times,
    Percent,
    Micros,
    Millis,
    Seconds,
}

const UNITS: [(&str, Unit); 6] = [
    ("", Unit::Number),
    ("x", Unit::Times),
    ("%", Unit::Percent),
    ("us", Unit::Micros),
    ("ms", Unit::Millis),
    ("s", Unit::Seconds),
];

impl Metric {
    /// The units that its values may have, and an example.
    fn units(self) -> (&'static [Unit], &'static str) {
        match self {
            Metric::Admitted | Metric::Refused => (&[Unit::Times, Unit::Number], "1.25x"),
            Metric::Worst => (&[Unit::Times], "1.25x"),
            Metric::Calls | Metric::Steps => (&[Unit::Number], "0.1"),
            Metric::Latency(_) => (&[Unit::Micros, Unit::Millis, Unit::Seconds], "5ms"),
            Metric::Leased
            | Metric::Cached
            | Metric::Degraded
            | Metric::Unanswered
            | Metric::Healthy
            | Metric::Busy => (&[Unit::Percent], "5%"),
            Metric::Stranded => (&[Unit::Number], "100"),
        }
    }
}

/// What is wrong with the text of a bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundError {
    text: String,
    span: Range<usize>,
    problem: String,
    hint: String,
}

impl BoundError {
    /// What is wrong.
    pub fn problem(&self) -> &str {
        &self.problem
    }

    /// What to write instead.
    pub fn hint(&self) -> &str {
        &self.hint
    }

    /// The bytes of the text that are wrong.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }
}

impl fmt::Display for BoundError {
    /// Underlines the offending part.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let before = self.text[..self.span.start].chars().count();
        let length = self.text[self.span.clone()].chars().count().max(1);
        let (problem, text, hint) = (&self.problem, &self.text, &self.hint);
        let line = "^".repeat(length);
        write!(
            f,
            "{problem}\n\n    {text}\n    {:before$}{line}\n\n{hint}",
            ""
        )
    }
}

impl Error for BoundError {}

impl FromStr for Bound {
    type Err = BoundError;

    fn from_str(text: &str) -> Result<Self, BoundError> {
        let error = |span: Range<usize>, problem: String, hint: String| BoundError {
            text: text.to_owned(),
            span,
            problem,
            hint,
        };
        let found = COMPARISONS.iter().filter_map(|(sign, comparison)| {
            let at = text.find(sign)?;
            Some((at, *sign, *comparison))
        });
        // `<=` and `<` at one place: the longer one.
        let first = found.min_by_key(|(at, sign, _)| (*at, 2 - sign.len()));
        let Some((at, sign, comparison)) = first else {
            let problem = "a bound has no comparison".to_owned();
            let hint = "write a metric, `<=` or `>=`, and a value: `admitted <= 1.25x`".to_owned();
            return Err(error(0..text.len(), problem, hint));
        };
        let (metric, limit) = metric(text, at, &error)?;
        let start = at + sign.len();
        let value = text[start..].trim();
        let span = match value.is_empty() {
            true => at..text.len(),
            false => {
                let offset = start + text[start..].len() - text[start..].trim_start().len();
                offset..offset + value.len()
            }
        };
        let (units, example) = metric.units();
        let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == '%');
        let unit = value[digits.len()..].trim_start();
        let unit = UNITS.iter().find(|(name, _)| *name == unit);
        let unit = unit
            .map(|(_, unit)| *unit)
            .filter(|unit| units.contains(unit));
        let number = digits.trim_end();
        let is_decimal = number
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.');
        let number = number.parse::<f64>().ok().filter(|_| is_decimal);
        let (Some(unit), Some(number)) = (unit, number) else {
            let name = METRICS.iter().find(|(_, known)| *known == metric);
            let name = name.map_or("", |(name, _)| name);
            let allowed = units.iter().map(|unit| match unit {
                Unit::Number => "a number",
                Unit::Times => "a number and `x`",
                Unit::Percent => "a number and `%`",
                Unit::Micros => "a duration in `us`",
                Unit::Millis => "`ms`",
                Unit::Seconds => "`s`",
            });
            let allowed: Vec<&str> = allowed.collect();
            let problem = format!("the value of `{name}` is not {}", allowed.join(" or "));
            let hint = format!("write `{name} {sign} {example}`");
            return Err(error(span, problem, hint));
        };
        Ok(Bound {
            text: text.trim().to_owned(),
            metric,
            limit,
            comparison,
            value: number,
            unit,
        })
    }
}

/// The metric in front of a comparison, and the limit in brackets behind it.
fn metric(
    text: &str,
    end: usize,
    error: &impl Fn(Range<usize>, String, String) -> BoundError,
) -> Result<(Metric, Option<String>), BoundError> {
    let left = &text[..end];
    let start = left.len() - left.trim_start().len();
    let left = left.trim();
    let (name, limit) = match left.split_once('(') {
        Some((name, limit)) => (name.trim_end(), Some(limit)),
        None => (left, None),
    };
    let known = METRICS.iter().find(|(known, _)| *known == name);
    let Some((_, metric)) = known else {
        let names: Vec<&str> = METRICS.iter().map(|(name, _)| *name).collect();
        let hint = did_you_mean(name, names.iter().copied());
        let hint = hint.unwrap_or_else(|| format!("it is one of {}", either(&names)));
        let span = start..start + name.len().max(1);
        return Err(error(span, "unknown metric".to_owned(), hint));
    };
    let Some(limit) = limit else {
        return Ok((*metric, None));
    };
    let span = start..start + left.len();
    match (metric, limit.strip_suffix(')')) {
        (Metric::Worst, Some(limit)) if !limit.trim().is_empty() => {
            Ok((*metric, Some(limit.trim().to_owned())))
        }
        _ => {
            let problem = "only `worst` is of one limit".to_owned();
            Err(error(span, problem, "write `worst(NAME)`".to_owned()))
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A bound and what was found.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CheckedBound {
    /// As it was written.
    pub bound: String,
    /// What was found, in the unit of the bound.
    pub found: String,
    /// Whether it holds.
    pub holds: bool,
}

impl Bound {
    /// Checks that the limit it is about, if any, is one of these.
    ///
    /// # Errors
    /// If it is not.
    pub(crate) fn validate<'n>(
        &self,
        limits: impl Iterator<Item = &'n str>,
    ) -> Result<(), BoundError> {
        let Some(name) = self.limit.as_deref() else {
            return Ok(());
        };
        let names: Vec<&str> = limits.collect();
        if names.contains(&name) {
            return Ok(());
        }
        let start = self.text.find(name).unwrap_or(0);
        Err(BoundError {
            text: self.text.clone(),
            span: start..start + name.len(),
            problem: format!("no limit is named `{name}`"),
            hint: format!("there is {}", either(&names)),
        })
    }

    /// Compares it with results.
    pub fn check(&self, results: &Results) -> CheckedBound {
        let found = self.found(results);
        let holds = match self.comparison {
            Comparison::AtMost => found <= self.value,
            Comparison::Below => found < self.value,
            Comparison::AtLeast => found >= self.value,
            Comparison::Above => found > self.value,
        };
        CheckedBound {
            bound: self.text.clone(),
            found: self.shown(found),
            holds,
        }
    }

    /// In the unit of the value.
    fn found(&self, results: &Results) -> f64 {
        let requests = results.requests as f64;
        let share = |count: u64| 100.0 * count as f64 / requests.max(1.0);
        let relative = |found: u64, exact: u64| match self.unit {
            Unit::Times => found as f64 / (exact as f64).max(1.0),
            _ => found as f64,
        };
        match self.metric {
            Metric::Admitted => relative(results.admitted, results.exact_admitted),
            Metric::Refused => relative(results.refused, results.exact_refused()),
            Metric::Worst => {
                let limits = results.worst.iter();
                let of_limit = limits.filter(|worst| {
                    let named = self.limit.as_ref();
                    named.is_none_or(|name| *name == worst.limit)
                });
                of_limit.map(|worst| worst.ratio()).fold(0.0, f64::max)
            }
            Metric::Calls => results.calls_per_decision(),
            Metric::Steps => results.steps_per_decision(),
            Metric::Latency(share) => {
                let us = results.latency.at(share) as f64;
                match self.unit {
                    Unit::Millis => us / 1e3,
                    Unit::Seconds => us / 1e6,
                    _ => us,
                }
            }
            Metric::Leased => share(results.answers.leases),
            Metric::Cached => share(results.answers.refusal_cache),
            Metric::Degraded => share(results.answers.failure + results.answers.overload),
            Metric::Unanswered => share(results.unanswered),
            Metric::Healthy => 100.0 * results.healthy,
            Metric::Stranded => results.leases.stranded as f64,
            Metric::Busy => {
                let busy = results.shards.iter().map(|shard| shard.busy);
                100.0 * busy.fold(0.0, f64::max)
            }
        }
    }

    fn shown(&self, found: f64) -> String {
        let unit = UNITS.iter().find(|(_, unit)| *unit == self.unit);
        let unit = unit.map_or("", |(name, _)| name);
        let text = match found {
            found if found >= 1_000.0 || found == found.trunc() => format!("{found:.0}"),
            found if found >= 0.01 => format!("{found:.3}"),
            found => format!("{found:.5}"),
        };
        format!("{text}{unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_read_with_and_without_spaces() {
        for (text, shown) in [
            ("admitted<=1.25x", "1.100x"),
            (" admitted <= 1.25 x ", "1.100x"),
            ("admitted >= 100", "110"),
            ("worst(user)<=1x", "0.500x"),
            ("p99 < 5ms", "2ms"),
            ("p99<5s", "0.00200s"),
            ("degraded<=1%", "0%"),
            ("calls > 0", "0.100"),
        ] {
            let bound: Bound = text.parse().unwrap();
            let mut results = Results::empty();
            (results.requests, results.admitted) = (200, 110);
            results.exact_admitted = 100;
            (results.calls, results.decisions) = (20, 200);
            results.latency = super::super::results::Percentiles::from_values(&[2_000; 10]);
            results.worst = vec![super::super::results::WorstCase::new("user")];
            results.worst[0].record(5, 10, 1);
            let checked = bound.check(&results);
            assert_eq!(checked.found, shown, "{text}");
            assert!(checked.holds, "{text}");
            assert_eq!(bound.to_string(), text.trim());
        }
    }

    #[test]
    fn a_bad_bound_is_underlined_and_corrected() {
        for (text, underlined, hint) in [
            ("admitted", "admitted", "write a metric"),
            ("admited<=1x", "admited", "did you mean `admitted`?"),
            ("latency<=1ms", "latency", "it is one of"),
            ("p99 <= 5", "5", "write `p99 <= 5ms`"),
            ("worst<=fast", "fast", "write `worst <= 1.25x`"),
            ("worst<=", "<=", "write `worst <= 1.25x`"),
            ("calls<=-1", "-1", "write `calls <= 0.1`"),
            ("calls<=1e3", "1e3", "write `calls <= 0.1`"),
            ("p99(user)<=5ms", "p99(user)", "write `worst(NAME)`"),
            ("worst()<=1x", "worst()", "write `worst(NAME)`"),
            ("<=1", "<", "it is one of"),
        ] {
            let error = text.parse::<Bound>().unwrap_err();
            assert_eq!(&text[error.span()], underlined, "{text}");
            assert!(error.hint().starts_with(hint), "{text}: {}", error.hint());
        }
        let error = "p99 <= 5".parse::<Bound>().unwrap_err().to_string();
        assert_eq!(
            error,
            "the value of `p99` is not a duration in `us` or `ms` or `s`\n\n    p99 <= 5\n           ^\n\n\
             write `p99 <= 5ms`"
        );
    }
}
