//! What a client would see: the answers of an engine whose counters nobody has used, on a clock
//! that stands still, so that the same question has the same answer.

use std::time::Duration;

use http::HeaderMap;
use serde::Serialize;
use tallygate::http::{Charge, Head, Passage, Plan, Why};
use tallygate::{
    Decision, Key, Limit, Limiter, ManualClock, MemoryStore, Quota, Request, Verb, Verdict,
};

/// One answer.
#[derive(Serialize)]
pub(super) struct Seen {
    /// When it is given.
    pub(super) when: String,
    /// The status; none where it is up to whoever answers.
    pub(super) status: Option<u16>,
    pub(super) reason: &'static str,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Option<String>,
}

impl Seen {
    /// The answers to a plan for a request: admitted, and refused once a limit is used up.
    pub(super) fn of(plan: &Plan, head: &Head<'_>) -> Vec<Seen> {
        if let Some(stop) = plan.stopped() {
            let rule = &*stop.terms.name;
            let what = match stop.why {
                Why::Denied => "denies this client",
                Why::NoKey => "has to know who it is",
                Why::TooManyLimits => "is one rule too many for a request",
                Why::Closed => "lets nobody through",
            };
            let when = format!("Always, as `{rule}` {what}");
            let store = MemoryStore::builder().clock(ManualClock::at(0)).build();
            let limiter = Limiter::over(store, Quota::per_second(1));
            let passage = Passage::at_once(&limiter, plan.clone());
            return passage
                .iter()
                .map(|passage| Seen::passed(when.clone(), passage, head))
                .collect();
        }
        let enforced: Vec<&Charge> = plan.charges().iter().filter(|c| !c.terms.shadow).collect();
        if enforced.is_empty() {
            return vec![Seen {
                when: "Always, as no rule limits it".to_owned(),
                status: None,
                reason: "as whoever is behind answers",
                headers: Vec::new(),
                body: None,
            }];
        }
        Seen::limited(plan, &enforced, head)
    }

    fn limited(plan: &Plan, charges: &[&Charge], head: &Head<'_>) -> Vec<Seen> {
        let limits: Vec<(&Key<'_>, &Limit, u32)> = charges
            .iter()
            .flat_map(|charge| {
                let limits = charge.limits.iter();
                limits.map(|limit| (&charge.key, limit, charge.cost))
            })
            .collect();
        let Some(((key, limit, cost), others)) = limits.split_first() else {
            return Vec::new();
        };
        let store = MemoryStore::builder().clock(ManualClock::at(0)).build();
        let limiter = Limiter::over(store, (*limit).clone());
        let request = others.iter().try_fold(
            Request::new(*key, limit).cost(*cost),
            |request, (key, limit, cost)| request.and_cost(*key, limit, *cost),
        );
        let request = request.expect("no two rules share a counter, and a plan is bounded");
        let decided = |when: String, decision: Decision| {
            Seen::passed(when, &Passage::decided(plan.clone(), decision), head)
        };
        let first = limiter.decide_now(&request);
        if !first.allowed() {
            return vec![decided("Always, as the cost never fits".to_owned(), first)];
        }
        let after = match first.delay() {
            Duration::ZERO => String::new(),
            delay => format!(", after {delay:?}"),
        };
        // Uses up the limit that will refuse first, and asks again.
        let lasts = |(verdict, (_, _, cost)): &(Verdict, &(_, _, u32))| match cost {
            0 => u32::MAX,
            cost => verdict.remaining / cost,
        };
        let each = first.verdicts().iter().copied().zip(&limits);
        let least = each.min_by_key(lasts);
        let mut seen = vec![decided(format!("Admitted, the first time{after}"), first)];
        if let Some((verdict, (key, limit, _))) = least {
            let rest = Request::new(*key, limit).verb(Verb::Charge);
            limiter.decide_now(&rest.cost(verdict.remaining));
            let again = limiter.decide_now(&request);
            if !again.allowed() {
                let when = format!("Refused, once `{}` is used up", limit.name());
                seen.push(decided(when, again));
            }
        }
        seen
    }

    fn passed(when: String, passage: &Passage, head: &Head<'_>) -> Seen {
        let refusal = passage.refusal().map(|refusal| refusal.response(head));
        let mut response = refusal.unwrap_or_default();
        passage.tell(response.headers_mut());
        let headers = list(response.headers());
        if passage.refusal().is_none() {
            return Seen {
                when,
                status: None,
                reason: "as whoever is behind answers",
                headers,
                body: None,
            };
        }
        let status = response.status();
        let body = String::from_utf8_lossy(response.body()).into_owned();
        Seen {
            when,
            status: Some(status.as_u16()),
            reason: status.canonical_reason().unwrap_or_default(),
            headers,
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
