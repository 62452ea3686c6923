//! What a client would see: the answers of an engine whose counters nobody has used, on a clock
//! that stands still, so that the same question has the same answer.

use http::{HeaderMap, StatusCode};
use serde::Serialize;
use tollgate::http::{Charge, Plan, Why};
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
}

impl Seen {
    /// The answers to a plan: admitted, and refused once a limit is used up.
    pub(super) fn of(plan: &Plan) -> Vec<Seen> {
        if let Some(stop) = plan.stopped() {
            let (status, what) = match stop.why {
                Why::Denied => (StatusCode::FORBIDDEN, "denies this client"),
                Why::NoKey => (StatusCode::BAD_REQUEST, "has to know who it is"),
            };
            let when = format!("Always, as `{}` {what}", stop.terms.name);
            return vec![Seen::refusal(when, status, HeaderMap::new())];
        }
        let enforced: Vec<&Charge> = plan.charges().iter().filter(|c| !c.terms.shadow).collect();
        if enforced.is_empty() {
            return vec![Seen {
                when: "Always, as no rule limits it".to_owned(),
                status: None,
                reason: "as whoever is behind answers",
                headers: Vec::new(),
            }];
        }
        Seen::limited(&enforced)
    }

    fn limited(charges: &[&Charge]) -> Vec<Seen> {
        let asked: Vec<(&Key<'_>, &Limit, u32)> = charges
            .iter()
            .flat_map(|charge| {
                let limits = charge.limits.iter();
                limits.map(|limit| (&charge.key, limit, charge.cost))
            })
            .collect();
        let Some(((key, limit, cost), others)) = asked.split_first() else {
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
            return vec![Seen::decided(when, &first, charges)];
        }
        let when = "Admitted, the first time".to_owned();
        let mut seen = vec![Seen::decided(when, &first, charges)];
        // Uses up the limit that will refuse first, and asks again.
        let lasts = |(verdict, (_, _, cost)): &(&Verdict, &(_, _, u32))| match cost {
            0 => u32::MAX,
            cost => verdict.remaining / cost,
        };
        let each = first.verdicts().iter().zip(&asked);
        if let Some((verdict, (key, limit, _))) = each.min_by_key(lasts) {
            let rest = Request::new(*key, limit).verb(Verb::Charge);
            limiter.decide_now(&rest.cost(verdict.remaining));
            let again = limiter.decide_now(&request);
            if !again.allowed() {
                let when = format!("Refused, once `{}` is used up", limit.name());
                seen.push(Seen::decided(when, &again, charges));
            }
        }
        seen
    }

    fn decided(when: String, decision: &Decision, charges: &[&Charge]) -> Seen {
        let mut headers = HeaderMap::new();
        // The rule of the binding limit says which headers tell the client.
        let mut left = decision.binding();
        let binding = charges.iter().find(|charge| {
            let own = charge.limits.len();
            let found = left < own;
            left = left.saturating_sub(own);
            found
        });
        if let Some(charge) = binding {
            let limits = charges.iter().map(|charge| &*charge.limits);
            charge.terms.headers.write(&mut headers, decision, limits);
        }
        if decision.allowed() {
            let mut when = when;
            if !decision.delay().is_zero() {
                when += &format!(", after {:?}", decision.delay());
            }
            return Seen {
                when,
                status: None,
                reason: "as whoever is behind answers",
                headers: list(&headers),
            };
        }
        let when = match decision.retry_after() {
            Some(RetryAfter::Never) => format!("{when}; waiting does not help"),
            Some(RetryAfter::After(_)) | None => when,
        };
        Seen::refusal(when, StatusCode::TOO_MANY_REQUESTS, headers)
    }

    fn refusal(when: String, status: StatusCode, mut headers: HeaderMap) -> Seen {
        let problem = http::HeaderValue::from_static("application/problem+json");
        headers.insert(http::header::CONTENT_TYPE, problem);
        Seen {
            when,
            status: Some(status.as_u16()),
            reason: status.canonical_reason().unwrap_or_default(),
            headers: list(&headers),
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
