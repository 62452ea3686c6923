//! What every store must answer, step by step: the golden traces, and the plain arithmetic on a
//! map of states. Knows a store only as something that decides a request at a supplied time.

mod golden;
pub(crate) mod oracle;
mod traces;
mod undo;

use tallygate::{Decision, Request};

pub(crate) use golden::golden_traces_are_answered_exactly;
pub(crate) use traces::{
    random_traces_are_answered_exactly, steps_back_are_answered_exactly,
    the_ends_of_time_are_answered_exactly,
};
pub(crate) use undo::undone_decisions_leave_what_they_should;

/// A store, fresh and empty, that decides on supplied time.
pub(crate) trait Decides {
    /// Decides one request.
    fn decide(&mut self, request: &Request<'_>, now_us: u64) -> Decision;

    /// Whether a limit that a request fits may be taken from before another one refuses, and given
    /// back: a clock that steps back finds another state then than if nothing had happened.
    fn gives_back(&self) -> bool {
        false
    }

    /// How long a random trace is: as long as the store's speed allows.
    fn steps(&self) -> usize {
        6_000
    }
}

/// A store that takes back what it decided.
pub(crate) trait Undoes: Decides {
    /// Takes back what a decision took, for all or some of the limits it was made for.
    fn undo(&mut self, request: &Request<'_>, decision: &Decision, now_us: u64);
}

impl<F: FnMut(&Request<'_>, u64) -> Decision> Decides for F {
    fn decide(&mut self, request: &Request<'_>, now_us: u64) -> Decision {
        self(request, now_us)
    }
}
