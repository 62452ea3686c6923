//! What people see at startup: where to go, what is limited, and a request to try.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};

use tallygate::rules::{Rule, Rules};

use crate::command::config::summary;
use crate::describe;
use crate::endpoints::{Endpoints, http_origin};
use crate::format::count;
use crate::sample_request;

/// Of more rules, the first ones are shown.
const MAX_RULES: usize = 10;
/// Names are aligned up to this width.
const MAX_ALIGNED_CHARS: usize = 24;

pub(super) struct Banner<'r> {
    /// Where the rules come from.
    pub(super) origin: String,
    /// Whether they are the built-in sample.
    pub(super) is_sample: bool,
    pub(super) rules: &'r [Rule],
    pub(super) compiled: &'r Rules,
    pub(super) endpoints: &'r Endpoints,
    /// Behind the gateway.
    pub(super) upstreams: Vec<String>,
    pub(super) store: StoreSummary,
}

pub(super) enum StoreSummary {
    Memory { keys: usize },
    Redis { servers: Vec<String> },
}

impl Banner<'_> {
    /// Announces the server on standard error: a banner on a terminal, one log event elsewhere.
    pub(super) fn announce(&self) {
        if io::stderr().is_terminal() {
            // The server starts even if standard error is closed.
            let _ = io::stderr().lock().write_all(self.text().as_bytes());
            return;
        }
        let Endpoints {
            gateway,
            has_playground,
            ..
        } = self.endpoints;
        let (api, admin) = (
            http_origin(self.endpoints.api),
            http_origin(self.endpoints.admin),
        );
        let upstreams = gateway.as_ref().map(|_| self.upstreams.join(", "));
        let limits: Vec<String> = self
            .limits()
            .map(|(name, text)| format!("{name} {text}"))
            .collect();
        tracing::info!(
            rules = self.origin,
            limits = limits.join("; "),
            store = self.store.text(),
            gateway = gateway.as_ref().map(|gateway| format!("{}/", gateway.origin())),
            upstreams,
            playground = has_playground.then(|| format!("{api}/")),
            check_api = %format_args!("{api}/v1/check"),
            live_view = %format_args!("{admin}/live"),
            admin = %format_args!("{admin}/"),
            "listening"
        );
    }

    fn text(&self) -> String {
        let mut text = String::from("\n  Tallygate is up: ");
        text += &match self.is_sample {
            true => "a sample of rules (yours: --limit 10/s, or --config rules.yaml)".to_owned(),
            false => format!("rules from {}", self.origin),
        };
        text.push('\n');
        let (api, admin) = (
            http_origin(self.endpoints.api),
            http_origin(self.endpoints.admin),
        );
        let mut place = |name: &str, url: String| {
            let _ = writeln!(text, "    {name:<11}{url}");
        };
        place(
            "gateway",
            match &self.endpoints.gateway {
                Some(gateway) => {
                    let upstreams = self.upstreams.join(", ");
                    format!("{}/  in front of {upstreams}", gateway.origin())
                }
                None => "none; for one, add --upstream http://localhost:3000".to_owned(),
            },
        );
        if self.endpoints.has_playground {
            place("playground", format!("{api}/"));
        }
        place("check API", format!("{api}/v1/check"));
        place("live view", format!("{admin}/live"));
        place(
            "admin",
            format!("{admin}/metrics  /healthz  /readyz  /admin/rules"),
        );
        text.push_str("\n  Limits\n");
        let limits: Vec<(&str, String)> = self.limits().take(MAX_RULES).collect();
        let width = limits.iter().map(|(name, _)| name.chars().count()).max();
        let width = width.unwrap_or(0).min(MAX_ALIGNED_CHARS);
        for (name, limit) in &limits {
            let _ = writeln!(text, "    {name:<width$}  {limit}");
        }
        let more = self.limits().count() - limits.len();
        if more > 0 {
            let _ = writeln!(text, "    and {more} more: {admin}/admin/rules");
        }
        let _ = writeln!(text, "    {}", self.unlimited());
        let _ = writeln!(text, "  Counters {}", self.store.text());
        text + &self.sample()
    }

    /// The enabled rules and what they limit.
    fn limits(&self) -> impl Iterator<Item = (&str, String)> {
        let rules = self.rules.iter().filter(|rule| rule.enabled);
        rules.map(|rule| (rule.name.as_str(), limit(rule)))
    }

    /// What no rule limits.
    fn unlimited(&self) -> &'static str {
        let mut enforced = self
            .rules
            .iter()
            .filter(|rule| rule.enabled && !rule.shadow);
        match enforced.any(|rule| rule.matcher.is_all()) {
            true => "These rules cover every request.",
            false => "Other requests are not limited.",
        }
    }

    /// A request to try.
    fn sample(&self) -> String {
        let sample = sample_request::find(self.rules, self.compiled);
        if let (Some(gateway), Some(sample)) = (&self.endpoints.gateway, sample) {
            let lead = match sample.is_reported {
                true => "the RateLimit headers count down; beyond the limit it is refused with 429",
                false => "beyond the limit it is refused with 429",
            };
            let curl = sample.curl(&gateway.origin());
            return format!("\n  Try it; {lead}:\n    {curl}\n\n");
        }
        let [head, body] = sample_request::check(self.endpoints.api);
        format!(
            "
  Send this three times within a minute; the third is refused with 429:
    {head} \\
      {body}

"
        )
    }
}

fn limit(rule: &Rule) -> String {
    let limits = describe::limits(&rule.limits).join(", ");
    let matcher = summary::matcher(&rule.matcher);
    let key = match rule.key.is_empty() {
        true => "for all clients together".to_owned(),
        false => format!("by {}", summary::key(&rule.key)),
    };
    let budget = rule.budget.as_ref();
    let budget = budget.map_or(String::new(), |budget| format!(", budget {budget}"));
    let shadow = match rule.shadow {
        true => ", in shadow mode: counted, not enforced",
        false => "",
    };
    format!("{matcher}: {limits} {key}{budget}{shadow}")
}

impl StoreSummary {
    fn text(&self) -> String {
        match self {
            StoreSummary::Memory { keys } => {
                let keys = count(u64::try_from(*keys).unwrap_or(u64::MAX));
                format!("in memory, with room for {keys} keys; a restart forgets them")
            }
            StoreSummary::Redis { servers } => {
                let servers = servers.join(", ");
                format!("in Redis at {servers}; while it fails, each rule's on_failure decides")
            }
        }
    }
}
