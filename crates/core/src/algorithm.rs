//! The algorithms and what a counter remembers: the only place that tells them apart.
//!
//! An algorithm is six small questions: *advance* the state to a moment, and there, how much is
//! *available*, *take* n, *give back* n, how long until n *fit*, how long until it is as *new*. And
//! one that is seldom asked: *undo* n that were taken at some moment.

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
#[cfg(feature = "lua")]
pub(crate) use bucket::saturated;
pub(crate) use dispatch::AnyLevel;
pub(crate) use fixed_window::Window;
#[cfg(feature = "lua")]
pub(crate) use log_summary::LogSummary;
pub(crate) use sliding_window_counter::Counter;
pub use sliding_window_log::Log;
use sliding_window_log::LogAt;
pub use whole_bucket::WholeBucket;

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

    /// One letter for each behaviour, for names that have to be short.
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

    /// What a bucket calls its capacity; windows and logs have none but their limit.
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

    /// Whether a state remembers single requests, so that its size grows with the limit; every
    /// other state has a fixed size and can be [packed](State::pack).
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

    /// The most units within any span of time.
    pub(crate) fn worst_case(self, quota: &Quota, span_us: u64) -> u64 {
        let limit = u64::from(quota.limit());
        let in_span = mul_div(limit, span_us, quota.period_us()).0;
        match self {
            // The end of one window, every whole one, and the start of another.
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
    /// What a script told of single requests.
    #[cfg(feature = "lua")]
    #[doc(hidden)]
    LogSummary(LogSummary),
}

/// A state of fixed size in three numbers, for stores that count bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// From this time on the key may be forgotten; below 2^54.
    pub expires_at_us: u64,
    /// Below 2^53.
    pub a: u64,
    /// Below 2^60.
    pub b: u64,
}

/// A state brought to a moment: five of an algorithm's six questions.
pub(crate) trait Level {
    /// How many units fit.
    fn available(&self, quota: &Quota, now: u64) -> u32;

    /// The least wait until `units`, which do not fit now and are at most the capacity, do.
    fn until_fits(&self, quota: &Quota, units: u32, now: u64) -> u64;

    /// The least wait until it is as new.
    fn until_new(&self, quota: &Quota, now: u64) -> u64;

    /// Takes units, whatever fits.
    fn take(&mut self, quota: &Quota, units: u32, now: u64);

    /// Gives units back, down to nothing used.
    fn give_back(&mut self, quota: &Quota, units: u32, now: u64);
}

/// A state of fixed size, and the sixth question.
pub(crate) trait Flat: Level + Copy {
    /// A key never seen.
    fn empty(quota: &Quota, now: u64) -> Self;

    /// The state's own time: the start of the current window, or when a level was last changed.
    fn mark(&self) -> u64;

    /// Brings the state to a moment, which is not before its mark.
    fn advance(self, quota: &Quota, now: u64) -> Self;

    fn pack(&self, quota: &Quota) -> Packed;

    fn unpack(quota: &Quota, packed: Packed) -> Self;
}

/// A state brought to the moment it is decided as at.
pub(crate) struct Opened<L> {
    pub(crate) level: L,
    /// The caller's time, or the state's own when the clock stepped back.
    pub(crate) now: u64,
    /// How far behind that the caller is.
    pub(crate) behind: u64,
}

/// When to decide as at: the caller's time or, if the clock stepped back by no more than a span,
/// the state's own; none if by more, as the key is as new then.
#[inline]
fn moment(mark: u64, quota: &Quota, t: u64) -> Option<u64> {
    if t >= mark {
        Some(t)
    } else if mark - t <= quota.span_us() {
        Some(mark)
    } else {
        None
    }
}

impl<F: Flat> Opened<F> {
    #[inline(always)]
    fn flat(stored: Option<F>, quota: &Quota, t: u64) -> Self {
        let seen = stored.and_then(|state| Some((state, moment(state.mark(), quota, t)?)));
        match seen {
            Some((state, now)) => Opened {
                level: state.advance(quota, now),
                now,
                behind: now - t,
            },
            None => Opened {
                level: F::empty(quota, t),
                now: t,
                behind: 0,
            },
        }
    }

    fn into_any<'a>(self, any: impl FnOnce(F) -> AnyLevel<'a>) -> Opened<AnyLevel<'a>> {
        Opened {
            level: any(self.level),
            now: self.now,
            behind: self.behind,
        }
    }
}

impl<'a> Opened<LogAt<'a>> {
    #[inline(always)]
    pub(crate) fn log(log: &'a mut Log, quota: &Quota, t: u64) -> Self {
        let newest = log.newest(quota);
        let now = newest.map_or(Some(t), |newest| moment(newest.time, quota, t));
        let level = match now {
            Some(now) => log.advance(newest, quota, now),
            None => log.forgotten(newest),
        };
        let now = now.unwrap_or(t);
        Opened {
            level,
            now,
            behind: now - t,
        }
    }
}

