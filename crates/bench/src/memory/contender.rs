//! Who is measured: the traits a contender implements and the list of those that do.
//!
//! A contender is one file here and one line in [`all`] (and in [`expiring`], when it can be run
//! on supplied time).

use std::time::Duration;

use crate::keys::Key;
use crate::memory::expiry::{self, Worst};
use crate::memory::lane::Lane;
use crate::setting::{Behaviour, Setting};

mod floor;
mod governor;
mod limitador;
mod tallygate;
mod throttlecrab;

/// How many requests a batch carries.
pub const BATCH: usize = 32;

/// A limiter to be measured, on its own clock.
///
/// `check` and `check_many` hand their whole answer to [`std::hint::black_box`] before reducing
/// it to a `bool`, so that no contender is spared computing what it promises.
pub trait Contender: Sync + Sized + 'static {
    /// Its column in the table.
    const NAME: &'static str;

    /// The behaviours it is measured with.
    const BEHAVIOURS: &'static [Behaviour] = &[Behaviour::TokenBucket];

    /// Makes this many times fewer decisions than the others: for the slow.
    const SLOWNESS: usize = 1;

    /// The most keys it is measured with.
    const MOST_KEYS: usize = usize::MAX;

    /// Whether it limits at all; the floor does not.
    const LIMITS: bool = true;

    /// Builds it for that many live keys.
    fn new(setting: &Setting, capacity: usize) -> Self;

    /// Decides one request of cost 1: whether it is admitted.
    fn check(&self, key: &Key) -> bool;

    /// Decides at most [`BATCH`] requests of cost 1, one answer each.
    ///
    /// One by one, where a contender has no better way.
    #[inline]
    fn check_many(&self, keys: &[Key], admitted: &mut [bool]) {
        for (key, admitted) in keys.iter().zip(admitted) {
            *admitted = self.check(key);
        }
    }
}

/// A limiter on supplied time, to be watched while its keys expire.
pub trait Expiring: Sync + Sized + 'static {
    /// Its column in the table.
    const NAME: &'static str;

    /// Whether somebody must call [`sweep`](Expiring::sweep) to get the memory back.
    const SWEPT_BY_CALLER: bool = false;

    /// Builds it at time zero for that many live keys, each forgotten `life` after one request.
    fn new(life: Duration, capacity: usize) -> Self;

    /// Moves its clock to that time since zero.
    fn set_time(&self, now: Duration);

    /// Decides one request of cost 1 at the time set.
    fn check(&self, key: &Key) -> bool;

    /// Gives the memory of expired keys back.
    fn sweep(&self) {}
}

/// A line in the list of contenders.
pub struct Entry {
    /// See [`Contender::NAME`].
    pub name: &'static str,
    /// See [`Contender::BEHAVIOURS`].
    pub behaviours: &'static [Behaviour],
    /// See [`Contender::SLOWNESS`].
    pub slowness: usize,
    /// See [`Contender::MOST_KEYS`].
    pub most_keys: usize,
    /// See [`Contender::LIMITS`].
    pub limits: bool,
    /// Builds it.
    pub build: fn(&Setting, usize) -> Box<dyn Lane>,
}

impl Entry {
    fn of<C: Contender>() -> Entry {
        Entry {
            name: C::NAME,
            behaviours: C::BEHAVIOURS,
            slowness: C::SLOWNESS,
            most_keys: C::MOST_KEYS,
            limits: C::LIMITS,
            build: |setting, capacity| Box::new(C::new(setting, capacity)),
        }
    }
}

/// A line in the list of those that can be watched while keys expire.
pub struct ExpiringEntry {
    /// See [`Expiring::NAME`].
    pub name: &'static str,
    /// Runs it over that many expiring keys and tells its worst call.
    pub worst: fn(usize) -> Worst,
}

impl ExpiringEntry {
    fn of<E: Expiring>() -> ExpiringEntry {
        ExpiringEntry {
            name: E::NAME,
            worst: expiry::worst::<E>,
        }
    }
}

/// The name of the contender that the others are compared with.
pub const TALLYGATE: &str = "tallygate";

