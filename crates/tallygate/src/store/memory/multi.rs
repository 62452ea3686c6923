//! The general path: any number of counters, with all their buckets and budgets locked. Buckets are
//! locked before stripes, each in ascending order of partition and index, to avoid deadlocks.

use smallvec::SmallVec;
use tallygate_core::{Outcome, Retry, State, Verb, Verdict, evaluate, evaluate_all};

use super::overflow::{BudgetState, LockedStripes, StripeRef};
use super::table::{Claim, LockedBuckets, Place};
use super::{Counter, MemoryStore};
use crate::clock::Clock;
use crate::decision::{Decision, TakenAt};
use crate::limit::Limit;

/// A counter and the cost of a request.
pub(super) struct CounterCost<'a> {
    pub(super) counter: Counter<'a>,
    pub(super) cost: u32,
}

/// Where a counter's state is stored.
#[derive(Clone, Copy)]
enum Location {
    Packed(Claim),
    Log(Claim),
    /// A shared budget.
    Budget,
    /// Nowhere: all budgets are in use until this time.
    Full {
        until: u64,
    },
}

/// A counter with its state loaded.
struct LoadedCounter<'a> {
    counter: Counter<'a>,
    cost: u32,
    location: Location,
    state: State,
    /// The state it would start from after a reset: new, or a budget that it may have taken from.
    initial: State,
    /// Whether it is decided on a shared budget.
    is_shared: bool,
}

impl LoadedCounter<'_> {
    fn has_slot(&self) -> bool {
        match self.location {
            Location::Packed(_) | Location::Log(_) => true,
            Location::Budget | Location::Full { .. } => false,
        }
    }

    /// Refunds or resets. Changes nothing if the counter uses a shared budget, or would start from
    /// one afterwards: others took from it too.
    fn refund(&mut self, verb: Verb, now: u64) -> Verdict {
        if self.has_slot() && self.initial == State::New {
            return self.evaluate(verb, self.cost, now);
        }
        let mut state = self.state.clone();
        let quota = self.counter.limit.quota();
        let verdict = evaluate(quota, &mut state, verb, self.cost, now);
        self.is_shared = !self.has_slot() || state == State::New;
        if self.is_shared {
            return self.evaluate(Verb::Peek, 0, now);
        }
        self.state = state;
        verdict
    }

    fn evaluate(&mut self, verb: Verb, cost: u32, now: u64) -> Verdict {
        evaluate(self.counter.limit.quota(), &mut self.state, verb, cost, now)
    }
}

impl<C: Clock> MemoryStore<C> {
    /// The stripe with the shared budget of a counter.
    fn stripe(&self, counter: Counter<'_>) -> StripeRef<'_> {
        self.part(counter.limit).overflow.stripe(counter.id)
    }

    /// Decides over any number of counters, with everything locked.
    pub(super) fn decide_locked(
        &self,
        limits: &[CounterCost<'_>],
        verb: Verb,
        now: u64,
    ) -> Decision {
        let counters = || limits.iter().map(|limit| limit.counter);
        let part = |counter: &Counter<'_>| self.part(counter.limit);
        let packed_place = |counter: Counter<'_>| Place {
            table: part(&counter).packed(),
            id: counter.id,
        };
        let log_place = |counter: Counter<'_>| Place {
            table: part(&counter).logs(),
            id: counter.id,
        };
        let mut packed = LockedBuckets::lock(
            counters()
                .filter(|counter| !counter.is_log())
                .map(packed_place),
        );
        let mut logs = LockedBuckets::lock(counters().filter(Counter::is_log).map(log_place));

        let initial_state = |counter: &Counter<'_>| {
            let overflow = &part(counter).overflow;
            overflow.initial_state(counter.id, counter.limit, now)
        };

        // Existing counters first: freeing a slot for a new one must not move them.
        let mut found: SmallVec<[Option<(Location, State)>; 4]> = SmallVec::new();
        for counter in counters() {
            let quota = counter.limit.quota();
            found.push(if counter.is_log() {
                let found = logs.find(log_place(counter), quota);
                found.map(|(claim, state)| (Location::Log(claim), state))
            } else {
                let found = packed.find(packed_place(counter), quota);
                found.map(|(claim, state)| (Location::Packed(claim), state))
            });
        }
        for (found, counter) in found.iter_mut().zip(counters()) {
            if found.is_none() {
                let quota = counter.limit.quota();
                let location = if counter.is_log() {
                    let claim = logs.claim_vacant(log_place(counter), quota, now);
                    claim.map(Location::Log)
                } else {
                    let claim = packed.claim_vacant(packed_place(counter), quota, now);
                    claim.map(Location::Packed)
                };
                *found = location.map(|location| (location, initial_state(&counter)));
            }
        }

