//! How many batches may be in flight: enough that the server never waits for the link.
//!
//! On a short link two suffice: the server decides one while this process handles the other. On a
//! long one the server has decided both long before the next arrives. The number follows the round
//! trip as in TCP Vegas: it grows while replies take hardly longer than over an idle link, and
//! shrinks when batches wait at the server.

use std::time::Duration;

/// The least number of batches in flight before requests queue.
pub(super) const MIN_IN_FLIGHT: usize = 2;
const MAX_IN_FLIGHT: usize = 16;
/// The shortest round trip is forgotten after so many full batches: the link may have become longer.
const BASE_VALID: u32 = 20_000;

/// Performs no I/O and reads no clock.
pub(super) struct InFlightLimit {
    batches: usize,
    /// The shortest round trip, of any batch.
    base: Duration,
    /// The same since the last time that `base` was replaced.
    next_base: Duration,
    replies: u32,
    /// Replies since the number has changed: it changes once in a round trip.
    since_change: usize,
}

impl Default for InFlightLimit {
    fn default() -> Self {
        InFlightLimit {
            batches: MIN_IN_FLIGHT,
            base: Duration::MAX,
            next_base: Duration::MAX,
            replies: 0,
            since_change: 0,
        }
    }
}

impl InFlightLimit {
    pub(super) fn batches(&self) -> usize {
        self.batches
    }

    /// Learns from the round trip of a batch. Only full ones say whether more should be in flight.
    pub(super) fn on_reply(&mut self, is_full: bool, round_trip: Duration) {
        self.base = self.base.min(round_trip);
        self.next_base = self.next_base.min(round_trip);
        if !is_full {
            return;
        }
        self.replies += 1;
        if self.replies == BASE_VALID {
            self.base = std::mem::replace(&mut self.next_base, Duration::MAX);
            self.replies = 0;
        }
        self.since_change += 1;
        if self.since_change < self.batches {
            return;
        }
        self.since_change = 0;
        // The time that batches wait at the server, in round trips.
        let waits = round_trip.saturating_sub(self.base) * u32::try_from(self.batches).unwrap_or(0);
        if waits < round_trip {
            self.batches = MAX_IN_FLIGHT.min(self.batches + 1);
        } else if waits > round_trip * 2 {
            self.batches = MIN_IN_FLIGHT.max(self.batches - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER_TIME: u64 = 300;

    fn micros(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    /// The number it arrives at on a link, if the server takes 300 µs for a batch, and the clients are
    /// never at rest.
    fn settled(limit: &mut InFlightLimit, link_us: u64) -> usize {
        for _ in 0..2_000 {
            let at_server = SERVER_TIME * limit.batches() as u64;
            limit.on_reply(true, micros(at_server.max(link_us + SERVER_TIME)));
        }
        limit.batches()
    }

    #[test]
    fn it_follows_the_round_trip() {
        for (link_us, expected) in [(50, 2..=2), (300, 2..=3), (1_000, 4..=7), (10_000, 16..=16)] {
            let mut limit = InFlightLimit::default();
            // Small batches come first.
            limit.on_reply(false, micros(link_us + 10));
            let batches = settled(&mut limit, link_us);
            assert!(expected.contains(&batches), "{link_us} us: {batches}");
        }
    }

    #[test]
    fn small_batches_change_nothing() {
        let mut limit = InFlightLimit::default();
        for _ in 0..1_000 {
            limit.on_reply(false, micros(10_000));
        }
        assert_eq!(limit.batches(), MIN_IN_FLIGHT);
    }

    #[test]
    fn it_shrinks_when_the_server_becomes_the_bottleneck() {
        let mut limit = InFlightLimit::default();
        limit.on_reply(false, micros(5_000));
        assert_eq!(settled(&mut limit, 5_000), MAX_IN_FLIGHT);
        for _ in 0..1_000 {
            // Each batch takes 3 ms now.
            limit.on_reply(true, micros(3_000 * limit.batches() as u64));
        }
        assert!(limit.batches() < 6, "{}", limit.batches());
    }

    #[test]
    fn a_link_that_becomes_longer_is_noticed() {
        let mut limit = InFlightLimit::default();
        limit.on_reply(false, micros(60));
        assert_eq!(settled(&mut limit, 50), MIN_IN_FLIGHT);
        for _ in 0..3 * BASE_VALID {
            limit.on_reply(true, micros(10_300));
        }
        assert_eq!(settled(&mut limit, 10_000), MAX_IN_FLIGHT);
    }
}
