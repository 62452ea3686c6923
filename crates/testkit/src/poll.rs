//! Polls for a condition, with a timeout.

use std::thread;
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_millis(5);

/// Waits until a condition holds.
///
/// # Panics
///
/// Panics with `what` if it does not hold within the bound.
#[track_caller]
pub fn until(bound: Duration, what: &str, condition: impl FnMut() -> bool) {
    assert!(within(bound, condition), "not within {bound:?}: {what}");
}

/// Waits until a condition holds; returns whether it did within the bound.
#[must_use]
pub fn within(bound: Duration, mut condition: impl FnMut() -> bool) -> bool {
    first(bound, || condition().then_some(())).is_some()
}

/// Waits until a function returns `Some`, within the bound.
#[must_use]
pub fn first<T>(bound: Duration, mut poll: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        if let Some(value) = poll() {
            return Some(value);
        }
        if start.elapsed() >= bound {
            return None;
        }
        thread::sleep(INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_polled_until_it_holds() {
        let mut polls = 0;
        until(Duration::from_secs(5), "polled three times", || {
            polls += 1;
            polls == 3
        });
        assert_eq!(polls, 3);
    }

    #[test]
    #[should_panic(expected = "not within 0ns: never true")]
    fn a_timeout_names_the_condition() {
        until(Duration::ZERO, "never true", || false);
    }
}
