//! What a rule came to, in the words that are counted and graphed.

use tallygate_core::Verdict;

use crate::decision::Decision;

/// What a rule came to for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It let the request through.
    Admitted,
    /// It let the request through after holding it back.
    Delayed,
    /// It turned the request away.
    Refused,
    /// It would have turned the request away, but only watches.
    ShadowRefused,
    /// It let the request through without the store.
    DegradedAdmitted,
    /// It turned the request away without the store.
    DegradedRefused,
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Outcome; 6] = [
        Outcome::Admitted,
        Outcome::Delayed,
        Outcome::Refused,
        Outcome::ShadowRefused,
        Outcome::DegradedAdmitted,
        Outcome::DegradedRefused,
    ];

    /// The word, for metrics.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Admitted => "admitted",
            Outcome::Delayed => "delayed",
            Outcome::Refused => "refused",
            Outcome::ShadowRefused => "shadow_refused",
            Outcome::DegradedAdmitted => "degraded_admitted",
            Outcome::DegradedRefused => "degraded_refused",
        }
    }

    /// What a rule whose limits have these verdicts came to, in a decision over more rules than
    /// that; none if it would have let through what another one refused.
    pub(super) fn of(decision: &Decision, own: &[Verdict]) -> Option<Self> {
        // Nothing was counted: every rule shares the answer.
        let refused = match own {
            [] => !decision.allowed(),
            [..] => own.iter().any(|verdict| !verdict.allowed()),
        };
        let delayed = own.iter().any(|verdict| verdict.delay_us() > 0);
        match (refused, decision.degraded()) {
            (false, _) if !decision.allowed() => None,
            (false, true) => Some(Outcome::DegradedAdmitted),
            (true, true) => Some(Outcome::DegradedRefused),
            (true, false) => Some(Outcome::Refused),
            (false, false) if delayed => Some(Outcome::Delayed),
            (false, false) => Some(Outcome::Admitted),
        }
    }

    /// What a rule that only watches came to.
    pub(super) fn watched(decision: &Decision) -> Self {
        match decision.allowed() {
            // Whatever its policy, it stops nobody for want of the store.
            false if decision.unavailable() => Outcome::DegradedAdmitted,
            false => Outcome::ShadowRefused,
            true if decision.degraded() => Outcome::DegradedAdmitted,
            true => Outcome::Admitted,
        }
    }
}
