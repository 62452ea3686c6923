//! The six verbs, written once over the algorithms' few questions. Knows no algorithm by name.

use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use crate::MAX_TIME_US;
use crate::algorithm::State;
use crate::decision::{Decision, Outcome, Retry, Verdict};
use crate::quota::Quota;

/// What a request asks of its counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Takes all of the cost or nothing.
    #[default]
    Check,
    /// Answers as a check would and changes nothing.
    Peek,
    /// Takes as much of the cost as fits.
    Take,
    /// Takes unconditionally; later requests wait the debt out.
    Charge,
    /// Gives back, never above the capacity.
    Refund,
    /// Forgets the key.
    Reset,
}

impl Verb {
    /// Every verb.
    pub const ALL: [Verb; 6] = [
        Verb::Check,
        Verb::Peek,
        Verb::Take,
        Verb::Charge,
        Verb::Refund,
        Verb::Reset,
    ];

    /// The verb's name.
    pub fn name(self) -> &'static str {
        match self {
            Verb::Check => "check",
            Verb::Peek => "peek",
            Verb::Take => "take",
            Verb::Charge => "charge",
            Verb::Refund => "refund",
            Verb::Reset => "reset",
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that is not a verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownVerb;

impl fmt::Display for UnknownVerb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown verb: expected check, peek, take, charge, refund or reset")
    }
}

impl core::error::Error for UnknownVerb {}

impl FromStr for Verb {
    type Err = UnknownVerb;

    fn from_str(text: &str) -> Result<Self, UnknownVerb> {
        Verb::ALL
            .into_iter()
            .find(|verb| verb.name() == text)
            .ok_or(UnknownVerb)
    }
}

/// Decides one request against one counter at time `now_us`, changing `state` only if something
/// was taken, given back or forgotten. Times beyond [`MAX_TIME_US`] count as that.
#[inline]
pub fn apply(quota: &Quota, state: &mut State, verb: Verb, cost: u32, now_us: u64) -> Verdict {
    let turn = Turn::open(quota, state, verb, cost, now_us);
    match turn.refusal(state) {
        Some(verdict) => verdict,
        None => turn.settle(state, turn.grant()),
    }
}

/// Decides one request against several counters at once: if any refuses, none is charged.
pub fn apply_all(
    limits: &mut [(&Quota, &mut State)],
    verb: Verb,
    cost: u32,
    now_us: u64,
) -> Decision {
    let turns: Vec<Turn<'_>> = limits
        .iter()
        .map(|(quota, state)| Turn::open(quota, state, verb, cost, now_us))
        .collect();
    let refusals: Vec<Option<Verdict>> = turns
        .iter()
        .zip(limits.iter())
        .map(|(turn, (_, state))| turn.refusal(state))
        .collect();

    let verdicts = if refusals.iter().any(Option::is_some) {
        let untouched =
            |((turn, refusal), (_, state)): ((&Turn<'_>, &Option<Verdict>), &(_, &mut State))| {
                refusal.unwrap_or_else(|| turn.spared(state))
            };
        turns
            .iter()
            .zip(&refusals)
            .zip(limits.iter())
            .map(untouched)
            .collect()
    } else {
        let granted = turns.iter().map(Turn::grant).min().unwrap_or(0);
        turns
            .iter()
            .zip(limits.iter_mut())
            .map(|(turn, (_, state))| turn.settle(state, granted))
            .collect()
    };
    Decision::all(verdicts)
}

/// One request before one counter.
struct Turn<'a> {
    quota: &'a Quota,
    verb: Verb,
    cost: u32,
    /// The moment to decide as at: the caller's, or the state's own when the clock stepped back.
    now: u64,
    /// How far behind the state's own time the caller is.
    behind: u64,
    /// Whether the clock stepped back so far that the key is as new.
    forgotten: bool,
    available: u32,
}

