//! The cost of a request.

use ::http::{HeaderName, Method};

use super::matcher::same_method;
use super::request_view::RequestView;
use super::{Glob, Path, PathPattern, RequestFn};
use crate::http::{JsonPath, RequestJson, RequestValue};

/// The cost of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// The same for all requests.
    Constant(u32),
    /// The value of a header, in decimal digits. If [proxies are named](crate::http::ClientAddress),
    /// only theirs.
    ///
    /// Without a number it is the default. The largest of several numbers counts, whether they are
    /// in separate lines or separated by commas. It is clamped to `min` and `max`.
    Header {
        /// The name of the header.
        name: HeaderName,
        /// The cost without a number.
        default: u32,
        /// The smallest cost, 1 unless requests may be free.
        min: u32,
        /// The largest cost.
        max: u32,
    },
    /// The first of several sources that has a cost.
    FirstOf {
        /// The sources, in order.
        sources: Vec<CostSource>,
        /// The cost if none has one. If a body cannot be read to its end as JSON, the cost is at least
        /// this, too: the rest of the body could say anything.
        default: u32,
        /// The smallest cost that a client can choose by a number.
        min: u32,
        /// The largest cost that a client can choose by a number.
        max: u32,
    },
    /// By method, compared without case.
    Method {
        /// The cost of each method.
        costs: Vec<(Method, u32)>,
        /// The cost of all other methods.
        default: u32,
    },
    /// By path.
    ///
    /// Of several patterns that match, the [most specific](PathPattern::is_more_specific_than) one
    /// counts, whatever their order; of those that are equally specific the one with the largest cost.
    /// If servers may read the path differently, the largest cost of any reading counts.
    Path {
        /// The cost of each pattern.
        costs: Vec<(PathPattern, u32)>,
        /// The cost of all other paths.
        default: u32,
    },
    /// The result of a function.
    Custom(RequestFn<u32>),
}

/// Where a request says what it costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CostSource {
    /// A header, as in [`Cost::Header`].
    Header(HeaderName),
    /// A whole number in the request's JSON body, which has to be [read ahead](RequestJson). Of equal
    /// fields, of which servers read one or another, the largest counts.
    Json(JsonPath),
    /// A text in the request's JSON body, such as the name of a model, and what it costs.
    JsonText {
        /// The path of the text. Of equal fields the one with the largest cost counts.
        path: JsonPath,
        /// The cost of each text. A text itself takes precedence over a pattern, and of several patterns
        /// the one with the largest cost counts.
        costs: Vec<(Glob, u32)>,
    },
}

impl Default for Cost {
    /// One unit.
    fn default() -> Self {
        Cost::Constant(1)
    }
}

impl Cost {
    pub(super) fn evaluate(&self, view: &RequestView<'_>) -> u32 {
        match self {
            Cost::Constant(cost) => *cost,
            Cost::Header {
                name,
                default,
                min,
                max,
            } => {
                let cost = header(name, view);
                cost.unwrap_or(*default).min(*max).max(*min)
            }
            Cost::FirstOf {
                sources,
                default,
                min,
                max,
            } => {
                let mut costs = sources.iter().map(|source| source.cost(view, *default));
                costs
                    .find_map(|cost| cost)
                    .map_or(*default, |cost| match cost {
                        Chosen::ByClient(cost) => cost.min(*max).max(*min),
                        Chosen::ByRule(cost) => cost,
                    })
            }
            Cost::Method { costs, default } => {
                let mut costs = costs.iter();
                let own = costs.find(|(method, _)| same_method(method, view.head.method()));
                own.map_or(*default, |(_, cost)| *cost)
            }
            Cost::Path { costs, default } => {
                let variants = view.paths().all().iter();
                let costs = variants.map(|path| cost_of_path(costs, path).unwrap_or(*default));
                costs.max().unwrap_or(*default)
            }
            Cost::Custom(cost) => cost.call(view.head),
        }
    }

    /// The largest cost of any request.
    pub fn max(&self) -> u32 {
        match self {
            Cost::Constant(cost) => *cost,
            Cost::Header { min, max, .. } => *max.max(min),
            Cost::FirstOf {
                sources,
                default,
                min,
                max,
            } => {
                let costs = sources.iter().flat_map(|source| match source {
                    CostSource::Header(_) | CostSource::Json(_) => vec![*max.max(min)],
                    CostSource::JsonText { costs, .. } => {
                        costs.iter().map(|(_, cost)| *cost).collect()
                    }
                });
                costs.fold(*default, u32::max)
            }
            Cost::Method { costs, default } => {
                let costs = costs.iter().map(|(_, cost)| *cost);
                costs.fold(*default, u32::max)
            }
            Cost::Path { costs, default } => {
                let costs = costs.iter().map(|(_, cost)| *cost);
                costs.fold(*default, u32::max)
            }
            Cost::Custom(_) => u32::MAX,
        }
    }
}

/// A cost, and who has chosen the number.
enum Chosen {
    ByClient(u32),
    ByRule(u32),
}

impl Cost {
    /// The paths in the request's body that it reads.
    pub(super) fn json_paths(&self) -> impl Iterator<Item = &JsonPath> {
        let sources = match self {
            Cost::FirstOf { sources, .. } => &sources[..],
            Cost::Constant(_)
            | Cost::Header { .. }
            | Cost::Method { .. }
            | Cost::Path { .. }
            | Cost::Custom(_) => &[],
        };
        sources.iter().filter_map(|source| match source {
            CostSource::Header(_) => None,
            CostSource::Json(path) | CostSource::JsonText { path, .. } => Some(path),
        })
    }
}