/// The name of the peer that the targets speak of.
pub const GOVERNOR: &str = "governor";

/// Every contender, in the order of the table's columns.
pub fn all() -> Vec<Entry> {
    vec![
        Entry::of::<tallygate::Memory>(),
        Entry::of::<governor::Default>(),
        Entry::of::<governor::Foldhash>(),
        Entry::of::<governor::Tuned>(),
        Entry::of::<throttlecrab::Periodic>(),
        Entry::of::<limitador::InMemory>(),
        Entry::of::<floor::Floor>(),
    ]
}

/// Every contender that runs on supplied time.
pub fn expiring() -> Vec<ExpiringEntry> {
    vec![
        ExpiringEntry::of::<tallygate::Supplied>(),
        ExpiringEntry::of::<governor::Supplied>(),
        ExpiringEntry::of::<throttlecrab::Supplied>(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys;
    use crate::memory::lane::{Load, Run, Shape};

    fn run(lane: &dyn Lane, requests: &[Key], threads: usize, shape: Shape) -> Run {
        lane.run(Load {
            requests,
            rounds: 1,
            threads,
            shape,
        })
    }

    fn admitted(lane: &dyn Lane, keys: &[Key]) -> u64 {
        run(lane, keys, 1, Shape::OneByOne).admitted
    }

    #[test]
    fn every_contender_admits_its_capacity_and_then_refuses() {
        for entry in all().iter().filter(|entry| entry.limits) {
            for &behaviour in entry.behaviours {
                let setting = Setting {
                    behaviour,
                    limit: 5,
                    period: Duration::from_secs(30 * 86_400),
                    capacity: 5,
                };
                let lane = (entry.build)(&setting, 100);
                for index in 0..20 {
                    let same = vec![keys::key(index); 12];
                    assert_eq!(admitted(&*lane, &same), 5, "{} {setting}", entry.name);
                }
            }
        }
    }

    #[test]
    fn every_contender_admits_in_batches_what_it_admits_one_by_one() {
        for entry in all().iter().filter(|entry| entry.limits) {
            let setting = Setting::bucket(Duration::from_secs(86_400), 2);
            let lane = (entry.build)(&setting, 100);
            // 50 keys, four requests each, equal keys inside a batch too.
            let requests: Vec<Key> = (0..200).map(|n| keys::key(n / 2 % 50)).collect();
            let run = run(&*lane, &requests, 1, Shape::Batches);
            assert_eq!((run.admitted, run.decided), (100, 200), "{}", entry.name);
        }
    }

    #[test]
    fn roomy_settings_admit_everything_and_scarce_ones_end_up_refusing() {
        for entry in all().iter().filter(|entry| entry.limits) {
            let requests = keys::requests(keys::Spread::Uniform, 50, 1_000, 7);
            for &behaviour in entry.behaviours {
                let roomy = (entry.build)(&Setting::roomy(behaviour, 50), 50);
                roomy.fill(50);
                assert_eq!(admitted(&*roomy, &requests), 1_000, "{}", entry.name);

                let scarce = (entry.build)(&Setting::scarce(behaviour), 50);
                scarce.exhaust(50);
                assert_eq!(admitted(&*scarce, &requests), 0, "{}", entry.name);
            }
        }
    }

    #[test]
    fn two_threads_share_one_budget() {
        // limitador is left out: it checks, then acts, and may admit more.
        for entry in all().iter().filter(|entry| entry.limits) {
            if entry.name == "limitador" {
                continue;
            }
            let setting = Setting::bucket(Duration::from_secs(86_400), 1_000);
            let lane = (entry.build)(&setting, 100);
            let same = vec![keys::key(1); 4_000];
            let run = run(&*lane, &same, 2, Shape::OneByOne);
            assert_eq!(
                (run.admitted, run.decided),
                (1_000, 4_000),
                "{}",
                entry.name
            );
        }
    }

    #[test]
    fn keys_on_supplied_time_are_refused_until_their_life_is_over() {
        fn watch<E: Expiring>() {
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
        watch::<tallygate::Supplied>();
        watch::<governor::Supplied>();
        watch::<throttlecrab::Supplied>();
    }
}
