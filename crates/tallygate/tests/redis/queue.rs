//! The bound of the queue of a connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tallygate::store::StoreErrorKind;
use tallygate::{Limit, Request, Store};
use tallygate_testkit::poll;
use tallygate_testkit::proxy::{Mode, Proxy};

use crate::fixtures::{
    HEALTHY, TIMEOUT, block_on, builder, connected, patient_limiter, quota, runtime, used,
};
use crate::traffic::LARGE_QUOTA;

/// Requests in flight: two batches.
const IN_FLIGHT: u64 = 2 * 128;
/// Queued requests and requests in flight.
const CAPACITY: u64 = 16_384 + IN_FLIGHT;
const MORE: u64 = 500;

fn the_queue_is_bounded(batching: bool) {
    let proxy = Proxy::to(HEALTHY.port());
    let long = Duration::from_secs(60);
    let builder = builder(&proxy.url())
        .batching(batching)
        .response_timeout(long);
    let store = connected(builder);
    let limit = Limit::from(quota(LARGE_QUOTA));
    assert!(block_on(store.decide(&Request::new("queue", &limit))).is_ok());
    proxy.set(Mode::Hold);
    let rejected = Arc::new(AtomicU64::new(0));
    let granted = Arc::new(AtomicU64::new(0));
    let calls: Vec<_> = (0..CAPACITY + MORE)
        .map(|i| {
            let (store, limit) = (store.clone(), limit.clone());
            let (rejected, granted) = (Arc::clone(&rejected), Arc::clone(&granted));
            // Two costs in turn: not coalesced.
            let cost = 1 + u32::try_from(i % 2).unwrap();
            runtime().spawn(async move {
                match store
                    .decide(&Request::new("queue", &limit).cost(cost))
                    .await
                {
                    Ok(decision) => {
                        assert!(decision.allowed());
                        granted.fetch_add(cost.into(), Relaxed);
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), StoreErrorKind::Overloaded, "{error}");
                        rejected.fetch_add(1, Relaxed);
                    }
                }
            })
        })
        .collect();
    poll::until(TIMEOUT, "the rest is rejected", || {
        rejected.load(Relaxed) >= MORE
    });
    proxy.set(Mode::Pass);
    for call in calls {
        block_on(call).unwrap();
    }
    let rejected = rejected.load(Relaxed);
    assert!(rejected <= MORE + IN_FLIGHT, "{rejected} rejected");
    // All others were decided, and only they were counted.
    let counted = used(&patient_limiter(&store, LARGE_QUOTA), "queue");
    assert_eq!(counted, 1 + granted.load(Relaxed));
}

#[test]
fn too_many_batched_calls_fail_as_overloaded() {
    the_queue_is_bounded(true);
}

#[test]
fn too_many_unbatched_calls_fail_as_overloaded() {
    the_queue_is_bounded(false);
}

#[test]
fn a_call_with_a_supplied_time_is_not_batched() {
    let store = connected(builder(&HEALTHY.url()));
    let limit = Limit::from(quota("fixed-window 5/s"));
    let calls: Vec<_> = (0..2_000_u64)
        .map(|i| {
            let (store, limit) = (store.clone(), limit.clone());
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
        block_on(call).unwrap();
    }
}
