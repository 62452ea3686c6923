//! Why a request was turned away, and the answer it gets. Knows problem details (RFC 9457) and
//! gRPC's statuses; knows nothing of bodies but their bytes.

use std::borrow::Cow;
use std::time::Duration;

use ::http::{Response, StatusCode};
use bytes::Bytes;

use super::{Head, ProblemDetails, grpc};

/// Why a request was turned away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal<'a> {
    /// A limit has no room for now.
    Quota {
        /// The binding limit's name.
        limit: &'a str,
        /// When it has.
        retry_after: Duration,
    },
    /// The cost is above a limit's capacity: waiting does not help.
    NeverFits {
        /// The limit's name.
        limit: &'a str,
    },
    /// The store did not answer, and a rule admits nobody without it. No quota says so.
    Unavailable,
    /// Too many requests are being held back already.
    TooManyWaiting,
    /// The client is on a rule's list of those it turns away.
    Denied {
        /// The rule.
        rule: &'a str,
    },
    /// The request does not say who is to be limited, and a rule refuses such.
    NoKey {
        /// The rule.
        rule: &'a str,
    },
    /// The rules that apply have more limits than one request may carry.
    TooManyLimits {
        /// The rule that was one too many.
        rule: &'a str,
    },
    /// Whoever runs the service lets nobody through for now. No quota says so.
    Closed,
}

impl Refusal<'_> {
    /// The status: 429 only where a quota says so.
    pub fn status(&self) -> StatusCode {
        match self {
            Refusal::Quota { .. } | Refusal::NeverFits { .. } => StatusCode::TOO_MANY_REQUESTS,
            Refusal::Unavailable
            | Refusal::TooManyWaiting
            | Refusal::TooManyLimits { .. }
            | Refusal::Closed => StatusCode::SERVICE_UNAVAILABLE,
            Refusal::Denied { .. } => StatusCode::FORBIDDEN,
            Refusal::NoKey { .. } => StatusCode::BAD_REQUEST,
        }
    }

    /// The problem's type: a stable name for programs.
    pub fn problem_type(&self) -> &'static str {
        match self {
            // The one that the IETF's draft registers for this.
            Refusal::Quota { .. } => {
                "https://iana.org/assignments/http-problem-types#quota-exceeded"
            }
            Refusal::NeverFits { .. } => "urn:tallygate:problem:never-fits",
            Refusal::Unavailable => "urn:tallygate:problem:store-unavailable",
            Refusal::TooManyWaiting => "urn:tallygate:problem:too-many-waiting",
            Refusal::Denied { .. } => "urn:tallygate:problem:denied",
            Refusal::NoKey { .. } => "urn:tallygate:problem:missing-key",
            Refusal::TooManyLimits { .. } => "urn:tallygate:problem:too-many-limits",
            Refusal::Closed => "urn:tallygate:problem:closed",
        }
    }

    fn title(&self) -> &'static str {
        match self {
            Refusal::Quota { .. } => "Quota exceeded",
            Refusal::NeverFits { .. } => "Cost above the quota",
            Refusal::Unavailable => "Limits cannot be checked",
            Refusal::TooManyWaiting => "Too many requests are waiting",
            Refusal::Denied { .. } => "Denied",
            Refusal::NoKey { .. } => "Nobody to limit",
            Refusal::TooManyLimits { .. } => "Too many limits",
            Refusal::Closed => "Closed for now",
        }
    }

    /// What happened, in a sentence; the limits are named, the client is not.
    pub fn detail(&self) -> Cow<'static, str> {
        match self {
            Refusal::Quota { limit, retry_after } => {
                let seconds = super::headers::seconds(*retry_after).max(1);
                let mut digits = itoa::Buffer::new();
                let seconds = digits.format(seconds);
                // Most refusals are of this kind: put together, it need not be formatted.
                [
                    "`",
                    limit,
                    "` is used up; there is room again in ",
                    seconds,
                    " s",
                ]
                .concat()
                .into()
            }
            Refusal::NeverFits { limit } => {
                format!("the request costs more than `{limit}` ever holds; waiting does not help")
                    .into()
            }
            Refusal::Unavailable => "the store of the counters did not answer, and nothing goes \
                                     ahead without it; this is not the client's fault"
                .into(),
            Refusal::TooManyWaiting => {
                "too many requests are held back already; try again later".into()
            }
            Refusal::Denied { rule } => format!("`{rule}` turns this client away").into(),
            Refusal::NoKey { rule } => {
                format!("the request lacks what `{rule}` tells clients apart by").into()
            }
            Refusal::TooManyLimits { rule } => {
                format!("`{rule}` and the rules before it have too many limits for one request")
                    .into()
            }
            Refusal::Closed => "whoever runs the service lets nobody through for now".into(),
        }
    }

    /// The answer to a request: problem details, or, to gRPC, a status that its clients
    /// understand.
    pub fn response(&self, head: &Head<'_>) -> Response<Bytes> {
        match grpc::content_type(head) {
            Some(content_type) => grpc::response(self, content_type),
            None => self.problem(),
        }
    }

    fn problem(&self) -> Response<Bytes> {
        let violated_policy = match self {
            Refusal::Quota { limit, .. } | Refusal::NeverFits { limit } => Some(*limit),
            Refusal::Denied { .. }
            | Refusal::NoKey { .. }
            | Refusal::TooManyLimits { .. }
            | Refusal::Unavailable
            | Refusal::TooManyWaiting
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_fits_has_a_type_of_its_own() {
        let limit = "x";
        let retry_after = Duration::from_secs(1);
        let quota = Refusal::Quota { limit, retry_after };
        let never = Refusal::NeverFits { limit };
        assert_eq!(quota.status(), never.status());
        assert_ne!(quota.problem_type(), never.problem_type());
    }
}
