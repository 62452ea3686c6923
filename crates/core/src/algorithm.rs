//! The algorithms and the state of a counter: the only module that matches on [`Algorithm`].
//!
//! An algorithm is six operations: *advance* the state to a time, and there: units *available*,
//! *take* n, *refund* n, time *until* n *fit*, time *until new*. A seventh, *undo*, returns units
//! taken at an earlier time.

mod bucket;
mod dispatch;
mod entries;
mod fixed_window;
mod inline_entries;
#[cfg(feature = "lua")]
mod log_summary;
mod ring;
mod sliding_window_counter;
mod sliding_window_log;
mod whole_bucket;

pub(crate) use bucket::Bucket;
pub(crate) use dispatch::AnyLevel;
pub(crate) use fixed_window::Window;
#[cfg(feature = "lua")]
pub(crate) use log_summary::LogSummary;
pub(crate) use sliding_window_counter::Counter;
use sliding_window_log::AdvancedLog;
pub use sliding_window_log::Log;
use whole_bucket::WholeBucket;

use crate::MAX_TIME_US;
#[cfg(feature = "lua")]
use crate::lua::Twin;
use crate::math::mul_div;
use crate::quota::{MAX_CAPACITY, MAX_LOG_LIMIT, Quota};

/// How requests are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// Counts in windows aligned to the Unix epoch.
    FixedWindow,
    /// Stores every request of the last period.
    SlidingWindowLog,
    /// Counts in aligned windows, the previous one weighted by its overlap.
    #[default]
    SlidingWindowCounter,
    /// A bucket of tokens that starts full and refills continuously; also known as GCRA.
    TokenBucket,
    /// A bucket that starts empty and drains continuously; excess is refused.
    LeakyPolicing,
    /// A queue that drains continuously; admitted requests get a delay.
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

    /// The first word of the quota's text form; both leaky buckets share one.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::FixedWindow => "fixed-window",
            Algorithm::SlidingWindowLog => "sliding-window-log",
            Algorithm::SlidingWindowCounter => "sliding-window-counter",
            Algorithm::TokenBucket => "token-bucket",
            Algorithm::LeakyPolicing | Algorithm::LeakyShaping => "leaky-bucket",
        }
    }

    /// A name for each behaviour, different for the two leaky buckets.
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

    /// One letter for each behaviour, for short names.
    pub fn letter(self) -> u8 {
        match self {
            Algorithm::FixedWindow => b'f',
            Algorithm::SlidingWindowLog => b'l',
            Algorithm::SlidingWindowCounter => b'c',
            Algorithm::TokenBucket => b't',
            Algorithm::LeakyPolicing => b'p',
            Algorithm::LeakyShaping => b's',
        }
    }

    /// The keyword of a bucket's capacity; the capacity of windows and logs is their limit.
    #[inline]
    pub fn capacity_keyword(self) -> Option<&'static str> {
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
    pub fn is_shaping(self) -> bool {
        match self {
            Algorithm::LeakyShaping => true,
            Algorithm::FixedWindow
            | Algorithm::SlidingWindowLog
            | Algorithm::SlidingWindowCounter
            | Algorithm::TokenBucket
            | Algorithm::LeakyPolicing => false,
        }
    }

    /// Whether the state stores single requests, so that its size grows with the limit. Every other
    /// state has a fixed size and can be [packed](State::pack).
    #[inline]
    pub fn is_log(self) -> bool {
        match self {
            Algorithm::SlidingWindowLog => true,
            Algorithm::FixedWindow
            | Algorithm::SlidingWindowCounter
            | Algorithm::TokenBucket
            | Algorithm::LeakyPolicing
            | Algorithm::LeakyShaping => false,
        }
    }

    /// The maximum number of units within any span of time.
    pub(crate) fn worst_case(self, quota: &Quota, span_us: u64) -> u64 {
        let limit = u64::from(quota.limit());
        let in_span = mul_div(limit, span_us, quota.period_us()).0;
        match self {
            // The end of one window, every full one, and the start of another.
            Algorithm::FixedWindow => {
                limit.saturating_mul(span_us.div_ceil(quota.period_us()).saturating_add(1))
            }
            Algorithm::SlidingWindowLog => {
                limit.saturating_mul(span_us.div_ceil(quota.period_us()))
            }
            Algorithm::SlidingWindowCounter => limit.saturating_add(in_span).saturating_add(1),
            Algorithm::TokenBucket | Algorithm::LeakyPolicing | Algorithm::LeakyShaping => {
                u64::from(quota.capacity()).saturating_add(in_span)
            }
        }
    }

    /// The largest limit.
    pub fn max_limit(self) -> u32 {
        if self.is_log() {
            MAX_LOG_LIMIT
        } else {
            MAX_CAPACITY
        }
    }
}

