//! Queues of outbound calls, one per key, and the pauses that remotes request.
//!
//! The first call in a queue, while there is no pause, enters the limiter and lets the next one
//! follow. A pause recalls all calls that wait at the limiter to their positions in the queue;
//! what they reserved there is free when the pause ends.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::future::{Future, poll_fn};
use std::hash::{BuildHasher, RandomState};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::engine::AcquireError;
use crate::key::Key;

/// Calls in all queues together; a limiter has the same bound.
const MAX_CALLS: usize = 100_000;
/// Paused keys; beyond that, the pause that ends soonest is dropped.
pub(super) const MAX_PAUSED: usize = 10_000;

#[derive(Default)]
pub(super) struct Queues {
    state: Mutex<State>,
    seed: RandomState,
}

/// The hash of a key. Keys with equal hashes share a queue: they wait longer, nothing else.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct QueueId(u64);

#[derive(Default)]
struct State {
    queues: HashMap<QueueId, Queue>,
    calls: usize,
}

#[derive(Default)]
struct Queue {
    paused_until: Option<Instant>,
    /// Calls that have not entered the limiter, in order of arrival.
    queued: BTreeMap<u64, Arc<Notify>>,
    /// Calls that wait at the limiter, in order of arrival.
    acquiring: BTreeMap<u64, Arc<Notify>>,
    next_number: u64,
}

/// A call's position in a queue; dropping it leaves the queue.
pub(super) struct Ticket<'a> {
    queues: &'a Queues,
    id: QueueId,
    number: u64,
    since: Instant,
    wake: Arc<Notify>,
}

impl Queues {
    pub(super) fn id(&self, key: &Key<'_>) -> QueueId {
        QueueId(self.seed.hash_one(key))
    }

    pub(super) fn join(&self, id: QueueId) -> Result<Ticket<'_>, AcquireError> {
        let mut state = self.state.lock();
        if state.calls == MAX_CALLS {
            return Err(AcquireError::TooManyWaiting);
        }
        state.calls += 1;
        let queue = state.queues.entry(id).or_default();
        let (number, wake) = (queue.next_number, Arc::new(Notify::new()));
        queue.next_number += 1;
        queue.queued.insert(number, Arc::clone(&wake));
        Ok(Ticket {
            queues: self,
            id,
            number,
            since: Instant::now(),
            wake,
        })
    }

    /// Pauses a queue. A longer pause stays in effect.
    pub(super) fn pause(&self, id: QueueId, wait: Duration) {
        let now = Instant::now();
        let until = now + wait;
        let mut state = self.state.lock();
        let known = state.queues.get(&id);
        if known.and_then(|queue| queue.pause(now)).is_none() {
            state.make_room(now);
        }
        let queue = state.queues.entry(id).or_default();
        match queue.pause(now) {
            Some(longer) if longer >= until => return,
            // All calls are back in the queue; the first one checks again when the old pause ends.
            Some(_) => {}
            None => {
                queue.queued.append(&mut queue.acquiring);
                queue.queued.values().for_each(|wake| wake.notify_one());
            }
        }
        queue.paused_until = Some(until);
    }
}

impl State {
    /// Makes room for one more pause.
    fn make_room(&mut self, now: Instant) {
        if self.queues.len() < MAX_PAUSED {
            return;
        }
        self.queues.retain(|_, queue| !queue.is_idle(now));
        let pauses = self.queues.iter();
        let pauses = pauses.filter_map(|(&id, queue)| Some((queue.pause(now)?, id)));
        let pauses: Vec<_> = pauses.collect();
        let soonest = pauses.iter().min_by_key(|(until, _)| *until);
        let Some(&(_, id)) = soonest.filter(|_| pauses.len() >= MAX_PAUSED) else {
            return;
        };
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.paused_until = None;
            queue.wake_first();
            if queue.is_idle(now) {
                self.queues.remove(&id);
            }
        }
    }
}

impl Queue {
    /// The end of the current pause.
    fn pause(&self, now: Instant) -> Option<Instant> {
        self.paused_until.filter(|&until| until > now)
    }

    fn is_idle(&self, now: Instant) -> bool {
        self.queued.is_empty() && self.acquiring.is_empty() && self.pause(now).is_none()
    }

    fn wake_first(&self) {
        if let Some((_, first)) = self.queued.first_key_value() {
            first.notify_one();
        }
    }
}

