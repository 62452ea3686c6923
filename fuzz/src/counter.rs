//! A counter that checks every decision against the specification, through the core's public API.

use std::fmt;

use tallygate_core::{
    Change, Entry, MAX_TIME_US, Outcome, Packed, Quota, Retry, State, Verb, Verdict, evaluate,
    evaluate_all, evaluate_packed,
};

/// One counter of one quota, stored twice: as a state and, except for logs, packed.
#[derive(Clone, Debug)]
pub struct Counter {
    quota: Quota,
    state: State,
    packed: Option<Packed>,
}

/// One request.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The verb.
    pub verb: Verb,
    /// The units.
    pub cost: u32,
    /// The time; any value.
    pub t_us: u64,
}

impl Counter {
    /// A new counter.
    pub fn new(quota: Quota) -> Self {
        Counter {
            quota,
            state: State::New,
            packed: None,
        }
    }

    /// Decides a request and checks the verdict and the new state.
    ///
    /// # Panics
    /// When an invariant is violated.
    pub fn decide(&mut self, step: Step) -> Verdict {
        let before = self.clone();
        let Step { verb, cost, t_us } = step;
        let verdict = evaluate(&self.quota, &mut self.state, verb, cost, t_us);
        let transition = Transition {
            before,
            step,
            verdict,
        };
        transition.check_outcome();
        transition.check_figures(self);
        transition.check_retry();
        self.check_reset(&transition);
        self.check_packed(&transition);
        verdict
    }

    /// The verdict of a request, without changing the counter.
    fn preview(&self, verb: Verb, cost: u32, t_us: u64) -> Verdict {
        evaluate(&self.quota, &mut self.state.clone(), verb, cost, t_us)
    }

    /// At `reset_after` the counter is as new, and not one microsecond earlier.
    fn check_reset(&self, transition: &Transition) {
        let d = transition.verdict.reset_after_us;
        let Some(then) = transition.after(d) else {
            return;
        };
        let capacity = self.quota.capacity();
        let new = Counter::new(self.quota);
        for verb in [Verb::Check, Verb::Charge, Verb::Refund] {
            let (stored, fresh) = (
                self.preview(verb, capacity, then),
                new.preview(verb, capacity, then),
            );
            assert_eq!(stored, fresh, "{verb} at the reset, {transition}");
        }
        if d > 0 {
            let early = self.preview(Verb::Check, capacity, then - 1);
            assert!(!early.allowed(), "as new before the reset, {transition}");
        }
    }

    /// The fast path of a log and the general path agree.
    fn check_general(&self, transition: &Transition) {
        let Step { verb, cost, t_us } = transition.step;
        let mut state = transition.before.state.clone();
        let decision = evaluate_all(&mut [Entry::new(&self.quota, &mut state, cost)], verb, t_us);
        assert_eq!(
            *decision.verdict(),
            transition.verdict,
            "general, {transition}"
        );
        assert_eq!(state, self.state, "general, {transition}");
    }

    /// The packed form decides alike, loses nothing and fits its bits.
    fn check_packed(&mut self, transition: &Transition) {
        if self.quota.algorithm().is_log() {
            self.check_general(transition);
            return;
        }
        let Step { verb, cost, t_us } = transition.step;
        let packed = match self.packed {
            None => self.state.pack(&self.quota),
            Some(before) => {
                let decided = evaluate_packed(&self.quota, before, verb, cost, t_us)
                    .expect("only logs cannot be packed");
                assert_eq!(decided.verdict, transition.verdict, "packed, {transition}");
                match decided.change {
                    Change::None => Some(before),
                    Change::Write(packed) => Some(packed),
                    Change::Delete => None,
                }
            }
        };
        assert_eq!(packed, self.state.pack(&self.quota), "packed, {transition}");
        if let Some(Packed {
            expires_at_us,
            a,
            b,
        }) = packed
        {
            let fits = expires_at_us < 1 << 54 && a < 1 << 53 && b < 1 << 60;
            assert!(fits, "{packed:?} exceeds its bits, {transition}");
        }
        self.packed = packed;
    }
}

/// A decision: the counter before it, the request and the verdict.
struct Transition {
    before: Counter,
    step: Step,
    verdict: Verdict,
}

