//! A level of whichever algorithm, asked in their place. Knows none of their answers.

#[cfg(feature = "lua")]
use super::LogSummary;
use super::{Bucket, Counter, Level, LogAt, State, Window};
use crate::quota::Quota;
use crate::snapshot::CounterState;

/// A level of whichever algorithm.
pub(crate) enum AnyLevel<'a> {
    Window(Window),
    Counter(Counter),
    Bucket(Bucket),
    Log(LogAt<'a>),
    #[cfg(feature = "lua")]
    LogSummary(LogSummary),
}

macro_rules! ask {
    ($any:expr, $level:ident => $answer:expr) => {
        match $any {
            AnyLevel::Window($level) => $answer,
            AnyLevel::Counter($level) => $answer,
            AnyLevel::Bucket($level) => $answer,
            AnyLevel::Log($level) => $answer,
            #[cfg(feature = "lua")]
            AnyLevel::LogSummary($level) => $answer,
        }
    };
}

impl Level for AnyLevel<'_> {
    fn available(&self, quota: &Quota, now: u64) -> u32 {
        ask!(self, level => level.available(quota, now))
    }

    fn until_fits(&self, quota: &Quota, units: u32, now: u64) -> u64 {
        ask!(self, level => level.until_fits(quota, units, now))
    }

    fn until_new(&self, quota: &Quota, now: u64) -> u64 {
        ask!(self, level => level.until_new(quota, now))
    }

    fn take(&mut self, quota: &Quota, units: u32, now: u64) {
        ask!(self, level => level.take(quota, units, now));
    }

    fn give_back(&mut self, quota: &Quota, units: u32, now: u64) {
        ask!(self, level => level.give_back(quota, units, now));
    }
}

impl AnyLevel<'_> {
    /// Gives back what units taken at some moment still weigh, and never more.
    pub(crate) fn undo(&mut self, quota: &Quota, units: u32, taken: u64, now: u64) {
        ask!(self, level => level.undo(quota, units, taken, now));
    }

    /// What there is to see of it.
    pub(crate) fn view(&self, quota: &Quota) -> CounterState {
        ask!(self, level => level.view(quota))
    }

    /// The state to write down; none for a log, which was changed in its place.
    pub(crate) fn into_state(self) -> Option<State> {
        match self {
            AnyLevel::Window(state) => Some(State::Window(state)),
            AnyLevel::Counter(state) => Some(State::Counter(state)),
            AnyLevel::Bucket(state) => Some(State::Bucket(state)),
            AnyLevel::Log(_) => None,
            #[cfg(feature = "lua")]
            AnyLevel::LogSummary(state) => Some(State::LogSummary(state)),
        }
    }
}
