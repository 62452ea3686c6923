//! `/admin/top`: the most frequent and the most refused keys, hashed by default.

use std::collections::HashMap;

use http::Method;
use hyper::Request;
use hyper::body::Incoming;
use serde_json::{Value, json};

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
        let mut body = lists(&self.state, limit);
        body["window_s"] = json!(WINDOW.as_secs());
        body["keys"] = match self.state.top_keys.redactor().shows_keys() {
            true => json!("clear"),
            false => json!("hashed"),
        };
        Ok(response::ok(&body))
    }
}

pub(super) fn lists(state: &ServerState, limit: usize) -> Value {
    let mut parts = HashMap::new();
    state.active_rules.for_each_rule(|rule, _| {
        parts.insert(rule.name.as_str().to_owned(), rule.key.len());
    });
    // The key of a rule may end with an internal part that names the source of the others.
    let parts = |rule: &str| parts.get(rule).copied().unwrap_or(usize::MAX);
    let list = |keys: Vec<TopKey>| -> Vec<Value> {
        let entry = |top: TopKey| json!({"rule": top.rule, "key": top.key, "count": top.count});
        keys.into_iter().map(entry).collect()
    };
    json!({
        "hottest": list(state.top_keys.hottest(limit, parts)),
        "refused": list(state.top_keys.refused(limit, parts)),
    })
}
