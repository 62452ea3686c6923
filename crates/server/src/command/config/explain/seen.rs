//! What a client would see: the answers of an engine whose counters nobody has used, on a clock
//! that stands still, so that the same question has the same answer.

use http::{HeaderMap, StatusCode};
use serde::Serialize;
use tollgate::http::{Charge, Limits, Plan, Why};
use tollgate::{Decision, Limiter, ManualClock, MemoryStore, Request, RetryAfter, Verb};

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
        // One request has one cost; rules with others are asked by themselves.
        let mut costs: Vec<u32> = enforced.iter().map(|charge| charge.cost).collect();
        costs.dedup();
        let groups = costs.iter().map(|cost| {
            let alike = enforced.iter().filter(|charge| charge.cost == *cost);
            (*cost, alike.copied().collect::<Vec<_>>())
        });
        let several = costs.len() > 1;
        groups
            .flat_map(|(cost, charges)| Seen::group(cost, &charges, several))
            .collect()
    }

    fn group(cost: u32, charges: &[&Charge], several: bool) -> Vec<Seen> {
        let whose = match several {
            true => {
                let names: Vec<&str> = charges.iter().map(|c| &*c.terms.name).collect();
                format!(" (as to {})", names.join(", "))
            }
            false => String::new(),
        };
        let Some(first) = charges.first().and_then(|charge| charge.limits.first()) else {
            return Vec::new();
        };
        let store = MemoryStore::builder().clock(ManualClock::at(0)).build();
        let limiter = Limiter::over(store, first.clone());
        let pairs: Vec<_> = charges
            .iter()
            .flat_map(|charge| charge.limits.iter().map(|limit| (&charge.key, limit)))
            .collect();
        let mut pairs_left = pairs.iter();
        let Some((key, limit)) = pairs_left.next() else {
            return Vec::new();
        };
        let request = pairs_left.try_fold(Request::new(*key, limit), |request, (key, limit)| {
            request.and(*key, limit)
        });
        // No two rules share a counter.
        let Ok(request) = request else {
            return Vec::new();
        };
        let request = request.cost(cost);
        let decision = limiter.decide_now(&request);
        if !decision.allowed() {
            let when = format!("Always{whose}, as a cost of {cost} never fits");
            return vec![Seen::decided(when, &decision, charges)];
        }
        let mut seen = vec![Seen::decided(
            format!("Admitted{whose}, the first time"),
            &decision,
            charges,
        )];
        // Uses up the limit that will refuse first, and asks again.
        let (key, limit) = pairs[decision.binding()];
        let rest = Request::new(key, limit).verb(Verb::Charge);
        limiter.decide_now(&rest.cost(decision.remaining()));
        let refused = limiter.decide_now(&request);
        if !refused.allowed() {
            let name = limit.name();
            let when = format!("Refused{whose}, once `{name}` is used up");
            seen.push(Seen::decided(when, &refused, charges));
        }
        seen
    }

    fn decided(when: String, decision: &Decision, charges: &[&Charge]) -> Seen {
        let mut headers = HeaderMap::new();
        let limits: Vec<&Limits> = charges.iter().map(|charge| &*charge.limits).collect();
        // The rule of the binding limit says which headers tell the client.
        let mut left = decision.binding();
        let binding = charges.iter().find(|charge| {
            let own = charge.limits.len();
            let found = left < own;
            left = left.saturating_sub(own);
            found
        });
        if let Some(charge) = binding {
            charge.terms.headers.write(&mut headers, decision, &limits);
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
