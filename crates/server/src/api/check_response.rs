//! Writes the JSON and the headers of check API responses.

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use tallygate::http::Enforcement;
use tallygate::store::{Outcome, Verdict};
use tallygate::{Decision, Limit};

use crate::problem::{Code, Problem};
use crate::response;
use crate::verdict_json::{write_number, write_verdict};

pub(super) enum CheckResponse {
    Decided(Enforcement),
    /// No limit applies.
    Unlimited {
        granted: u32,
    },
    /// A rule stopped it without a look at the counters.
    Stopped(Problem),
}

/// A decision and the limits it is about.
struct Decided<'e> {
    decision: &'e Decision,
    limits: Vec<&'e Limit>,
    /// The requested cost, if the rule is in shadow mode.
    shadow: Option<u32>,
}

impl CheckResponse {
    /// The response to a check; with `always_ok` its status is 200.
    pub(super) fn response(&self, always_ok: bool) -> Response<Full<Bytes>> {
        if let Some(problem) = self.problem()
            && !always_ok
        {
            let mut response = problem.response();
            if let CheckResponse::Decided(enforcement) = self {
                enforcement.write_headers(response.headers_mut());
            }
            return response;
        }
        let status = match always_ok {
            true => StatusCode::OK,
            false => self.status(),
        };
        let mut json = Vec::with_capacity(256);
        json.push(b'{');
        self.fields(&mut json);
        json.extend(b"}\n");
        let mut response = response::json(status, json);
        if let CheckResponse::Decided(enforcement) = self {
            enforcement.write_headers(response.headers_mut());
        }
        response
    }

    /// The entry of a batch.
    pub(super) fn item(&self) -> Vec<u8> {
        if let Some(problem) = self.problem() {
            return problem.json();
        }
        let mut json = Vec::with_capacity(256);
        json.extend(b"{\"status\":");
        write_number(&mut json, self.status().as_u16());
        json.push(b',');
        self.fields(&mut json);
        json.push(b'}');
        json
    }

    fn status(&self) -> StatusCode {
        match self {
            CheckResponse::Decided(enforcement) => match enforcement.decision() {
                Some(decision) if decision.unavailable() => StatusCode::SERVICE_UNAVAILABLE,
                Some(decision) if !decision.allowed() => StatusCode::TOO_MANY_REQUESTS,
                Some(_) | None => StatusCode::OK,
            },
            CheckResponse::Unlimited { .. } => StatusCode::OK,
            CheckResponse::Stopped(problem) => problem.status(),
        }
    }

    /// The problem, if the check has no decision.
    fn problem(&self) -> Option<Problem> {
        match self {
            CheckResponse::Decided(enforcement) => {
                let decision = enforcement.decision();
                let decision = decision.filter(|decision| decision.unavailable())?;
                if decision.shed() {
                    let detail = "limits could not be checked in time; try again";
                    return Some(Problem::new(Code::Overloaded, detail));
                }
                let detail = "the store did not answer, and the failure policy refuses";
                Some(Problem::new(Code::StoreUnavailable, detail))
            }
            CheckResponse::Unlimited { .. } => None,
            CheckResponse::Stopped(problem) => Some(problem.clone()),
        }
    }

    /// Writes every field, without braces.
    fn fields(&self, json: &mut Vec<u8>) {
        match self {
            CheckResponse::Decided(enforcement) => match Decided::new(enforcement) {
                Some(decided) => decided.fields(json),
                None => unlimited(json, true, 0),
            },
            CheckResponse::Unlimited { granted } => unlimited(json, true, *granted),
            CheckResponse::Stopped(_) => unlimited(json, false, 0),
        }
    }
}

impl<'e> Decided<'e> {
    /// `None` only if no charge was decided.
    fn new(enforcement: &'e Enforcement) -> Option<Self> {
        if let Some(decision) = enforcement.decision() {
            let charges = enforcement.plan().charges().iter();
            return Some(Decided {
                decision,
                limits: charges.flat_map(|charge| charge.limits.iter()).collect(),
                shadow: None,
            });
        }
        let (charge, decision) = enforcement.shadow_decisions().next()?;
        Some(Decided {
            decision,
            limits: charge.limits.iter().collect(),
            shadow: Some(charge.cost),
        })
    }

    fn fields(&self, json: &mut Vec<u8>) {
        let Decided {
            decision,
            limits,
            shadow,
        } = self;
        let refused = !decision.allowed();
        let combined = match *shadow {
            // A rule in shadow mode admits what it would refuse.
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
        write_verdict(json, &combined);
        json.extend(b",\"binding\":");
        let binding = limits.get(decision.binding()).map(|limit| limit.name());
        serde_json::to_writer(&mut *json, &binding).expect("a string is valid JSON");
        json.extend(b",\"degraded\":");
        json.extend(decision.degraded().to_string().as_bytes());
        if combined.retry().is_some_and(|retry| !retry.is_exact()) {
            json.extend(b",\"retry_exact\":false");
        }
        if decision.shared() {
            json.extend(b",\"shared\":true");
        }
        if decision.leased() {
            json.extend(b",\"leased\":true");
        }
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
                write_verdict(json, verdict);
                json.push(b'}');
            }
            json.push(b']');
        }
    }
}

/// Writes the fields of a response without limits.
fn unlimited(json: &mut Vec<u8>, allowed: bool, granted: u32) {
    let text = format!(
        "\"allowed\":{allowed},\"granted\":{granted},\"limit\":null,\"remaining\":null,\
         \"retry_after_us\":null,\"reset_after_us\":0,\"delay_us\":0,\"binding\":null,\
         \"degraded\":false"
    );
    json.extend(text.as_bytes());
}
