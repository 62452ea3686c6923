//! The memory store answers as every store must.

use std::sync::Arc;

use tallygate::{Decision, Limiter, Request, Verb};

use crate::behaviours::{Store, store};
use crate::conformance;

/// The store itself, on supplied time.
fn at_supplied_time() -> impl FnMut(&Request<'_>, u64) -> Decision {
    of_capacity(1_000)
}

/// A store that the traces fill to the last place.
fn filled_up() -> impl FnMut(&Request<'_>, u64) -> Decision {
    of_capacity(360)
}

fn of_capacity(capacity: usize) -> impl FnMut(&Request<'_>, u64) -> Decision {
    let (_, store) = store(capacity);
    move |request, now| store.decide_at(request, now)
}

/// A limiter on a clock that is set before each question.
fn on_a_set_clock() -> impl FnMut(&Request<'_>, u64) -> Decision {
    let (clock, store) = store(1_000);
    move |request, now| {
        clock.set(now);
        ask_by_name(&store, request)
    }
}

/// Asks with the limiter's own methods where the request has one key and one cost for all its
/// limits.
fn ask_by_name(store: &Arc<Store>, request: &Request<'_>) -> Decision {
    let (first, rest) = request.asked().split_first().unwrap();
    let mut limiter = Limiter::over(Arc::clone(store), first.limit.clone());
    for asked in rest {
        if asked.key != first.key || asked.units() != request.units() {
            return limiter.decide_at_once(request).unwrap();
        }
        limiter = limiter.and(asked.limit.clone()).unwrap();
    }
    let (key, cost) = (&first.key, request.units());
    match request.asks() {
        Verb::Check if cost == 1 => limiter.check(key),
        Verb::Check => limiter.check_cost(key, cost),
        Verb::Peek => limiter.peek(key, cost),
        Verb::Take => limiter.take(key, cost),
        Verb::Charge => limiter.charge(key, cost),
        Verb::Refund => limiter.refund(key, cost),
        Verb::Reset => limiter.reset(key),
    }
}

#[test]
fn the_store_answers_the_golden_traces_exactly() {
    conformance::golden_traces_are_answered_exactly(at_supplied_time);
}

#[test]
fn a_limiter_on_a_set_clock_answers_the_golden_traces_exactly() {
    conformance::golden_traces_are_answered_exactly(on_a_set_clock);
}

#[test]
fn the_store_answers_random_traces_exactly() {
    conformance::random_traces_are_answered_exactly(at_supplied_time);
}

#[test]
fn a_limiter_on_a_set_clock_answers_random_traces_exactly() {
    conformance::random_traces_are_answered_exactly(on_a_set_clock);
}

#[test]
fn a_store_with_no_place_to_spare_answers_random_traces_exactly() {
    conformance::random_traces_are_answered_exactly(filled_up);
    conformance::steps_back_are_answered_exactly(filled_up);
}

#[test]
fn the_store_answers_exactly_when_the_clock_steps_back() {
    conformance::steps_back_are_answered_exactly(at_supplied_time);
}

#[test]
fn the_store_answers_exactly_at_the_ends_of_time() {
    conformance::the_ends_of_time_are_answered_exactly(at_supplied_time);
}
