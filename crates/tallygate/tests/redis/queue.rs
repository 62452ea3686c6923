//! What waits for a server is bounded.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tallygate::{Limit, Request, Store, StoreErrorKind};
use tallygate_testkit::poll;
use tallygate_testkit::proxy::{Mode, Proxy};

use crate::fixtures::{
    PATIENCE, UNHARMED, builder, connected, patient, quota, runtime, used, wait,
};
use crate::traffic::PLENTY;

/// How many may be under way while others wait: two calls of so many.
const UNDER_WAY: u64 = 2 * 128;
/// What may wait, and what may be under way besides.
const ROOM: u64 = 16_384 + UNDER_WAY;
const MORE: u64 = 500;

fn the_queue_is_bounded(batching: bool) {
    let proxy = Proxy::to(UNHARMED.port());
    let long = Duration::from_secs(60);
    let builder = builder(&proxy.url())
        .batching(batching)
        .response_timeout(long);
    let store = connected(builder);
    let limit = Limit::from(quota(PLENTY));
    assert!(wait(store.decide(&Request::new("queue", &limit))).is_ok());
    proxy.set(Mode::Hold);
    let turned_away = Arc::new(AtomicU64::new(0));
    let calls: Vec<_> = (0..ROOM + MORE)
        .map(|_| {
            let (store, limit) = (Arc::clone(&store), limit.clone());
            let turned_away = Arc::clone(&turned_away);
            runtime().spawn(async move {
                match store.decide(&Request::new("queue", &limit)).await {
                    Ok(decision) => assert!(decision.allowed()),
                    Err(error) => {
                        assert_eq!(error.kind(), StoreErrorKind::Overloaded, "{error}");
                        turned_away.fetch_add(1, Relaxed);
                    }
                }
            })
        })
        .collect();
    poll::until(PATIENCE, "the rest is turned away", || {
        turned_away.load(Relaxed) >= MORE
    });
    proxy.set(Mode::Pass);
    for call in calls {
        wait(call).unwrap();
    }
    let turned_away = turned_away.load(Relaxed);
    assert!(turned_away <= MORE + UNDER_WAY, "{turned_away} turned away");
    // The others all got their answer, and those alone were counted.
    let counted = used(&patient(&store, PLENTY), "queue");
    assert_eq!(counted, 1 + ROOM + MORE - turned_away);
}

#[test]
fn too_many_calls_together_are_turned_away() {
    the_queue_is_bounded(true);
}

#[test]
fn too_many_calls_each_by_itself_are_turned_away() {
    the_queue_is_bounded(false);
}

#[test]
fn a_call_at_a_time_of_its_own_travels_with_nobody() {
    let store = connected(builder(&UNHARMED.url()));
    let limit = Limit::from(quota("fixed-window 5/s"));
    let calls: Vec<_> = (0..2_000_u64)
        .map(|i| {
            let (store, limit) = (Arc::clone(&store), limit.clone());
            runtime().spawn(async move {
                let key = i.to_string();
                let request = Request::new(&key, &limit);
                if i % 2 == 0 {
                    assert!(store.decide(&request).await.unwrap().allowed());
                    return;
                }
                let decision = store.decide_at(&request, 7_000_000 + i).await.unwrap();
                let left = Duration::from_micros(1_000_000 - i);
                assert_eq!(decision.reset_after(), left);
            })
        })
        .collect();
    for call in calls {
        wait(call).unwrap();
    }
}
