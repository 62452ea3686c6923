//! Those who were admitted with a delay and sit it out, in the order of the schedule.
//!
//! Only the first of a row sleeps; it wakes the next one when its turn has come. A seat that is
//! given up early passes to the next one, whose own passes to the one after, and so on; what the
//! last one leaves is given back to the store.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use smallvec::SmallVec;
use tallygate_core::Verb;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::decision::Decision;
use crate::request::{Asked, Request};
use crate::store::Store;

/// The seats of one line.
#[derive(Default)]
pub(super) struct Seats {
    row: Mutex<Row>,
}

/// Seats by the time between them, so that all behind one move up when it goes.
#[derive(Default)]
struct Row {
    seats: VecDeque<Seat>,
    next_number: u64,
    /// When the turn of the first one comes.
    first_at: Option<Instant>,
    /// When the last one is through.
    end: Option<Instant>,
}

struct Seat {
    number: u64,
    /// How long after the one before is through: others of the schedule, who do not wait here,
    /// are in between.
    gap: Duration,
    place: Place,
    first: Arc<Notify>,
}

/// How much of the schedule a seat takes up.
#[derive(Clone)]
struct Place {
    lasts: Duration,
    /// Of each limit that shapes.
    units: SmallVec<[u32; 2]>,
    /// How long one unit lasts: where less than that is in between, nobody is.
    one: Duration,
}

impl Place {
    fn of(request: &Request<'_>) -> Self {
        let mut place = Place {
            lasts: Duration::ZERO,
            units: shaping(request).map(Asked::units).collect(),
            one: Duration::MAX,
        };
        for asked in charged(request) {
            let quota = asked.limit.quota();
            let lasts = |units: u32| {
                let limit = u128::from(quota.limit());
                let nanos = quota.period().as_nanos() * u128::from(units) / limit;
                Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
            };
            place.lasts = place.lasts.max(lasts(asked.units()));
            place.one = place.one.min(lasts(1));
        }
        place
    }

    /// Whether it is the same of every schedule, so that a seat can be had for another.
    fn is_even(&self) -> bool {
        self.units.windows(2).all(|pair| pair[0] == pair[1])
    }
}

/// The limits that may make a request wait for its turn.
pub(super) fn charged<'r, 'a>(request: &'r Request<'a>) -> impl Iterator<Item = &'r Asked<'a>> {
    shaping(request).filter(|asked| asked.units() > 0)
}

fn shaping<'r, 'a>(request: &'r Request<'a>) -> impl Iterator<Item = &'r Asked<'a>> {
    let shapes = |asked: &&Asked<'_>| asked.limit.quota().algorithm().is_shaping();
    request.asked().iter().filter(shapes)
}

/// A seat that somebody sits on; dropped early, it is given up.
pub(super) struct TakenSeat<'a, 'r, S: Store> {
    row: &'a Mutex<Row>,
    number: u64,
    /// When its turn comes at the latest.
    at: Instant,
    first: Arc<Notify>,
    store: &'a Arc<S>,
    request: &'a Request<'r>,
    /// Whether the store has it: a decision made without it took nothing there.
    stored: bool,
}

impl Seats {
    /// Takes the last seat, its turn coming after the delay of the request's decision.
    pub(super) fn take<'a, 'r, S: Store>(
        &'a self,
        store: &'a Arc<S>,
        request: &'a Request<'r>,
        decision: &Decision,
    ) -> TakenSeat<'a, 'r, S> {
        let first = Arc::new(Notify::new());
        let mut row = self.row.lock();
        let (number, at) = row.push(Place::of(request), decision.delay(), Arc::clone(&first));
        TakenSeat {
            row: &self.row,
            number,
            at,
            first,
            store,
            request,
            stored: !decision.degraded(),
        }
    }
}

