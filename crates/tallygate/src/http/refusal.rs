//! Refusals and their responses: problem details (RFC 9457) or a gRPC status.

use std::borrow::Cow;
use std::time::Duration;

use ::http::{Response, StatusCode};
use bytes::Bytes;

use super::{HOW_TO_RECORD_PEERS, Head, ProblemDetails, grpc};

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal<'a> {
    /// A limit is exhausted.
    Quota {
        /// The limit's name, as clients see it: of the one that the headers show, or otherwise of
        /// the binding one.
        limit: &'a str,
        /// Whether the response names the limit.
        reported: bool,
        /// When the request would be admitted.
        retry_after: Duration,
    },
    /// Too many requests are in flight: there is room when one of them ends.
    InFlight {
        /// The limit's name, as clients see it.
        limit: &'a str,
        /// Whether the response names the limit.
        reported: bool,
    },
    /// The cost is above a limit's capacity: waiting does not help.
    NeverFits {
        /// The limit's name, as clients see it.
        limit: &'a str,
        /// Whether the response names the limit.
        reported: bool,
    },
    /// The store failed, and the failure policy refuses. Not a quota violation.
    Unavailable,
    /// This process or the store is overloaded. Not a quota violation.
    Overloaded,
    /// Too many requests are delayed already.
    TooManyWaiting,
    /// The client is on a rule's deny list.
    Denied {
        /// The rule.
        rule: &'a str,
    },
    /// The request lacks a rule's key, and the rule refuses such requests.
    NoKey {
        /// The rule.
        rule: &'a str,
    },
    /// A rule needs the address of the client, and the server does not record it. Not a quota
    /// violation: without addresses, all clients would share one budget.
    NoAddress {
        /// The rule.
        rule: &'a str,
    },
    /// The rules that apply have more limits than one request may have.
    TooManyLimits {
        /// The rule that exceeded the maximum.
        rule: &'a str,
    },
    /// The path has more than 256 segments.
    TooManySegments,
    /// The operator has closed the service. Not a quota violation.
    Closed,
}

/// When to retry a request that was refused because of overload.
pub(super) const OVERLOAD_RETRY: Duration = Duration::from_secs(1);
/// When to retry a request that was refused because of others in flight.
pub(super) const IN_FLIGHT_RETRY: Duration = Duration::from_secs(1);

