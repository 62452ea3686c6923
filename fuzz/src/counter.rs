//! A counter that checks every answer it gives against what the specification promises. Knows
//! only the core's public names.

use std::fmt;

use tallygate_core::{
    Change, MAX_TIME_US, Outcome, Packed, Quota, Retry, State, Verb, Verdict, evaluate,
    evaluate_all, evaluate_packed,
};

/// One counter under one quota, kept twice: as a state and, where there is such a form, packed.
#[derive(Clone, Debug)]
pub struct Counter {
    quota: Quota,
    state: State,
    packed: Option<Packed>,
}

/// One request.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// What is asked.
    pub verb: Verb,
    /// How many units.
    pub cost: u32,
    /// When; any time at all.
    pub t_us: u64,
}

impl Counter {
    /// A counter never seen.
    pub fn new(quota: Quota) -> Self {
        Counter {
            quota,
            state: State::New,
            packed: None,
        }
    }

    /// Decides a request and checks the verdict and what was written down.
    ///
    /// # Panics
    /// When a promise is broken.
    pub fn ask(&mut self, ask: Ask) -> Verdict {
        let before = self.clone();
        let Ask { verb, cost, t_us } = ask;
        let verdict = evaluate(&self.quota, &mut self.state, verb, cost, t_us);
        let told = Told {
            before,
            ask,
            verdict,
        };
        told.check_outcome();
        told.check_figures(self);
        told.check_retry();
        self.check_reset(&told);
        self.check_packed(&told);
        verdict
    }

    /// What a request would be told, without changing anything.
    fn would(&self, verb: Verb, cost: u32, t_us: u64) -> Verdict {
        evaluate(&self.quota, &mut self.state.clone(), verb, cost, t_us)
    }

    /// At `reset_after` the key is as new, and not one microsecond earlier.
    fn check_reset(&self, told: &Told) {
        let d = told.verdict.reset_after_us;
        let Some(then) = told.after(d) else { return };
        let capacity = self.quota.capacity();
        let new = Counter::new(self.quota);
        for verb in [Verb::Check, Verb::Charge, Verb::Refund] {
            let (kept, forgotten) = (
                self.would(verb, capacity, then),
                new.would(verb, capacity, then),
            );
            assert_eq!(kept, forgotten, "{verb} at the reset, {told}");
        }
        if d > 0 {
            let early = self.would(Verb::Check, capacity, then - 1);
            assert!(!early.allowed(), "as new before the reset, {told}");
        }
    }

    /// The fast path of a log gives what the general path does.
    fn check_general(&self, told: &Told) {
        let Ask { verb, cost, t_us } = told.ask;
        let mut state = told.before.state.clone();
        let decision = evaluate_all(&mut [(&self.quota, &mut state, cost)], verb, t_us);
        assert_eq!(*decision.verdict(), told.verdict, "general, {told}");
        assert_eq!(state, self.state, "general, {told}");
    }

    /// The packed twin answers alike, loses nothing and keeps within its bits.
    fn check_packed(&mut self, told: &Told) {
        if self.quota.algorithm().is_log() {
            self.check_general(told);
            return;
        }
        let Ask { verb, cost, t_us } = told.ask;
        let packed = match self.packed {
            None => self.state.pack(&self.quota),
            Some(before) => {
                let decided = evaluate_packed(&self.quota, before, verb, cost, t_us)
                    .expect("only logs cannot be packed");
                assert_eq!(decided.verdict, told.verdict, "packed, {told}");
                match decided.change {
                    Change::None => Some(before),
                    Change::Write(packed) => Some(packed),
                    Change::Delete => None,
                }
            }
        };
        assert_eq!(packed, self.state.pack(&self.quota), "packed, {told}");
        if let Some(Packed {
            expires_at_us,
            a,
            b,
        }) = packed
        {
            let within = expires_at_us < 1 << 54 && a < 1 << 53 && b < 1 << 60;
            assert!(within, "{packed:?} is beyond its bits, {told}");
        }
        self.packed = packed;
    }
}