impl Row {
    fn push(&mut self, place: Place, delay: Duration, first: Arc<Notify>) -> (u64, Instant) {
        let number = self.next_number;
        self.next_number += 1;
        let mut at = Instant::now() + delay;
        let mut gap = Duration::ZERO;
        match self.end {
            Some(end) if !self.seats.is_empty() => {
                // Two readings of the clock make the same moment differ a little.
                at = at.max(end);
                gap = at - end;
            }
            Some(_) | None => {
                self.first_at = Some(at);
                first.notify_one();
            }
        }
        self.end = Some(at + place.lasts);
        self.seats.push_back(Seat {
            number,
            gap,
            place,
            first,
        });
        (number, at)
    }

    /// Takes the first seat away, its turn having come.
    fn serve(&mut self) {
        if let Some(served) = self.seats.pop_front() {
            self.first_at = self.first_at.map(|at| at + served.place.lasts);
            self.call_first();
        }
    }

    /// Finds out when the turn of the new first seat comes and wakes whoever sits there.
    fn call_first(&mut self) {
        if let Some(first) = self.seats.front_mut() {
            self.first_at = self.first_at.map(|at| at + first.gap);
            first.gap = Duration::ZERO;
            first.first.notify_one();
        }
    }

    /// Takes a seat away and lets those behind it move up; gives the units left at the tail.
    fn give_up(&mut self, number: u64) -> SmallVec<[u32; 2]> {
        let place = self.seats.binary_search_by_key(&number, |seat| seat.number);
        let Some(left) = place
            .ok()
            .and_then(|at| self.seats.remove(at).zip(Some(at)))
        else {
            return SmallVec::new();
        };
        let (Seat { gap, place, .. }, left) = left;
        let units = self.fill(left, gap, place);
        if left == 0 {
            self.call_first();
        }
        units
    }

    /// Fills a hole that begins `before` after the seat ahead of `at`.
    fn fill(&mut self, mut at: usize, mut before: Duration, mut hole: Place) -> SmallVec<[u32; 2]> {
        while let Some(seat) = self.seats.get_mut(at) {
            if !(hole.is_even() && seat.place.is_even()) {
                // One schedule would let it move up and another not: it stays.
                seat.gap += before + hole.lasts;
                return SmallVec::new();
            }
            if seat.gap < seat.place.one {
                // Nobody is in between: it moves up by the whole hole, which is behind it now.
                seat.gap += before;
                before = Duration::ZERO;
                at += 1;
                continue;
            }
            if seat.place.lasts > hole.lasts {
                // Too large for the hole: it stays, and so do all behind it.
                seat.gap += before + hole.lasts;
                return SmallVec::new();
            }
            // It fits into the hole, and its own place is the hole for the next.
            let between = seat.gap + hole.lasts - seat.place.lasts;
            seat.gap = before;
            before = between;
            hole = seat.place.clone();
            at += 1;
        }
        self.shorten(before + hole.lasts);
        hole.units
    }

    fn shorten(&mut self, by: Duration) {
        self.end = self.end.and_then(|end| end.checked_sub(by));
    }
}

impl<S: Store> TakenSeat<'_, '_, S> {
    /// How long until its turn comes at the latest.
    pub(super) fn wait(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    /// Waits for its turn.
    pub(super) async fn sit_out(self) {
        self.first.notified().await;
        let at = self.row.lock().first_at;
        if let Some(at) = at {
            sleep_until(at).await;
        }
        self.row.lock().serve();
    }
}

impl<S: Store> Drop for TakenSeat<'_, '_, S> {
    fn drop(&mut self) {
        // Whoever was served has no seat any more.
        let units = self.row.lock().give_up(self.number);
        if !self.stored {
            return;
        }
        // The schedule only: what windows and other buckets counted may be of the past by now,
        // and giving it back would let others have more than their limit.
        let asked = shaping(self.request).zip(units);
        let mut asked = asked.filter(|(_, units)| *units > 0);
        let Some((first, units)) = asked.next() else {
            return;
        };
        let refund = Request::new(&first.key, first.limit).cost(units);
        let refund = asked.try_fold(refund, |refund, (asked, units)| {
            refund.and_cost(&asked.key, asked.limit, units)
        });
        if let Ok(refund) = refund {
            self.store.carry_out(&refund.verb(Verb::Refund));
        }
    }
}
