//! The traits and the list of contenders.
//!
//! A contender is one file here and one entry in [`all`], and in [`expiring`] if it supports
//! supplied times.

use std::time::Duration;

use crate::keys::Key;
use crate::memory::expiry::{self, WorstCall};
use crate::memory::timed_run::DynContender;
use crate::quota_spec::{Algorithm, QuotaSpec};

mod floor;
mod governor;
mod limitador;
mod tallygate;
mod throttlecrab;

/// Requests per batch.
pub const BATCH: usize = 32;

/// A limiter to measure, on its own clock.
///
/// `check` and `check_many` pass the whole decision to [`std::hint::black_box`] before they reduce
/// it to a `bool`, so that the compiler cannot skip any of it.
pub trait Contender: Sync + Sized + 'static {
    /// Its column in the table.
    const NAME: &'static str;

    /// The algorithms it is measured with.
    const ALGORITHMS: &'static [Algorithm] = &[Algorithm::TokenBucket];

    /// By how much to reduce the number of decisions, for slow contenders.
    const DECISIONS_DIVISOR: usize = 1;

    /// The maximum number of keys it is measured with.
    const MAX_KEYS: usize = usize::MAX;

    /// Whether it enforces a limit; the floor does not.
    const ENFORCES_LIMIT: bool = true;

    /// Builds it for so many live keys.
    fn new(spec: &QuotaSpec, capacity: usize) -> Self;

    /// Decides one request of cost 1 and returns whether it is admitted.
    fn check(&self, key: &Key) -> bool;

    /// Decides at most [`BATCH`] requests of cost 1.
    ///
    /// By default, one request per call.
    #[inline]
    fn check_many(&self, keys: &[Key], admitted: &mut [bool]) {
        for (key, admitted) in keys.iter().zip(admitted) {
            *admitted = self.check(key);
        }
    }
}

/// A limiter with supplied times, to measure while its keys expire.
pub trait ExpiringContender: Sync + Sized + 'static {
    /// Its column in the table.
    const NAME: &'static str;

    /// Whether the application must call [`sweep`](ExpiringContender::sweep) to free memory.
    const SWEPT_BY_CALLER: bool = false;

    /// Builds it at time zero for so many live keys, each of which expires `life` after one
    /// request.
    fn new(life: Duration, capacity: usize) -> Self;

    /// Sets its clock to a time since zero.
    fn set_time(&self, now: Duration);

    /// Decides one request of cost 1 at the current time.
    fn check(&self, key: &Key) -> bool;

    /// Frees the memory of expired keys.
    fn sweep(&self) {}
}

/// An entry in the list of contenders.
pub struct Entry {
    /// See [`Contender::NAME`].
    pub name: &'static str,
    /// See [`Contender::ALGORITHMS`].
    pub algorithms: &'static [Algorithm],
    /// See [`Contender::DECISIONS_DIVISOR`].
    pub decisions_divisor: usize,
    /// See [`Contender::MAX_KEYS`].
    pub max_keys: usize,
    /// See [`Contender::ENFORCES_LIMIT`].
    pub enforces_limit: bool,
    /// Builds it.
    pub build: fn(&QuotaSpec, usize) -> Box<dyn DynContender>,
}

impl Entry {
    fn new<C: Contender>() -> Entry {
        Entry {
            name: C::NAME,
            algorithms: C::ALGORITHMS,
            decisions_divisor: C::DECISIONS_DIVISOR,
            max_keys: C::MAX_KEYS,
            enforces_limit: C::ENFORCES_LIMIT,
            build: |spec, capacity| Box::new(C::new(spec, capacity)),
        }
    }
}

/// An entry in the list of contenders with supplied times.
pub struct ExpiringEntry {
    /// See [`ExpiringContender::NAME`].
    pub name: &'static str,
    /// Measures its worst call while so many keys expire.
    pub measure: fn(usize) -> WorstCall,
}

impl ExpiringEntry {
    fn new<E: ExpiringContender>() -> ExpiringEntry {
        ExpiringEntry {
            name: E::NAME,
            measure: expiry::measure::<E>,
        }
    }
}

/// The name of the contender that the others are compared with.
pub const TALLYGATE: &str = "tallygate";

/// The name of the peer of the targets.
pub const GOVERNOR: &str = "governor";

