//! The six verbs, written once over the algorithms' few questions. Knows no algorithm by name.

mod undo;

use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use crate::MAX_TIME_US;
use crate::algorithm::{
    AnyLevel, Flat, Level, Log, Opened, Packed, State, WholeBucket, WithFlat, with_packed,
};
use crate::decision::{Decision, Outcome, Retry, Verdict};
use crate::quota::{Quota, Whole};
pub use undo::undo;

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
pub fn evaluate(quota: &Quota, state: &mut State, verb: Verb, cost: u32, now_us: u64) -> Verdict {
    let opened = state.open(quota, now_us.min(MAX_TIME_US));
    let mut turn = Turn::new(quota, opened, verb, cost);
    let (verdict, change) = turn.decide();
    let next = turn.level.into_state();
    change.write(state, next);
    verdict
}

/// Decides one request against one log, as [`evaluate`] does on a state: the quota must be one that
/// [logs](crate::Algorithm::is_log), of the period that the log was made under.
pub fn apply_log(quota: &Quota, log: &mut Log, verb: Verb, cost: u32, now_us: u64) -> Verdict {
    let opened = Opened::log(log, quota, now_us.min(MAX_TIME_US));
    let (verdict, change) = Turn::new(quota, opened, verb, cost).decide();
    if change == Change::Forget {
        *log = Log::default();
    }
    verdict
}

/// Checks one request against one log if it is admitted and that is simple, as it nearly always is:
/// the answer and the log are then as [`apply_log`] would have them, under a quota of the same kind,
/// and the newest entry is of `now_us`. None if not, with nothing changed.
#[inline(always)]
pub fn check_log(quota: &Quota, log: &mut Log, cost: u32, now_us: u64) -> Option<Verdict> {
    if cost == 0 || now_us > MAX_TIME_US {
        return None;
    }
    let remaining = log.take_at_once(quota, cost, now_us)?;
    Some(Verdict {
        outcome: Outcome::Admitted {
            granted: cost,
            delay_us: 0,
        },
        limit: quota.limit(),
        remaining,
        reset_after_us: quota.period_us(),
    })
}

/// What a decision does to the stored state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<T> {
    /// It stays as it is.
    Nothing,
    /// This takes its place.
    Keep(T),
    /// The key is as if never seen.
    Forget,
}

/// What came of one request before one packed counter.
#[derive(Clone, Copy, Debug)]
pub struct Decided {
    /// The answer.
    pub verdict: Verdict,
    /// What becomes of the state.
    pub change: Change<Packed>,
    /// The [moment](State::effective_time_us) it was decided as at.
    pub effective_time_us: u64,
}

/// Decides one request against one counter that is [packed](State::pack); none under a quota that
/// [logs](crate::Algorithm::is_log), as a log cannot be packed.
#[inline(always)]
pub fn evaluate_packed(
    quota: &Quota,
    packed: Packed,
    verb: Verb,
    cost: u32,
    now_us: u64,
) -> Option<Decided> {
    struct Decide<'a> {
        quota: &'a Quota,
        verb: Verb,
        cost: u32,
    }
    impl WithFlat for Decide<'_> {
        type Answer = Decided;

        #[inline(always)]
        fn with<F: Flat>(self, opened: Opened<F>) -> Self::Answer {
            let mut turn = Turn::new(self.quota, opened, self.verb, self.cost);
            let (verdict, change) = turn.decide();
            let change = match change {
                Change::Nothing => Change::Nothing,
                Change::Keep(()) => Change::Keep(turn.level.pack(self.quota)),
                Change::Forget => Change::Forget,
            };
            Decided {
                verdict,
                change,
                effective_time_us: turn.now,
            }
        }
    }
    let decide = Decide { quota, verb, cost };
    with_packed(quota, packed, now_us.min(MAX_TIME_US), decide)
}

/// Decides one request against one [whole bucket](WholeBucket), as [`evaluate_packed`] does against any
/// counter, as at `now_us`. None if the clock has stepped back.
#[inline(always)]
pub fn apply_whole(
    quota: Whole<'_>,
    bucket: WholeBucket,
    verb: Verb,
    cost: u32,
    now_us: u64,
) -> Option<(Verdict, Change<WholeBucket>)> {
    let now = now_us.min(MAX_TIME_US);
    if now < bucket.changed_us {
        return None;
    }
    let opened = Opened {
        level: bucket.advance(now),
        now,
        behind: 0,
    };
    let mut turn = Turn::new(quota.quota(), opened, verb, cost);
    let (verdict, change) = turn.decide();
    let change = match change {
        Change::Nothing => Change::Nothing,
        Change::Keep(()) => Change::Keep(turn.level),
        Change::Forget => Change::Forget,
    };
    Some((verdict, change))
}

