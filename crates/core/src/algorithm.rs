//! The algorithms and the state of a counter: the only module that matches on [`Algorithm`].
//!
//! An algorithm is six operations: *advance* the state to a time, and there: units *available*,
//! *take* n, *refund* n, time *until* n *fit*, time *until new*. A seventh, *undo*, returns units
//! taken at an earlier time.

mod bucket;
mod concurrency;
mod dispatch;
mod entries;
mod fair_share;
mod fixed_window;
#[cfg(feature = "lua")]
mod holds_summary;
mod id_map;
mod inline_entries;
#[cfg(feature = "lua")]
mod log_summary;
mod ring;
mod sliding_window_counter;
mod sliding_window_log;
mod whole_bucket;

use alloc::boxed::Box;

pub(crate) use bucket::Bucket;
pub(crate) use concurrency::AdvancedHolds;
pub use concurrency::FormerHold;
pub(crate) use concurrency::Holds;
pub(crate) use dispatch::AnyLevel;
pub(crate) use fair_share::AdvancedShare;
pub(crate) use fair_share::FairShare;
#[cfg(feature = "lua")]
pub(crate) use fair_share::{Epoch, Member, Own, ShareView, Tally, View};
pub(crate) use fixed_window::Window;
#[cfg(feature = "lua")]
pub(crate) use holds_summary::HoldsSummary;
#[cfg(feature = "lua")]
pub(crate) use log_summary::LogSummary;
pub(crate) use sliding_window_counter::Counter;
use sliding_window_log::AdvancedLog;
pub use sliding_window_log::Log;
use whole_bucket::WholeBucket;

use crate::MAX_TIME_US;
use crate::caller::Caller;
use crate::decision::Retry;
#[cfg(feature = "lua")]
use crate::lua::Twin;
use crate::math::mul_div;
use crate::quota::{MAX_CAPACITY, MAX_IN_FLIGHT, MAX_LOG_LIMIT, Quota};

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
    /// A token bucket that members share by weight.
    SharedTokenBucket,
    /// A policing leaky bucket that members share by weight.
    SharedLeakyPolicing,
    /// Units in flight, held by owners until they are released or lapse.
    Concurrent,
}

/// How large a state is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateSize {
    /// Fixed: it can be [packed](State::pack).
    Packed,
    /// It grows with the limit: a log of single requests.
    Log,
    /// It grows with the callers: members or owners.
    Callers,
}

impl Algorithm {
    /// Those that do not tell callers apart.
    pub const BASIC: [Algorithm; 6] = [
        Algorithm::FixedWindow,
        Algorithm::SlidingWindowLog,
        Algorithm::SlidingWindowCounter,
        Algorithm::TokenBucket,
        Algorithm::LeakyPolicing,
        Algorithm::LeakyShaping,
    ];

    /// Every algorithm.
    pub const ALL: [Algorithm; 9] = [
        Algorithm::FixedWindow,
        Algorithm::SlidingWindowLog,
        Algorithm::SlidingWindowCounter,
        Algorithm::TokenBucket,
        Algorithm::LeakyPolicing,
        Algorithm::LeakyShaping,
        Algorithm::SharedTokenBucket,
        Algorithm::SharedLeakyPolicing,
        Algorithm::Concurrent,
    ];

