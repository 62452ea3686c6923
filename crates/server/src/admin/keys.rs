//! `/admin/keys/{key}`: inspects or resets the counters of a key. The parts of a key are separated
//! by `,` and percent-encoded. A key in the form of the top keys, with hashes, is looked up among them.
//! An empty key is that of rules without one.

use std::net::SocketAddr;

use http::Method;
use hyper::Request as HttpRequest;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tallygate::{Decision, Key, Limit, Quota, Request, Verb};

use super::{Admin, callers};
use crate::problem::{Code, Problem};
use crate::redact::HASH_DIGITS;
use crate::response::{self, HandlerResult};
use crate::top_keys::WINDOW;
use tallygate::http::NO_RULE;
use tallygate::rules::{KeyText, Rule};

#[derive(Clone)]
pub(super) struct Counter {
    /// None for a quota given in the query.
    pub(super) rule: Option<String>,
    budget: Option<String>,
    pub(super) key: Key<'static>,
    /// How many parts of the key are configured; the rest is internal.
    parts: usize,
    /// Which of several sources the key is from.
    source: Option<String>,
    pub(super) limit: Limit,
}

/// What a request is about.
struct Target {
    counters: Vec<Counter>,
    /// The key as it is used without a rule.
    bare_key: Option<Key<'static>>,
    hash: String,
}

impl Target {
    /// Adds counters that it does not have yet.
    fn add(&mut self, counters: Vec<Counter>) {
        for counter in counters {
            let is_same = |other: &Counter| {
                (&other.rule, &other.key, &other.limit)
                    == (&counter.rule, &counter.key, &counter.limit)
            };
            if !self.counters.iter().any(is_same) {
                self.counters.push(counter);
            }
        }
    }
}

impl Admin {
    pub(super) async fn key(
        &self,
        key: &str,
        request: HttpRequest<Incoming>,
        peer: SocketAddr,
    ) -> HandlerResult {
        let verb = match *request.method() {
            Method::GET => Verb::Peek,
            Method::DELETE => Verb::Reset,
            _ => return Ok(response::method_not_allowed(&[Method::GET, Method::DELETE])),
        };
        let names = ["quota", "name", "member"];
        let [quota, name, member] = response::parse_query(request.uri().query(), names)?;
        let Target {
            mut counters,
            bare_key,
            hash,
        } = self.target(key)?;
        if let (Some(quota), Some(key)) = (quota, bare_key) {
            let quota: Quota = quota.parse()?;
            counters.push(Counter {
                rule: None,
                budget: None,
                key,
                parts: usize::MAX,
                source: None,
                limit: name.map_or(Limit::from(quota), |name| Limit::named(name, quota)),
            });
        }
        let mut states = Vec::with_capacity(counters.len());
        for counter in &counters {
            let request = Request::new(&counter.key, &counter.limit).verb(verb);
            let decision = self.state.engine.decide(&request).await;
            if decision.degraded() {
                let detail = "the store did not answer";
                return Err(Problem::new(Code::StoreUnavailable, detail));
            }
            let mut state = state(counter, &decision);
            // In the form of the top keys, to compare them.
            state["key"] = json!(self.state.top_keys.redact(&counter.key, counter.parts));
            if verb == Verb::Peek {
                callers::add(&self.state, counter, member.as_deref(), &mut state).await?;
            }
            states.push(state);
        }
        if verb == Verb::Reset {
            let (key, counters) = (&hash, counters.len());
            tracing::info!(target: "audit", %peer, change = "reset", key, counters, "admin change");
        }
        let body = json!({"key": hash, "reset": verb == Verb::Reset, "counters": states});
        Ok(response::ok(&body))
    }

    /// What a key in a path means: a text, or a key of the top lists as they show it.
    ///
    /// # Errors
    /// When it is a hash that is not in the lists, or of which they have only the hash.
    fn target(&self, key: &str) -> Result<Target, Problem> {
        let state = &self.state;
        let redactor = state.top_keys.redactor();
        let shown = key.replace("%23", "#");
        let is_hash = has_hash(&shown);
        let mut target = match is_hash {
            true => Target {
                counters: Vec::new(),
                bare_key: None,
                hash: shown.clone(),
            },
            false => {
                let parts = match key {
                    "" => Vec::new(),
                    _ => response::key_parts(key)?,
                };
                Target {
                    counters: self.counters(&parts),
                    bare_key: Some(Key::from(response::percent_decode(key)?)),
                    hash: redactor.hash(&parts),
                }
            }
        };
        if !is_hash && !redactor.shows_keys() {
            return Ok(target);
        }
        let configured = |rule: &str| state.active_rules.key_parts(rule).unwrap_or(usize::MAX);
        let found = state.top_keys.find(&shown, configured);
        let keys = found
            .iter()
            .filter_map(|top| Some((&*top.rule, top.key()?)));
        if is_hash && keys.clone().count() == 0 {
            let detail = match found.is_empty() {
                true => format!(
                    "no key with this hash is among the top keys of the last {} minutes; hashes \
                     change when the server restarts",
                    WINDOW.as_secs() / 60
                ),
                false => "the key is long, so that only its hash is kept: look it up by its text"
                    .to_owned(),
            };
            return Err(Problem::new(Code::UnknownKey, detail));
        }
        for (rule, key) in keys {
            match rule == NO_RULE {
                true => target.bare_key = Some(key.clone()),
                false => target.add(self.counters_of(rule, key, configured(rule))),
            }
        }
        Ok(target)
    }

