//! Waiting for a state by asking for it, with a bound. Knows nothing of what is asked.

use std::thread;
use std::time::{Duration, Instant};

/// How often a question is asked again.
const PAUSE: Duration = Duration::from_millis(5);

/// Waits until a condition holds.
///
/// # Panics
///
/// Panics, naming what was waited for, if it does not hold within the bound.
#[track_caller]
pub fn until(bound: Duration, what: &str, condition: impl FnMut() -> bool) {
    assert!(within(bound, condition), "not within {bound:?}: {what}");
}

/// Waits until a condition holds and says whether it did within the bound.
#[must_use]
pub fn within(bound: Duration, mut condition: impl FnMut() -> bool) -> bool {
    first(bound, || condition().then_some(())).is_some()
}

/// Waits for the first answer to a question; none if there is none within the bound.
#[must_use]
pub fn first<T>(bound: Duration, mut question: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        if let Some(answer) = question() {
            return Some(answer);
        }
        if start.elapsed() >= bound {
            return None;
        }
        thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_asked_until_it_holds() {
        let mut asked = 0;
        until(Duration::from_secs(5), "asked three times", || {
            asked += 1;
            asked == 3
        });
        assert_eq!(asked, 3);
    }

    #[test]
    #[should_panic(expected = "not within 0ns: pigs fly")]
    fn what_never_holds_is_named() {
        until(Duration::ZERO, "pigs fly", || false);
    }
}
