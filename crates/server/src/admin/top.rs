//! `/admin/top`: the most frequent and the most refused keys, hashed by default.

use http::Method;
use hyper::Request;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tallygate::Key;
use tallygate::rules::Rule;

use super::Admin;
use crate::problem::{Code, Problem};
use crate::response::{self, HandlerResult};
use crate::state::ServerState;
use crate::top_keys::{TopKey, WINDOW};

const DEFAULT_KEYS: usize = 10;
const MAX_KEYS: usize = 100;

impl Admin {
    pub(super) fn top(&self, request: &Request<Incoming>) -> HandlerResult {
        if request.method() != Method::GET {
            return Ok(response::method_not_allowed(&[Method::GET]));
        }
        let [limit] = response::parse_query(request.uri().query(), ["most"])?;
        let limit = match limit {
            None => DEFAULT_KEYS,
            Some(limit) => match limit.parse() {
                Ok(limit @ 1..=MAX_KEYS) => limit,
                _ => {
                    let detail = format!("`most` is not a number from 1 to {MAX_KEYS}");
                    return Err(Problem::new(Code::BadQuery, detail));
                }
            },
        };
        let mut body = lists(&self.state, limit, |_, _| None);
        body["window_s"] = json!(WINDOW.as_secs());
        body["keys"] = match self.state.top_keys.redactor().shows_keys() {
            true => json!("clear"),
            false => json!("hashed"),
        };
        Ok(response::ok(&body))
    }
}

/// Both lists, with at most this many keys each. `source` describes where a rule reads a key from.
pub(super) fn lists(
    state: &ServerState,
    limit: usize,
    source: impl Fn(&Rule, &Key<'_>) -> Option<String>,
) -> Value {
    json!({
        "hottest": list(state, &state.top_keys.hottest(limit), &source),
        "refused": list(state, &state.top_keys.refused(limit), &source),
    })
}

fn list(
    state: &ServerState,
    top: &[TopKey],
    source: impl Fn(&Rule, &Key<'_>) -> Option<String>,
) -> Vec<Value> {
    let mut list: Vec<Value> = top
        .iter()
        .map(|top| {
            let key = state.top_keys.show(top, usize::MAX);
            json!({"rule": top.rule, "key": key, "count": top.count})
        })
        .collect();
    // The key of an active rule may end with an internal part that names the source of the others.
    state.active_rules.for_each_rule(|rule, _| {
        let of_rule = |(top, _): &(&TopKey, &mut Value)| top.rule == rule.name.as_str();
        for (top, entry) in top.iter().zip(&mut list).filter(of_rule) {
            entry["key"] = json!(state.top_keys.show(top, rule.key.len()));
            if let Some(source) = top.key().and_then(|key| source(rule, key)) {
                entry["source"] = json!(source);
            }
        }
    });
    list
}