impl State {
    /// Brings the state to the moment it is decided as at.
    pub(crate) fn open<'s>(&'s mut self, quota: &Quota, t: u64) -> Opened<AnyLevel<'s>> {
        match quota.algorithm() {
            Algorithm::FixedWindow => {
                let stored = match self {
                    State::Window(window) => Some(*window),
                    _ => None,
                };
                Opened::flat(stored, quota, t).into_any(AnyLevel::Window)
            }
            Algorithm::SlidingWindowCounter => {
                let stored = match self {
                    State::Counter(counter) => Some(*counter),
                    _ => None,
                };
                Opened::flat(stored, quota, t).into_any(AnyLevel::Counter)
            }
            Algorithm::TokenBucket | Algorithm::LeakyPolicing | Algorithm::LeakyShaping => {
                let stored = match self {
                    State::Bucket(bucket) => Some(*bucket),
                    _ => None,
                };
                Opened::flat(stored, quota, t).into_any(AnyLevel::Bucket)
            }
            #[cfg(feature = "lua")]
            Algorithm::SlidingWindowLog if matches!(self, State::LogSummary(_)) => {
                let State::LogSummary(glimpse) = *self else {
                    unreachable!("it was seen to be a glimpse just now")
                };
                let now = t.max(glimpse.newest);
                Opened {
                    level: AnyLevel::LogSummary(glimpse),
                    now,
                    behind: now - t,
                }
            }
            Algorithm::SlidingWindowLog => {
                let Opened { level, now, behind } = Opened::log(self.as_log(), quota, t);
                Opened {
                    level: AnyLevel::Log(level),
                    now,
                    behind,
                }
            }
        }
    }

    /// The moment that a request at `now_us` is decided as at, and takes at: later than that if the
    /// clock has stepped back.
    pub fn effective_time_us(&self, quota: &Quota, now_us: u64) -> u64 {
        let t = now_us.min(MAX_TIME_US);
        let mark = match self {
            State::New => None,
            State::Window(window) => Some(window.mark()),
            State::Counter(counter) => Some(counter.mark()),
            State::Bucket(bucket) => Some(bucket.mark()),
            State::Log(log) => return log.effective_time_us(quota, t),
            #[cfg(feature = "lua")]
            State::LogSummary(glimpse) => return t.max(glimpse.newest),
        };
        mark.and_then(|mark| moment(mark, quota, t)).unwrap_or(t)
    }

    fn as_log(&mut self) -> &mut Log {
        if !matches!(self, State::Log(_)) {
            *self = State::Log(Log::default());
        }
        match self {
            State::Log(log) => log,
            _ => unreachable!("it was made a log just now"),
        }
    }

    /// Makes a log without entries new again.
    pub(crate) fn forget_if_empty(&mut self) {
        if matches!(self, State::Log(log) if log.is_empty()) {
            *self = State::New;
        }
    }

    /// Packs a state of fixed size; none if it is new or a log.
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

    /// Unpacks what [`pack`](State::pack) gave under a quota of the same algorithm and period.
    #[inline]
    pub fn unpack(quota: &Quota, packed: Packed) -> Self {
        match quota.algorithm() {
            Algorithm::FixedWindow => State::Window(Flat::unpack(quota, packed)),
            Algorithm::SlidingWindowCounter => State::Counter(Flat::unpack(quota, packed)),
            Algorithm::TokenBucket | Algorithm::LeakyPolicing | Algorithm::LeakyShaping => {
                State::Bucket(Flat::unpack(quota, packed))
            }
            Algorithm::SlidingWindowLog => State::New,
        }
    }
}

/// What can be done with a packed state of whichever algorithm, each kind compiled for itself.
pub(crate) trait WithFlat {
    type Answer;

    fn with<F: Flat>(self, opened: Opened<F>) -> Self::Answer;
}

/// Unpacks a state for its own algorithm; none for a log, which has no packed form.
#[inline(always)]
pub(crate) fn with_packed<W: WithFlat>(
    quota: &Quota,
    packed: Packed,
    t: u64,
    then: W,
) -> Option<W::Answer> {
    #[inline(always)]
    fn open<F: Flat>(quota: &Quota, packed: Packed, t: u64) -> Opened<F> {
        Opened::flat(Some(F::unpack(quota, packed)), quota, t)
    }
    match quota.algorithm() {
        Algorithm::FixedWindow => Some(then.with(open::<Window>(quota, packed, t))),
        Algorithm::SlidingWindowCounter => Some(then.with(open::<Counter>(quota, packed, t))),
        Algorithm::TokenBucket | Algorithm::LeakyPolicing | Algorithm::LeakyShaping => {
            Some(then.with(open::<Bucket>(quota, packed, t)))
        }
        Algorithm::SlidingWindowLog => None,
    }
}

#[cfg(feature = "lua")]
impl Algorithm {
    /// The Lua that does the same.
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