    /// The counters of a key that was extracted for a rule, and those of other keys that its text may
    /// mean.
    fn counters_of(&self, rule: &str, key: &Key<'static>, parts: usize) -> Vec<Counter> {
        let parts = key.parts().take(parts);
        let texts = parts.map(|part| String::from_utf8_lossy(part.bytes).into_owned());
        let mut counters = self.counters(&texts.collect::<Vec<_>>());
        // A text does not mean the key itself if it is not UTF-8, or if one of several parts is not
        // from its first source.
        let of_rule = |counter: &&Counter| counter.rule.as_deref() == Some(rule);
        if !counters
            .iter()
            .filter(of_rule)
            .any(|counter| counter.key == *key)
        {
            let source = |known: &Rule| source(known, key);
            let source = self.state.active_rules.with_rule(rule, source).flatten();
            let own: Vec<Counter> = counters
                .iter()
                .filter(of_rule)
                .map(|other| Counter {
                    key: key.clone(),
                    source: source.clone(),
                    ..other.clone()
                })
                .collect();
            counters.extend(own);
        }
        counters
    }

    fn counters(&self, parts: &[String]) -> Vec<Counter> {
        let rules = self.state.active_rules.rules();
        let mut counters = Vec::new();
        for key_limits in rules.key_limits(&KeyText::new(parts)) {
            for limit in key_limits.limits {
                counters.push(Counter {
                    rule: Some(key_limits.rule.name.to_string()),
                    budget: key_limits.rule.budget.as_ref().map(ToString::to_string),
                    key: key_limits.key.clone(),
                    parts: key_limits.rule.key.len(),
                    source: source(key_limits.rule, &key_limits.key),
                    limit: limit.clone(),
                });
            }
        }
        counters
    }
}

/// Whether a shown key contains the hash of a part.
fn has_hash(shown: &str) -> bool {
    let is_hash = |part: &str| {
        let digits = part.strip_prefix('#').unwrap_or_default();
        digits.len() == HASH_DIGITS && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    shown.split(',').any(is_hash)
}

/// The source of each part of a key, if the rule has several for one of them.
pub(super) fn source(rule: &Rule, key: &Key<'_>) -> Option<String> {
    let mut parts = rule.key.iter();
    if parts.all(|part| part.sources().count() == 1) {
        return None;
    }
    let sources = rule.key_sources(key).into_iter();
    let names = sources.map(|source| source.map_or("none".to_owned(), ToString::to_string));
    Some(names.collect::<Vec<_>>().join(", "))
}

fn state(counter: &Counter, decision: &Decision) -> Value {
    let verdict = decision.verdict();
    json!({
        "rule": counter.rule,
        "budget": counter.budget,
        "limit_name": counter.limit.name(),
        "source": counter.source,
        "quota": counter.limit.quota().to_string(),
        "allowed": verdict.allowed(),
        "limit": verdict.limit,
        "remaining": verdict.remaining,
        "retry_after_us": verdict.retry_after_us(),
        "reset_after_us": verdict.reset_after_us,
        "shared": decision.shared(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_a_number_sign_and_twelve_digits() {
        for (shown, expected) in [
            ("#0123456789ab", true),
            ("ann,#0123456789ab", true),
            ("#0123456789a", false),
            ("#0123456789abc", false),
            ("#0123456789ag", false),
            ("0123456789ab", false),
            ("", false),
        ] {
            assert_eq!(has_hash(shown), expected, "{shown}");
        }
    }

    #[test]
    fn a_comma_within_a_part_is_percent_encoded() {
        assert_eq!(response::key_parts("a").unwrap(), ["a"]);
        assert_eq!(response::key_parts("a,b%2Cc").unwrap(), ["a", "b,c"]);
        assert_eq!(response::key_parts("10.0.0.1").unwrap(), ["10.0.0.1"]);
        assert!(response::key_parts("%").is_err());
    }
}
