//! How an answer is written: a replay's figures, the binding limit, and the headers that a client
//! would be told. Knows decisions; knows nothing of how they came.

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use tallygate::http::{Headers, Limits};
use tallygate::{Decision, Limit, Outcome, Verdict};

use crate::problem::{Code, Problem};
use crate::response;
use crate::verdict_json::{figures, number};

/// What a question came to.
pub(super) enum Answer {
    /// Limits said so.
    Decided {
        decision: Decision,
        /// The limits that were asked, in order.
        limits: Vec<Arc<Limits>>,
        /// Which headers tell it.
        headers: Headers,
        /// What was asked for, if the rule only watches.
        shadow: Option<u32>,
    },
    /// No limit applies.
    Unlimited { granted: u32 },
    /// It was stopped whatever the counts.
    Stopped(Problem),
}

impl Answer {
    /// The answer to one question; 200 whatever it is, if that is wanted.
    pub(super) fn response(&self, always_ok: bool) -> Response<Full<Bytes>> {
        let status = match always_ok {
            true => StatusCode::OK,
            false => self.status(),
        };
        if let Some(problem) = self.problem()
            && !always_ok
        {
            return problem.response();
        }
        let mut json = Vec::with_capacity(256);
        json.push(b'{');
        self.fields(&mut json);
        json.extend(b"}\n");
        let mut response = response::json(status, json);
        if let Answer::Decided {
            decision,
            limits,
            headers,
            ..
        } = self
            && !self.watches_only()
        {
            let limits = limits.iter().map(|limits| &**limits);
            headers.tell(response.headers_mut(), decision, limits);
        }
        response
    }

    /// The answer to one question of many.
    pub(super) fn item(&self) -> Vec<u8> {
        if let Some(problem) = self.problem() {
            return problem.json();
        }
        let mut json = Vec::with_capacity(256);
        json.extend(b"{\"status\":");
        number(&mut json, self.status().as_u16());
        json.push(b',');
        self.fields(&mut json);
        json.push(b'}');
        json
    }

    fn status(&self) -> StatusCode {
        match self {
            Answer::Decided { decision, .. } if decision.allowed() || self.watches_only() => {
                StatusCode::OK
            }
            Answer::Decided { decision, .. } if decision.unavailable() => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Answer::Decided { .. } => StatusCode::TOO_MANY_REQUESTS,
            Answer::Unlimited { .. } => StatusCode::OK,
            Answer::Stopped(problem) => problem.status(),
        }
    }

    /// What is a problem rather than a decision.
    fn problem(&self) -> Option<Problem> {
        match self {
            Answer::Decided { decision, .. } if decision.unavailable() && !self.watches_only() => {
                let detail = "the store of the counters did not answer, and nothing goes ahead \
                              without it; this is not the client's fault";
                Some(Problem::new(Code::StoreUnavailable, detail))
            }
            Answer::Decided { .. } | Answer::Unlimited { .. } => None,
            Answer::Stopped(problem) => Some(problem.clone()),
        }
    }

    fn watches_only(&self) -> bool {
        matches!(
            self,
            Answer::Decided {
                shadow: Some(_),
                ..
            }
        )
    }

    /// Every field, without braces.
    fn fields(&self, json: &mut Vec<u8>) {
        match self {
            Answer::Decided {
                decision,
                limits,
                shadow,
                ..
            } => {
                let limits: Vec<&Limit> = limits.iter().flat_map(|limits| limits.iter()).collect();
                decided(json, decision, &limits, *shadow);
            }
            Answer::Unlimited { granted } => unlimited(json, true, *granted),
            Answer::Stopped(_) => unlimited(json, false, 0),
        }
    }
}

fn decided(json: &mut Vec<u8>, decision: &Decision, limits: &[&Limit], shadow: Option<u32>) {
    let refused = !decision.allowed();
    let together = match shadow {
        // A rule that only watches lets through what it would refuse.
        Some(granted) if refused => Verdict {
            outcome: Outcome::Admitted {
                granted,
                delay_us: 0,
            },
            ..*decision.verdict()
        },
        Some(_) | None => *decision.verdict(),
    };
    json.extend(b"\"allowed\":");
    figures(json, &together);
    json.extend(b",\"binding\":");
    let binding = limits.get(decision.binding()).map(|limit| limit.name());
    serde_json::to_writer(&mut *json, &binding).expect("a text is JSON");
    json.extend(b",\"degraded\":");
    json.extend(decision.degraded().to_string().as_bytes());
    if shadow.is_some() {
        json.extend(b",\"shadow_refused\":");
        json.extend(refused.to_string().as_bytes());
    }
    if limits.len() > 1 {
        json.extend(b",\"quotas\":[");
        for (i, (limit, verdict)) in limits.iter().zip(decision.verdicts()).enumerate() {
            if i > 0 {
                json.push(b',');
            }
            json.extend(format!("{{\"quota\":\"{}\",\"allowed\":", limit.quota()).as_bytes());
            figures(json, verdict);
            json.push(b'}');
        }
        json.push(b']');
    }
}

/// What is decided without any limit has no figures to tell.
fn unlimited(json: &mut Vec<u8>, allowed: bool, granted: u32) {
    let text = format!(
        "\"allowed\":{allowed},\"granted\":{granted},\"limit\":null,\"remaining\":null,\
         \"retry_after_us\":null,\"reset_after_us\":0,\"delay_us\":0,\"binding\":null,\
         \"degraded\":false"
    );
    json.extend(text.as_bytes());
}
