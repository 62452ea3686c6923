//! The general way to decide: any number of counters, wherever they are, with everything they
//! touch under lock. Buckets are locked before stripes, each in order, so that nobody waits in a
//! circle.

use smallvec::SmallVec;
use tallygate_core::{Outcome, Retry, State, Verb, Verdict, evaluate, evaluate_all};

use super::overflow::{HeldStripes, Offer};
use super::table::Claim;
use super::{Counter, MemoryStore};
use crate::clock::Clock;
use crate::decision::{Decision, Taken};

/// A counter, and how many units are asked of it.
pub(super) struct Wanted<'a> {
    pub(super) counter: Counter<'a>,
    pub(super) cost: u32,
}

/// Where a counter's state came from and goes back to.
#[derive(Clone, Copy)]
enum Place {
    Flat(Claim),
    Log(Claim),
    /// A budget shared with others.
    Shared,
    /// Nowhere: not even a shared budget is to be had before that time.
    Full {
        until: u64,
    },
}

/// A counter with its state in hand.
struct Held<'a> {
    counter: Counter<'a>,
    cost: u32,
    place: Place,
    state: State,
    /// What it would start from once forgotten: new, or a budget that it may have taken from.
    inherited: State,
    /// Whether it was decided on a shared budget.
    shares: bool,
}

