//! Tests without sleeps: a clock that is advanced by hand.
//!
//! `cargo run -p tallygate --example custom_clock`; `cargo test` runs the test below.

use std::sync::Arc;
use std::time::Duration;

use tallygate::{Clock, Limiter, ManualClock, MemoryStore, Quota};

/// A login with at most three attempts per minute.
struct Login<C: Clock> {
    limiter: Limiter<MemoryStore<C>>,
}

impl<C: Clock> Login<C> {
    fn new(clock: C) -> Result<Self, tallygate::QuotaError> {
        let quota: Quota = "sliding-window-log 3/min".parse()?;
        let store = MemoryStore::builder().capacity(10_000).clock(clock).build();
        Ok(Login {
            limiter: Limiter::with_store(store, quota),
        })
    }

    fn may_try(&self, user: &str) -> bool {
        self.limiter.check(user).allowed()
    }
}

#[expect(clippy::print_stdout, reason = "an example prints its result")]
fn main() -> Result<(), tallygate::QuotaError> {
    let clock = Arc::new(ManualClock::at(1_700_000_000_000_000));
    let login = Login::new(Arc::clone(&clock))?;
    for attempt in 1..=4 {
        println!("attempt {attempt}: {}", login.may_try("ann"));
    }
    clock.advance(Duration::from_secs(60));
    println!("a minute later: {}", login.may_try("ann"));
    Ok(())
}

#[test]
fn the_fourth_try_of_a_minute_is_refused_and_the_next_minute_is_free() {
    let clock = Arc::new(ManualClock::at(1_700_000_000_000_000));
    let login = Login::new(Arc::clone(&clock)).unwrap();
    assert!((0..3).all(|_| login.may_try("ann")));
    assert!(!login.may_try("ann"));
    clock.advance(Duration::from_micros(59_999_999));
    assert!(!login.may_try("ann"));
    clock.advance(Duration::from_micros(1));
    assert!(login.may_try("ann"));
}
