//! Who stands before the limiter, by key, and how long the remote wants to be left alone. Knows
//! nothing of HTTP.
//!
//! Whoever is first in the line of its key, while there is no pause, goes to the limiter and lets
//! the next one follow. A pause calls everybody back who waits at the limiter, to the place they
//! had: what they held there passes to nobody and is free when the pause is over.

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

use crate::key::Key;
use crate::limiter::AcquireError;

/// How many may stand in all lines together; a limiter lets no more wait either.
const MOST_STANDING: usize = 100_000;
/// How many keys may be paused; beyond that, the pause that is over soonest is forgotten.
pub(super) const MOST_PAUSED: usize = 10_000;

/// All lines.
#[derive(Default)]
pub(super) struct Lines {
    state: Mutex<State>,
    seed: RandomState,
}

/// Which line a key has. Two keys of one hash would share it: they would wait longer, no more.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct LineId(u64);

#[derive(Default)]
struct State {
    by_key: HashMap<LineId, Line>,
    standing: usize,
}

#[derive(Default)]
struct Line {
    paused_until: Option<Instant>,
    /// By order of arrival: those who have not gone to the limiter,
    standing: BTreeMap<u64, Arc<Notify>>,
    /// and those who wait there.
    asking: BTreeMap<u64, Arc<Notify>>,
    next_number: u64,
}

/// A place in a line; dropped, it is free.
pub(super) struct Place<'a> {
    lines: &'a Lines,
    id: LineId,
    number: u64,
    since: Instant,
    call: Arc<Notify>,
}

impl Lines {
    pub(super) fn id(&self, key: &Key<'_>) -> LineId {
        LineId(self.seed.hash_one(key))
    }

    /// Takes the last place of a line.
    pub(super) fn enter(&self, id: LineId) -> Result<Place<'_>, AcquireError> {
        let mut state = self.state.lock();
        if state.standing == MOST_STANDING {
            return Err(AcquireError::Crowded);
        }
        state.standing += 1;
        let line = state.by_key.entry(id).or_default();
        let (number, call) = (line.next_number, Arc::new(Notify::new()));
        line.next_number += 1;
        line.standing.insert(number, Arc::clone(&call));
        Ok(Place {
            lines: self,
            id,
            number,
            since: Instant::now(),
            call,
        })
    }

    /// Lets nobody of a line through for so long. A longer pause stays as it is.
    pub(super) fn pause(&self, id: LineId, wait: Duration) {
        let now = Instant::now();
        let until = now + wait;
        let mut state = self.state.lock();
        let known = state.by_key.get(&id);
        if known.and_then(|line| line.pause(now)).is_none() {
            state.make_room(now);
        }
        let line = state.by_key.entry(id).or_default();
        match line.pause(now) {
            Some(longer) if longer >= until => return,
            // Everybody is back already, and whoever is first looks again when the old one ends.
            Some(_) => {}
            None => {
                line.standing.append(&mut line.asking);
                line.standing.values().for_each(|call| call.notify_one());
            }
        }
        line.paused_until = Some(until);
    }
}

impl State {
    /// Makes room for one more pause.
    fn make_room(&mut self, now: Instant) {
        if self.by_key.len() < MOST_PAUSED {
            return;
        }
        self.by_key.retain(|_, line| !line.is_done(now));
        let pauses = self.by_key.iter();
        let pauses = pauses.filter_map(|(&id, line)| Some((line.pause(now)?, id)));
        let (count, soonest) = pauses.fold((0, None), |(count, soonest), pause| {
            let earlier = |soonest: &(Instant, LineId)| soonest.0 <= pause.0;
            (count + 1, soonest.filter(earlier).or(Some(pause)))
        });
        let Some((_, id)) = soonest.filter(|_| count >= MOST_PAUSED) else {
            return;
        };
        if let Some(line) = self.by_key.get_mut(&id) {
            line.paused_until = None;
            line.call_first();
            if line.is_done(now) {
                self.by_key.remove(&id);
            }
        }
    }
}

impl Line {
    /// When the pause is over, if it is not.
    fn pause(&self, now: Instant) -> Option<Instant> {
        self.paused_until.filter(|&until| until > now)
    }

    fn is_done(&self, now: Instant) -> bool {
        self.standing.is_empty() && self.asking.is_empty() && self.pause(now).is_none()
    }