    /// The first word of the quota's text form; the leaky buckets share one, and so do a bucket and
    /// its shared kind.
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::FixedWindow => "fixed-window",
            Algorithm::SlidingWindowLog => "sliding-window-log",
            Algorithm::SlidingWindowCounter => "sliding-window-counter",
            Algorithm::TokenBucket | Algorithm::SharedTokenBucket => "token-bucket",
            Algorithm::LeakyPolicing | Algorithm::LeakyShaping | Algorithm::SharedLeakyPolicing => {
                "leaky-bucket"
            }
            Algorithm::Concurrent => "concurrent",
        }
    }

    /// A name for each behaviour, different for the leaky buckets and for shared ones.
    pub fn behaviour(self) -> &'static str {
        match self {
            Algorithm::FixedWindow
            | Algorithm::SlidingWindowLog
            | Algorithm::SlidingWindowCounter
            | Algorithm::TokenBucket
            | Algorithm::Concurrent => self.name(),
            Algorithm::LeakyPolicing => "leaky-bucket-policing",
            Algorithm::LeakyShaping => "leaky-bucket-shaping",
            Algorithm::SharedTokenBucket => "shared-token-bucket",
            Algorithm::SharedLeakyPolicing => "shared-leaky-bucket-policing",
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
            Algorithm::SharedTokenBucket => b'T',
            Algorithm::SharedLeakyPolicing => b'P',
            Algorithm::Concurrent => b'h',
        }
    }

    /// The keyword of a bucket's capacity; the capacity of windows and logs is their limit.
    #[inline]
    pub const fn capacity_keyword(self) -> Option<&'static str> {
        match self {
            Algorithm::FixedWindow
            | Algorithm::SlidingWindowLog
            | Algorithm::SlidingWindowCounter
            | Algorithm::Concurrent => None,
            Algorithm::TokenBucket
            | Algorithm::LeakyPolicing
            | Algorithm::SharedTokenBucket
            | Algorithm::SharedLeakyPolicing => Some("burst"),
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
            | Algorithm::LeakyPolicing
            | Algorithm::SharedTokenBucket
            | Algorithm::SharedLeakyPolicing
            | Algorithm::Concurrent => false,
        }
    }

    /// Whether the limit is on units in flight at once, not on a rate.
    #[inline]
    pub const fn is_concurrent(self) -> bool {
        match self {
            Algorithm::Concurrent => true,
            Algorithm::FixedWindow
            | Algorithm::SlidingWindowLog
            | Algorithm::SlidingWindowCounter
            | Algorithm::TokenBucket
            | Algorithm::LeakyPolicing
            | Algorithm::LeakyShaping
            | Algorithm::SharedTokenBucket
            | Algorithm::SharedLeakyPolicing => false,
        }
    }

    /// Whether members share the limit by weight.
    #[inline]
    pub const fn is_shared(self) -> bool {
        match self {
            Algorithm::SharedTokenBucket | Algorithm::SharedLeakyPolicing => true,
            Algorithm::FixedWindow
            | Algorithm::SlidingWindowLog
            | Algorithm::SlidingWindowCounter
            | Algorithm::TokenBucket
            | Algorithm::LeakyPolicing
            | Algorithm::LeakyShaping
            | Algorithm::Concurrent => false,
        }
    }

    /// The shared kind of a bucket that refuses; `None` for others.
    pub(crate) const fn shared(self) -> Option<Algorithm> {
        match self {
            Algorithm::TokenBucket | Algorithm::SharedTokenBucket => {
                Some(Algorithm::SharedTokenBucket)
            }
            Algorithm::LeakyPolicing | Algorithm::SharedLeakyPolicing => {
                Some(Algorithm::SharedLeakyPolicing)
            }
            Algorithm::FixedWindow
            | Algorithm::SlidingWindowLog
            | Algorithm::SlidingWindowCounter
            | Algorithm::LeakyShaping
            | Algorithm::Concurrent => None,
        }
    }

    /// The bucket that a shared one is when it has a single member; any other is itself.
    pub(crate) const fn unshared(self) -> Algorithm {
        match self {
            Algorithm::SharedTokenBucket => Algorithm::TokenBucket,
            Algorithm::SharedLeakyPolicing => Algorithm::LeakyPolicing,
            Algorithm::FixedWindow
            | Algorithm::SlidingWindowLog
            | Algorithm::SlidingWindowCounter
            | Algorithm::TokenBucket
            | Algorithm::LeakyPolicing
            | Algorithm::LeakyShaping
            | Algorithm::Concurrent => self,
        }
    }

    /// Whether units are counted in windows that start at multiples of the period.
    pub fn has_aligned_windows(self) -> bool {
        match self {
            Algorithm::FixedWindow | Algorithm::SlidingWindowCounter => true,
            Algorithm::SlidingWindowLog
            | Algorithm::TokenBucket
            | Algorithm::LeakyPolicing
            | Algorithm::LeakyShaping
            | Algorithm::SharedTokenBucket
            | Algorithm::SharedLeakyPolicing
            | Algorithm::Concurrent => false,
        }
    }

    /// How large a state is.
    #[inline]
    pub const fn state_size(self) -> StateSize {
        match self {
            Algorithm::SlidingWindowLog => StateSize::Log,
            Algorithm::FixedWindow
            | Algorithm::SlidingWindowCounter
            | Algorithm::TokenBucket
            | Algorithm::LeakyPolicing
            | Algorithm::LeakyShaping => StateSize::Packed,
            Algorithm::SharedTokenBucket
            | Algorithm::SharedLeakyPolicing
            | Algorithm::Concurrent => StateSize::Callers,
        }
    }

    /// Whether the state stores single requests.
    #[inline]
    pub const fn is_log(self) -> bool {
        matches!(self.state_size(), StateSize::Log)
    }

    /// The maximum number of units within any span of time; of a concurrency limit, at once.
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
            Algorithm::TokenBucket
            | Algorithm::LeakyPolicing
            | Algorithm::LeakyShaping
            | Algorithm::SharedTokenBucket
            | Algorithm::SharedLeakyPolicing => u64::from(quota.capacity()).saturating_add(in_span),
            Algorithm::Concurrent => limit,
        }
    }

    /// The largest limit.
    pub const fn max_limit(self) -> u32 {
        match self {
            Algorithm::SlidingWindowLog => MAX_LOG_LIMIT,
            Algorithm::Concurrent => MAX_IN_FLIGHT,
            Algorithm::FixedWindow
            | Algorithm::SlidingWindowCounter
            | Algorithm::TokenBucket
            | Algorithm::LeakyPolicing
            | Algorithm::LeakyShaping
            | Algorithm::SharedTokenBucket
            | Algorithm::SharedLeakyPolicing => MAX_CAPACITY,
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
    /// A bucket and its members.
    #[doc(hidden)]
    Shared(Box<FairShare>),
    /// What owners hold.
    #[doc(hidden)]
    Holds(Box<Holds>),
    /// A summary of single requests, as a script returns it.
    #[cfg(feature = "lua")]
    #[doc(hidden)]
    LogSummary(LogSummary),
    /// A bucket as one member sees it, as a script returns it.
    #[cfg(feature = "lua")]
    #[doc(hidden)]
    ShareView(Box<ShareView>),
    /// A summary of what owners hold, as a script returns it to one of them.
    #[cfg(feature = "lua")]
    #[doc(hidden)]
    HoldsSummary(HoldsSummary),
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

    /// Returns units taken at an earlier time, as far as they still count. Whether there were any; if
    /// not, nothing is changed.
    fn undo(&mut self, quota: &Quota, units: u32, taken: u64, now: u64) -> bool;

    /// The units in flight; `None` if units are used up, not held.
    #[inline]
    fn in_flight(&self) -> Option<InFlight> {
        None
    }

    /// The units that the caller holds until they are released.
    #[inline]
    fn held(&self) -> u32 {
        self.in_flight().map_or(0, |units| units.own)
    }

    /// Prolongs what the caller holds.
    #[inline]
    fn renew(&mut self, quota: &Quota, now: u64) {
        if let Some(units) = self.in_flight() {
            self.take(quota, units.own, now);
        }
    }

    /// The units to report as remaining, of which `available` fit.
    #[inline]
    fn remaining(&self, quota: &Quota, available: u32) -> u32 {
        match self.in_flight() {
            Some(units) => quota.limit().saturating_sub(units.live),
            None => available,
        }
    }

    /// The units that remain after `granted` of those available were taken.
    #[inline]
    fn remaining_after(&self, quota: &Quota, available: u32, granted: u32, now: u64) -> u32 {
        let _ = now;
        self.remaining(quota, available.saturating_sub(granted))
    }

    /// The retry after that wait: at most that if units may be released before.
    #[inline]
    fn retry(&self, wait: u64) -> Retry {
        match self.in_flight() {
            Some(_) => Retry::at_most_us(wait),
            None => Retry::after_us(wait),
        }
    }
}

/// The units of all live holds, and of the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InFlight {
    pub(crate) live: u32,
    pub(crate) own: u32,
}

