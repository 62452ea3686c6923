//! The responses to the request, by an engine with unused counters and a manual clock, so that the
//! result is deterministic.

use std::time::Duration;

use http::HeaderMap;
use serde::Serialize;
use tallygate::http::{
    Charge, DelayMode, Enforcement, Head, Plan, StopReason, TryEnforce, try_enforce,
};
use tallygate::store::Verdict;
use tallygate::{Engine, Key, Limit, ManualClock, MemoryStore, Request, Verb};

#[derive(Serialize)]
pub(super) struct SampleResponse {
    pub(super) when: String,
    /// The status; `None` if the service decides it.
    pub(super) status: Option<u16>,
    pub(super) reason: &'static str,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Option<String>,
}

impl SampleResponse {
    /// The responses to a request with this plan: when it is admitted, and when a limit is used up.
    pub(super) fn from_plan(plan: &Plan, head: &Head<'_>) -> Vec<SampleResponse> {
        let store = MemoryStore::builder().clock(ManualClock::at(0)).build();
        let engine = Engine::new(store);
        let mut plan = plan.clone();
        plan.set_delay_mode(DelayMode::Report);
        let enforce = || match try_enforce(&engine, plan.clone()) {
            TryEnforce::Done(enforcement) => Some(enforcement),
            TryEnforce::Pending(_) => None,
        };
        let Some(first) = enforce() else {
            return Vec::new();
        };
        if let Some(stop) = plan.stopped() {
            let rule = &*stop.settings.name;
            let because = match stop.reason {
                StopReason::Denied => format!("`{rule}` denies this client"),
                StopReason::NoKey => format!("`{rule}` requires a key that is missing"),
                StopReason::NoAddress => format!("`{rule}` needs the address of the client"),
                StopReason::TooManyLimits => format!("`{rule}` exceeds the limits of a request"),
                StopReason::TooManySegments => "the path has too many segments".to_owned(),
                StopReason::Closed => format!("`{rule}` refuses every request"),
            };
            let when = format!("Always, as {because}");
            return vec![SampleResponse::new(when, &first, head)];
        }
        let Some(decision) = first.decision() else {
            let when = "Always, as no rule limits it".to_owned();
            return vec![SampleResponse::new(when, &first, head)];
        };
        if !decision.allowed() {
            let when = "Always, as the cost never fits".to_owned();
            return vec![SampleResponse::new(when, &first, head)];
        }
        let after = match decision.delay() {
            Duration::ZERO => String::new(),
            delay => format!(", after {delay:?}"),
        };
        let when = format!("Admitted, the first time{after}");
        let mut responses = vec![SampleResponse::new(when, &first, head)];
        // Uses up the limit that will refuse first, and checks again.
        let charges = plan.charges().iter().filter(|c| !c.settings.shadow);
        let limits = charges.flat_map(|charge: &Charge| {
            let limits = charge.limits.iter();
            limits.map(|limit| (&charge.key, limit, charge.cost))
        });
        let lasts = |(verdict, (_, _, cost)): &(Verdict, (&Key<'_>, &Limit, u32))| match cost {
            0 => u32::MAX,
            cost => verdict.remaining / cost,
        };
        let each = first.verdicts().iter().copied().zip(limits);
        if let Some((verdict, (key, limit, _))) = each.min_by_key(lasts) {
            let rest = Request::new(key, limit).verb(Verb::Charge);
            engine.try_decide(&rest.cost(verdict.remaining));
            let again = enforce();
            let refused = again.filter(|again| again.decision().is_some_and(|d| !d.allowed()));
            if let Some(refused) = refused {
                let when = format!("Refused, once `{}` is used up", limit.name());
                responses.push(SampleResponse::new(when, &refused, head));
            }
        }
        responses
    }

    fn new(when: String, enforcement: &Enforcement, head: &Head<'_>) -> SampleResponse {
        let refusal = enforcement.refusal().map(|refusal| refusal.response(head));
        let status = refusal.as_ref().map(|response| response.status());
        let mut response = refusal.unwrap_or_default();
        enforcement.write_headers(response.headers_mut());
        let body = String::from_utf8_lossy(response.body()).into_owned();
        SampleResponse {
            when,
            status: status.map(|status| status.as_u16()),
            reason: match status {
                Some(status) => status.canonical_reason().unwrap_or_default(),
                None => "the response of the service",
            },
            headers: list(response.headers()),
            body: (!body.is_empty()).then_some(body),
        }
    }
}

fn list(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let mut list: Vec<_> = headers
        .iter()
        .map(|(name, value)| (name.to_string(), text(value)))
        .collect();
    list.sort();
    list
}