/// Decides one request against several counters at once, each with a cost of its own: if any
/// refuses, none is charged. A take grants the same to each whose cost is not 0: the least that
/// any of them would grant.
pub fn evaluate_all(limits: &mut [(&Quota, &mut State, u32)], verb: Verb, now_us: u64) -> Decision {
    let t = now_us.min(MAX_TIME_US);
    let mut turns: Vec<Turn<'_, AnyLevel<'_>>> = limits
        .iter_mut()
        .map(|(quota, state, cost)| Turn::new(quota, state.open(quota, t), verb, *cost))
        .collect();
    let settled = settle_all(&mut turns);
    let next: Vec<Option<State>> = turns
        .into_iter()
        .map(|turn| turn.level.into_state())
        .collect();
    let mut verdicts = Vec::with_capacity(limits.len());
    for (((_, state, _), next), (verdict, change)) in limits.iter_mut().zip(next).zip(settled) {
        change.write(state, next);
        verdicts.push(verdict);
    }
    Decision::from_verdicts(verdicts)
}

/// Refuses or settles every turn of one request.
fn settle_all<L: Level>(turns: &mut [Turn<'_, L>]) -> Vec<(Verdict, Change<()>)> {
    let refusals: Vec<Option<Verdict>> = turns.iter().map(Turn::refusal).collect();
    if refusals.iter().any(Option::is_some) {
        let spared = |turn: &Turn<'_, _>, refusal: Option<Verdict>| {
            let verdict = refusal.unwrap_or_else(|| turn.spared());
            (verdict, Change::Nothing)
        };
        let each = turns.iter().zip(refusals);
        each.map(|(turn, refusal)| spared(turn, refusal)).collect()
    } else {
        let charged = turns.iter().filter(|turn| turn.cost > 0);
        let least = charged.map(Turn::grant).min().unwrap_or(0);
        let settle = |turn: &mut Turn<'_, _>| match turn.verb {
            Verb::Take => turn.settle(least),
            Verb::Check | Verb::Peek | Verb::Charge | Verb::Refund | Verb::Reset => {
                turn.settle(turn.grant())
            }
        };
        turns.iter_mut().map(settle).collect()
    }
}

/// One counter as a script found it.
#[cfg(feature = "lua")]
#[derive(Debug)]
pub struct FoundState<'a> {
    /// Under what quota.
    pub quota: &'a Quota,
    /// What was there.
    pub state: State,
    /// How many units were asked of it.
    pub cost: u32,
    /// When it was looked at.
    pub now_us: u64,
}

#[cfg(feature = "lua")]
impl FoundState<'_> {
    /// The moment it was decided as at: later than `now_us` if the clock had stepped back.
    pub fn effective_time_us(&self) -> u64 {
        self.state.effective_time_us(self.quota, self.now_us)
    }
}

/// Derives the decision that scripts came to from what they found; each counter may have been
/// looked at in a script of its own.
#[cfg(feature = "lua")]
pub fn evaluate_found(found: &mut [FoundState<'_>], verb: Verb) -> Decision {
    let mut turns = found.iter_mut().map(|found| {
        let opened = found.state.open(found.quota, found.now_us.min(MAX_TIME_US));
        Turn::new(found.quota, opened, verb, found.cost)
    });
    if turns.len() == 1
        && let Some(mut turn) = turns.next()
    {
        return Decision::from_verdict(turn.decide().0);
    }
    let settled = settle_all(&mut turns.collect::<Vec<Turn<'_, AnyLevel<'_>>>>());
    Decision::from_verdicts(settled.into_iter().map(|(verdict, _)| verdict).collect())
}

impl Change<()> {
    fn write(self, state: &mut State, next: Option<State>) {
        match (self, next) {
            (Change::Forget, _) => *state = State::New,
            (Change::Keep(()), Some(next)) => *state = next,
            (Change::Keep(()), None) | (Change::Nothing, Some(_)) => {}
            // Looking at a new log made it an empty one.
            (Change::Nothing, None) => state.forget_if_empty(),
        }
    }
}

/// One request before one counter.
struct Turn<'a, L> {
    quota: &'a Quota,
    verb: Verb,
    cost: u32,
    level: L,
    now: u64,
    behind: u64,
    available: u32,
}

