//! What waits for a server is bounded.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tollgate::{Limit, Request, Store, StoreErrorKind};
use tollgate_testkit::poll;
use tollgate_testkit::proxy::{Mode, Proxy};

use crate::ground::{PATIENCE, UNHARMED, builder, connected, patient, quota, runtime, used, wait};
use crate::load::PLENTY;

/// What may wait, and what is under way besides.
const ROOM: u64 = 16_384 + 2;
const MORE: u64 = 500;

fn the_queue_is_bounded(batching: bool) {
    let proxy = Proxy::to(UNHARMED.port());
    let long = Duration::from_secs(60);
    let builder = builder(&proxy.url()).batching(batching).answer_within(long);
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
    assert!(turned_away <= MORE + 2, "{turned_away} turned away");
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
