//! `/admin/keys/{key}`: inspects or resets the counters of a key. The parts of a key are separated
//! by `,` and percent-encoded.

use std::net::SocketAddr;

use http::Method;
use hyper::Request as HttpRequest;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tallygate::{Decision, Key, Limit, Quota, Request, Verb};

use super::Admin;
use crate::problem::{Code, Problem};
use crate::response::{self, HandlerResult};
use tallygate::rules::KeyText;

struct Counter {
    /// None for a quota given in the query.
    rule: Option<String>,
    key: Key<'static>,
    /// How many parts of the key are configured; the rest is internal.
    parts: usize,
    limit: Limit,
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
        let [quota, name] = response::parse_query(request.uri().query(), ["quota", "name"])?;
        let whole_key = response::percent_decode(key)?;
        let parts = key_parts(key)?;
        let mut counters = self.counters(&parts);
        if let Some(quota) = quota {
            let quota: Quota = quota.parse()?;
            counters.push(Counter {
                rule: None,
                key: Key::from(whole_key),
                parts: usize::MAX,
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
            states.push(state);
        }
        let key = self.state.top_keys.redactor().hash(&parts);
        if verb == Verb::Reset {
            let counters = counters.len();
            tracing::info!(target: "audit", %peer, change = "reset", key, counters, "admin change");
        }
        let body = json!({"key": key, "reset": verb == Verb::Reset, "counters": states});
        Ok(response::ok(&body))
    }

    fn counters(&self, parts: &[String]) -> Vec<Counter> {
        let rules = self.state.active_rules.rules();
        let mut counters = Vec::new();
        for key_limits in rules.key_limits(&KeyText::new(parts)) {
            for limit in key_limits.limits {
                counters.push(Counter {
                    rule: Some(key_limits.rule.name.to_string()),
                    key: key_limits.key.clone(),
                    parts: key_limits.rule.key.len(),
                    limit: limit.clone(),
                });
            }
        }
        counters
    }
}

fn key_parts(text: &str) -> Result<Vec<String>, Problem> {
    text.split(',').map(response::percent_decode).collect()
}

fn state(counter: &Counter, decision: &Decision) -> Value {
    let verdict = decision.verdict();
    json!({
        "rule": counter.rule,
        "limit_name": counter.limit.name(),
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
    fn a_comma_within_a_part_is_percent_encoded() {
        assert_eq!(key_parts("a").unwrap(), ["a"]);
        assert_eq!(key_parts("a,b%2Cc").unwrap(), ["a", "b,c"]);
        assert_eq!(key_parts("10.0.0.1").unwrap(), ["10.0.0.1"]);
        assert!(key_parts("%").is_err());
    }
}