impl<'a> Turn<'a> {
    #[inline]
    fn open(quota: &'a Quota, state: &State, verb: Verb, cost: u32, now_us: u64) -> Self {
        let t = now_us.min(MAX_TIME_US);
        let (now, forgotten) = match state.mark() {
            Some(mark) if t < mark => {
                let forgotten = mark - t > quota.span_us();
                (if forgotten { t } else { mark }, forgotten)
            }
            Some(_) | None => (t, false),
        };
        let mut turn = Turn {
            quota,
            verb,
            cost,
            now,
            behind: now - t,
            forgotten,
            available: 0,
        };
        turn.available = turn.seen(state).available(quota, now);
        turn
    }

    /// The verdict if this limit refuses; it changes nothing.
    #[inline]
    fn refusal(&self, state: &State) -> Option<Verdict> {
        let wanted = match self.verb {
            Verb::Check | Verb::Peek => self.cost,
            Verb::Take => self.cost.min(1),
            Verb::Charge | Verb::Refund | Verb::Reset => 0,
        };
        if wanted <= self.available {
            return None;
        }
        let retry = if wanted > self.quota.capacity() {
            Retry::Never
        } else {
            let wait = self.seen(state).until_fits(self.quota, wanted, self.now);
            Retry::After(self.seen_from_call(wait))
        };
        Some(self.verdict(Outcome::Refused { retry }, self.available, self.seen(state)))
    }

    /// What this limit would grant, given that it does not refuse.
    #[inline]
    fn grant(&self) -> u32 {
        match self.verb {
            Verb::Check | Verb::Charge => self.cost,
            Verb::Take => self.cost.min(self.available),
            Verb::Peek | Verb::Refund | Verb::Reset => 0,
        }
    }

    /// The verdict of a limit that admits but is not charged: a peek, a cost of 0, or a request
    /// that another limit refused.
    #[inline]
    fn spared(&self, state: &State) -> Verdict {
        let outcome = Outcome::Admitted {
            granted: 0,
            delay_us: self.delay(self.seen(state), self.cost),
        };
        self.verdict(outcome, self.available, self.seen(state))
    }

    /// Carries out an admitted request, taking `granted` units where units are taken.
    #[inline]
    fn settle(&self, state: &mut State, granted: u32) -> Verdict {
        if self.verb == Verb::Peek || (self.cost == 0 && self.verb != Verb::Reset) {
            return self.spared(state);
        }
        if self.forgotten || self.verb == Verb::Reset {
            *state = State::New;
        }
        let mut delay_us = 0;
        let remaining = match self.verb {
            Verb::Check | Verb::Take | Verb::Charge => {
                delay_us = self.delay(state, granted);
                state.take(self.quota, granted, self.now);
                self.available.saturating_sub(granted)
            }
            Verb::Refund => {
                state.give_back(self.quota, self.cost, self.now);
                if state.until_new(self.quota, self.now) == 0 {
                    *state = State::New;
                }
                state.available(self.quota, self.now)
            }
            Verb::Peek | Verb::Reset => self.quota.capacity(),
        };
        self.verdict(Outcome::Admitted { granted, delay_us }, remaining, state)
    }

    /// The state as this turn sees it.
    #[inline]
    fn seen<'s>(&self, state: &'s State) -> &'s State {
        static NEW: State = State::New;
        if self.forgotten { &NEW } else { state }
    }

    /// The shaping delay of a request that takes something: until the queue ahead has drained.
    #[inline]
    fn delay(&self, state: &State, takes: u32) -> u64 {
        if takes == 0 || !self.quota.algorithm().shapes() {
            return 0;
        }
        self.seen_from_call(state.until_new(self.quota, self.now))
    }

    /// Counts a wait from the caller's clock.
    #[inline]
    fn seen_from_call(&self, wait: u64) -> u64 {
        if wait == 0 { 0 } else { wait + self.behind }
    }

    #[inline]
    fn verdict(&self, outcome: Outcome, remaining: u32, state: &State) -> Verdict {
        Verdict {
            outcome,
            limit: self.quota.capacity(),
            remaining,
            reset_after_us: self.seen_from_call(state.until_new(self.quota, self.now)),
        }
    }
}