/// A counter as it was, what it was asked and what it answered.
struct Told {
    before: Counter,
    ask: Ask,
    verdict: Verdict,
}

impl Told {
    /// The moment that long after the request; none past the end of time, where clocks stop.
    fn after(&self, d: u64) -> Option<u64> {
        let then = self.ask.t_us.min(MAX_TIME_US).checked_add(d)?;
        (then <= MAX_TIME_US).then_some(then)
    }

    /// Whether it is admitted, and how much is granted, follows from what was available.
    fn check_outcome(&self) {
        let Ask { verb, cost, t_us } = self.ask;
        let capacity = self.before.quota.capacity();
        let available = self.before.would(Verb::Peek, 0, t_us).remaining;
        let (wanted, granted) = match verb {
            Verb::Check => (cost, cost),
            Verb::Peek => (cost, 0),
            Verb::Take => (cost.min(1), cost.min(available)),
            Verb::Charge => (0, cost),
            Verb::Refund | Verb::Reset => (0, 0),
        };
        match self.verdict.outcome {
            Outcome::Admitted {
                granted: got,
                delay_us,
            } => {
                assert!(wanted <= available, "admitted what does not fit, {self}");
                assert_eq!(got, granted, "granted, {self}");
                let shapes = self.before.quota.algorithm().is_shaping();
                let takes = cost > 0 && !matches!(verb, Verb::Refund | Verb::Reset);
                assert!(delay_us == 0 || (shapes && takes), "delayed, {self}");
            }
            Outcome::Refused { retry } => {
                assert!(wanted > available, "refused what fits, {self}");
                let never = retry == Retry::Never;
                assert_eq!(never, wanted > capacity, "never, {self}");
            }
        }
        let remaining = self.verdict.remaining;
        match verb {
            Verb::Check | Verb::Peek | Verb::Take | Verb::Charge => {
                let left = available.saturating_sub(self.verdict.granted());
                assert_eq!(remaining, left, "remaining, {self}");
            }
            Verb::Refund => assert!(remaining >= available, "a refund took, {self}"),
            Verb::Reset => assert_eq!(remaining, capacity, "a reset kept, {self}"),
        }
    }

    /// The figures are in range and are those of the counter as it now is.
    fn check_figures(&self, now: &Counter) {
        let Ask { verb, cost, t_us } = self.ask;
        let Verdict {
            limit, remaining, ..
        } = self.verdict;
        assert_eq!(limit, now.quota.capacity(), "limit, {self}");
        assert!(remaining <= limit, "remaining above the limit, {self}");
        let idle = verb == Verb::Peek || (cost == 0 && verb != Verb::Reset);
        if idle || !self.verdict.allowed() {
            assert_eq!(now.state, self.before.state, "changed something, {self}");
        }
        let seen = now.would(Verb::Peek, 0, t_us);
        let figures = |v: &Verdict| (v.remaining, v.reset_after_us);
        assert_eq!(figures(&self.verdict), figures(&seen), "seen next, {self}");
    }

    /// At `retry_after` the same request is admitted; one microsecond earlier it is refused.
    fn check_retry(&self) {
        let Some(d) = self.verdict.retry_after_us() else {
            return;
        };
        assert!(d > 0, "refused with nothing to wait for, {self}");
        let Some(then) = self.after(d) else { return };
        let Ask { verb, cost, .. } = self.ask;
        let late = self.before.would(verb, cost, then);
        assert!(late.allowed(), "still refused at {then}, {self}");
        let early = self.before.would(verb, cost, then - 1);
        assert_eq!(early.retry_after_us(), Some(1), "too long, {self}");
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Told {
            before,
            ask,
            verdict,
        } = self;
        let (quota, state) = (before.quota, &before.state);
        write!(f, "{quota}: {ask:?} of {state:?} gave {verdict:?}")
    }
}
