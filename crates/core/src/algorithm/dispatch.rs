//! A level of any algorithm, dispatched by `match`.

#[cfg(feature = "lua")]
use super::{HoldsSummary, LogSummary};
use alloc::boxed::Box;

use super::{
    AdvancedHolds, AdvancedLog, AdvancedShare, Bucket, Counter, InFlight, Level, State, Window,
};
use crate::quota::Quota;
use crate::snapshot::CounterState;

/// A level of any algorithm.
pub(crate) enum AnyLevel<'a> {
    Window(Window),
    Counter(Counter),
    Bucket(Bucket),
    Log(AdvancedLog<'a>),
    Holds(AdvancedHolds<'a>),
    /// Boxed: several times as large as the others.
    Share(Box<AdvancedShare<'a>>),
    #[cfg(feature = "lua")]
    LogSummary(LogSummary),
    #[cfg(feature = "lua")]
    HoldsSummary(HoldsSummary),
}

macro_rules! dispatch {
    ($any:expr, $level:ident => $call:expr) => {
        match $any {
            AnyLevel::Window($level) => $call,
            AnyLevel::Counter($level) => $call,
            AnyLevel::Bucket($level) => $call,
            AnyLevel::Log($level) => $call,
            AnyLevel::Holds($level) => $call,
            AnyLevel::Share($level) => $call,
            #[cfg(feature = "lua")]
            AnyLevel::LogSummary($level) => $call,
            #[cfg(feature = "lua")]
            AnyLevel::HoldsSummary($level) => $call,
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

    fn undo(&mut self, quota: &Quota, units: u32, taken: u64, now: u64) -> bool {
        dispatch!(self, level => level.undo(quota, units, taken, now))
    }

    fn in_flight(&self) -> Option<InFlight> {
        dispatch!(self, level => level.in_flight())
    }

    fn remaining_after(&self, quota: &Quota, available: u32, granted: u32, now: u64) -> u32 {
        dispatch!(self, level => level.remaining_after(quota, available, granted, now))
    }
}

impl<'a> AnyLevel<'a> {
    pub(super) fn share(share: AdvancedShare<'a>) -> Self {
        AnyLevel::Share(Box::new(share))
    }

    pub(crate) fn inspect(&self, quota: &Quota) -> CounterState {
        dispatch!(self, level => level.inspect(quota))
    }

    /// The state to store; `None` for one that is changed in place.
    pub(crate) fn into_state(self) -> Option<State> {
        match self {
            AnyLevel::Window(state) => Some(State::Window(state)),
            AnyLevel::Counter(state) => Some(State::Counter(state)),
            AnyLevel::Bucket(state) => Some(State::Bucket(state)),
            AnyLevel::Log(_) | AnyLevel::Holds(_) => None,
            #[cfg(feature = "lua")]
            AnyLevel::Share(share) => share
                .into_view()
                .map(|view| State::ShareView(Box::new(view))),
            #[cfg(not(feature = "lua"))]
            AnyLevel::Share(_) => None,
            #[cfg(feature = "lua")]
            AnyLevel::LogSummary(state) => Some(State::LogSummary(state)),
            #[cfg(feature = "lua")]
            AnyLevel::HoldsSummary(state) => Some(State::HoldsSummary(state)),
        }
    }
}
