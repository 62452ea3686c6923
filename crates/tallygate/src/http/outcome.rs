//! The outcomes of a rule, as they are counted in metrics.

use tallygate_core::Verdict;

use super::plan::DelayMode;
use crate::decision::Decision;

/// The outcome of a rule for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The request was admitted.
    Admitted,
    /// The request was admitted after a shaping delay.
    Delayed,
    /// The request was refused.
    Refused,
    /// A rule in shadow mode would have refused the request.
    ShadowRefused,
    /// The request was admitted without the store.
    DegradedAdmitted,
    /// The request was refused without the store.
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

    /// The value of the metric label.
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

    /// The outcome of a rule with these verdicts in a decision over several rules. `None` if this
    /// rule admits what another one refuses.
    pub(super) fn from_decision(decision: &Decision, own: &[Verdict]) -> Option<Self> {
        // No verdicts: the store failed and the decision holds for every rule.
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

    /// The outcome of a rule in shadow mode. A shadow rule never delays a request, but its delay
    /// may be reported.
    pub(super) fn from_shadow(decision: &Decision, delay_mode: DelayMode) -> Self {
        let reported = delay_mode == DelayMode::Report && !decision.delay().is_zero();
        match decision.allowed() {
            // A shadow rule admits whatever its failure policy is.
            false if decision.unavailable() => Outcome::DegradedAdmitted,
            false => Outcome::ShadowRefused,
            true if decision.degraded() => Outcome::DegradedAdmitted,
            true if reported => Outcome::Delayed,
            true => Outcome::Admitted,
        }
    }
}
