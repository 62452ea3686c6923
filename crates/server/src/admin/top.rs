//! `/admin/top`: the keys that are asked for most and refused most lately, hashed unless the server
//! was told to show them.

use std::collections::HashMap;

use bytes::Bytes;
use http::{Method, Response, StatusCode};
use http_body_util::Full;
use hyper::Request;
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::Admin;
use crate::problem::{Code, Problem};
use crate::response;
use crate::state::Serving;
use crate::top_keys::{TopKey, WINDOW};

/// How many of each list are shown unless asked otherwise, and at most.
const USUAL: usize = 10;
const MOST: usize = 100;

impl Admin {
    pub(super) fn top(
        &self,
        request: &Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, Problem> {
        if request.method() != Method::GET {
            return Ok(response::other_method(&[Method::GET]));
        }
        let [most] = response::query(request.uri().query(), ["most"])?;
        let most = match most {
            None => USUAL,
            Some(most) => {
                let most = most.parse().ok();
                most.filter(|most| (1..=MOST).contains(most))
                    .ok_or_else(|| {
                        let detail = format!("`most` is not a number from 1 to {MOST}");
                        Problem::new(Code::BadQuery, detail)
                    })?
            }
        };
        let mut body = lists(&self.serving, most);
        body["window_s"] = json!(WINDOW.as_secs());
        body["keys"] = match self.serving.top_keys.redactor().shows_keys() {
            true => json!("clear"),
            false => json!("hashed"),
        };
        Ok(response::value(StatusCode::OK, &body))
    }
}

/// The two lists.
pub(super) fn lists(serving: &Serving, most: usize) -> Value {
    let mut parts = HashMap::new();
    serving.force.each_rule(|rule, _| {
        parts.insert(rule.name.as_str().to_owned(), rule.key.len());
    });
    // Behind the parts of a rule's key may be one that says where they were found.
    let parts = |rule: &str| parts.get(rule).copied().unwrap_or(usize::MAX);
    let shown = |leaders: Vec<TopKey>| -> Vec<Value> {
        let shown = |one: TopKey| json!({"rule": one.rule, "key": one.key, "count": one.count});
        leaders.into_iter().map(shown).collect()
    };
    json!({
        "hottest": shown(serving.top_keys.hottest(most, parts)),
        "refused": shown(serving.top_keys.refused(most, parts)),
    })
}