    fn call_first(&self) {
        if let Some((_, first)) = self.standing.first_key_value() {
            first.notify_one();
        }
    }
}

impl Place<'_> {
    /// Waits until it is the first place and there is no pause.
    pub(super) async fn turn(&self, deadline: Option<Instant>) -> Result<(), AcquireError> {
        loop {
            let now = Instant::now();
            let (first, pause) = self.with(|line| {
                let first = line.standing.first_key_value();
                let first = first.is_none_or(|(&number, _)| number == self.number);
                (first, line.pause(now))
            });
            let look_again = match (first, pause) {
                (true, None) => return Ok(()),
                (true, Some(until)) => Some(until),
                // Called when it is first.
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
            match look_again.into_iter().chain(deadline).min() {
                // Called or not, it looks again.
                Some(at) => drop(timeout_at(at, self.call.notified()).await),
                None => self.call.notified().await,
            }
        }
    }

    /// Waits at the limiter, until a pause calls it back: then there is no outcome.
    pub(super) async fn ask<F: Future>(&self, mut limiter: Pin<&mut F>) -> Option<F::Output> {
        // The first look puts it into the limiter's line: only then may the next one follow.
        let at_once = poll_fn(|context| Poll::Ready(limiter.as_mut().poll(context)));
        if let Poll::Ready(outcome) = at_once.await {
            return Some(outcome);
        }
        self.with(|line| {
            if line.pause(Instant::now()).is_none() {
                line.standing.remove(&self.number);
                line.asking.insert(self.number, Arc::clone(&self.call));
                line.call_first();
            }
        });
        let mut called_back = pin!(self.called_back());
        poll_fn(|context| {
            if let Poll::Ready(outcome) = limiter.as_mut().poll(context) {
                return Poll::Ready(Some(outcome));
            }
            called_back.as_mut().poll(context).map(|()| None)
        })
        .await
    }

    async fn called_back(&self) {
        while self.with(|line| line.asking.contains_key(&self.number)) {
            self.call.notified().await;
        }
    }

    /// Whether it may go out now. If not, it stands in its place again.
    pub(super) fn may_go(&self) -> bool {
        self.with(|line| line.pause(Instant::now()).is_none())
    }

    fn with<T>(&self, look: impl FnOnce(&mut Line) -> T) -> T {
        let mut state = self.lines.state.lock();
        look(state.by_key.entry(self.id).or_default())
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.lines.state.lock();
        state.standing -= 1;
        let Some(line) = state.by_key.get_mut(&self.id) else {
            return;
        };
        line.asking.remove(&self.number);
        if line.standing.remove(&self.number).is_some() {
            line.call_first();
        }
        if line.is_done(Instant::now()) {
            state.by_key.remove(&self.id);
        }
    }
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("Lines")
            .field("standing", &state.standing)
            .field("keys", &state.by_key.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::timeout;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    /// On another thread, a pause may come between a turn and the limiter.
    #[tokio::test(start_paused = true)]
    async fn nobody_stays_at_the_limiter_during_a_pause() {
        let lines = Lines::default();
        let id = lines.id(&"k".into());
        let place = lines.enter(id).unwrap();
        place.turn(None).await.unwrap();
        lines.pause(id, HOUR);
        let waits = pin!(pending::<()>());
        let called_back = timeout(HOUR / 2, place.ask(waits)).await;
        assert_eq!(called_back, Ok(None));
        assert!(!place.may_go());
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_calls_back_whoever_waits_at_the_limiter() {
        let lines = Arc::new(Lines::default());
        let id = lines.id(&"k".into());
        let inside = Arc::clone(&lines);
        let asking = tokio::spawn(async move {
            let place = inside.enter(id).unwrap();
            place.turn(None).await.unwrap();
            place.ask(pin!(pending::<()>())).await
        });
        let other = Arc::clone(&lines);
        let behind = tokio::spawn(async move {
            let place = other.enter(id).unwrap();
            place.turn(None).await.is_ok()
        });
        // It is let by as soon as the first one waits at the limiter.
        assert!(timeout(HOUR, behind).await.unwrap().unwrap());
        assert!(!asking.is_finished());
        lines.pause(id, HOUR);
        assert_eq!(timeout(HOUR / 2, asking).await.unwrap().unwrap(), None);
    }
}
