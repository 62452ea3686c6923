//! governor: GCRA over a DashMap. As it comes, with a faster hash, and with a coarse clock too.

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

use super::{Contender, Expiring, GOVERNOR};
use crate::keys::Key;
use crate::setting::Setting;

type Keyed<Hasher, C> =
    RateLimiter<Key, DashMapStateStore<Key, Hasher>, C, NoOpMiddleware<<C as Clock>::Instant>>;

/// `RateLimiter::keyed`: DashMap, SipHash, a precise clock.
pub(super) struct Default(Keyed<RandomState, DefaultClock>);

/// The same with foldhash.
pub(super) struct Foldhash(Keyed<FoldState, DefaultClock>);

/// The same with foldhash and a clock that a thread refreshes every millisecond.
pub(super) struct Tuned(Keyed<FoldState, QuantaUpkeepClock>);

impl Contender for Default {
    const NAME: &'static str = GOVERNOR;

    fn new(setting: &Setting, _: usize) -> Self {
        Default(RateLimiter::keyed(quota(setting)))
    }

    #[inline]
    fn check(&self, key: &Key) -> bool {
        check(&self.0, key)
    }
}

impl Contender for Foldhash {
    const NAME: &'static str = "governor, foldhash";

    fn new(setting: &Setting, _: usize) -> Self {
        let hasher = FoldState::default();
        Foldhash(RateLimiter::dashmap_with_hasher(quota(setting), hasher))
    }

    #[inline]
    fn check(&self, key: &Key) -> bool {
        check(&self.0, key)
    }
}

impl Contender for Tuned {
    const NAME: &'static str = "governor, foldhash, upkeep clock";

    fn new(setting: &Setting, _: usize) -> Self {
        // The process can have one upkeep thread only.
        static CLOCK: OnceLock<QuantaUpkeepClock> = OnceLock::new();
        let clock = CLOCK.get_or_init(|| {
            QuantaUpkeepClock::from_interval(Duration::from_millis(1))
                .expect("nobody else starts an upkeep thread")
        });
        Tuned(RateLimiter::dashmap_with_clock_and_hasher(
            quota(setting),
            clock.clone(),
            FoldState::default(),
        ))
    }

    #[inline]
    fn check(&self, key: &Key) -> bool {
        check(&self.0, key)
    }
}

/// governor as it comes, on supplied time.
pub(super) struct Supplied {
    limiter: Keyed<RandomState, FakeRelativeClock>,
    clock: FakeRelativeClock,
    now_ns: AtomicU64,
}

impl Expiring for Supplied {
    const NAME: &'static str = GOVERNOR;
    const SWEPT_BY_CALLER: bool = true;

    fn new(life: Duration, _: usize) -> Self {
        let clock = FakeRelativeClock::default();
        let quota = quota(&Setting::bucket(life, 1));
        Supplied {
            limiter: RateLimiter::dashmap_with_clock(quota, clock.clone()),
            clock,
            now_ns: AtomicU64::new(0),
        }
    }

    fn set_time(&self, now: Duration) {
        let now_ns = u64::try_from(now.as_nanos()).expect("a run is far below 584 years");
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
fn check<Hasher, C>(limiter: &Keyed<Hasher, C>, key: &Key) -> bool
where
    Hasher: BuildHasher + Clone,
    C: Clock,
{
    black_box(&limiter.check_key(key)).is_ok()
}

fn quota(setting: &Setting) -> Quota {
    let capacity = NonZeroU32::new(setting.capacity).expect("no setting has a capacity of 0");
    Quota::with_period(setting.interval())
        .expect("no setting has an interval of 0")
        .allow_burst(capacity)
}