impl InFlight {
    fn others(self) -> u32 {
        self.live.saturating_sub(self.own)
    }

    /// Sets what the caller holds.
    fn hold(&mut self, units: u32) {
        self.live = self.others() + units;
        self.own = units;
    }

    /// Returns up to that much of what the caller holds. Returns how much it was.
    fn give_back(&mut self, units: u32) -> u32 {
        let back = units.min(self.own);
        self.own -= back;
        self.live = self.live.saturating_sub(back);
        back
    }
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

impl<'a> Advanced<AdvancedShare<'a>> {
    pub(crate) fn from_share(
        share: &'a mut FairShare,
        quota: &Quota,
        caller: &Caller,
        now: u64,
    ) -> Self {
        Advanced::new(AdvancedShare::new(share, quota, caller, now), now)
    }
}

impl<'a> Advanced<AdvancedHolds<'a>> {
    pub(crate) fn from_holds(
        holds: &'a mut Holds,
        quota: &Quota,
        caller: &Caller,
        now: u64,
    ) -> Self {
        Advanced::new(AdvancedHolds::new(holds, quota, caller, now), now)
    }
}

impl<L> Advanced<L> {
    /// A level at its effective time.
    fn new((level, effective): (L, u64), now: u64) -> Self {
        Advanced {
            level,
            now: effective,
            behind: effective - now,
        }
    }

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
    pub(crate) fn advance<'s>(
        &'s mut self,
        quota: &Quota,
        caller: &Caller,
        now: u64,
    ) -> Advanced<AnyLevel<'s>> {
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
            Algorithm::SharedTokenBucket | Algorithm::SharedLeakyPolicing => {
                #[cfg(feature = "lua")]
                if let State::ShareView(view) = self {
                    let advanced = AdvancedShare::from_view(view.0, quota, caller, now);
                    return Advanced::new(advanced, now).map(AnyLevel::share);
                }
                Advanced::from_share(self.as_share(), quota, caller, now).map(AnyLevel::share)
            }
            Algorithm::Concurrent => {
                #[cfg(feature = "lua")]
                if let State::HoldsSummary(summary) = *self {
                    let effective = summary.effective_time(quota, now);
                    return Advanced::new((AnyLevel::HoldsSummary(summary), effective), now);
                }
                Advanced::from_holds(self.as_holds(), quota, caller, now).map(AnyLevel::Holds)
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
            State::Shared(share) => share.timestamp(),
            State::Holds(holds) => holds.timestamp(quota),
            #[cfg(feature = "lua")]
            State::LogSummary(summary) => return now.max(summary.newest),
            #[cfg(feature = "lua")]
            State::ShareView(view) => view.0.root.map(|root| root.timestamp()),
            #[cfg(feature = "lua")]
            State::HoldsSummary(summary) => return summary.effective_time(quota, now),
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

    fn as_share(&mut self) -> &mut FairShare {
        if !matches!(self, State::Shared(_)) {
            *self = State::Shared(Box::default());
        }
        match self {
            State::Shared(share) => share,
            _ => unreachable!("it was made a share above"),
        }
    }

    pub(crate) fn as_holds(&mut self) -> &mut Holds {
        if !matches!(self, State::Holds(_)) {
            *self = State::Holds(Box::default());
        }
        match self {
            State::Holds(holds) => holds,
            _ => unreachable!("it was made holds above"),
        }
    }

    /// Turns a log without entries, a share without a level and holds without owners into a new
    /// state.
    pub(crate) fn reset_if_empty(&mut self) {
        let is_empty = match self {
            State::Log(log) => log.is_empty(),
            State::Shared(share) => share.is_empty(),
            State::Holds(holds) => holds.is_empty(),
            _ => false,
        };
        if is_empty {
            *self = State::New;
        }
    }

    /// From this time on a state that grows with its callers is as new; 0 for any other.
    pub fn callers_expire_at_us(&self, quota: &Quota) -> u64 {
        match self {
            State::Shared(share) => share.expires_at_us(quota),
            State::Holds(holds) => holds.expires_at_us(),
            _ => 0,
        }
    }

    /// The number of members or owners that the state has.
    pub fn callers(&self) -> usize {
        match self {
            State::Shared(share) => share.members(),
            State::Holds(holds) => holds.owners(),
            _ => 0,
        }
    }

    /// Packs a state of fixed size; `None` if it is new, a log, or grows with its callers.
    #[inline]
    pub fn pack(&self, quota: &Quota) -> Option<Packed> {
        match self {
            State::New | State::Log(_) | State::Shared(_) | State::Holds(_) => None,
            #[cfg(feature = "lua")]
            State::LogSummary(_) | State::ShareView(_) | State::HoldsSummary(_) => None,
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
            Algorithm::SlidingWindowLog
            | Algorithm::SharedTokenBucket
            | Algorithm::SharedLeakyPolicing
            | Algorithm::Concurrent => State::New,
        }
    }
}

/// A function over a packed state of any algorithm, compiled for each.
pub(crate) trait WithPackable {
    type Output;

    fn call<P: Packable>(self, advanced: Advanced<P>) -> Self::Output;
}

/// Unpacks and advances a state, then calls the function; `None` for one that has no packed form.
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
        Algorithm::SlidingWindowLog
        | Algorithm::SharedTokenBucket
        | Algorithm::SharedLeakyPolicing
        | Algorithm::Concurrent => None,
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
            Algorithm::SharedTokenBucket | Algorithm::SharedLeakyPolicing => Twin::Share,
            Algorithm::Concurrent => Twin::Holds,
        }
    }
}
