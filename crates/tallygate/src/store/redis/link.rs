//! The parts of a link to a server that perform no I/O and read no clock: when it is silent, and
//! when to connect again.

use std::time::Duration;

use crate::store::breaker::jittered;

/// The backoff after the first failure to connect; it doubles up to the maximum.
const MIN_BACKOFF: Duration = Duration::from_millis(20);
const MAX_BACKOFF: Duration = Duration::from_millis(200);

/// A connection that breaks sooner counts as a failure to connect.
pub(super) const STABLE_AFTER: Duration = Duration::from_secs(1);

/// A server is silent after so many ticks in a row without a reply, while commands are in flight:
/// 250 ms. Ticks of the runtime that reads the replies, so that a stall of this process is one.
const SILENT_TICKS: u32 = 25;
pub(super) const TICK: Duration = Duration::from_millis(10);

/// The pauses between attempts to connect.
pub(super) struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Self {
        Backoff(MIN_BACKOFF)
    }
}

impl Backoff {
    /// The pause before the next attempt. `random` is below
    /// [`RANDOM`](crate::store::breaker::RANDOM).
    pub(super) fn next(&mut self, random: u32) -> Duration {
        let delay = jittered(self.0, random);
        self.0 = (self.0 * 2).min(MAX_BACKOFF);
        delay
    }
}

/// Finds out whether a server has stopped replying.
pub(super) struct Silence {
    /// The number of replies at the last tick.
    received: u64,
    ticks: u32,
}

impl Silence {
    pub(super) fn new(received: u64) -> Self {
        Silence { received, ticks: 0 }
    }

    /// Counts a tick at whose start commands were in flight. Returns whether the server is silent.
    pub(super) fn on_tick(&mut self, received: u64) -> bool {
        self.ticks = if received == self.received {
            self.ticks + 1
        } else {
            0
        };
        self.received = received;
        self.ticks >= SILENT_TICKS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::breaker::RANDOM;

    #[test]
    fn pauses_double_up_to_the_maximum() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u128> = (0..6)
            .map(|_| backoff.next(RANDOM / 2).as_millis())
            .collect();
        assert_eq!(pauses, [20, 40, 80, 160, 200, 200]);
    }

    #[test]
    fn a_server_is_silent_after_a_quarter_of_a_second_without_a_reply() {
        let mut silence = Silence::new(7);
        assert!((1..SILENT_TICKS).all(|_| !silence.on_tick(7)));
        assert!(!silence.on_tick(8));
        assert!((1..SILENT_TICKS).all(|_| !silence.on_tick(8)));
        assert!(silence.on_tick(8));
        assert_eq!(TICK * SILENT_TICKS, Duration::from_millis(250));
    }
}
