//! A level of any algorithm, dispatched by `match`.

#[cfg(feature = "lua")]
use super::LogSummary;
use super::{AdvancedLog, Bucket, Counter, Level, State, Window};
use crate::quota::Quota;
use crate::snapshot::CounterState;

/// A level of any algorithm.
pub(crate) enum AnyLevel<'a> {
    Window(Window),
    Counter(Counter),
    Bucket(Bucket),
    Log(AdvancedLog<'a>),
    #[cfg(feature = "lua")]
    LogSummary(LogSummary),
}

macro_rules! dispatch {
    ($any:expr, $level:ident => $call:expr) => {
        match $any {
            AnyLevel::Window($level) => $call,
            AnyLevel::Counter($level) => $call,
            AnyLevel::Bucket($level) => $call,
            AnyLevel::Log($level) => $call,
            #[cfg(feature = "lua")]
            AnyLevel::LogSummary($level) => $call,
        }
    };
}

impl Level for AnyLevel<'_> {
    fn available(&self, quota: &Quota, now: u64) -> u32 {
        dispatch!(self, level => level.available(quota, now))
    }

    fn until_fits(&self, quota: &Quota, units: u32, now: u64) -> u64 {
        dispatch!(self, level => level.until_fits(quota, units, now))
    }

    fn until_new(&self, quota: &Quota, now: u64) -> u64 {
        dispatch!(self, level => level.until_new(quota, now))
    }

    fn take(&mut self, quota: &Quota, units: u32, now: u64) {
        dispatch!(self, level => level.take(quota, units, now));
    }

    fn refund(&mut self, quota: &Quota, units: u32, now: u64) -> bool {
        dispatch!(self, level => level.refund(quota, units, now))
    }
}

impl AnyLevel<'_> {
    /// Returns units taken at an earlier time, as far as they still count. Whether there were any; if
    /// not, nothing is changed.
    pub(crate) fn undo(&mut self, quota: &Quota, units: u32, taken: u64, now: u64) -> bool {
        dispatch!(self, level => level.undo(quota, units, taken, now))
    }

    pub(crate) fn inspect(&self, quota: &Quota) -> CounterState {
        dispatch!(self, level => level.inspect(quota))
    }

    /// The state to store; `None` for a log, which is changed in place.
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
