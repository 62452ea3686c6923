//! A quota of each behaviour, and a limiter on a clock that stands still.

use std::sync::Arc;
use std::time::Duration;

use tallygate::{Algorithm, Limiter, ManualClock, MemoryStore, Quota};

/// Some time in 2023, the start of an hour, a minute and a second alike.
pub(crate) const T0: u64 = 1_699_999_200_000_000;
pub(crate) const SECOND: u64 = 1_000_000;
pub(crate) const MINUTE: u64 = 60 * SECOND;

pub(crate) type Store = MemoryStore<Arc<ManualClock>>;

/// One quota of each behaviour, `limit` a period; a bucket holds as many.
pub(crate) fn quotas(limit: u32, period: Duration) -> [Quota; 6] {
    Algorithm::ALL.map(|algorithm| Quota::new(algorithm, limit, period).unwrap())
}

/// One quota of each behaviour, `limit` a minute.
pub(crate) fn each_minute(limit: u32) -> [Quota; 6] {
    quotas(limit, Duration::from_secs(60))
}

/// A store of that capacity on a clock that shows [`T0`].
pub(crate) fn store(capacity: usize) -> (Arc<ManualClock>, Arc<Store>) {
    let clock = Arc::new(ManualClock::at(T0));
    let builder = MemoryStore::builder().capacity(capacity);
    let store = builder.clock(Arc::clone(&clock)).build();
    (clock, Arc::new(store))
}

/// A limiter with room for many, on a clock that shows [`T0`].
pub(crate) fn limiter(quota: Quota) -> (Arc<ManualClock>, Limiter<Arc<Store>>) {
    let (clock, store) = store(10_000);
    (clock, Limiter::with_store(store, quota))
}