impl Transition {
    /// The time `d` after the request; `None` above [`MAX_TIME_US`].
    fn after(&self, d: u64) -> Option<u64> {
        let then = self.step.t_us.min(MAX_TIME_US).checked_add(d)?;
        (then <= MAX_TIME_US).then_some(then)
    }

    /// Checks the outcome and the granted units against the available units.
    fn check_outcome(&self) {
        let Step { verb, cost, t_us } = self.step;
        let capacity = self.before.quota.capacity();
        let available = self.before.preview(Verb::Peek, 0, t_us).remaining;
        let (required, granted) = match verb {
            // Without an id.
            Verb::Check | Verb::Reserve => (cost, cost),
            Verb::Peek => (cost, 0),
            Verb::Take => (cost.min(1), cost.min(available)),
            Verb::Charge => (0, cost),
            Verb::Refund | Verb::Reset | Verb::Settle | Verb::Renew | Verb::Release => (0, 0),
        };
        match self.verdict.outcome {
            Outcome::Admitted {
                granted: got,
                delay_us,
            } => {
                assert!(
                    required <= available,
                    "admitted although it does not fit, {self}"
                );
                assert_eq!(got, granted, "granted, {self}");
                let shapes = self.before.quota.algorithm().is_shaping();
                let takes = cost > 0 && !matches!(verb, Verb::Refund | Verb::Reset);
                assert!(delay_us == 0 || (shapes && takes), "delayed, {self}");
            }
            Outcome::Refused { retry } => {
                assert!(required > available, "refused although it fits, {self}");
                let never = retry == Retry::Never;
                assert_eq!(never, required > capacity, "never, {self}");
            }
        }
        let remaining = self.verdict.remaining;
        match verb {
            Verb::Check | Verb::Peek | Verb::Take | Verb::Charge | Verb::Reserve => {
                let left = available.saturating_sub(self.verdict.granted());
                assert_eq!(remaining, left, "remaining, {self}");
            }
            Verb::Refund => assert!(
                remaining >= available,
                "a refund reduced the remaining units, {self}"
            ),
            Verb::Reset => assert_eq!(remaining, capacity, "a reset left units used, {self}"),
            Verb::Settle | Verb::Renew | Verb::Release => {
                assert_eq!(remaining, available, "{self}");
            }
        }
    }

    /// The figures are in range and match the new state.
    fn check_figures(&self, now: &Counter) {
        let Step { verb, cost, t_us } = self.step;
        let Verdict {
            limit, remaining, ..
        } = self.verdict;
        assert_eq!(limit, now.quota.capacity(), "limit, {self}");
        assert!(remaining <= limit, "remaining above the limit, {self}");
        let is_new = self.before.preview(Verb::Peek, 0, t_us).reset_after_us == 0;
        let idle = match verb {
            Verb::Peek | Verb::Settle | Verb::Renew | Verb::Release => true,
            Verb::Refund => cost == 0 || is_new,
            Verb::Check | Verb::Take | Verb::Charge | Verb::Reserve => cost == 0,
            Verb::Reset => false,
        };
        if idle || !self.verdict.allowed() {
            assert_eq!(now.state, self.before.state, "the state changed, {self}");
        }
        let peek = now.preview(Verb::Peek, 0, t_us);
        let figures = |v: &Verdict| (v.remaining, v.reset_after_us);
        assert_eq!(
            figures(&self.verdict),
            figures(&peek),
            "not equal to a peek, {self}"
        );
    }

    /// At `retry_after` the same request is admitted; one microsecond earlier it is refused.
    fn check_retry(&self) {
        let Some(d) = self.verdict.retry_after_us() else {
            return;
        };
        assert!(d > 0, "refused with a wait of zero, {self}");
        let Some(then) = self.after(d) else { return };
        let Step { verb, cost, .. } = self.step;
        let late = self.before.preview(verb, cost, then);
        assert!(late.allowed(), "still refused at {then}, {self}");
        let early = self.before.preview(verb, cost, then - 1);
        assert_eq!(early.retry_after_us(), Some(1), "too long, {self}");
    }
}

impl fmt::Display for Transition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Transition {
            before,
            step,
            verdict,
        } = self;
        let (quota, state) = (before.quota, &before.state);
        write!(f, "{quota}: {step:?} of {state:?} gave {verdict:?}")
    }
}
