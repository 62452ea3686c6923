//! The general path: any number of counters, with all their buckets and budgets locked. Buckets are
//! locked before stripes, each in ascending order of partition and index, to avoid deadlocks.

use smallvec::SmallVec;
use tallygate_core::{
    Caller, Entry, FormerHold, Outcome, Reservation, Retry, Room, State, StateSize, Verb, Verdict,
    evaluate_all, evaluate_by, former_hold, restore_hold,
};

use super::overflow::{BudgetState, LockedStripes, StripeRef};
use super::table::{Claim, Id, LockedBuckets, Place};
use super::{Counter, MemoryStore};
use crate::clock::Clock;
use crate::decision::{Decision, TakenAt};
use crate::limit::Limit;

/// A counter and what a request does to it.
pub(super) struct CounterCost<'a> {
    pub(super) counter: Counter<'a>,
    pub(super) cost: u32,
    pub(super) caller: Caller,
    /// The reservation under the request's id.
    pub(super) reservation: Option<Id>,
}

pub(super) type CounterCosts<'a> = SmallVec<[CounterCost<'a>; 4]>;

/// The slot of an id, and what it remembers.
type ClaimedId = (Claim, Option<Reservation>);

/// Where a counter's state is stored.
#[derive(Clone, Copy)]
enum Location {
    Packed(Claim),
    Log(Claim),
    Callers(Claim),
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
    caller: Caller,
    location: Location,
    state: State,
    /// The state it would start from after a reset: new, or a budget that it may have taken from.
    initial: State,
    /// Whether it is decided on a shared budget.
    is_shared: bool,
    /// What is remembered under the request's id.
    reservation: Option<Reservation>,
}

