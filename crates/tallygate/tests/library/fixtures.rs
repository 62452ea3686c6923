//! Quotas of every algorithm, stores and limiters on a manual clock, and threads that race.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use tallygate::{Algorithm, Decision, Limiter, ManualClock, MemoryStore, Quota};

/// A time in 2023 at the start of an hour.
pub(crate) const T0: u64 = 1_699_999_200_000_000;
pub(crate) const SECOND: u64 = 1_000_000;
pub(crate) const MINUTE: u64 = 60 * SECOND;

pub(crate) type Store = MemoryStore<Arc<ManualClock>>;

/// One quota of each algorithm with `limit` units per period; the capacity of a bucket is the
/// limit.
pub(crate) fn quotas(limit: u32, period: Duration) -> [Quota; 6] {
    Algorithm::BASIC.map(|algorithm| Quota::new(algorithm, limit, period).unwrap())
}

/// One quota of each algorithm with `limit` units per minute.
pub(crate) fn quotas_per_minute(limit: u32) -> [Quota; 6] {
    quotas(limit, Duration::from_secs(60))
}

/// A store on a clock that is set to [`T0`].
pub(crate) fn store(capacity: usize) -> (Arc<ManualClock>, Arc<Store>) {
    let clock = Arc::new(ManualClock::at(T0));
    let builder = MemoryStore::builder().capacity(capacity);
    let store = builder.clock(Arc::clone(&clock)).build();
    (clock, Arc::new(store))
}

/// A limiter with a large store on a clock that is set to [`T0`].
pub(crate) fn limiter(quota: Quota) -> (Arc<ManualClock>, Limiter<Arc<Store>>) {
    let (clock, store) = store(10_000);
    (clock, Limiter::with_store(store, quota))
}

/// The remaining units of each limit of a request.
pub(crate) fn remaining_by_limit(decision: &Decision) -> Vec<u32> {
    let verdicts = decision.verdicts().iter();
    verdicts.map(|verdict| verdict.remaining).collect()
}

/// Long enough for any machine: after that, the threads are in a deadlock.
const DEADLOCK_TIMEOUT: Duration = Duration::from_secs(120);

/// Runs the same work on several threads that start together. Aborts after a deadlock.
pub(crate) fn race(threads: usize, work: impl Fn(usize) + Sync) {
    let start = Barrier::new(threads);
    let (done, finished) = channel::<()>();
    thread::scope(|scope| {
        for number in 0..threads {
            let (start, work, done) = (&start, &work, done.clone());
            scope.spawn(move || {
                // Dropped on a panic as well.
                let _done = done;
                start.wait();
                work(number);
            });
        }
        drop(done);
        if finished.recv_timeout(DEADLOCK_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
            eprintln!("deadlock");
            // The scope would wait for the threads forever.
            std::process::abort();
        }
    });
}

/// A random generator per thread.
pub(crate) fn seeded(thread: usize) -> fastrand::Rng {
    fastrand::Rng::with_seed(thread as u64)
}
