//! The worst single call while all keys expire, on supplied time.
//!
//! Keys arrive during ten seconds and live for twenty. Then calls go on, half of them for those
//! keys and half for new ones, while time passes through every expiry and past the minute at which
//! throttlecrab sweeps and somebody calls governor's `retain_recent`.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use crate::keys::{self, Key, Spread};
use crate::measure::thread_cpu_time;
use crate::memory::contender::Expiring;

const FILLED: Duration = Duration::from_secs(10);
const LIFE: Duration = Duration::from_secs(20);
const SWEEP: Duration = Duration::from_secs(61);
const END: Duration = Duration::from_secs(70);

/// The most calls made while keys expire; fewer over fewer keys.
const MOST_CALLS: usize = 500_000;

/// The longest that a single call took.
#[derive(Clone, Copy, Debug)]
pub struct Worst {
    /// In processor time of the calling thread; a sweep the user must call is a call too.
    pub cpu: Duration,
    /// In wall time, of the decisions only: how long a request was held up, also by a sweep in
    /// another thread.
    pub wall: Duration,
}

impl Worst {
    /// The better of two runs, each figure on its own: what a noisy machine cannot take away.
    pub fn best(self, other: Worst) -> Worst {
        Worst {
            cpu: self.cpu.min(other.cpu),
            wall: self.wall.min(other.wall),
        }
    }
}

/// Runs one contender through the expiry of that many keys.
pub fn worst<E: Expiring>(keys: usize) -> Worst {
    let calls = keys.clamp(1, MOST_CALLS);
    let requests = mixed(keys, calls);
    let limiter = E::new(LIFE, keys + keys / 4);
    fill(&limiter, keys);

    let mut worst = Worst {
        cpu: Duration::ZERO,
        wall: Duration::ZERO,
    };
    let step = (END - FILLED) / u32::try_from(calls).expect("calls are fewer than 2^32");
    let mut now = FILLED;
    let mut requests = requests.iter().cycle();
    let mut call = |now: Duration| {
        let Some(key) = requests.next() else { return };
        limiter.set_time(now);
        let begin = Instant::now();
        let before = thread_cpu_time();
        black_box(limiter.check(key));
        worst.cpu = worst.cpu.max(thread_cpu_time() - before);
        worst.wall = worst.wall.max(begin.elapsed());
    };

    while now < SWEEP {
        call(now);
        now += step;
    }
    let mut swept = Duration::ZERO;
    if E::SWEPT_BY_CALLER {
        thread::scope(|scope| {
            let sweep = scope.spawn(|| {
                let before = thread_cpu_time();
                limiter.sweep();
                thread_cpu_time() - before
            });
            // Time stands still: only the waiting is of interest.
            while !sweep.is_finished() {
                call(now);
            }
            swept = sweep.join().expect("a sweep does not panic");
        });
    }
    while now < END {
        call(now);
        now += step;
    }
    worst.cpu = worst.cpu.max(swept);
    worst
}

fn fill<E: Expiring>(limiter: &E, keys: usize) {
    let mut key = Key::new();
    for index in 0..keys {
        let passed = FILLED.as_micros() as u64 * index as u64 / keys as u64;
        limiter.set_time(Duration::from_micros(passed));
        keys::write_key(index, &mut key);
        limiter.check(&key);
    }
}

/// Requests for the keys below `keys` and, every other one, for a key never seen before.
fn mixed(keys: usize, calls: usize) -> Vec<Key> {
    keys::indices(Spread::Uniform, keys, calls, 11)
        .into_iter()
        .enumerate()
        .map(|(call, old)| {
            if call % 2 == 0 {
                keys::key(old)
            } else {
                keys::key(keys + call)
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_requests_are_for_keys_never_seen_before() {
        let known: std::collections::HashSet<Key> = (0..100).map(keys::key).collect();
        let requests = mixed(100, 1_000);
        let old = requests.iter().filter(|key| known.contains(*key)).count();
        assert_eq!(old, 500);
    }
}