impl LoadedCounter<'_> {
    fn has_slot(&self) -> bool {
        match self.location {
            Location::Packed(_) | Location::Log(_) | Location::Callers(_) => true,
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
        let verdict = evaluate_by(quota, &mut state, &self.caller, verb, self.cost, now);
        self.is_shared = !self.has_slot() || state == State::New;
        if self.is_shared {
            return self.evaluate(Verb::Peek, 0, now);
        }
        self.state = state;
        verdict
    }

    fn evaluate(&mut self, verb: Verb, cost: u32, now: u64) -> Verdict {
        let quota = self.counter.limit.quota();
        evaluate_by(quota, &mut self.state, &self.caller, verb, cost, now)
    }

    /// Whether it refuses a new owner because there is no place for one.
    fn lacks_place(&self, verdict: &Verdict) -> bool {
        let is_concurrent = self.counter.limit.quota().algorithm().is_concurrent();
        is_concurrent && self.caller.room == Room::Full && !verdict.allowed()
    }

    /// What the caller holds of a concurrency limit.
    fn hold(&self, now: u64) -> Option<FormerHold> {
        former_hold(self.counter.limit.quota(), &self.state, &self.caller, now)
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
        let counters = |size| {
            let counters = limits.iter().map(|limit| limit.counter);
            counters.filter(move |counter| counter.size() == size)
        };
        let part = |counter: &Counter<'_>| self.part(counter.limit);
        let packed_place = |counter: Counter<'_>| Place {
            table: part(&counter).packed(),
            id: counter.id,
        };
        let log_place = |counter: Counter<'_>| Place {
            table: part(&counter).logs(),
            id: counter.id,
        };
        let callers_place = |counter: Counter<'_>| Place {
            table: part(&counter).callers(),
            id: counter.id,
        };
        // Ids count as keys: their slots are among those of packed counters.
        let id_place = |limit: &CounterCost<'_>| {
            let table = part(&limit.counter).packed();
            limit.reservation.map(|id| Place { table, id })
        };
        let ids = limits.iter().filter_map(id_place);
        let packed = counters(StateSize::Packed).map(packed_place);
        let mut packed = LockedBuckets::lock(packed.chain(ids));
        let mut logs = LockedBuckets::lock(counters(StateSize::Log).map(log_place));
        counters(StateSize::Callers).for_each(|counter| part(&counter).callers().make_room(now));
        let mut callers = LockedBuckets::lock(counters(StateSize::Callers).map(callers_place));

        let initial_state = |counter: &Counter<'_>| {
            let overflow = &part(counter).overflow;
            overflow.initial_state(counter.id, counter.limit, now)
        };

        // Existing counters and reservations first: freeing a slot for a new one must not move them.
        let mut found: SmallVec<[Option<(Location, State)>; 4]> = SmallVec::new();
        let mut reserved: SmallVec<[Option<ClaimedId>; 4]> = SmallVec::new();
        for limit in limits {
            let counter = limit.counter;
            let quota = counter.limit.quota();
            found.push(match counter.size() {
                StateSize::Packed => {
                    let found = packed.find(packed_place(counter), quota);
                    found.map(|(claim, state)| (Location::Packed(claim), state))
                }
                StateSize::Log => {
                    let found = logs.find(log_place(counter), quota);
                    found.map(|(claim, state)| (Location::Log(claim), state))
                }
                StateSize::Callers => {
                    let found = callers.find(callers_place(counter), quota);
                    found.map(|(claim, state)| (Location::Callers(claim), state))
                }
            });
            let place = id_place(limit);
            reserved.push(place.and_then(|place| packed.find_reservation(place)));
        }
        for (found, limit) in found.iter_mut().zip(limits) {
            if found.is_none() {
                let counter = limit.counter;
                let quota = counter.limit.quota();
                let location = match counter.size() {
                    StateSize::Packed => {
                        let claim = packed.claim_vacant(packed_place(counter), quota, now);
                        claim.map(Location::Packed)
                    }
                    StateSize::Log => {
                        let claim = logs.claim_vacant(log_place(counter), quota, now);
                        claim.map(Location::Log)
                    }
                    // Without a place for its first owner it would hold nothing.
                    StateSize::Callers
                        if quota.algorithm().is_concurrent()
                            && part(&counter).callers().is_full() =>
                    {
                        None
                    }
                    StateSize::Callers => {
                        let claim = callers.claim_vacant(callers_place(counter), quota, now);
                        claim.map(Location::Callers)
                    }
                };
                *found = location.map(|location| (location, initial_state(&counter)));
            }
        }
        // A place for what a reserve may remember. Not for a counter on a shared budget: what it
        // took cannot be returned.
        for ((reserved, limit), found) in reserved.iter_mut().zip(limits).zip(&found) {
            if let Some(place) = id_place(limit)
                && verb == Verb::Reserve
                && reserved.is_none()
                && found.is_some()
            {
                let quota = limit.counter.limit.quota();
                *reserved = packed
                    .claim_vacant(place, quota, now)
                    .map(|claim| (claim, None));
            }
        }

        let refunds = matches!(verb, Verb::Refund | Verb::Reset);
        let initial: SmallVec<[State; 4]> = limits
            .iter()
            .map(|limit| match refunds {
                true => initial_state(&limit.counter),
                false => State::New,
            })
            .collect();
        let without_slot = found
            .iter()
            .zip(limits)
            .filter(|(found, _)| found.is_none());
        let stripes = without_slot.map(|(_, limit)| self.stripe(limit.counter));
        let mut budgets = LockedStripes::lock(stripes.collect());
        let mut loaded: SmallVec<[LoadedCounter<'_>; 4]> = SmallVec::new();
        for (((found, limit), initial), reserved) in
            found.into_iter().zip(limits).zip(initial).zip(&reserved)
        {
            let CounterCost {
                counter,
                cost,
                mut caller,
                ..
            } = *limit;
            let is_shared = found.is_none();
            let (location, state) = found.unwrap_or_else(|| {
                match budgets.budget(self.stripe(counter), counter.limit, now) {
                    BudgetState::State(state) => (Location::Budget, state),
                    BudgetState::FullUntil(until) => (Location::Full { until }, State::New),
                }
            });
            let is_full = match location {
                Location::Callers(_) => part(&counter).callers().is_full(),
                // A budget keeps no members, and no more owners than the limit has units.
                Location::Budget | Location::Full { .. } => {
                    counter.limit.quota().algorithm().is_shared()
                }
                Location::Packed(_) | Location::Log(_) => false,
            };
            if is_full && caller.room == Room::Bounded {
                caller.room = Room::Full;
            }
            loaded.push(LoadedCounter {
                counter,
                cost,
                caller,
                location,
                state,
                initial,
                is_shared,
                reservation: reserved.and_then(|(_, reservation)| reservation),
            });
        }

        let times: SmallVec<[u64; 4]> = loaded
            .iter()
            .map(|loaded| {
                let known = loaded.reservation.and_then(|known| known.live(now));
                if verb == Verb::Reserve && known.is_some() {
                    // It takes nothing: there is nothing to undo.
                    return 0;
                }
                let quota = loaded.counter.limit.quota();
                loaded.state.effective_time_us(quota, now)
            })
            .collect();
        let taken = TakenAt::new(&times, |i| loaded[i].counter.id.tag());
        let decision = decide(&mut loaded, verb, now);

        let mut shared = loaded.iter().any(|loaded| loaded.is_shared);
        let each = loaded.into_iter().zip(decision.verdicts());
        for (((loaded, verdict), limit), reserved) in each.zip(limits).zip(reserved) {
            if let Some(place) = id_place(limit) {
                match reserved {
                    Some((claim, _)) => packed.store_reservation(place, claim, loaded.reservation),
                    // There is no slot for the id: what was taken stays charged.
                    None => shared |= loaded.reservation.is_some(),
                }
            }
            shared |= loaded.lacks_place(verdict);
            let quota = loaded.counter.limit.quota();
            match loaded.location {
                Location::Packed(claim) => {
                    packed.store(packed_place(loaded.counter), claim, quota, loaded.state);
                }
                Location::Log(claim) => {
                    logs.store(log_place(loaded.counter), claim, quota, loaded.state);
                }
                Location::Callers(claim) => {
                    callers.store(callers_place(loaded.counter), claim, quota, loaded.state);
                }
                Location::Budget => {
                    let stripe = self.stripe(loaded.counter);
                    charge_budget(&mut budgets, stripe, &loaded, verdict, now);
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
        Verb::Check | Verb::Peek | Verb::Take | Verb::Reserve if loaded.iter().any(full) => {
            return refuse(loaded, verb, now);
        }
        Verb::Check
        | Verb::Peek
        | Verb::Take
        | Verb::Reserve
        | Verb::Charge
        | Verb::Settle
        | Verb::Renew
        | Verb::Release => {}
    }
    let mut limits: SmallVec<[Entry<'_>; 4]> = loaded
        .iter_mut()
        .map(|loaded| Entry {
            caller: loaded.caller,
            reservation: loaded.reservation,
            ..Entry::new(loaded.counter.limit.quota(), &mut loaded.state, loaded.cost)
        })
        .collect();
    let decision = evaluate_all(&mut limits, verb, now);
    let reservations: SmallVec<[Option<Reservation>; 4]> =
        limits.iter().map(|limit| limit.reservation).collect();
    drop(limits);
    for (loaded, reservation) in loaded.iter_mut().zip(reservations) {
        loaded.reservation = reservation;
    }
    decision
}

/// Refuses because a counter has neither a slot nor a budget.
fn refuse(loaded: &mut [LoadedCounter<'_>], verb: Verb, now: u64) -> tallygate_core::Decision {
    let each = loaded.iter_mut().map(|loaded| {
        let required = match verb {
            Verb::Take => loaded.cost.min(1),
            _ => loaded.cost,
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

/// Charges a shared budget with what a limit granted, or with what the caller holds now.
// Loads the budget again: two limits of one request may share it.
fn charge_budget(
    budgets: &mut LockedStripes<'_>,
    stripe: StripeRef<'_>,
    loaded: &LoadedCounter<'_>,
    verdict: &Verdict,
    now: u64,
) {
    let limit: &Limit = loaded.counter.limit;
    let (quota, caller) = (limit.quota(), &loaded.caller);
    let mut state = match budgets.budget(stripe, limit, now) {
        BudgetState::State(state) => state,
        BudgetState::FullUntil(_) => State::New,
    };
    let expires_at = if quota.algorithm().is_concurrent() {
        if !restore_hold(&mut state, caller, loaded.hold(now)) {
            return;
        }
        state.callers_expire_at_us(quota)
    } else {
        let granted = verdict.granted();
        if granted == 0 {
            return;
        }
        let charged = evaluate_by(quota, &mut state, caller, Verb::Charge, granted, now);
        now.saturating_add(charged.reset_after_us)
    };
    budgets.store(stripe, limit, state, expires_at, now);
}
