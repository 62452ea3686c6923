//! The measured loops and how their figures are reduced. Knows no contender by name.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use crate::keys::{self, Key};
use crate::measure::thread_cpu_time;
use crate::memory::contender::{BATCH, Contender};

/// What one timed run gave.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Decisions made, over all threads.
    pub decided: u64,
    /// Those that admitted.
    pub admitted: u64,
    /// One thread: its processor time, which other programs disturb least. More: wall time from
    /// the first one's start to the last one's end, since they may wait for each other.
    pub took: Duration,
}

impl Run {
    /// The time divided by decisions, over all threads.
    pub fn ns_per_decision(&self) -> f64 {
        self.took.as_nanos() as f64 / self.decided as f64
    }
}

/// What a lane is asked to do.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// The requests, in the order of arrival.
    pub requests: &'a [Key],
    /// How often to go through them.
    pub rounds: usize,
    /// How many threads share them.
    pub threads: usize,
    /// How they are handed over.
    pub shape: Shape,
}

/// How requests are handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One call for each.
    OneByOne,
    /// One call for [`BATCH`] of them.
    Batches,
}

/// A contender whose type is forgotten outside the loops; inside them it is known, so that the
/// harness adds no indirect call to a decision.
pub trait Lane: Sync {
    /// Decides the load.
    fn run(&self, load: Load<'_>) -> Run;

    /// Asks once for every key below `keys`.
    fn fill(&self, keys: usize);

    /// Asks for every key below `keys` until it is refused.
    fn exhaust(&self, keys: usize);
}

impl<C: Contender> Lane for C {
    fn run(&self, load: Load<'_>) -> Run {
        match load.shape {
            Shape::OneByOne => on_threads(load, |requests| {
                let mut admitted = 0;
                for key in requests {
                    admitted += u64::from(self.check(key));
                }
                admitted
            }),
            Shape::Batches => on_threads(load, |requests| {
                let mut admitted = 0;
                for keys in requests.chunks(BATCH) {
                    let mut answers = [false; BATCH];
                    self.check_many(keys, &mut answers[..keys.len()]);
                    admitted += black_box(answers)
                        .iter()
                        .map(|&answer| u64::from(answer))
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
        // A scarce setting is spent after a few; a contender that never refuses must still end.
        const MOST: usize = 8;
        for_each_key(keys, |key| {
            let _ = (0..MOST).take_while(|_| self.check(key)).count();
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

/// Splits the requests, warms up on the first ninth of each share without counting it, starts all
/// threads at once, and times the rest.
fn on_threads(load: Load<'_>, work: impl Fn(&[Key]) -> u64 + Sync) -> Run {
    let Load {
        requests,
        rounds,
        threads,
        shape: _,
    } = load;
    let share = requests.len() / threads;
    let start = Barrier::new(threads);
    let one = |requests: &[Key]| {
        // Lists too short to be a measurement are the unit tests' and are counted whole.
        let warm = if share < 4_000 { 0 } else { share / 9 };
        let (warm, timed) = requests.split_at(warm);
        black_box(work(warm));
        start.wait();
        let (begin, before) = (Instant::now(), thread_cpu_time());
        let admitted: u64 = (0..rounds).map(|_| black_box(work(timed))).sum();
        let decided = (timed.len() * rounds) as u64;
        Share {
            begin,
            end: Instant::now(),
            cpu: thread_cpu_time() - before,
            admitted,
            decided,
        }
    };
    let ended: Vec<Share> = if threads == 1 {
        vec![one(requests)]
    } else {
        thread::scope(|scope| {
            let running: Vec<_> = requests
                .chunks_exact(share)
                .map(|requests| scope.spawn(|| one(requests)))
                .collect();
            running
                .into_iter()
                .map(|thread| thread.join().expect("a contender does not panic"))
                .collect()
        })
    };
    let begin = ended.iter().map(|share| share.begin).min();
    let end = ended.iter().map(|share| share.end).max();
    let took = match (&ended[..], begin, end) {
        ([alone], ..) => alone.cpu,
        (_, Some(begin), Some(end)) => end - begin,
        (_, None, _) | (_, _, None) => Duration::ZERO,
    };
    Run {
        decided: ended.iter().map(|share| share.decided).sum(),
        admitted: ended.iter().map(|share| share.admitted).sum(),
        took,
    }
}

/// What one thread did.
struct Share {
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
            took: Duration::from_nanos(10),
        };
        assert_eq!(run.ns_per_decision(), 2.5);
    }
}