impl CostSource {
    /// Whether a text costs more than this.
    #[cfg(feature = "config")]
    pub(crate) fn exceeds(&self, capacity: u32) -> bool {
        match self {
            CostSource::Header(_) | CostSource::Json(_) => false,
            CostSource::JsonText { costs, .. } => costs.iter().any(|(_, cost)| *cost > capacity),
        }
    }

    /// The cost of a request. If values contradict each other or were not all read, it is at least the
    /// default where one of them may have no cost.
    fn cost(&self, view: &RequestView<'_>, default: u32) -> Option<Chosen> {
        let json = || view.head.extensions().get::<RequestJson>();
        match self {
            CostSource::Header(name) => header(name, view).map(Chosen::ByClient),
            CostSource::Json(path) => {
                let number = |value: &RequestValue| match value {
                    RequestValue::Whole(number) => Some(*number),
                    RequestValue::Text(_) | RequestValue::Bool(_) | RequestValue::Other => None,
                };
                largest(json()?, path, default, number).map(Chosen::ByClient)
            }
            CostSource::JsonText { path, costs } => {
                let cost = |value: &RequestValue| cost_of_text(costs, value);
                largest(json()?, path, default, cost).map(Chosen::ByRule)
            }
        }
    }
}

/// The largest cost of the values at a path; `None` if none has one.
fn largest(
    json: &RequestJson,
    path: &JsonPath,
    default: u32,
    cost: impl Fn(&RequestValue) -> Option<u32>,
) -> Option<u32> {
    let values = json.values(path);
    let largest = values.iter().filter_map(&cost).max()?;
    let all_have_one = json.is_whole() && values.iter().all(|value| cost(value).is_some());
    Some(if all_have_one {
        largest
    } else {
        largest.max(default)
    })
}

fn cost_of_text(costs: &[(Glob, u32)], value: &RequestValue) -> Option<u32> {
    let digits;
    let text = match value {
        RequestValue::Text(text) => text,
        RequestValue::Whole(number) => {
            digits = number.to_string();
            &*digits
        }
        RequestValue::Bool(true) => "true",
        RequestValue::Bool(false) => "false",
        RequestValue::Other => return None,
    };
    let matching = || {
        costs
            .iter()
            .filter(|(glob, _)| glob.matches(text.as_bytes()))
    };
    let literal = matching().find(|(glob, _)| glob.is_literal());
    let cost = literal.or_else(|| matching().max_by_key(|(_, cost)| *cost));
    cost.map(|(_, cost)| *cost)
}

fn header(name: &HeaderName, view: &RequestView<'_>) -> Option<u32> {
    let lines = view.proxy_header(name);
    // A proxy may have merged several lines into one.
    let values = lines.flat_map(|line| line.as_bytes().split(|&byte| byte == b','));
    values.filter_map(number).max()
}

/// The cost of the most specific pattern that matches.
fn cost_of_path(costs: &[(PathPattern, u32)], path: &Path<'_>) -> Option<u32> {
    let matching = costs.iter().filter(|(pattern, _)| pattern.matches(path));
    let best = matching.reduce(|best, next| {
        let wins = next.0.is_more_specific_than(&best.0)
            || !best.0.is_more_specific_than(&next.0) && next.1 > best.1;
        if wins { next } else { best }
    });
    best.map(|(_, cost)| *cost)
}

/// Parses a number in decimal digits, saturating.
fn number(text: &[u8]) -> Option<u32> {
    let digits = text.trim_ascii();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    // Digits only: the only error is overflow.
    Some(str::from_utf8(digits).ok()?.parse().unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_pattern_counts_whatever_the_order() {
        let mut costs = [
            ("/**", 1),
            ("/api/**", 2),
            ("/api/*", 3),
            ("/api/{id}", 4),
            ("/api/v*", 5),
            ("/api/*1", 6),
            ("/api/v1", 7),
            ("/*/v2/x", 8),
            ("/api/*/x", 9),
        ]
        .map(|(pattern, cost)| (pattern.parse::<PathPattern>().unwrap(), cost));
        for _ in 0..2 {
            for (path, cost) in [
                ("/", 1),
                ("/other/v1", 1),
                ("/api", 2),
                ("/api/a/b", 2),
                // Equally specific: the largest cost.
                ("/api/a", 4),
                ("/api/v2", 5),
                ("/api/v21", 6),
                ("/api/v1", 7),
                // The first segment that differs decides.
                ("/api/v2/x", 9),
                ("/other/v2/x", 8),
            ] {
                assert_eq!(cost_of_path(&costs, &Path::new(path)), Some(cost), "{path}");
            }
            costs.reverse();
        }
        assert_eq!(cost_of_path(&costs[1..], &Path::new("/other")), None);
    }

    #[test]
    fn only_digits_are_a_number_and_it_saturates() {
        for (text, expected) in [
            ("0", Some(0)),
            (" 12 ", Some(12)),
            ("007", Some(7)),
            ("4294967295", Some(u32::MAX)),
            ("4294967296", Some(u32::MAX)),
            ("99999999999999999999999", Some(u32::MAX)),
            ("", None),
            ("-1", None),
            ("+1", None),
            ("1.5", None),
            ("1e3", None),
            ("0x10", None),
            ("1, 2", None),
            ("\u{661}", None),
        ] {
            assert_eq!(number(text.as_bytes()), expected, "{text}");
        }
    }
}
