//! The general way to decide: any number of counters, wherever they are, with everything they
//! touch under lock. Buckets are locked before stripes, each in order, so that nobody waits in a
//! circle.

use smallvec::SmallVec;
use tollgate_core::{Outcome, Retry, State, Verb, Verdict, apply, apply_all};

use super::shared::{HeldStripes, Offer};
use super::table::Claim;
use super::{Ask, Counter, MemoryStore};
use crate::clock::Clock;
use crate::decision::Decision;

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

impl Place {
    fn is_own(self) -> bool {
        match self {
            Place::Flat(_) | Place::Log(_) => true,
            Place::Shared | Place::Full { .. } => false,
        }
    }
}

/// A counter with its state in hand.
struct Held<'a> {
    counter: Counter<'a>,
    place: Place,
    state: State,
}

impl Held<'_> {
    fn apply(&mut self, verb: Verb, cost: u32, now: u64) -> Verdict {
        apply(self.counter.limit.quota(), &mut self.state, verb, cost, now)
    }
}

impl<C: Clock> MemoryStore<C> {
    /// Decides over any counters anywhere.
    pub(super) fn together(&self, counters: &[Counter<'_>], ask: Ask) -> Decision {
        let ids = |logs: bool| {
            let of = move |counter: &&Counter<'_>| counter.logs() == logs;
            counters.iter().filter(of).map(|counter| counter.id)
        };
        let mut flat = self.flat.hold(ids(false));
        // An empty hold costs nothing, but asking for the logs makes them.
        let mut logs = ids(true).next().map(|_| self.logs().hold(ids(true)));

        // Those that are there first: making room for one that is not must not move them.
        let mut found: SmallVec<[Option<(Place, State)>; 4]> = SmallVec::new();
        for counter in counters {
            let (id, quota) = (counter.id, counter.limit.quota());
            found.push(match &mut logs {
                Some(logs) if counter.logs() => {
                    let found = logs.find(id, quota);
                    found.map(|(claim, state)| (Place::Log(claim), state))
                }
                Some(_) | None => {
                    let found = flat.find(id, quota);
                    found.map(|(claim, state)| (Place::Flat(claim), state))
                }
            });
        }
        for (found, counter) in found.iter_mut().zip(counters) {
            if found.is_none() {
                let (id, quota) = (counter.id, counter.limit.quota());
                let place = match &mut logs {
                    Some(logs) if counter.logs() => logs.place(id, quota, ask.now).map(Place::Log),
                    Some(_) | None => flat.place(id, quota, ask.now).map(Place::Flat),
                };
                *found = place.map(|place| {
                    let inherited = self.shared.inherited(id, counter.limit, ask.now);
                    (place, inherited)
                });
            }
        }

        let homeless = found
            .iter()
            .zip(counters)
            .filter(|(found, _)| found.is_none());
        let stripes = homeless.map(|(_, counter)| self.shared.stripe(counter.id));
        let mut budgets = self.shared.hold(stripes.collect());
        let mut held: SmallVec<[Held<'_>; 4]> = SmallVec::new();
        for (found, &counter) in found.into_iter().zip(counters) {
            let (place, state) =
                found.unwrap_or_else(|| match budgets.offer(counter.id, counter.limit, ask.now) {
                    Offer::State(state) => (Place::Shared, state),
                    Offer::FullUntil(until) => (Place::Full { until }, State::New),
                });
            held.push(Held {
                counter,
                place,
                state,
            });
        }

        let decision = decide(&mut held, ask);

        let shared = held.iter().any(|held| !held.place.is_own());
        for (held, verdict) in held.into_iter().zip(decision.verdicts()) {
            let quota = held.counter.limit.quota();
            match held.place {
                Place::Flat(claim) => flat.store(claim, quota, held.state),
                Place::Log(claim) => {
                    let logs = logs.as_mut().expect("a log was found under its lock");
                    logs.store(claim, quota, held.state);
                }
                Place::Shared => take_from_budget(&mut budgets, held.counter, verdict, ask.now),
                Place::Full { .. } => {}
            }
        }
        Decision::new(decision, shared)
    }
}

/// Decides over states, wherever they are from.
fn decide(held: &mut [Held<'_>], ask: Ask) -> tollgate_core::Decision {
    let Ask { verb, cost, now } = ask;
    if held.iter().any(|held| !held.place.is_own()) {
        match verb {
            Verb::Refund | Verb::Reset => return give_back(held, ask),
            Verb::Check | Verb::Peek | Verb::Take => {
                let full = |held: &Held<'_>| matches!(held.place, Place::Full { .. });
                if cost > 0 && held.iter().any(full) {
                    return refuse(held, ask);
                }
            }
            Verb::Charge => {}
        }
    }
    let mut limits: SmallVec<[_; 4]> = held
        .iter_mut()
        .map(|held| (held.counter.limit.quota(), &mut held.state))
        .collect();
    apply_all(&mut limits, verb, cost, now)
}

/// Gives back and forgets what is a counter's own: nobody gives back what others may have taken.
fn give_back(held: &mut [Held<'_>], ask: Ask) -> tollgate_core::Decision {
    let each = held.iter_mut().map(|held| {
        if held.place.is_own() {
            held.apply(ask.verb, ask.cost, ask.now)
        } else {
            held.apply(Verb::Peek, 0, ask.now)
        }
    });
    tollgate_core::Decision::all(each.collect())
}

/// Refuses because some counter cannot be had at all for now.
fn refuse(held: &mut [Held<'_>], ask: Ask) -> tollgate_core::Decision {
    let wanted = match ask.verb {
        Verb::Take => 1,
        Verb::Check | Verb::Peek | Verb::Charge | Verb::Refund | Verb::Reset => ask.cost,
    };
    let each = held.iter_mut().map(|held| {
        let mut verdict = held.apply(Verb::Peek, wanted, ask.now);
        if let Place::Full { until } = held.place {
            let wait = until.saturating_sub(ask.now);
            verdict.remaining = 0;
            verdict.reset_after_us = wait;
            if verdict.allowed() {
                verdict.outcome = Outcome::Refused {
                    retry: Retry::After(wait),
                };
            }
        }
        verdict
    });
    tollgate_core::Decision::all(each.collect())
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
    let charged = apply(
        counter.limit.quota(),
        &mut state,
        Verb::Charge,
        granted,
        now,
    );
    let forget_at = now.saturating_add(charged.reset_after_us);
    budgets.store(counter.id, counter.limit, state, forget_at, now);
}