impl Held<'_> {
    fn is_own(&self) -> bool {
        match self.place {
            Place::Flat(_) | Place::Log(_) => true,
            Place::Shared | Place::Full { .. } => false,
        }
    }

    /// Gives back or forgets, unless that would have it start from a budget that others took from
    /// too: then it changes nothing, and says so.
    fn give_back(&mut self, verb: Verb, now: u64) -> Verdict {
        if self.is_own() && self.inherited == State::New {
            return self.evaluate(verb, self.cost, now);
        }
        let mut state = self.state.clone();
        let quota = self.counter.limit.quota();
        let verdict = evaluate(quota, &mut state, verb, self.cost, now);
        self.shares = !self.is_own() || state == State::New;
        if self.shares {
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
    /// Decides over any counters anywhere.
    pub(super) fn together(&self, wanted: &[Wanted<'_>], verb: Verb, now: u64) -> Decision {
        let counters = || wanted.iter().map(|wanted| wanted.counter);
        let ids = |logs: bool| {
            let of = move |counter: &Counter<'_>| counter.logs() == logs;
            counters().filter(of).map(|counter| counter.id)
        };
        // Only where there are any: asking for a table makes it.
        let mut flat = ids(false).next().map(|_| self.flat().hold(ids(false)));
        let mut logs = ids(true).next().map(|_| self.logs().hold(ids(true)));

        // Those that are there first: making room for one that is not must not move them.
        let mut found: SmallVec<[Option<(Place, State)>; 4]> = SmallVec::new();
        for counter in counters() {
            let (id, quota) = (counter.id, counter.limit.quota());
            let (flat, logs) = (flat.as_mut(), logs.as_mut());
            found.push(if counter.logs() {
                let found = logs.and_then(|logs| logs.find(id, quota));
                found.map(|(claim, state)| (Place::Log(claim), state))
            } else {
                let found = flat.and_then(|flat| flat.find(id, quota));
                found.map(|(claim, state)| (Place::Flat(claim), state))
            });
        }
        for (found, counter) in found.iter_mut().zip(counters()) {
            if found.is_none() {
                let (id, quota) = (counter.id, counter.limit.quota());
                let (flat, logs) = (flat.as_mut(), logs.as_mut());
                let place = if counter.logs() {
                    let claim = logs.and_then(|logs| logs.place(id, quota, now));
                    claim.map(Place::Log)
                } else {
                    let claim = flat.and_then(|flat| flat.place(id, quota, now));
                    claim.map(Place::Flat)
                };
                *found = place.map(|place| {
                    let inherited = self.shared.inherited(id, counter.limit, now);
                    (place, inherited)
                });
            }
        }

        let gives_back = matches!(verb, Verb::Refund | Verb::Reset);
        let inherited: SmallVec<[State; 4]> = counters()
            .map(|counter| {
                if gives_back {
                    self.shared.inherited(counter.id, counter.limit, now)
                } else {
                    State::New
                }
            })
            .collect();
        let homeless = found
            .iter()
            .zip(counters())
            .filter(|(found, _)| found.is_none());
        let stripes = homeless.map(|(_, counter)| self.shared.stripe(counter.id));
        let mut budgets = self.shared.hold(stripes.collect());
        let mut held: SmallVec<[Held<'_>; 4]> = SmallVec::new();
        for ((found, wanted), inherited) in found.into_iter().zip(wanted).zip(inherited) {
            let &Wanted { counter, cost } = wanted;
            let shares = found.is_none();
            let (place, state) =
                found.unwrap_or_else(|| match budgets.offer(counter.id, counter.limit, now) {
                    Offer::State(state) => (Place::Shared, state),
                    Offer::FullUntil(until) => (Place::Full { until }, State::New),
                });
            held.push(Held {
                counter,
                cost,
                place,
                state,
                inherited,
                shares,
            });
        }

        let moments: SmallVec<[u64; 4]> = held
            .iter()
            .map(|held| {
                held.state
                    .effective_time_us(held.counter.limit.quota(), now)
            })
            .collect();
        let taken = Taken::of(&moments, |i| held[i].counter.id.tag());
        let decision = decide(&mut held, verb, now);

        let shared = held.iter().any(|held| held.shares);
        for (held, verdict) in held.into_iter().zip(decision.verdicts()) {
            let quota = held.counter.limit.quota();
            match held.place {
                Place::Flat(claim) => {
                    let flat = flat.as_mut().expect("a counter is held where it was found");
                    flat.store(claim, quota, held.state);
                }
                Place::Log(claim) => {
                    let logs = logs.as_mut().expect("a log is held where it was found");
                    logs.store(claim, quota, held.state);
                }
                Place::Shared => take_from_budget(&mut budgets, held.counter, verdict, now),
                Place::Full { .. } => {}
            }
        }
        if shared {
            Decision::on_shared(decision)
        } else {
            Decision::new(decision, taken)
        }
    }
}

/// Decides over states, wherever they are from.
fn decide(held: &mut [Held<'_>], verb: Verb, now: u64) -> tallygate_core::Decision {
    let full = |held: &Held<'_>| held.cost > 0 && matches!(held.place, Place::Full { .. });
    match verb {
        Verb::Refund | Verb::Reset => {
            let each = held.iter_mut().map(|held| held.give_back(verb, now));
            return tallygate_core::Decision::from_verdicts(each.collect());
        }
        Verb::Check | Verb::Peek | Verb::Take if held.iter().any(full) => {
            return refuse(held, verb, now);
        }
        Verb::Check | Verb::Peek | Verb::Take | Verb::Charge => {}
    }
    let mut limits: SmallVec<[_; 4]> = held
        .iter_mut()
        .map(|held| (held.counter.limit.quota(), &mut held.state, held.cost))
        .collect();
    evaluate_all(&mut limits, verb, now)
}

/// Refuses because some counter cannot be had at all for now.
fn refuse(held: &mut [Held<'_>], verb: Verb, now: u64) -> tallygate_core::Decision {
    let each = held.iter_mut().map(|held| {
        let wanted = match verb {
            Verb::Take => held.cost.min(1),
            Verb::Check | Verb::Peek | Verb::Charge | Verb::Refund | Verb::Reset => held.cost,
        };
        let mut verdict = held.evaluate(Verb::Peek, wanted, now);
        if let Place::Full { until } = held.place {
            let wait = until.saturating_sub(now);
            verdict.remaining = 0;
            verdict.reset_after_us = wait;
            if wanted > 0 && verdict.allowed() {
                verdict.outcome = Outcome::Refused {
                    retry: Retry::after_us(wait),
                };
            }
        }
        verdict
    });
    tallygate_core::Decision::from_verdicts(each.collect())
}

/// Takes from a shared budget what a limit granted.
// From the budget as it is now, not as it was read: two limits of one request may share it.
fn take_from_budget(
    budgets: &mut HeldStripes<'_>,
    counter: Counter<'_>,
    verdict: &Verdict,
    now: u64,
) {
    let granted = verdict.granted();
    if granted == 0 {
        return;
    }
    let mut state = match budgets.offer(counter.id, counter.limit, now) {
        Offer::State(state) => state,
        Offer::FullUntil(_) => State::New,
    };
    let charged = evaluate(
        counter.limit.quota(),
        &mut state,
        Verb::Charge,
        granted,
        now,
    );
    let forget_at = now.saturating_add(charged.reset_after_us);
    budgets.store(counter.id, counter.limit, state, forget_at, now);
}
