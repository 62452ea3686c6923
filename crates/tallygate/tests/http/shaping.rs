//! Shaping holds requests back and lets them go at the drain rate, in order.

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

use crate::support::{Asked, call, from, header, manual};

fn shaped() -> Rule {
    Rule::new(
        "drip",
        "leaky-bucket 10/s queue 4".parse::<Quota>().unwrap(),
    )
}

#[tokio::test(start_paused = true)]
async fn requests_go_ahead_at_the_drain_rate_and_in_order() {
    let (_, store) = manual();
    let layer = RateLimitLayer::with_store(store, shaped());
    let arrived = Arc::new(Mutex::new(Vec::new()));
    let began = Instant::now();
    let mut tasks = Vec::new();
    for i in 0..6_u32 {
        let (layer, arrived) = (layer.clone(), Arc::clone(&arrived));
        let inner = service_fn(move |_: Asked| {
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
        assert!(*at >= Duration::from_millis(100) * *i, "{i} went at {at:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_leaves_frees_its_place() {
    let (_, store) = manual();
    let layer = RateLimitLayer::with_store(store, shaped());
    let never = service_fn(|_: Asked| async {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    });
    assert_eq!(call(&layer, from("192.0.2.1")).await.status(), 200);
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let mut behind = layer.layer(never);
        let mut future = Box::pin(behind.call(from("192.0.2.1")));
        assert!(futures_util::poll!(&mut future).is_pending());
        waiting.push(future);
    }
    assert_eq!(
        call(&layer, from("192.0.2.1")).await.status(),
        429,
        "the queue is full"
    );
    waiting.clear();
    // Dropped waiters carry their places back; that is done at once in this process.
    assert_eq!(call(&layer, from("192.0.2.1")).await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_delay_longer_than_allowed_is_refused_and_costs_nothing() {
    let (clock, store) = manual();
    let rule = shaped().max_delay(Duration::from_millis(150));
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
async fn being_held_back_is_an_outcome_of_its_own() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&seen);
    let layer = RateLimitLayer::with_store(MemoryStore::new(), shaped()).on_decision(
        move |enforcement, _| {
            heard
                .lock()
                .unwrap()
                .extend(enforcement.outcomes().map(|(_, outcome)| outcome));
        },
    );
    call(&layer, from("192.0.2.1")).await;
    call(&layer, from("192.0.2.1")).await;
    assert_eq!(*seen.lock().unwrap(), [Outcome::Admitted, Outcome::Delayed]);
}

#[tokio::test(start_paused = true)]
async fn how_long_a_decision_took_is_told_without_the_wait() {
    let (times, waiting) = (Arc::new(Mutex::new(Vec::new())), Arc::new(()));
    let (heard, held) = (Arc::clone(&times), Arc::clone(&waiting));
    let layer = RateLimitLayer::with_store(MemoryStore::new(), shaped())
        .on_decision(move |enforcement, elapsed| {
            let delay = enforcement.decision().unwrap().delay();
            heard.lock().unwrap().push((delay, elapsed));
        })
        .on_pending(move |plan| {
            assert_eq!(plan.charges().len(), 1);
            Arc::clone(&held)
        });
    // One for the gate's hook, one here: nobody waits.
    assert_eq!(Arc::strong_count(&waiting), 2);
    call(&layer, from("192.0.2.1")).await;
    let mut second = Box::pin(call(&layer, from("192.0.2.1")));
    assert!(futures_util::poll!(&mut second).is_pending());
    assert_eq!(Arc::strong_count(&waiting), 3);
    drop(second);
    assert_eq!(
        Arc::strong_count(&waiting),
        2,
        "a client that left waits no more"
    );
    call(&layer, from("192.0.2.1")).await;
    assert_eq!(Arc::strong_count(&waiting), 2);
    let times = times.lock().unwrap();
    assert_eq!(times.len(), 2);
    assert!(times[0].0.is_zero() && !times[1].0.is_zero(), "{times:?}");
}