/// Every contender, in the order of the table's columns.
pub fn all() -> Vec<Entry> {
    vec![
        Entry::new::<tallygate::Memory>(),
        Entry::new::<governor::Default>(),
        Entry::new::<governor::Foldhash>(),
        Entry::new::<governor::Tuned>(),
        Entry::new::<throttlecrab::Periodic>(),
        Entry::new::<limitador::InMemory>(),
        Entry::new::<floor::Floor>(),
    ]
}

/// Every contender with supplied times.
pub fn expiring() -> Vec<ExpiringEntry> {
    vec![
        ExpiringEntry::new::<tallygate::Supplied>(),
        ExpiringEntry::new::<governor::Supplied>(),
        ExpiringEntry::new::<throttlecrab::Supplied>(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys;
    use crate::memory::timed_run::{Load, Run, Shape};

    fn run(contender: &dyn DynContender, requests: &[Key], threads: usize, shape: Shape) -> Run {
        contender.run(Load {
            requests,
            rounds: 1,
            threads,
            shape,
        })
    }

    fn admitted(contender: &dyn DynContender, keys: &[Key]) -> u64 {
        run(contender, keys, 1, Shape::Single).admitted
    }

    #[test]
    fn every_contender_admits_its_capacity_and_then_refuses() {
        for entry in all().iter().filter(|entry| entry.enforces_limit) {
            for &algorithm in entry.algorithms {
                let spec = QuotaSpec {
                    algorithm,
                    limit: 5,
                    period: Duration::from_secs(30 * 86_400),
                    capacity: 5,
                };
                let contender = (entry.build)(&spec, 100);
                for index in 0..20 {
                    let same = vec![keys::key(index); 12];
                    assert_eq!(admitted(&*contender, &same), 5, "{} {spec}", entry.name);
                }
            }
        }
    }

    #[test]
    fn every_contender_admits_the_same_in_batches_as_in_single_calls() {
        for entry in all().iter().filter(|entry| entry.enforces_limit) {
            let spec = QuotaSpec::bucket(Duration::from_secs(86_400), 2);
            let contender = (entry.build)(&spec, 100);
            // 50 keys, four requests each, equal keys inside a batch too.
            let requests: Vec<Key> = (0..200).map(|n| keys::key(n / 2 % 50)).collect();
            let run = run(&*contender, &requests, 1, Shape::Batch);
            assert_eq!((run.admitted, run.decided), (100, 200), "{}", entry.name);
        }
    }

    #[test]
    fn an_unreached_limit_admits_everything_and_a_small_one_refuses_once_exhausted() {
        for entry in all().iter().filter(|entry| entry.enforces_limit) {
            let requests = keys::requests(keys::Spread::Uniform, 50, 1_000, 7);
            for &algorithm in entry.algorithms {
                let unreached = (entry.build)(&QuotaSpec::unreached(algorithm, 50), 50);
                unreached.fill(50);
                assert_eq!(admitted(&*unreached, &requests), 1_000, "{}", entry.name);

                let small = (entry.build)(&QuotaSpec::small(algorithm), 50);
                small.exhaust(50);
                assert_eq!(admitted(&*small, &requests), 0, "{}", entry.name);
            }
        }
    }

    #[test]
    fn two_threads_share_one_budget() {
        // Not limitador: it checks and updates in two steps, and may admit more.
        for entry in all().iter().filter(|entry| entry.enforces_limit) {
            if entry.name == "limitador" {
                continue;
            }
            let spec = QuotaSpec::bucket(Duration::from_secs(86_400), 1_000);
            let contender = (entry.build)(&spec, 100);
            let same = vec![keys::key(1); 4_000];
            let run = run(&*contender, &same, 2, Shape::Single);
            assert_eq!(
                (run.admitted, run.decided),
                (1_000, 4_000),
                "{}",
                entry.name
            );
        }
    }

    #[test]
    fn with_supplied_times_keys_are_refused_until_they_expire() {
        fn check_expiry<E: ExpiringContender>() {
            let life = Duration::from_secs(20);
            let limiter = E::new(life, 100);
            limiter.set_time(Duration::from_secs(1));
            let key = keys::key(1);
            assert!(limiter.check(&key));
            while limiter.check(&key) {}
            limiter.set_time(Duration::from_secs(10));
            assert!(!limiter.check(&key), "{}", E::NAME);
            limiter.set_time(Duration::from_secs(50));
            limiter.sweep();
            assert!(limiter.check(&key), "{}", E::NAME);
        }
        check_expiry::<tallygate::Supplied>();
        check_expiry::<governor::Supplied>();
        check_expiry::<throttlecrab::Supplied>();
    }
}