impl Ticket<'_> {
    /// Waits until this call is first and there is no pause.
    pub(super) async fn wait_turn(&self, deadline: Option<Instant>) -> Result<(), AcquireError> {
        loop {
            let now = Instant::now();
            let (first, pause) = self.with(|queue| {
                let first = queue.queued.first_key_value();
                let first = first.is_none_or(|(&number, _)| number == self.number);
                (first, queue.pause(now))
            });
            let check_at = match (first, pause) {
                (true, None) => return Ok(()),
                (true, Some(until)) => Some(until),
                // It is woken when it is first.
                (false, _) => None,
            };
            if let Some(deadline) = deadline {
                let too_late = |wait| Err(AcquireError::TooLate { wait });
                match pause {
                    Some(until) if until > deadline => return too_late(until - now),
                    Some(_) | None if deadline <= now => return too_late(now - self.since),
                    Some(_) | None => {}
                }
            }
            match check_at.into_iter().chain(deadline).min() {
                // Woken or timed out: check again.
                Some(at) => drop(timeout_at(at, self.wake.notified()).await),
                None => self.wake.notified().await,
            }
        }
    }

    /// Waits at the limiter. Returns `None` if a pause has recalled the call.
    pub(super) async fn acquire<F: Future>(&self, mut limiter: Pin<&mut F>) -> Option<F::Output> {
        // The first poll puts the call in the limiter's queue; only then may the next one follow.
        let first_poll = poll_fn(|context| Poll::Ready(limiter.as_mut().poll(context)));
        if let Poll::Ready(outcome) = first_poll.await {
            return Some(outcome);
        }
        self.with(|queue| {
            if queue.pause(Instant::now()).is_none() {
                queue.queued.remove(&self.number);
                queue.acquiring.insert(self.number, Arc::clone(&self.wake));
                queue.wake_first();
            }
        });
        let mut recalled = pin!(self.wait_recalled());
        poll_fn(|context| {
            if let Poll::Ready(outcome) = limiter.as_mut().poll(context) {
                return Poll::Ready(Some(outcome));
            }
            recalled.as_mut().poll(context).map(|()| None)
        })
        .await
    }

    async fn wait_recalled(&self) {
        while self.with(|queue| queue.acquiring.contains_key(&self.number)) {
            self.wake.notified().await;
        }
    }

    pub(super) fn is_paused(&self) -> bool {
        self.with(|queue| queue.pause(Instant::now()).is_some())
    }

    fn with<T>(&self, action: impl FnOnce(&mut Queue) -> T) -> T {
        let mut state = self.queues.state.lock();
        action(state.queues.entry(self.id).or_default())
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut state = self.queues.state.lock();
        state.calls -= 1;
        let Some(queue) = state.queues.get_mut(&self.id) else {
            return;
        };
        queue.acquiring.remove(&self.number);
        if queue.queued.remove(&self.number).is_some() {
            queue.wake_first();
        }
        if queue.is_idle(Instant::now()) {
            state.queues.remove(&self.id);
        }
    }
}

impl fmt::Debug for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("Queues")
            .field("calls", &state.calls)
            .field("keys", &state.queues.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::timeout;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    /// On another thread, a pause may come between `wait_turn` and `acquire`.
    #[tokio::test(start_paused = true)]
    async fn no_call_stays_at_the_limiter_during_a_pause() {
        let queues = Queues::default();
        let id = queues.id(&"k".into());
        let ticket = queues.join(id).unwrap();
        ticket.wait_turn(None).await.unwrap();
        queues.pause(id, HOUR);
        let limiter = pin!(pending::<()>());
        let recalled = timeout(HOUR / 2, ticket.acquire(limiter)).await;
        assert_eq!(recalled, Ok(None));
        assert!(ticket.is_paused());
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_recalls_calls_that_wait_at_the_limiter() {
        let queues = Arc::new(Queues::default());
        let id = queues.id(&"k".into());
        let shared = Arc::clone(&queues);
        let first = tokio::spawn(async move {
            let ticket = shared.join(id).unwrap();
            ticket.wait_turn(None).await.unwrap();
            ticket.acquire(pin!(pending::<()>())).await
        });
        let shared = Arc::clone(&queues);
        let second = tokio::spawn(async move {
            let ticket = shared.join(id).unwrap();
            ticket.wait_turn(None).await.is_ok()
        });
        // The second follows as soon as the first waits at the limiter.
        assert!(timeout(HOUR, second).await.unwrap().unwrap());
        assert!(!first.is_finished());
        queues.pause(id, HOUR);
        assert_eq!(timeout(HOUR / 2, first).await.unwrap().unwrap(), None);
    }
}
