//! Those who were admitted with a delay and sit it out. A seat that is given up early passes to
//! the next one, whose own passes to the one after; what the last one leaves is given back to
//! the store.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tollgate_core::Verb;

use crate::request::Request;
use crate::store::Store;

/// The seats of one line, in the order of the schedule.
#[derive(Default)]
pub(super) struct Seats {
    row: Mutex<Row>,
}

#[derive(Default)]
struct Row {
    next: u64,
    seats: VecDeque<Seat>,
}

struct Seat {
    number: u64,
    /// When its turn comes.
    at: Instant,
    /// How much of the schedule it takes up.
    lasts: Duration,
    moved: Arc<Notify>,
}

/// A seat that somebody sits on; dropped early, it is given up.
pub(super) struct TakenSeat<'a, 'r, S: Store> {
    row: &'a Mutex<Row>,
    number: u64,
    moved: Arc<Notify>,
    store: &'a Arc<S>,
    request: &'a Request<'r>,
    served: bool,
}

impl Seats {
    /// Takes the last seat, its turn coming after `delay`.
    pub(super) fn take<'a, 'r, S: Store>(
        &'a self,
        store: &'a Arc<S>,
        request: &'a Request<'r>,
        delay: Duration,
    ) -> TakenSeat<'a, 'r, S> {
        let shaping = request.asked().iter().filter_map(|asked| {
            let quota = asked.limit.quota();
            quota
                .algorithm()
                .shapes()
                .then(|| quota.drain_us(request.units()))
        });
        let mut row = self.row.lock();
        let number = row.next;
        row.next += 1;
        let moved = Arc::new(Notify::new());
        row.seats.push_back(Seat {
            number,
            at: Instant::now() + delay,
            lasts: Duration::from_micros(shaping.max().unwrap_or(0)),
            moved: Arc::clone(&moved),
        });
        TakenSeat {
            row: &self.row,
            number,
            moved,
            store,
            request,
            served: false,
        }
    }
}

impl Row {
    fn position(&self, number: u64) -> Option<usize> {
        self.seats.iter().position(|seat| seat.number == number)
    }

    /// Lets everybody behind a seat move up by one and takes the seat away.
    fn give_up(&mut self, number: u64) {
        let Some(place) = self.position(number) else {
            return;
        };
        let Some(left) = self.seats.remove(place) else {
            return;
        };
        // Each moves to where the one before it was, but not into what that one now takes up.
        let mut free_from = left.at;
        let mut taken_until = left.at;
        for seat in self.seats.range_mut(place..) {
            let was_at = seat.at;
            seat.at = free_from.max(taken_until);
            taken_until = seat.at + seat.lasts;
            free_from = was_at;
            seat.moved.notify_one();
        }
    }
}

impl<S: Store> TakenSeat<'_, '_, S> {
    /// Waits for its turn.
    pub(super) async fn sit_out(mut self) {
        loop {
            let at = {
                let row = self.row.lock();
                row.position(self.number).map(|place| row.seats[place].at)
            };
            let Some(at) = at else { break };
            if timeout_at(at, self.moved.notified()).await.is_err() {
                break;
            }
        }
        self.served = true;
    }
}

impl<S: Store> Drop for TakenSeat<'_, '_, S> {
    fn drop(&mut self) {
        let mut row = self.row.lock();
        if self.served {
            if let Some(place) = row.position(self.number) {
                row.seats.remove(place);
            }
            return;
        }
        row.give_up(self.number);
        drop(row);
        let refund = self.request.clone().verb(Verb::Refund);
        self.store.carry_out(&refund);
    }
}
