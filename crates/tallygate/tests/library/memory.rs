//! The conformance suite on the memory store.

use std::sync::Arc;

use tallygate::{Decision, Limiter, Request, Verb};

use crate::conformance;
use crate::fixtures::{Store, store};

/// The store with supplied times.
fn at_supplied_time() -> impl FnMut(&Request<'_>, u64) -> Decision {
    with_capacity(1_000)
}

/// A store that the traces fill to its capacity.
fn without_spare_slots() -> impl FnMut(&Request<'_>, u64) -> Decision {
    with_capacity(360)
}

fn with_capacity(capacity: usize) -> impl FnMut(&Request<'_>, u64) -> Decision {
    let (_, store) = store(capacity);
    move |request, now| store.decide_at(request, now)
}

/// A limiter on a clock that is set before each request.
fn on_manual_clock() -> impl FnMut(&Request<'_>, u64) -> Decision {
    let (clock, store) = store(1_000);
    move |request, now| {
        clock.set(now);
        decide_by_verb(&store, request)
    }
}

/// Calls the limiter's method for the verb if all limits have the same key and cost.
fn decide_by_verb(store: &Arc<Store>, request: &Request<'_>) -> Decision {
    let (first, rest) = request.entries().split_first().unwrap();
    let mut limiter = Limiter::with_store(Arc::clone(store), first.limit.clone());
    for entry in rest {
        if entry.key != first.key || entry.cost() != request.requested_cost() {
            return limiter.try_decide(request).unwrap();
        }
        limiter = limiter.and(entry.limit.clone()).unwrap();
    }
    let (key, cost) = (&first.key, request.requested_cost());
    match request.requested_verb() {
        Verb::Check if cost == 1 => limiter.check(key),
        Verb::Check => limiter.check_cost(key, cost),
        Verb::Peek => limiter.peek(key, cost),
        Verb::Take => limiter.take(key, cost),
        Verb::Charge => limiter.charge(key, cost),
        Verb::Refund => limiter.refund(key, cost),
        Verb::Reset => limiter.reset(key),
        _ => limiter.try_decide(request).unwrap(),
    }
}

#[test]
fn the_store_decides_the_golden_traces_exactly() {
    conformance::golden_traces_are_decided_exactly(at_supplied_time);
}

#[test]
fn a_limiter_on_a_manual_clock_decides_the_golden_traces_exactly() {
    conformance::golden_traces_are_decided_exactly(on_manual_clock);
}

#[test]
fn the_store_decides_golden_traces_of_callers_exactly() {
    conformance::golden_traces_of_callers_are_decided_exactly(at_supplied_time);
}

#[test]
fn the_store_decides_random_traces_of_callers_exactly() {
    conformance::random_traces_of_callers_are_decided_exactly(at_supplied_time);
}

#[test]
fn steps_back_of_the_clock_are_decided_exactly_for_callers() {
    conformance::clock_steps_back_for_callers_are_decided_exactly(at_supplied_time);
}

#[test]
fn the_store_decides_random_traces_exactly() {
    conformance::random_traces_are_decided_exactly(at_supplied_time);
}

#[test]
fn a_limiter_on_a_manual_clock_decides_random_traces_exactly() {
    conformance::random_traces_are_decided_exactly(on_manual_clock);
}

#[test]
fn a_store_without_spare_slots_decides_random_traces_exactly() {
    conformance::random_traces_are_decided_exactly(without_spare_slots);
    conformance::clock_steps_back_are_decided_exactly(without_spare_slots);
}

#[test]
fn the_store_decides_exactly_when_the_clock_steps_back() {
    conformance::clock_steps_back_are_decided_exactly(at_supplied_time);
}

#[test]
fn the_store_decides_exactly_at_the_earliest_and_latest_times() {
    conformance::extreme_times_are_decided_exactly(at_supplied_time);
}