/// The state of one counter. Anything but [`State::New`] belongs to one algorithm and one period;
/// the limit and the capacity may change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// Never seen, or expired.
    #[default]
    New,
    /// The count of one window.
    #[doc(hidden)]
    Window(Window),
    /// The counts of two windows.
    #[doc(hidden)]
    Counter(Counter),
    /// A level and the time of its last change.
    #[doc(hidden)]
    Bucket(Bucket),
    /// Single requests.
    #[doc(hidden)]
    Log(Log),
    /// A summary of single requests, as a script returns it.
    #[cfg(feature = "lua")]
    #[doc(hidden)]
    LogSummary(LogSummary),
}

/// A state of fixed size in three numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// The counter is as new from this time on; below 2^54.
    pub expires_at_us: u64,
    /// Below 2^53.
    pub a: u64,
    /// Below 2^60.
    pub b: u64,
}

/// A state advanced to a time.
pub(crate) trait Level {
    /// How many units fit.
    fn available(&self, quota: &Quota, now: u64) -> u32;

    /// The shortest wait until `units` fit, which do not fit now and are at most the capacity.
    fn until_fits(&self, quota: &Quota, units: u32, now: u64) -> u64;

    /// The shortest wait until the state is as new.
    fn until_new(&self, quota: &Quota, now: u64) -> u64;

    /// Takes units, whether they fit or not.
    fn take(&mut self, quota: &Quota, units: u32, now: u64);

    /// Returns units, down to nothing used. Whether there were any; if not, nothing is changed.
    fn refund(&mut self, quota: &Quota, units: u32, now: u64) -> bool;
}

/// A state of fixed size.
pub(crate) trait Packable: Level + Copy {
    /// The state of a new counter.
    fn empty(quota: &Quota, now: u64) -> Self;

    /// The start of the current window, or the time of the level's last change.
    fn timestamp(&self) -> u64;

    /// Advances the state to a time that is not before its timestamp.
    fn advance(self, quota: &Quota, now: u64) -> Self;

    fn pack(&self, quota: &Quota) -> Packed;

    fn unpack(quota: &Quota, packed: Packed) -> Self;
}

/// A state advanced to the effective time of a request.
pub(crate) struct Advanced<L> {
    pub(crate) level: L,
    /// The caller's time, or the state's own if the clock stepped back.
    pub(crate) now: u64,
    /// How far the caller's time is behind `now`.
    pub(crate) behind: u64,
}

/// The caller's time or, if the clock stepped back by at most a span, the state's timestamp. `None`
/// if it stepped back further: the counter is as new then.
#[inline]
fn effective_time(timestamp: u64, quota: &Quota, now: u64) -> Option<u64> {
    if now >= timestamp {
        Some(now)
    } else if timestamp - now <= quota.span_us() {
        Some(timestamp)
    } else {
        None
    }
}

impl<P: Packable> Advanced<P> {
    #[inline(always)]
    fn from_packable(stored: Option<P>, quota: &Quota, now: u64) -> Self {
        let live = stored.and_then(|state| {
            let effective = effective_time(state.timestamp(), quota, now)?;
            Some((state, effective))
        });
        match live {
            Some((state, effective)) => Advanced {
                level: state.advance(quota, effective),
                now: effective,
                behind: effective - now,
            },
            None => Advanced {
                level: P::empty(quota, now),
                now,
                behind: 0,
            },
        }
    }
}

impl<'a> Advanced<AdvancedLog<'a>> {
    #[inline(always)]
    pub(crate) fn from_log(log: &'a mut Log, quota: &Quota, now: u64) -> Self {
        let newest = log.newest(quota);
        let effective = newest.map_or(Some(now), |newest| effective_time(newest.time, quota, now));
        let level = match effective {
            Some(effective) => log.advance(newest, quota, effective),
            None => log.expire_all(newest),
        };
        let effective = effective.unwrap_or(now);
        Advanced {
            level,
            now: effective,
            behind: effective - now,
        }
    }
}

impl<L> Advanced<L> {
    fn map<T>(self, convert: impl FnOnce(L) -> T) -> Advanced<T> {
        Advanced {
            level: convert(self.level),
            now: self.now,
            behind: self.behind,
        }
    }
}

