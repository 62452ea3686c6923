//! A partition of a store: its tables and its shared budgets.

use std::sync::OnceLock;

use tallygate_core::StateSize;

use super::Counter;
use super::callers::CallersBucket;
use super::logs::LogBucket;
use super::overflow::Overflow;
use super::slots::PackedBucket;
use super::table::Table;

// Aligned so that a flood in one partition does not invalidate the cache lines of another.
#[repr(align(128))]
pub(super) struct Part {
    index: u16,
    capacity: usize,
    /// Counters of fixed size. Each table is allocated on first use.
    packed: OnceLock<Table<PackedBucket>>,
    logs: OnceLock<Table<LogBucket>>,
    callers: OnceLock<Table<CallersBucket>>,
    pub(super) overflow: Overflow,
}

impl Part {
    pub(super) fn new(index: u16, capacity: usize) -> Self {
        Part {
            index,
            capacity,
            packed: OnceLock::new(),
            logs: OnceLock::new(),
            callers: OnceLock::new(),
            overflow: Overflow::new(index, capacity),
        }
    }

    pub(super) fn index(&self) -> u16 {
        self.index
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    #[inline]
    pub(super) fn packed(&self) -> &Table<PackedBucket> {
        let allocate = || Table::new(self.index, self.capacity);
        self.packed.get_or_init(allocate)
    }

    #[inline]
    pub(super) fn logs(&self) -> &Table<LogBucket> {
        let allocate = || Table::new(self.index, self.capacity);
        self.logs.get_or_init(allocate)
    }

    /// Counters that tell callers apart.
    #[inline]
    pub(super) fn callers(&self) -> &Table<CallersBucket> {
        let allocate = || Table::new(self.index, self.capacity);
        self.callers.get_or_init(allocate)
    }

    /// The table, if it was allocated.
    pub(super) fn existing_packed(&self) -> Option<&Table<PackedBucket>> {
        self.packed.get()
    }

    /// The table, if it was allocated.
    pub(super) fn existing_logs(&self) -> Option<&Table<LogBucket>> {
        self.logs.get()
    }

    /// The table, if it was allocated.
    pub(super) fn existing_callers(&self) -> Option<&Table<CallersBucket>> {
        self.callers.get()
    }

    /// Prefetches the home bucket of a counter.
    #[inline]
    pub(super) fn prefetch_home(&self, counter: Counter<'_>) {
        match counter.size() {
            StateSize::Packed => self.packed().prefetch_home(counter.id),
            StateSize::Log => self.logs().prefetch_home(counter.id),
            StateSize::Callers => self.callers().prefetch_home(counter.id),
        }
    }

    /// Counts the live counters. Reads every bucket.
    pub(super) fn live(&self, now: u64) -> usize {
        let packed = self.packed.get().map_or(0, |packed| packed.live(now));
        let logs = self.logs.get().map_or(0, |logs| logs.live(now));
        packed + logs + self.callers.get().map_or(0, |callers| callers.live(now))
    }
}
