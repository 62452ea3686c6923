//! The conformance suite of stores: golden traces, and random traces compared with an oracle. A
//! store is anything that decides a request at a supplied time.

mod callers;
mod golden;
pub(crate) mod oracle;
mod traces;
mod undo;

use tallygate::{Decision, Request};

pub(crate) use callers::{
    clock_steps_back_for_callers_are_decided_exactly, golden_traces_of_callers_are_decided_exactly,
    random_traces_of_callers_are_decided_exactly,
};
pub(crate) use golden::golden_traces_are_decided_exactly;
pub(crate) use traces::{
    clock_steps_back_are_decided_exactly, extreme_times_are_decided_exactly,
    random_traces_are_decided_exactly,
};
pub(crate) use undo::{
    an_undo_reaches_the_newest_256_entries_of_a_log, undone_decisions_restore_the_counters,
};

/// An empty store that decides at supplied times.
pub(crate) trait TestStore {
    /// Decides one request.
    fn decide(&mut self, request: &Request<'_>, now_us: u64) -> Decision;

    /// Whether the store may take from a limit and roll back when another limit refuses. After a
    /// step back of the clock, the state may then differ from an untouched one.
    fn rolls_back(&self) -> bool {
        false
    }

    /// The length of a random trace; shorter for slow stores.
    fn steps(&self) -> usize {
        6_000
    }
}

/// A store that undoes decisions.
pub(crate) trait UndoStore: TestStore {
    /// Undoes a decision, for all or some of its limits.
    fn undo(&mut self, request: &Request<'_>, decision: &Decision, now_us: u64);
}

impl<F: FnMut(&Request<'_>, u64) -> Decision> TestStore for F {
    fn decide(&mut self, request: &Request<'_>, now_us: u64) -> Decision {
        self(request, now_us)
    }
}
