//! `/admin/rules`: the active rules, and their shadow mode.

use std::net::SocketAddr;

use http::Method;
use hyper::Request;
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::{Value, json};
use tallygate::OnFailure;

use super::Admin;
use crate::api::Object;
use crate::problem::{Code, Problem};
use crate::response::{self, HandlerResult};
use tallygate::rules::{Missing, Name, Quotas, Rule, RuleLimits};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleUpdate {
    /// None restores the setting of the rules file.
    shadow: Option<bool>,
}

impl Admin {
    pub(super) fn rules(&self, method: &Method) -> HandlerResult {
        if method != Method::GET {
            return Ok(response::method_not_allowed(&[Method::GET]));
        }
        let snapshot = self.state.active_rules.snapshot();
        let rules = snapshot.set.rules.iter();
        let rules: Vec<Value> = rules
            .map(|rule| to_json(rule, snapshot.switched.contains(&rule.name)))
            .collect();
        let body = json!({
            "origin": snapshot.origin,
            "store": self.state.engine.store().kind(),
            "kill_switch": self.state.active_rules.kill_switch().name(),
            "overrides": snapshot.set.overrides.len(),
            "temporary_overrides": self.state.active_rules.overrides().len(),
            "rules": rules,
        });
        Ok(response::ok(&body))
    }

    pub(super) async fn rule(
        &self,
        name: &str,
        request: Request<Incoming>,
        peer: SocketAddr,
    ) -> HandlerResult {
        let unknown = || Problem::new(Code::UnknownRule, "no active rule has that name");
        let name = response::percent_decode(name)?;
        let name: Name = name.parse().map_err(|_| unknown())?;
        match *request.method() {
            Method::GET => {}
            Method::PUT | Method::PATCH => {
                let Object(update) = self.body::<Object<RuleUpdate>>(request).await?;
                let changed = self.state.active_rules.set_shadow(&name, update.shadow);
                changed.map_err(|_| unknown())?;
                let shadow = match update.shadow {
                    None => "as in the file",
                    Some(true) => "on",
                    Some(false) => "off",
                };
                tracing::info!(
                    target: "audit", %peer, change = "shadow", rule = %name, shadow, "admin change"
                );
            }
            _ => {
                let allowed = [Method::GET, Method::PUT, Method::PATCH];
                return Ok(response::method_not_allowed(&allowed));
            }
        }
        let snapshot = self.state.active_rules.snapshot();
        let mut rules = snapshot.set.rules.iter();
        let rule = rules.find(|rule| rule.name == name).ok_or_else(unknown)?;
        let body = to_json(rule, snapshot.switched.contains(&name));
        Ok(response::ok(&body))
    }
}

/// The settings of a rule. Lists contain keys, so only their length is included.
fn to_json(rule: &Rule, switched: bool) -> Value {
    let texts = |quotas: &Quotas| -> Vec<Value> {
        let each = quotas.iter();
        each.map(|(name, quota)| match name {
            None => json!(quota.to_string()),
            Some(name) => json!({"name": name.as_str(), "quota": quota.to_string()}),
        })
        .collect()
    };
    let limits = match &rule.limits {
        RuleLimits::Same(quotas) => json!(texts(quotas)),
        RuleLimits::Tiered(tiered) => {
            let tiers = tiered.tiers().iter();
            let tiers: serde_json::Map<String, Value> = tiers
                .map(|(name, quotas)| (name.to_string(), json!(texts(quotas))))
                .collect();
            json!({"default": tiered.default_tier().as_str(), "tiers": tiers})
        }
    };
    let methods: Vec<&str> = rule.matcher.methods.iter().map(Method::as_str).collect();
    let paths: Vec<&str> = rule
        .matcher
        .paths
        .iter()
        .map(|path| path.as_str())
        .collect();
    let key: Vec<Vec<String>> = rule
        .key
        .iter()
        .map(|part| part.sources().map(ToString::to_string).collect())
        .collect();
    json!({
        "name": rule.name.as_str(),
        "enabled": rule.enabled,
        "shadow": rule.shadow,
        "shadow_switched": switched,
        "match": {"methods": methods, "paths": paths, "every_request": rule.matcher.is_all()},
        "key": key,
        "budget": rule.budget.as_ref().map(Name::as_str),
        "limits": limits,
        "on_missing": match rule.on_missing {
            Missing::Refuse => "refuse",
            Missing::Pass => "pass",
            Missing::Shared => "shared",
        },
        "on_failure": match rule.on_failure.unwrap_or_default() {
            OnFailure::Open => "open",
            OnFailure::Closed => "closed",
            OnFailure::Local(_) => "local",
        },
        "stop": rule.stop,
        "allow": rule.allow.len(),
        "deny": rule.deny.len(),
    })
}
