//! Shaping delays requests and admits them in order at the drain rate.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use tallygate::http::Outcome;
use tallygate::rules::Rule;
use tallygate::tower::RateLimitLayer;
use tallygate::{MemoryStore, Quota};
use tokio::time::Instant;
use tower::{Layer, Service, service_fn};

use crate::support::{
    TestRequest, assert_outcomes, call, from, header, manual_store, record_outcomes,
};

fn shaping_rule() -> Rule {
    Rule::new(
        "drip",
        "leaky-bucket 10/s queue 4".parse::<Quota>().unwrap(),
    )
}

#[tokio::test(start_paused = true)]
async fn requests_reach_the_service_in_order_at_the_drain_rate() {
    let (_, store) = manual_store();
    let layer = RateLimitLayer::with_store(store, shaping_rule());
    let arrived = Arc::new(Mutex::new(Vec::new()));
    let began = Instant::now();
    let mut tasks = Vec::new();
    for i in 0..6_u32 {
        let (layer, arrived) = (layer.clone(), Arc::clone(&arrived));
        let inner = service_fn(move |_: TestRequest| {
            arrived.lock().unwrap().push((i, began.elapsed()));
            async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())) }
        });
        tasks.push(tokio::spawn(async move {
            layer
                .layer(inner)
                .call(from("192.0.2.1"))
                .await
                .unwrap()
                .status()
        }));
        tokio::task::yield_now().await;
    }
    let mut statuses = Vec::new();
    for task in tasks {
        statuses.push(task.await.unwrap().as_u16());
    }
    assert_eq!(statuses, [200, 200, 200, 200, 429, 429]);
    let arrived = arrived.lock().unwrap();
    let order: Vec<u32> = arrived.iter().map(|(i, _)| *i).collect();
    assert_eq!(order, [0, 1, 2, 3]);
    for (i, at) in arrived.iter() {
        assert!(
            *at >= Duration::from_millis(100) * *i,
            "{i} arrived at {at:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_request_leaves_the_queue() {
    let (_, store) = manual_store();
    let layer = RateLimitLayer::with_store(store, shaping_rule());
    let inner = service_fn(|_: TestRequest| async {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    });
    assert_eq!(call(&layer, from("192.0.2.1")).await.status(), 200);
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let mut limited = layer.layer(inner);
        let mut future = Box::pin(limited.call(from("192.0.2.1")));
        assert!(futures_util::poll!(&mut future).is_pending());
        waiting.push(future);
    }
    assert_eq!(
        call(&layer, from("192.0.2.1")).await.status(),
        429,
        "the queue is full"
    );
    waiting.clear();
    // With the memory store, a dropped request is undone immediately.
    assert_eq!(call(&layer, from("192.0.2.1")).await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_delay_above_max_delay_is_refused_and_not_charged() {
    let (clock, store) = manual_store();
    let rule = shaping_rule().max_delay(Duration::from_millis(150));
    let layer = RateLimitLayer::with_store(store, rule);
    assert_eq!(call(&layer, from("192.0.2.1")).await.status(), 200);
    assert_eq!(
        call(&layer, from("192.0.2.1")).await.status(),
        200,
        "100 ms are allowed"
    );
    for _ in 0..3 {
        let refused = call(&layer, from("192.0.2.1")).await;
        assert_eq!(refused.status(), 429, "200 ms are not");
        assert_eq!(header(&refused, "retry-after"), Some("1"));
    }
    clock.advance(Duration::from_secs(1));
    assert_eq!(call(&layer, from("192.0.2.1")).await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_request_has_its_own_outcome() {
    let layer = RateLimitLayer::with_store(MemoryStore::new(), shaping_rule());
    let (layer, outcomes) = record_outcomes(layer);
    call(&layer, from("192.0.2.1")).await;
    call(&layer, from("192.0.2.1")).await;
    let expected = [("drip", Outcome::Admitted), ("drip", Outcome::Delayed)];
    assert_outcomes(&outcomes, &expected);
}

#[tokio::test(start_paused = true)]
async fn the_reported_decision_time_excludes_the_delay() {
    let (times, pending) = (Arc::new(Mutex::new(Vec::new())), Arc::new(()));
    let (recorded, guard) = (Arc::clone(&times), Arc::clone(&pending));
    let layer = RateLimitLayer::with_store(MemoryStore::new(), shaping_rule())
        .on_decision(move |enforcement, elapsed| {
            let delay = enforcement.decision().unwrap().delay();
            recorded.lock().unwrap().push((delay, elapsed));
        })
        .on_pending(move |plan| {
            assert_eq!(plan.charges().len(), 1);
            Arc::clone(&guard)
        });
    // One in the hook and one here: no request is pending.
    assert_eq!(Arc::strong_count(&pending), 2);
    call(&layer, from("192.0.2.1")).await;
    let mut second = Box::pin(call(&layer, from("192.0.2.1")));
    assert!(futures_util::poll!(&mut second).is_pending());
    assert_eq!(Arc::strong_count(&pending), 3);
    drop(second);
    assert_eq!(
        Arc::strong_count(&pending),
        2,
        "a dropped request is not pending"
    );
    call(&layer, from("192.0.2.1")).await;
    assert_eq!(Arc::strong_count(&pending), 2);
    let times = times.lock().unwrap();
    assert_eq!(times.len(), 2);
    assert!(times[0].0.is_zero() && !times[1].0.is_zero(), "{times:?}");
}
