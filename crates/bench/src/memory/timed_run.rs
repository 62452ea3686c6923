//! The timed loops, for any contender.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use crate::keys::{self, Key};
use crate::measure::thread_cpu_time;
use crate::memory::contender::{BATCH, Contender};

/// The result of a timed run.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Decisions of all threads.
    pub decided: u64,
    /// Admitted requests.
    pub admitted: u64,
    /// With one thread its CPU time, which other processes disturb least; with several the wall
    /// time from the first start to the last end, since threads may wait for each other.
    pub elapsed: Duration,
}

impl Run {
    /// The time divided by the decisions of all threads.
    pub fn ns_per_decision(&self) -> f64 {
        self.elapsed.as_nanos() as f64 / self.decided as f64
    }
}

/// The load of a run.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// The requests, in the order of arrival.
    pub requests: &'a [Key],
    /// How often they are repeated.
    pub rounds: usize,
    /// The number of threads that share them.
    pub threads: usize,
    /// One per call or in batches.
    pub shape: Shape,
}

/// How requests are passed to the contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One request per call.
    Single,
    /// [`BATCH`] requests per call.
    Batch,
}

/// A [`Contender`] as a trait object: dispatch is dynamic per run, static per decision.
pub trait DynContender: Sync {
    /// Decides all requests of a load.
    fn run(&self, load: Load<'_>) -> Run;

    /// Checks every key below `keys` once.
    fn fill(&self, keys: usize);

    /// Checks every key below `keys` until it is refused.
    fn exhaust(&self, keys: usize);
}

impl<C: Contender> DynContender for C {
    fn run(&self, load: Load<'_>) -> Run {
        match load.shape {
            Shape::Single => run_on_threads(load, |requests| {
                let mut admitted = 0;
                for key in requests {
                    admitted += u64::from(self.check(key));
                }
                admitted
            }),
            Shape::Batch => run_on_threads(load, |requests| {
                let mut admitted = 0;
                for keys in requests.chunks(BATCH) {
                    let mut results = [false; BATCH];
                    self.check_many(keys, &mut results[..keys.len()]);
                    admitted += black_box(results)
                        .iter()
                        .map(|&admitted| u64::from(admitted))
                        .sum::<u64>();
                }
                admitted
            }),
        }
    }

    fn fill(&self, keys: usize) {
        for_each_key(keys, |key| {
            self.check(key);
        });
    }

    fn exhaust(&self, keys: usize) {
        // Bounded, for contenders that never refuse.
        const MAX_REQUESTS: usize = 8;
        for_each_key(keys, |key| {
            let _ = (0..MAX_REQUESTS).take_while(|_| self.check(key)).count();
        });
    }
}

fn for_each_key(keys: usize, mut visit: impl FnMut(&Key)) {
    let mut key = Key::new();
    for index in 0..keys {
        keys::write_key(index, &mut key);
        visit(&key);
    }
}

/// Splits the requests over the threads. Each warms up with the first ninth; the rest is timed.
fn run_on_threads(load: Load<'_>, work: impl Fn(&[Key]) -> u64 + Sync) -> Run {
    let Load {
        requests,
        rounds,
        threads,
        shape: _,
    } = load;
    let share = requests.len() / threads;
    let start = Barrier::new(threads);
    let run_thread = |requests: &[Key]| {
        // Short lists occur in unit tests only, which count every request.
        let warm = if share < 4_000 { 0 } else { share / 9 };
        let (warm, timed) = requests.split_at(warm);
        black_box(work(warm));
        start.wait();
        let (begin, before) = (Instant::now(), thread_cpu_time());
        let admitted: u64 = (0..rounds).map(|_| black_box(work(timed))).sum();
        let decided = (timed.len() * rounds) as u64;
        ThreadRun {
            begin,
            end: Instant::now(),
            cpu: thread_cpu_time() - before,
            admitted,
            decided,
        }
    };
    let finished: Vec<ThreadRun> = if threads == 1 {
        vec![run_thread(requests)]
    } else {
        thread::scope(|scope| {
            let running: Vec<_> = requests
                .chunks_exact(share)
                .map(|requests| scope.spawn(|| run_thread(requests)))
                .collect();
            running
                .into_iter()
                .map(|thread| thread.join().expect("contenders do not panic"))
                .collect()
        })
    };
    let begin = finished.iter().map(|thread| thread.begin).min();
    let end = finished.iter().map(|thread| thread.end).max();
    let elapsed = match (&finished[..], begin, end) {
        ([single], ..) => single.cpu,
        (_, Some(begin), Some(end)) => end - begin,
        (_, None, _) | (_, _, None) => Duration::ZERO,
    };
    Run {
        decided: finished.iter().map(|thread| thread.decided).sum(),
        admitted: finished.iter().map(|thread| thread.admitted).sum(),
        elapsed,
    }
}

/// The result of one thread.
struct ThreadRun {
    begin: Instant,
    end: Instant,
    cpu: Duration,
    admitted: u64,
    decided: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_of_all_threads_are_counted() {
        let run = Run {
            decided: 4,
            admitted: 4,
            elapsed: Duration::from_nanos(10),
        };
        assert_eq!(run.ns_per_decision(), 2.5);
    }
}
