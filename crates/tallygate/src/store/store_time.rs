//! What is known of a store's present time from one of its replies.

/// Clocks may differ in speed by one in this many.
const DRIFT: u64 = 1_000;

/// When a request was sent and its reply received, by the local clock, and decided, by the store's.
/// All in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    pub(crate) sent_us: u64,
    pub(crate) received_us: u64,
    pub(crate) found_us: u64,
}

impl Timing {
    /// The earliest time that the store may have now.
    pub(crate) fn min_store_time(&self, now_us: u64) -> u64 {
        let elapsed = now_us.saturating_sub(self.received_us);
        self.found_us + (elapsed - elapsed / DRIFT)
    }

    /// The latest time that the store may have now.
    pub(crate) fn max_store_time(&self, now_us: u64) -> u64 {
        let elapsed = now_us.saturating_sub(self.sent_us);
        self.found_us + elapsed + elapsed.div_ceil(DRIFT) + 1
    }

    /// A local time before which the store's time is certainly before `store_us`.
    pub(crate) fn before_store_time(&self, store_us: u64) -> u64 {
        let left = store_us.saturating_sub(self.found_us + 2);
        self.sent_us + left - left.div_ceil(DRIFT + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn before_a_store_time_the_latest_possible_time_has_not_reached_it() {
        for sent_us in [0, 7, 1_000_003] {
            for left in (0..5_000).chain([999_999, 1_000_000, 1_000_001, 60_000_000]) {
                let timing = Timing {
                    sent_us,
                    received_us: sent_us + 300,
                    found_us: 1_700_000_000_000_000,
                };
                let end = timing.found_us + left;
                let before = timing.before_store_time(end);
                let last = before.checked_sub(1).filter(|last| *last >= sent_us);
                assert!(
                    last.is_none_or(|last| timing.max_store_time(last) < end),
                    "{left}"
                );
                // And hardly earlier.
                assert!(
                    timing.max_store_time(before + 4) + left / 900 + 4 >= end,
                    "{left}"
                );
            }
        }
    }
}
