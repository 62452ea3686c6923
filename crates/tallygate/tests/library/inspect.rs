//! `MemoryStore::inspect` shows every state, and changes and creates nothing.

use std::sync::Arc;
use std::time::Duration;

use tallygate::store::CounterState;
use tallygate::{Key, Limit, ManualClock, MemoryStore, Quota, Request};

const SECOND: u64 = 1_000_000;

#[test]
fn inspect_shows_the_current_state_and_creates_no_counter() {
    let clock = Arc::new(ManualClock::at(100 * SECOND));
    let store = MemoryStore::builder().clock(Arc::clone(&clock)).build();
    let key = Key::from("a");
    for (text, now, later) in [
        (
            "fixed-window 9/10s",
            CounterState::Window {
                start_us: 100 * SECOND,
                end_us: 110 * SECOND,
                used: 4,
            },
            CounterState::Window {
                start_us: 110 * SECOND,
                end_us: 120 * SECOND,
                used: 0,
            },
        ),
        (
            "9/10s",
            CounterState::Windows {
                start_us: 100 * SECOND,
                end_us: 110 * SECOND,
                previous: 0,
                current: 4,
            },
            CounterState::Windows {
                start_us: 110 * SECOND,
                end_us: 120 * SECOND,
                previous: 4,
                current: 0,
            },
        ),
        (
            "sliding-window-log 9/20s",
            CounterState::Log {
                entries: vec![(100 * SECOND, 4)],
            },
            CounterState::Log {
                entries: vec![(100 * SECOND, 4)],
            },
        ),
        (
            "token-bucket 1/4s burst 9",
            CounterState::Level { used_milli: 4_000 },
            CounterState::Level { used_milli: 1_500 },
        ),
    ] {
        let limit = Limit::from(text.parse::<Quota>().unwrap());
        clock.set(100 * SECOND);
        let keys = store.live_keys();
        let before = store.inspect(&key, &limit);
        assert_eq!(store.live_keys(), keys, "inspect created a counter");
        assert_eq!(before.now_us, 100 * SECOND);
        let _ = store.decide(&Request::new(&key, &limit).cost(4));
        assert_eq!(store.inspect(&key, &limit).state, now, "{text}");
        assert_eq!(
            store.inspect(&key, &limit).state,
            now,
            "inspect changed the state"
        );
        clock.advance(Duration::from_secs(10));
        let snapshot = store.inspect(&key, &limit);
        assert_eq!(
            (snapshot.now_us, snapshot.state),
            (110 * SECOND, later),
            "{text}"
        );
    }
    let log = Limit::from("sliding-window-log 9/20s".parse::<Quota>().unwrap());
    let entries = Vec::new();
    assert_eq!(
        store.inspect(&"b".into(), &log).state,
        CounterState::Log { entries }
    );
}
