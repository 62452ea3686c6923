//! governor: GCRA in a DashMap. With defaults, with a faster hash, and with a coarse clock as well.

use std::hash::{BuildHasher, RandomState};
use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use foldhash::fast::RandomState as FoldState;
use governor::clock::{Clock, DefaultClock, FakeRelativeClock, QuantaUpkeepClock};
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};

use super::{Contender, ExpiringContender, GOVERNOR};
use crate::keys::Key;
use crate::quota_spec::QuotaSpec;

type KeyedLimiter<Hasher, C> =
    RateLimiter<Key, DashMapStateStore<Key, Hasher>, C, NoOpMiddleware<<C as Clock>::Instant>>;

/// `RateLimiter::keyed`: DashMap, SipHash, a precise clock.
pub(super) struct Default(KeyedLimiter<RandomState, DefaultClock>);

/// The same with foldhash.
pub(super) struct Foldhash(KeyedLimiter<FoldState, DefaultClock>);

/// The same with foldhash and a clock that a thread refreshes every millisecond.
pub(super) struct Tuned(KeyedLimiter<FoldState, QuantaUpkeepClock>);

impl Contender for Default {
    const NAME: &'static str = GOVERNOR;

    fn new(spec: &QuotaSpec, _: usize) -> Self {
        Default(RateLimiter::keyed(quota(spec)))
    }

    #[inline]
    fn check(&self, key: &Key) -> bool {
        check(&self.0, key)
    }
}

impl Contender for Foldhash {
    const NAME: &'static str = "governor, foldhash";

    fn new(spec: &QuotaSpec, _: usize) -> Self {
        let hasher = FoldState::default();
        Foldhash(RateLimiter::dashmap_with_hasher(quota(spec), hasher))
    }

    #[inline]
    fn check(&self, key: &Key) -> bool {
        check(&self.0, key)
    }
}

impl Contender for Tuned {
    const NAME: &'static str = "governor, foldhash, upkeep clock";

    fn new(spec: &QuotaSpec, _: usize) -> Self {
        // A process can have only one upkeep thread.
        static CLOCK: OnceLock<QuantaUpkeepClock> = OnceLock::new();
        let clock = CLOCK.get_or_init(|| {
            QuantaUpkeepClock::from_interval(Duration::from_millis(1))
                .expect("there is no other upkeep thread")
        });
        Tuned(RateLimiter::dashmap_with_clock_and_hasher(
            quota(spec),
            clock.clone(),
            FoldState::default(),
        ))
    }

    #[inline]
    fn check(&self, key: &Key) -> bool {
        check(&self.0, key)
    }
}

/// governor with defaults and supplied times.
pub(super) struct Supplied {
    limiter: KeyedLimiter<RandomState, FakeRelativeClock>,
    clock: FakeRelativeClock,
    now_ns: AtomicU64,
}

impl ExpiringContender for Supplied {
    const NAME: &'static str = GOVERNOR;
    const SWEPT_BY_CALLER: bool = true;

    fn new(life: Duration, _: usize) -> Self {
        let clock = FakeRelativeClock::default();
        let quota = quota(&QuotaSpec::bucket(life, 1));
        Supplied {
            limiter: RateLimiter::dashmap_with_clock(quota, clock.clone()),
            clock,
            now_ns: AtomicU64::new(0),
        }
    }

    fn set_time(&self, now: Duration) {
        let now_ns = u64::try_from(now.as_nanos()).expect("a run is shorter than 584 years");
        let before_ns = self.now_ns.swap(now_ns, Relaxed);
        self.clock.advance(Duration::from_nanos(now_ns - before_ns));
    }

    #[inline]
    fn check(&self, key: &Key) -> bool {
        check(&self.limiter, key)
    }

    fn sweep(&self) {
        self.limiter.retain_recent();
    }
}

#[inline]
fn check<Hasher, C>(limiter: &KeyedLimiter<Hasher, C>, key: &Key) -> bool
where
    Hasher: BuildHasher + Clone,
    C: Clock,
{
    black_box(&limiter.check_key(key)).is_ok()
}

fn quota(spec: &QuotaSpec) -> Quota {
    let capacity = NonZeroU32::new(spec.capacity).expect("the capacity is not 0");
    Quota::with_period(spec.interval())
        .expect("the interval is not 0")
        .allow_burst(capacity)
}