        let refunds = matches!(verb, Verb::Refund | Verb::Reset);
        let initial: SmallVec<[State; 4]> = counters()
            .map(|counter| {
                if refunds {
                    initial_state(&counter)
                } else {
                    State::New
                }
            })
            .collect();
        let without_slot = found
            .iter()
            .zip(counters())
            .filter(|(found, _)| found.is_none());
        let stripes = without_slot.map(|(_, counter)| self.stripe(counter));
        let mut budgets = LockedStripes::lock(stripes.collect());
        let mut loaded: SmallVec<[LoadedCounter<'_>; 4]> = SmallVec::new();
        for ((found, limit), initial) in found.into_iter().zip(limits).zip(initial) {
            let &CounterCost { counter, cost } = limit;
            let is_shared = found.is_none();
            let (location, state) = found.unwrap_or_else(|| {
                match budgets.budget(self.stripe(counter), counter.limit, now) {
                    BudgetState::State(state) => (Location::Budget, state),
                    BudgetState::FullUntil(until) => (Location::Full { until }, State::New),
                }
            });
            loaded.push(LoadedCounter {
                counter,
                cost,
                location,
                state,
                initial,
                is_shared,
            });
        }

        let times: SmallVec<[u64; 4]> = loaded
            .iter()
            .map(|loaded| {
                let quota = loaded.counter.limit.quota();
                loaded.state.effective_time_us(quota, now)
            })
            .collect();
        let taken = TakenAt::new(&times, |i| loaded[i].counter.id.tag());
        let decision = decide(&mut loaded, verb, now);

        let shared = loaded.iter().any(|loaded| loaded.is_shared);
        for (loaded, verdict) in loaded.into_iter().zip(decision.verdicts()) {
            let quota = loaded.counter.limit.quota();
            match loaded.location {
                Location::Packed(claim) => {
                    packed.store(packed_place(loaded.counter), claim, quota, loaded.state);
                }
                Location::Log(claim) => {
                    logs.store(log_place(loaded.counter), claim, quota, loaded.state);
                }
                Location::Budget => {
                    let stripe = self.stripe(loaded.counter);
                    charge_budget(&mut budgets, stripe, loaded.counter.limit, verdict, now);
                }
                Location::Full { .. } => {}
            }
        }
        if shared {
            Decision::from_shared_budget(decision)
        } else {
            Decision::new(decision, taken)
        }
    }
}

fn decide(loaded: &mut [LoadedCounter<'_>], verb: Verb, now: u64) -> tallygate_core::Decision {
    let full = |loaded: &LoadedCounter<'_>| {
        loaded.cost > 0 && matches!(loaded.location, Location::Full { .. })
    };
    match verb {
        Verb::Refund | Verb::Reset => {
            let each = loaded.iter_mut().map(|loaded| loaded.refund(verb, now));
            return tallygate_core::Decision::from_verdicts(each.collect());
        }
        Verb::Check | Verb::Peek | Verb::Take if loaded.iter().any(full) => {
            return refuse(loaded, verb, now);
        }
        Verb::Check | Verb::Peek | Verb::Take | Verb::Charge => {}
    }
    let mut limits: SmallVec<[_; 4]> = loaded
        .iter_mut()
        .map(|loaded| (loaded.counter.limit.quota(), &mut loaded.state, loaded.cost))
        .collect();
    evaluate_all(&mut limits, verb, now)
}

/// Refuses because a counter has neither a slot nor a budget.
fn refuse(loaded: &mut [LoadedCounter<'_>], verb: Verb, now: u64) -> tallygate_core::Decision {
    let each = loaded.iter_mut().map(|loaded| {
        let required = match verb {
            Verb::Take => loaded.cost.min(1),
            Verb::Check | Verb::Peek | Verb::Charge | Verb::Refund | Verb::Reset => loaded.cost,
        };
        let mut verdict = loaded.evaluate(Verb::Peek, required, now);
        if let Location::Full { until } = loaded.location {
            let wait = until.saturating_sub(now);
            verdict.remaining = 0;
            verdict.reset_after_us = wait;
            if required > 0 && verdict.allowed() {
                verdict.outcome = Outcome::Refused {
                    retry: Retry::after_us(wait),
                };
            }
        }
        verdict
    });
    tallygate_core::Decision::from_verdicts(each.collect())
}

/// Charges a shared budget with what a limit granted.
// Loads the budget again: two limits of one request may share it.
fn charge_budget(
    budgets: &mut LockedStripes<'_>,
    stripe: StripeRef<'_>,
    limit: &Limit,
    verdict: &Verdict,
    now: u64,
) {
    let granted = verdict.granted();
    if granted == 0 {
        return;
    }
    let mut state = match budgets.budget(stripe, limit, now) {
        BudgetState::State(state) => state,
        BudgetState::FullUntil(_) => State::New,
    };
    let charged = evaluate(limit.quota(), &mut state, Verb::Charge, granted, now);
    let expires_at = now.saturating_add(charged.reset_after_us);
    budgets.store(stripe, limit, state, expires_at, now);
}