impl State {
    /// Advances the state to the effective time of a request.
    pub(crate) fn advance<'s>(&'s mut self, quota: &Quota, now: u64) -> Advanced<AnyLevel<'s>> {
        match quota.algorithm() {
            Algorithm::FixedWindow => {
                let stored = match self {
                    State::Window(window) => Some(*window),
                    _ => None,
                };
                Advanced::from_packable(stored, quota, now).map(AnyLevel::Window)
            }
            Algorithm::SlidingWindowCounter => {
                let stored = match self {
                    State::Counter(counter) => Some(*counter),
                    _ => None,
                };
                Advanced::from_packable(stored, quota, now).map(AnyLevel::Counter)
            }
            Algorithm::TokenBucket | Algorithm::LeakyPolicing | Algorithm::LeakyShaping => {
                let stored = match self {
                    State::Bucket(bucket) => Some(*bucket),
                    _ => None,
                };
                Advanced::from_packable(stored, quota, now).map(AnyLevel::Bucket)
            }
            Algorithm::SlidingWindowLog => {
                #[cfg(feature = "lua")]
                if let State::LogSummary(summary) = *self {
                    let effective = now.max(summary.newest);
                    return Advanced {
                        level: AnyLevel::LogSummary(summary),
                        now: effective,
                        behind: effective - now,
                    };
                }
                Advanced::from_log(self.as_log(), quota, now).map(AnyLevel::Log)
            }
        }
    }

    /// The time that a request at `now_us` takes effect: later than `now_us` if the clock stepped
    /// back.
    pub fn effective_time_us(&self, quota: &Quota, now_us: u64) -> u64 {
        let now = now_us.min(MAX_TIME_US);
        let timestamp = match self {
            State::New => None,
            State::Window(window) => Some(window.timestamp()),
            State::Counter(counter) => Some(counter.timestamp()),
            State::Bucket(bucket) => Some(bucket.timestamp()),
            State::Log(log) => log.newest(quota).map(|newest| newest.time),
            #[cfg(feature = "lua")]
            State::LogSummary(summary) => return now.max(summary.newest),
        };
        timestamp
            .and_then(|timestamp| effective_time(timestamp, quota, now))
            .unwrap_or(now)
    }

    fn as_log(&mut self) -> &mut Log {
        if !matches!(self, State::Log(_)) {
            *self = State::Log(Log::default());
        }
        match self {
            State::Log(log) => log,
            _ => unreachable!("it was made a log above"),
        }
    }

    /// Turns a log without entries into a new state.
    pub(crate) fn reset_if_empty(&mut self) {
        if matches!(self, State::Log(log) if log.is_empty()) {
            *self = State::New;
        }
    }

    /// Packs a state of fixed size; `None` if it is new or a log.
    #[inline]
    pub fn pack(&self, quota: &Quota) -> Option<Packed> {
        match self {
            State::New | State::Log(_) => None,
            #[cfg(feature = "lua")]
            State::LogSummary(_) => None,
            State::Window(state) => Some(state.pack(quota)),
            State::Counter(state) => Some(state.pack(quota)),
            State::Bucket(state) => Some(state.pack(quota)),
        }
    }

    /// Unpacks the result of [`pack`](State::pack) under a quota of the same algorithm and period.
    #[inline]
    pub fn unpack(quota: &Quota, packed: Packed) -> Self {
        match quota.algorithm() {
            Algorithm::FixedWindow => State::Window(Packable::unpack(quota, packed)),
            Algorithm::SlidingWindowCounter => State::Counter(Packable::unpack(quota, packed)),
            Algorithm::TokenBucket | Algorithm::LeakyPolicing | Algorithm::LeakyShaping => {
                State::Bucket(Packable::unpack(quota, packed))
            }
            Algorithm::SlidingWindowLog => State::New,
        }
    }
}

/// A function over a packed state of any algorithm, compiled for each.
pub(crate) trait WithPackable {
    type Output;

    fn call<P: Packable>(self, advanced: Advanced<P>) -> Self::Output;
}

/// Unpacks and advances a state, then calls the function; `None` for a log, which has no packed form.
#[inline(always)]
pub(crate) fn with_packed<W: WithPackable>(
    quota: &Quota,
    packed: Packed,
    now: u64,
    function: W,
) -> Option<W::Output> {
    #[inline(always)]
    fn advance<P: Packable>(quota: &Quota, packed: Packed, now: u64) -> Advanced<P> {
        Advanced::from_packable(Some(P::unpack(quota, packed)), quota, now)
    }
    match quota.algorithm() {
        Algorithm::FixedWindow => Some(function.call(advance::<Window>(quota, packed, now))),
        Algorithm::SlidingWindowCounter => {
            Some(function.call(advance::<Counter>(quota, packed, now)))
        }
        Algorithm::TokenBucket | Algorithm::LeakyPolicing | Algorithm::LeakyShaping => {
            if WholeBucket::fits(quota, packed) {
                return Some(function.call(advance::<WholeBucket>(quota, packed, now)));
            }
            Some(function.call(advance::<Bucket>(quota, packed, now)))
        }
        Algorithm::SlidingWindowLog => None,
    }
}

#[cfg(feature = "lua")]
impl Algorithm {
    /// The Lua implementation of the same arithmetic.
    pub(crate) fn twin(self) -> Twin {
        match self {
            Algorithm::FixedWindow => Twin::Window,
            Algorithm::SlidingWindowCounter => Twin::Counter,
            Algorithm::TokenBucket | Algorithm::LeakyPolicing | Algorithm::LeakyShaping => {
                Twin::Bucket
            }
            Algorithm::SlidingWindowLog => Twin::Log,
        }
    }
}
