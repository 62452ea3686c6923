//! Threads that start together.

use std::sync::Barrier;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// Long enough for any machine: whoever is not done by then waits for somebody who waits too.
const STUCK: Duration = Duration::from_secs(120);

/// Runs the same work on several threads that begin at the same moment.
pub(crate) fn race(threads: usize, work: impl Fn(usize) + Sync) {
    let start = Barrier::new(threads);
    let (done, finished) = channel::<()>();
    thread::scope(|scope| {
        for number in 0..threads {
            let (start, work, done) = (&start, &work, done.clone());
            scope.spawn(move || {
                // Dropped at the end, in a panic too.
                let _done = done;
                start.wait();
                work(number);
            });
        }
        drop(done);
        if finished.recv_timeout(STUCK) == Err(RecvTimeoutError::Timeout) {
            eprintln!("the threads are stuck: a deadlock");
            // A scope waits for its threads, and these never end.
            std::process::abort();
        }
    });
}

/// Randomness of a thread's own; what the threads do to one another is random anyway.
pub(crate) fn seeded(thread: usize) -> fastrand::Rng {
    fastrand::Rng::with_seed(thread as u64)
}
