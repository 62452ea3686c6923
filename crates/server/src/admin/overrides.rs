//! `/admin/overrides`: temporary overrides of rules for one client. Keys are shown as hashes.

use std::net::SocketAddr;
use std::time::Duration;

use http::{Method, StatusCode};
use hyper::Request;
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::{Value, json};
use tallygate::Quota;
use tallygate::http::Network;
use tokio::time::Instant;

use super::Admin;
use crate::active_rules::{OverrideError, TemporaryOverride};
use crate::api::{Object, OneOrMany};
use crate::problem::{Code, Problem};
use crate::response::{self, HandlerResult};
use tallygate::rules::{KeyText, ListEntry, Override, OverrideAction, Quotas};

/// 30 days. Permanent overrides belong in the rules file.
const MAX_SECONDS: u64 = 30 * 24 * 3_600;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OverrideRequest {
    key: Option<OneOrMany>,
    network: Option<String>,
    rule: Option<String>,
    limits: Option<OneOrMany>,
    #[serde(default)]
    allow: bool,
    #[serde(default)]
    deny: bool,
    seconds: u64,
}

impl Admin {
    pub(super) async fn overrides(
        &self,
        request: Request<Incoming>,
        peer: SocketAddr,
    ) -> HandlerResult {
        match *request.method() {
            Method::GET => {
                let all = self.state.active_rules.overrides();
                let all: Vec<Value> = all.iter().map(|one| self.to_json(one)).collect();
                Ok(response::ok(&json!({"overrides": all})))
            }
            Method::POST => {
                let Object(request) = self.body::<Object<OverrideRequest>>(request).await?;
                let seconds = request.seconds;
                let what = request.validate()?;
                let until = Instant::now() + Duration::from_secs(seconds);
                let id = self.state.active_rules.add_override(what.clone(), until)?;
                let one = TemporaryOverride { id, what, until };
                let (who, action) = (self.redact(&one.what.client), one.action());
                tracing::info!(
                    target: "audit", %peer, change = "override", id, who, action, seconds,
                    "admin change"
                );
                Ok(response::json_value(
                    StatusCode::CREATED,
                    &self.to_json(&one),
                ))
            }
            _ => Ok(response::method_not_allowed(&[Method::GET, Method::POST])),
        }
    }

    pub(super) fn one_override(
        &self,
        id: &str,
        method: &Method,
        peer: SocketAddr,
    ) -> HandlerResult {
        if method != Method::DELETE {
            return Ok(response::method_not_allowed(&[Method::DELETE]));
        }
        let found = id.parse().is_ok_and(|id| {
            let removed = self.state.active_rules.remove_override(id);
            if removed {
                tracing::info!(
                    target: "audit", %peer, change = "override ended", id, "admin change"
                );
            }
            removed
        });
        if !found {
            let detail = "no override has that id, or it has expired";
            return Err(Problem::new(Code::UnknownOverride, detail));
        }
        Ok(response::ok(&json!({"ended": true})))
    }

    fn redact(&self, client: &ListEntry) -> String {
        match client {
            ListEntry::Network(network) => network.to_string(),
            ListEntry::Key(key) => self.state.top_keys.redactor().hash(key.texts()),
        }
    }

    fn to_json(&self, one: &TemporaryOverride) -> Value {
        let limits = match &one.what.action {
            OverrideAction::Limits(quotas) => {
                let quotas = quotas.iter().map(|(_, quota)| quota.to_string());
                json!(quotas.collect::<Vec<_>>())
            }
            OverrideAction::Allow | OverrideAction::Deny => Value::Null,
        };
        let left = one.until.saturating_duration_since(Instant::now());
        json!({
            "id": one.id,
            "who": self.redact(&one.what.client),
            "rule": one.what.rule.as_ref().map(|name| name.as_str()),
            "action": one.action(),
            "limits": limits,
            "seconds_left": left.as_secs(),
        })
    }
}

impl OverrideRequest {
    fn validate(self) -> Result<Override, Problem> {
        let bad_field = |detail: String| Problem::new(Code::BadField, detail);
        if !(1..=MAX_SECONDS).contains(&self.seconds) {
            let detail = format!("`seconds` is outside 1 to {MAX_SECONDS}");
            return Err(bad_field(detail));
        }
        let client = match (self.key, self.network) {
            (Some(key), None) => ListEntry::Key(KeyText::new(key.into_vec())),
            (None, Some(network)) => {
                let network: Result<Network, _> = network.parse();
                ListEntry::Network(
                    network.map_err(|_| bad_field("`network` is not an IP network".into()))?,
                )
            }
            _ => {
                return Err(bad_field(
                    "an override needs either `key` or `network`".into(),
                ));
            }
        };
        let rule = self.rule.map(|name| name.parse()).transpose();
        let rule = rule.map_err(|_| OverrideError::NoRule)?;
        let action = match (self.limits, self.allow, self.deny) {
            (Some(limits), false, false) => OverrideAction::Limits(quotas(limits.into_vec())?),
            (None, true, false) => OverrideAction::Allow,
            (None, false, true) => OverrideAction::Deny,
            _ => {
                let detail = "an override needs one of `limits`, `allow: true` and `deny: true`";
                return Err(bad_field(detail.into()));
            }
        };
        Ok(Override {
            rule,
            client,
            action,
        })
    }
}

fn quotas(texts: Vec<String>) -> Result<Quotas, Problem> {
    let parse = |text: &String| Ok((None, text.parse::<Quota>()?));
    let quotas = texts.iter().map(parse).collect::<Result<_, Problem>>()?;
    Quotas::new(quotas).map_err(|error| Problem::new(Code::BadQuota, error.to_string()))
}

impl From<OverrideError> for Problem {
    fn from(error: OverrideError) -> Self {
        let code = match error {
            OverrideError::NoRule => Code::UnknownRule,
            OverrideError::Parts | OverrideError::Mixed => Code::BadField,
            OverrideError::Full => Code::TooManyOverrides,
        };
        Problem::new(code, error.to_string())
    }
}