impl<'a, L: Level> Turn<'a, L> {
    #[inline(always)]
    fn new(quota: &'a Quota, opened: Opened<L>, verb: Verb, cost: u32) -> Self {
        let Opened { level, now, behind } = opened;
        Turn {
            available: level.available(quota, now),
            quota,
            verb,
            cost,
            level,
            now,
            behind,
        }
    }

    /// Decides with no other limits to ask.
    #[inline(always)]
    fn decide(&mut self) -> (Verdict, Change<()>) {
        match self.refusal() {
            Some(verdict) => (verdict, Change::Nothing),
            None => self.settle(self.grant()),
        }
    }

    /// The verdict if this limit refuses.
    #[inline(always)]
    fn refusal(&self) -> Option<Verdict> {
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
            let wait = self.level.until_fits(self.quota, wanted, self.now);
            Retry::after_us(self.since_call(wait))
        };
        Some(self.verdict(Outcome::Refused { retry }, self.available))
    }

    /// What this limit would grant, given that it does not refuse.
    #[inline(always)]
    fn grant(&self) -> u32 {
        match self.verb {
            Verb::Check | Verb::Charge => self.cost,
            Verb::Take => self.cost.min(self.available),
            Verb::Peek | Verb::Refund | Verb::Reset => 0,
        }
    }

    /// The verdict of a limit that admits but is not charged: a peek, a cost of 0, or a request
    /// that another limit refused.
    #[inline(always)]
    fn spared(&self) -> Verdict {
        let outcome = Outcome::Admitted {
            granted: 0,
            delay_us: self.delay(self.cost),
        };
        self.verdict(outcome, self.available)
    }

    /// Carries out an admitted request, taking `granted` units where units are taken.
    #[inline(always)]
    fn settle(&mut self, granted: u32) -> (Verdict, Change<()>) {
        let (quota, now) = (self.quota, self.now);
        match self.verb {
            Verb::Peek => (self.spared(), Change::Nothing),
            Verb::Check | Verb::Take | Verb::Charge | Verb::Refund if self.cost == 0 => {
                (self.spared(), Change::Nothing)
            }
            Verb::Check | Verb::Take | Verb::Charge => {
                let delay_us = self.delay(granted);
                self.level.take(quota, granted, now);
                let outcome = Outcome::Admitted { granted, delay_us };
                let remaining = self.available.saturating_sub(granted);
                (self.verdict(outcome, remaining), Change::Keep(()))
            }
            Verb::Refund => {
                self.level.give_back(quota, self.cost, now);
                self.given_back()
            }
            Verb::Reset => {
                let verdict = Verdict {
                    outcome: GIVEN_BACK,
                    limit: quota.capacity(),
                    remaining: quota.capacity(),
                    reset_after_us: 0,
                };
                (verdict, Change::Forget)
            }
        }
    }

    /// The answer after units were given back.
    #[inline(always)]
    fn given_back(&self) -> (Verdict, Change<()>) {
        let verdict = self.verdict(GIVEN_BACK, self.level.available(self.quota, self.now));
        let change = match verdict.reset_after_us {
            0 => Change::Forget,
            1.. => Change::Keep(()),
        };
        (verdict, change)
    }

    /// The shaping delay of a request that takes something: until the queue ahead has drained.
    #[inline(always)]
    fn delay(&self, takes: u32) -> u64 {
        if takes == 0 || !self.quota.algorithm().is_shaping() {
            return 0;
        }
        self.since_call(self.level.until_new(self.quota, self.now))
    }

    /// Counts a wait from the caller's clock.
    #[inline(always)]
    fn since_call(&self, wait: u64) -> u64 {
        if wait == 0 { 0 } else { wait + self.behind }
    }

    #[inline(always)]
    fn verdict(&self, outcome: Outcome, remaining: u32) -> Verdict {
        Verdict {
            outcome,
            limit: self.quota.capacity(),
            remaining,
            reset_after_us: self.since_call(self.level.until_new(self.quota, self.now)),
        }
    }
}

/// How a refund or a reset comes out.
const GIVEN_BACK: Outcome = Outcome::Admitted {
    granted: 0,
    delay_us: 0,
};
