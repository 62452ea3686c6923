//! What a client would see: the answers of an engine whose counters nobody has used, on a clock
//! that stands still, so that the same question has the same answer.

use http::HeaderMap;
use serde::Serialize;
use tollgate::http::{Charge, Plan, Refusal, Why};
use tollgate::{
    Decision, Key, Limit, Limiter, ManualClock, MemoryStore, Request, RetryAfter, Verb, Verdict,
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
    /// The answers to a plan for a request with these headers: admitted, and refused once a limit
    /// is used up.
    pub(super) fn of(plan: &Plan, asked: &HeaderMap) -> Vec<Seen> {
        if let Some(stop) = plan.stopped() {
            let rule = &*stop.terms.name;
            let (refusal, what) = match stop.why {
                Why::Denied => (Refusal::Denied { rule }, "denies this client"),
                Why::NoKey => (Refusal::NoKey { rule }, "has to know who it is"),
            };
            let when = format!("Always, as `{rule}` {what}");
            return vec![Seen::refusal(when, &refusal, HeaderMap::new(), asked)];
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
        Seen::limited(&enforced, asked)
    }

    fn limited(charges: &[&Charge], asked: &HeaderMap) -> Vec<Seen> {
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
        let first = limiter.decide_now(&request);
        if !first.allowed() {
            let when = "Always, as the cost never fits".to_owned();
            return vec![Seen::decided(when, &first, charges, asked)];
        }
        let when = "Admitted, the first time".to_owned();
        let mut seen = vec![Seen::decided(when, &first, charges, asked)];
        // Uses up the limit that will refuse first, and asks again.
        let lasts = |(verdict, (_, _, cost)): &(&Verdict, &(_, _, u32))| match cost {
            0 => u32::MAX,
            cost => verdict.remaining / cost,
        };
        let each = first.verdicts().iter().zip(&limits);
        if let Some((verdict, (key, limit, _))) = each.min_by_key(lasts) {
            let rest = Request::new(*key, limit).verb(Verb::Charge);
            limiter.decide_now(&rest.cost(verdict.remaining));
            let again = limiter.decide_now(&request);
            if !again.allowed() {
                let when = format!("Refused, once `{}` is used up", limit.name());
                seen.push(Seen::decided(when, &again, charges, asked));
            }
        }
        seen
    }

    fn decided(when: String, decision: &Decision, charges: &[&Charge], asked: &HeaderMap) -> Seen {
        let mut headers = HeaderMap::new();
        let limits = charges.iter().map(|charge| &*charge.limits);
        // The rule of the binding limit says which headers tell the client.
        let owners = charges.iter().flat_map(|charge| {
            let limits = charge.limits.iter();
            limits.map(move |limit| (charge, limit.name()))
        });
        let mut limit = "";
        if let Some((charge, name)) = owners.into_iter().nth(decision.binding()) {
            charge.terms.headers.write(&mut headers, decision, limits);
            limit = name;
        }
        let refusal = match decision.retry_after() {
            None => {
                let delay = decision.delay();
                let after = match delay.is_zero() {
                    true => String::new(),
                    false => format!(", after {delay:?}"),
                };
                return Seen {
                    when: when + &after,
                    status: None,
                    reason: "as whoever is behind answers",
                    headers: list(&headers),
                    body: None,
                };
            }
            Some(RetryAfter::Never) => Refusal::NeverFits { limit },
            Some(RetryAfter::After(retry_after)) => Refusal::Quota { limit, retry_after },
        };
        Seen::refusal(when, &refusal, headers, asked)
    }

    fn refusal(when: String, refusal: &Refusal<'_>, told: HeaderMap, asked: &HeaderMap) -> Seen {
        let mut response = refusal.response(asked);
        response.headers_mut().extend(told);
        let status = response.status();
        let body = String::from_utf8_lossy(response.body()).into_owned();
        Seen {
            when,
            status: Some(status.as_u16()),
            reason: status.canonical_reason().unwrap_or_default(),
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
