//! Tallygate's own memory store, on its default clock and on supplied time.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use ::tallygate::{Limiter, ManualClock, MemoryStore, Quota};

use super::{Contender, Expiring, TALLYGATE};
use crate::keys::Key;
use crate::setting::{Behaviour, Setting};

pub(super) struct Memory(Limiter);

impl Contender for Memory {
    const NAME: &'static str = TALLYGATE;
    const BEHAVIOURS: &'static [Behaviour] = &Behaviour::ALL;

    fn new(setting: &Setting, capacity: usize) -> Self {
        let store = MemoryStore::builder().capacity(capacity).build();
        Memory(Limiter::with_store(store, quota(setting)))
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

impl Expiring for Supplied {
    const NAME: &'static str = TALLYGATE;

    fn new(life: Duration, capacity: usize) -> Self {
        let clock = Arc::new(ManualClock::default());
        let store = MemoryStore::builder()
            .capacity(capacity)
            .clock(Arc::clone(&clock))
            .build();
        Supplied {
            limiter: Limiter::with_store(store, quota(&Setting::bucket(life, 1))),
            clock,
        }
    }

    fn set_time(&self, now: Duration) {
        let now_us = u64::try_from(now.as_micros()).expect("a bench ends within an age");
        self.clock.set(now_us);
    }

    fn check(&self, key: &Key) -> bool {
        black_box(&self.limiter.check(key)).allowed()
    }
}

fn quota(setting: &Setting) -> Quota {
    let text = setting.to_string();
    text.parse().expect("a setting is written as a quota")
}
