//! Tallygate's memory store, with its default clock and with supplied times.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use ::tallygate::{Limiter, ManualClock, MemoryStore, Quota};

use super::{Contender, ExpiringContender, TALLYGATE};
use crate::keys::Key;
use crate::quota_spec::{Algorithm, QuotaSpec};

pub(super) struct Memory(Limiter);

impl Contender for Memory {
    const NAME: &'static str = TALLYGATE;
    const ALGORITHMS: &'static [Algorithm] = &Algorithm::BASIC;

    fn new(spec: &QuotaSpec, capacity: usize) -> Self {
        let store = MemoryStore::builder().capacity(capacity).build();
        Memory(Limiter::with_store(store, quota(spec)))
    }

    #[inline]
    fn check(&self, key: &Key) -> bool {
        black_box(&self.0.check(key)).allowed()
    }

    #[inline]
    fn check_many(&self, keys: &[Key], admitted: &mut [bool]) {
        let decisions = black_box(self.0.check_many(keys));
        for (decision, admitted) in decisions.iter().zip(admitted) {
            *admitted = decision.allowed();
        }
    }
}

pub(super) struct Supplied {
    limiter: Limiter<MemoryStore<Arc<ManualClock>>>,
    clock: Arc<ManualClock>,
}

impl ExpiringContender for Supplied {
    const NAME: &'static str = TALLYGATE;

    fn new(life: Duration, capacity: usize) -> Self {
        let clock = Arc::new(ManualClock::default());
        let store = MemoryStore::builder()
            .capacity(capacity)
            .clock(Arc::clone(&clock))
            .build();
        Supplied {
            limiter: Limiter::with_store(store, quota(&QuotaSpec::bucket(life, 1))),
            clock,
        }
    }

    fn set_time(&self, now: Duration) {
        let now_us = u64::try_from(now.as_micros()).expect("a run is shorter than 584,000 years");
        self.clock.set(now_us);
    }

    fn check(&self, key: &Key) -> bool {
        black_box(&self.limiter.check(key)).allowed()
    }
}

fn quota(spec: &QuotaSpec) -> Quota {
    let text = spec.to_string();
    text.parse().expect("a spec is a valid quota")
}
