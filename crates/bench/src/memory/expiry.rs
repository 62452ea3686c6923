//! The worst single call while all keys expire, with supplied times.
//!
//! Keys are inserted during ten seconds and expire after twenty. Then half of the calls are for
//! those keys and half for new ones, until all have expired and past the minute at which
//! throttlecrab sweeps and the application calls governor's `retain_recent`.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use crate::keys::{self, Key, Spread};
use crate::measure::thread_cpu_time;
use crate::memory::contender::ExpiringContender;

const FILL_END: Duration = Duration::from_secs(10);
const LIFE: Duration = Duration::from_secs(20);
const SWEEP: Duration = Duration::from_secs(61);
const END: Duration = Duration::from_secs(70);

/// The maximum number of calls while keys expire; not more than keys.
const MAX_CALLS: usize = 500_000;

/// The longest time of a single call.
#[derive(Clone, Copy, Debug)]
pub struct WorstCall {
    /// CPU time of the calling thread; a sweep by the application counts as a call.
    pub cpu: Duration,
    /// Wall time of a decision, including the wait for a sweep in another thread.
    pub wall: Duration,
}

impl WorstCall {
    /// The minimum of two runs for each field, to reduce noise.
    pub fn min(self, other: WorstCall) -> WorstCall {
        WorstCall {
            cpu: self.cpu.min(other.cpu),
            wall: self.wall.min(other.wall),
        }
    }
}

/// Measures one contender while so many keys expire.
pub fn measure<E: ExpiringContender>(keys: usize) -> WorstCall {
    let calls = keys.clamp(1, MAX_CALLS);
    let requests = old_and_new_keys(keys, calls);
    let limiter = E::new(LIFE, keys + keys / 4);
    fill(&limiter, keys);

    let mut worst = WorstCall {
        cpu: Duration::ZERO,
        wall: Duration::ZERO,
    };
    let step = (END - FILL_END) / u32::try_from(calls).expect("calls are fewer than 2^32");
    let mut now = FILL_END;
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
    let mut sweep_cpu = Duration::ZERO;
    if E::SWEPT_BY_CALLER {
        thread::scope(|scope| {
            let sweep = scope.spawn(|| {
                let before = thread_cpu_time();
                limiter.sweep();
                thread_cpu_time() - before
            });
            // The supplied time does not advance: only the wait is measured.
            while !sweep.is_finished() {
                call(now);
            }
            sweep_cpu = sweep.join().expect("a sweep does not panic");
        });
    }
    while now < END {
        call(now);
        now += step;
    }
    worst.cpu = worst.cpu.max(sweep_cpu);
    worst
}

fn fill<E: ExpiringContender>(limiter: &E, keys: usize) {
    let mut key = Key::new();
    for index in 0..keys {
        let elapsed = FILL_END.as_micros() as u64 * index as u64 / keys as u64;
        limiter.set_time(Duration::from_micros(elapsed));
        keys::write_key(index, &mut key);
        limiter.check(&key);
    }
}

/// Requests that alternate between a key below `keys` and a new key.
fn old_and_new_keys(keys: usize, calls: usize) -> Vec<Key> {
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
    fn half_of_the_requests_are_for_new_keys() {
        let known: std::collections::HashSet<Key> = (0..100).map(keys::key).collect();
        let requests = old_and_new_keys(100, 1_000);
        let old = requests.iter().filter(|key| known.contains(*key)).count();
        assert_eq!(old, 500);
    }
}
