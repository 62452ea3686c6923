//! The algorithms and what a counter remembers: the only place that tells them apart.
//!
//! Each algorithm answers the same few questions about a state at a moment: how much is
//! *available*, *take* n, *give back* n, how long until n *fit*, how long until it is as *new*.
//! Bringing the state to that moment is part of each answer, so that asking changes nothing.

mod bucket;
mod fixed_window;
mod ring;
mod sliding_window_counter;
mod sliding_window_log;

use bucket::Bucket;
use fixed_window::Window;
use sliding_window_counter::Counter;
pub use sliding_window_log::Log;

use crate::quota::{MAX_CAPACITY, MAX_LOG_LIMIT, Quota};

/// How requests are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// Counts in windows aligned to the Unix epoch.
    FixedWindow,
    /// Remembers every request of the last period.
    SlidingWindowLog,
    /// Counts in aligned windows, the previous one weighted by its overlap.
    #[default]
    SlidingWindowCounter,
    /// A bucket of tokens that starts full and refills continuously; also known as GCRA.
    TokenBucket,
    /// A bucket that starts empty and drains continuously; excess is refused.
    LeakyPolicing,
    /// A queue that drains continuously; admitted requests are told how long to wait.
    LeakyShaping,
}

impl Algorithm {
    /// Every algorithm.
    pub const ALL: [Algorithm; 6] = [
        Algorithm::FixedWindow,
        Algorithm::SlidingWindowLog,
        Algorithm::SlidingWindowCounter,
        Algorithm::TokenBucket,
        Algorithm::LeakyPolicing,
        Algorithm::LeakyShaping,
    ];

    /// The word that opens the quota's text form; the leaky buckets share theirs.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::FixedWindow => "fixed-window",
            Algorithm::SlidingWindowLog => "sliding-window-log",
            Algorithm::SlidingWindowCounter => "sliding-window-counter",
            Algorithm::TokenBucket => "token-bucket",
            Algorithm::LeakyPolicing | Algorithm::LeakyShaping => "leaky-bucket",
        }
    }

    /// A name of its own for each behaviour: the leaky buckets are told apart.
    pub fn behaviour(self) -> &'static str {
        match self {
            Algorithm::FixedWindow
            | Algorithm::SlidingWindowLog
            | Algorithm::SlidingWindowCounter
            | Algorithm::TokenBucket => self.name(),
            Algorithm::LeakyPolicing => "leaky-bucket-policing",
            Algorithm::LeakyShaping => "leaky-bucket-shaping",
        }
    }

    /// What a bucket calls its capacity; windows and logs have none but their limit.
    #[inline]
    pub fn capacity_word(self) -> Option<&'static str> {
        match self {
            Algorithm::FixedWindow
            | Algorithm::SlidingWindowLog
            | Algorithm::SlidingWindowCounter => None,
            Algorithm::TokenBucket | Algorithm::LeakyPolicing => Some("burst"),
            Algorithm::LeakyShaping => Some("queue"),
        }
    }

    /// Whether admitted requests may be delayed.
    #[inline]
    pub fn shapes(self) -> bool {
        match self {
            Algorithm::LeakyShaping => true,
            Algorithm::FixedWindow
            | Algorithm::SlidingWindowLog
            | Algorithm::SlidingWindowCounter
            | Algorithm::TokenBucket
            | Algorithm::LeakyPolicing => false,
        }
    }

    /// Whether a state remembers single requests, so that its size grows with the limit; every
    /// other state has a fixed size and can be [packed](State::pack).
    #[inline]
    pub fn logs(self) -> bool {
        match self {
            Algorithm::SlidingWindowLog => true,
            Algorithm::FixedWindow
            | Algorithm::SlidingWindowCounter
            | Algorithm::TokenBucket
            | Algorithm::LeakyPolicing
            | Algorithm::LeakyShaping => false,
        }
    }

    /// The largest limit.
    pub fn max_limit(self) -> u32 {
        if self.logs() {
            MAX_LOG_LIMIT
        } else {
            MAX_CAPACITY
        }
    }
}