impl Refusal<'_> {
    /// The status: 429 only if a quota refuses.
    pub fn status(&self) -> StatusCode {
        match self {
            Refusal::Quota { .. } | Refusal::InFlight { .. } | Refusal::NeverFits { .. } => {
                StatusCode::TOO_MANY_REQUESTS
            }
            Refusal::Unavailable
            | Refusal::Overloaded
            | Refusal::TooManyWaiting
            | Refusal::TooManyLimits { .. }
            | Refusal::Closed => StatusCode::SERVICE_UNAVAILABLE,
            Refusal::Denied { .. } => StatusCode::FORBIDDEN,
            Refusal::NoKey { .. } => StatusCode::BAD_REQUEST,
            Refusal::NoAddress { .. } => StatusCode::INTERNAL_SERVER_ERROR,
            Refusal::TooManySegments => StatusCode::URI_TOO_LONG,
        }
    }

    /// The problem type: a stable URI for programs.
    pub fn problem_type(&self) -> &'static str {
        match self {
            // Registered by the IETF draft on RateLimit header fields.
            Refusal::Quota { .. } | Refusal::InFlight { .. } => {
                "https://iana.org/assignments/http-problem-types#quota-exceeded"
            }
            Refusal::NeverFits { .. } => "urn:tallygate:problem:never-fits",
            Refusal::Unavailable => "urn:tallygate:problem:store-unavailable",
            Refusal::Overloaded => "urn:tallygate:problem:overloaded",
            Refusal::TooManyWaiting => "urn:tallygate:problem:too-many-waiting",
            Refusal::Denied { .. } => "urn:tallygate:problem:denied",
            Refusal::NoKey { .. } => "urn:tallygate:problem:missing-key",
            Refusal::NoAddress { .. } => "urn:tallygate:problem:unknown-address",
            Refusal::TooManyLimits { .. } => "urn:tallygate:problem:too-many-limits",
            Refusal::TooManySegments => "urn:tallygate:problem:target-too-long",
            Refusal::Closed => "urn:tallygate:problem:closed",
        }
    }

    fn title(&self) -> &'static str {
        match self {
            Refusal::Quota { .. } => "Quota exceeded",
            Refusal::InFlight { .. } => "Too many requests in flight",
            Refusal::NeverFits { .. } => "Cost above the quota",
            Refusal::Unavailable => "Limits cannot be checked",
            Refusal::Overloaded => "Overloaded",
            Refusal::TooManyWaiting => "Too many requests are waiting",
            Refusal::Denied { .. } => "Denied",
            Refusal::NoKey { .. } => "Missing key",
            Refusal::NoAddress { .. } => "Unknown client address",
            Refusal::TooManyLimits { .. } => "Too many limits",
            Refusal::TooManySegments => "Target too long",
            Refusal::Closed => "Closed",
        }
    }

    /// A sentence that says what happened. Names limits and rules, never the client.
    pub fn detail(&self) -> Cow<'static, str> {
        match self {
            Refusal::Quota {
                limit,
                reported,
                retry_after,
            } => {
                let seconds = super::headers::seconds(*retry_after).max(1);
                let mut digits = itoa::Buffer::new();
                let seconds = digits.format(seconds);
                // The most frequent refusal: `concat` is faster than `format!`.
                let used_up = " is used up; there is room again in ";
                match reported {
                    true => ["`", limit, "`", used_up, seconds, " s"].concat(),
                    false => ["a limit", used_up, seconds, " s"].concat(),
                }
                .into()
            }
            Refusal::InFlight { limit, reported } => {
                let in_use = " is in use; there is room when another request ends";
                match reported {
                    true => ["`", limit, "`", in_use].concat(),
                    false => ["a limit", in_use].concat(),
                }
                .into()
            }
            Refusal::NeverFits { limit, reported } => {
                let limit = match reported {
                    true => format!("`{limit}`"),
                    false => "a limit".to_owned(),
                };
                format!("the request costs more than {limit} ever holds; waiting does not help")
                    .into()
            }
            Refusal::Unavailable => {
                "the store did not answer, and the failure policy refuses".into()
            }
            Refusal::Overloaded => "limits could not be checked in time; try again".into(),
            Refusal::TooManyWaiting => {
                "too many requests are delayed already; try again later".into()
            }
            Refusal::Denied { rule } => format!("`{rule}` denies this client").into(),
            Refusal::NoKey { rule } => format!("the request lacks the key of `{rule}`").into(),
            Refusal::NoAddress { rule } => format!(
                "`{rule}` needs the address of the client, which this server does not record: \
                 {HOW_TO_RECORD_PEERS}"
            )
            .into(),
            Refusal::TooManyLimits { rule } => {
                format!("`{rule}` and the rules before it have too many limits for one request")
                    .into()
            }
            Refusal::TooManySegments => "the path has more than 256 segments".into(),
            Refusal::Closed => "the service is closed by its operator".into(),
        }
    }

    /// The response to a request: problem details, or a status for gRPC.
    pub fn response(&self, head: &Head<'_>) -> Response<Bytes> {
        match grpc::content_type(head) {
            Some(content_type) => grpc::response(self, content_type),
            None => self.problem(),
        }
    }

    fn problem(&self) -> Response<Bytes> {
        let violated_policy = match self {
            Refusal::Quota {
                limit, reported, ..
            }
            | Refusal::InFlight { limit, reported }
            | Refusal::NeverFits { limit, reported } => reported.then_some(*limit),
            Refusal::Denied { .. }
            | Refusal::NoKey { .. }
            | Refusal::NoAddress { .. }
            | Refusal::TooManyLimits { .. }
            | Refusal::Unavailable
            | Refusal::Overloaded
            | Refusal::TooManyWaiting
            | Refusal::TooManySegments
            | Refusal::Closed => None,
        };
        let detail = self.detail();
        let details =
            ProblemDetails::new(self.problem_type(), self.title(), self.status(), &detail);
        ProblemDetails {
            violated_policy,
            ..details
        }
        .response()
    }
}
