//! The order of requests that wait for capacity: one at a time asks the store, in order of arrival.
//!
//! A turn is a lease. If its holder is not polled until [`GRACE`] after the time at which it would
//! have asked again, the next request takes the turn and does not wait for it any more.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// How late a request may be before it loses its turn.
const GRACE: Duration = Duration::from_millis(100);
/// Later requests check for a lost turn later, so that they do not all wake together.
const STAGGER: Duration = Duration::from_millis(1);

#[derive(Default)]
pub(in crate::engine) struct Turns {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next_number: u64,
    /// Waiting requests by order of arrival, without those that lost their turn.
    waiting: BTreeMap<u64, Arc<Notify>>,
    holder: Option<u64>,
    /// When the holder, or the one that may become it, loses its turn.
    lease_end: Option<Instant>,
}

/// A request's position in the order of arrival. It leaves when dropped.
pub(in crate::engine) struct TurnTicket<'a> {
    turns: &'a Turns,
    number: u64,
    wake: Arc<Notify>,
}

impl Turns {
    /// Draws a number. The request does not wait yet.
    pub(in crate::engine) fn arrive(&self) -> TurnTicket<'_> {
        let mut state = self.state.lock();
        let number = state.next_number;
        state.next_number += 1;
        TurnTicket {
            turns: self,
            number,
            wake: Arc::new(Notify::new()),
        }
    }

    /// Whether no request waits for its turn.
    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.state.lock().waiting.is_empty()
    }
}

impl State {
    /// Gives the turn to a request if it is the first, or those before it have not taken it.
    fn try_hold(&mut self, number: u64, now: Instant) -> bool {
        let lost = self.lease_end.is_some_and(|end| end <= now);
        match self.holder {
            Some(holder) if holder == number => return true,
            Some(_) if !lost => return false,
            Some(holder) => {
                self.waiting.remove(&holder);
                self.holder = None;
            }
            None => {}
        }
        let first = self.waiting.first_key_value().map(|(&first, _)| first);
        let wakes_at = first.and_then(|first| self.check_at(number, first));
        if first != Some(number) && wakes_at.is_none_or(|at| at > now) {
            return false;
        }
        // Those before it have had their time.
        self.waiting = self.waiting.split_off(&number);
        self.holder = Some(number);
        self.lease_end = Some(now + GRACE);
        true
    }

    /// When a request checks whether those before it have lost their turn.
    fn check_at(&self, number: u64, first: u64) -> Option<Instant> {
        let rank = u32::try_from(number.saturating_sub(first)).unwrap_or(u32::MAX);
        self.lease_end?.checked_add(STAGGER * rank)
    }

    fn release(&mut self, number: u64, now: Instant) {
        let first = self.waiting.first_key_value().map(|(&first, _)| first);
        self.waiting.remove(&number);
        if self.holder == Some(number) {
            self.holder = None;
        } else if self.holder.is_some() || first != Some(number) {
            return;
        }
        if let Some((_, next)) = self.waiting.first_key_value() {
            self.lease_end = Some(now + GRACE);
            next.notify_one();
        }
    }
}

impl TurnTicket<'_> {
    /// Waits until it is this request's turn.
    pub(in crate::engine) async fn wait(&self) {
        loop {
            let check_at = {
                let mut state = self.turns.state.lock();
                let now = Instant::now();
                if state.holder.is_none() && state.waiting.is_empty() {
                    state.lease_end = Some(now + GRACE);
                }
                let wake = Arc::clone(&self.wake);
                state.waiting.entry(self.number).or_insert(wake);
                if state.try_hold(self.number, now) {
                    return;
                }
                let first = state.holder.or(state.waiting.keys().next().copied());
                first.and_then(|first| state.check_at(self.number, first))
            };
            let check_at = check_at.unwrap_or_else(|| Instant::now() + GRACE);
            let _ = timeout_at(check_at, self.wake.notified()).await;
        }
    }

    /// Whether it is this request's turn.
    pub(in crate::engine) fn is_held(&self) -> bool {
        self.turns.state.lock().holder == Some(self.number)
    }

    /// Keeps the turn until this request asks again.
    pub(in crate::engine) fn keep_until(&self, again: Instant) {
        let mut state = self.turns.state.lock();
        if state.holder == Some(self.number) {
            state.lease_end = again.checked_add(GRACE);
        }
    }
}

impl Drop for TurnTicket<'_> {
    fn drop(&mut self) {
        let mut state = self.turns.state.lock();
        state.release(self.number, Instant::now());
    }
}