/// What one counter remembers. Anything but [`State::New`] was made under one algorithm and one
/// period and is only good for those; the limit and the capacity may change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// Never seen, or forgotten.
    #[default]
    New,
    /// One window's count.
    #[doc(hidden)]
    Window(Window),
    /// Two windows' counts.
    #[doc(hidden)]
    Counter(Counter),
    /// A level and when it was last changed.
    #[doc(hidden)]
    Bucket(Bucket),
    /// Single requests.
    #[doc(hidden)]
    Log(Log),
}

/// A state of fixed size in three numbers, for stores that count bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// From this time on the key may be forgotten; below 2^54.
    pub forget_at_us: u64,
    /// Below 2^53.
    pub a: u64,
    /// Below 2^60.
    pub b: u64,
}

/// Asks the state's own algorithm; a new state answers as an empty one of the quota's algorithm.
macro_rules! ask {
    ($state:expr, $quota:expr, $inner:ident => $answer:expr, new => $new:expr) => {
        match $state {
            State::New => $new,
            State::Window($inner) => $answer,
            State::Counter($inner) => $answer,
            State::Bucket($inner) => $answer,
            State::Log($inner) => $answer,
        }
    };
}

impl State {
    /// The state's own time: the start of the current window, the newest entry of a log, or when
    /// a bucket's level was last changed.
    #[inline]
    pub fn mark(&self) -> Option<u64> {
        ask!(self, quota, state => Some(state.mark()), new => None)
    }

    /// How many units fit now.
    #[inline]
    pub(crate) fn available(&self, quota: &Quota, now: u64) -> u32 {
        ask!(self, quota, state => state.available(quota, now), new => quota.capacity())
    }

    /// The least wait until `units`, at most the capacity, fit.
    #[inline]
    pub(crate) fn until_fits(&self, quota: &Quota, units: u32, now: u64) -> u64 {
        ask!(self, quota, state => state.until_fits(quota, units, now), new => 0)
    }

    /// The least wait until the state is as new.
    #[inline]
    pub(crate) fn until_new(&self, quota: &Quota, now: u64) -> u64 {
        ask!(self, quota, state => state.until_new(quota, now), new => 0)
    }

    /// Takes units, whatever is available.
    #[inline]
    pub(crate) fn take(&mut self, quota: &Quota, units: u32, now: u64) {
        if matches!(self, State::New) {
            *self = Self::empty(quota, now);
        }
        ask!(self, quota, state => state.take(quota, units, now), new => ());
    }

    /// Gives units back, down to nothing used.
    #[inline]
    pub(crate) fn give_back(&mut self, quota: &Quota, units: u32, now: u64) {
        ask!(self, quota, state => state.give_back(quota, units, now), new => ());
    }

    fn empty(quota: &Quota, now: u64) -> Self {
        match quota.algorithm() {
            Algorithm::FixedWindow => State::Window(Window::empty(quota, now)),
            Algorithm::SlidingWindowLog => State::Log(Log::default()),
            Algorithm::SlidingWindowCounter => State::Counter(Counter::empty(quota, now)),
            Algorithm::TokenBucket | Algorithm::LeakyPolicing | Algorithm::LeakyShaping => {
                State::Bucket(Bucket::empty(quota, now))
            }
        }
    }

    /// Packs a state of fixed size; none if it is new or a log.
    #[inline]
    pub fn pack(&self, quota: &Quota) -> Option<Packed> {
        match self {
            State::New | State::Log(_) => None,
            State::Window(state) => Some(state.pack(quota)),
            State::Counter(state) => Some(state.pack(quota)),
            State::Bucket(state) => Some(state.pack()),
        }
    }

    /// Unpacks what [`pack`](State::pack) gave under a quota of the same algorithm and period.
    #[inline]
    pub fn unpack(quota: &Quota, packed: Packed) -> Self {
        match quota.algorithm() {
            Algorithm::FixedWindow => State::Window(Window::unpack(quota, packed)),
            Algorithm::SlidingWindowCounter => State::Counter(Counter::unpack(quota, packed)),
            Algorithm::TokenBucket | Algorithm::LeakyPolicing | Algorithm::LeakyShaping => {
                State::Bucket(Bucket::unpack(packed))
            }
            Algorithm::SlidingWindowLog => State::New,
        }
    }
}
