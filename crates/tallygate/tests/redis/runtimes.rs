//! A store outlives the runtimes it was used on: what one leaves unfinished holds nobody up on
//! another.

use std::sync::Arc;
use std::time::Duration;

use tallygate::{Limit, Limiter, RedisStore, Request, Store};
use tallygate_testkit::poll;
use tallygate_testkit::proxy::{Mode, Proxy};
use tokio::runtime::{Builder, Runtime};

use crate::fixtures::{
    PATIENCE, UNHARMED, builder, connected, limiter, limits_are_exact, quota, wait,
};
use crate::traffic::PLENTY;

fn another() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().unwrap()
}

/// Leaves calls under way on a runtime that ends.
fn leave_calls_behind(store: &Arc<RedisStore>, proxy: &Proxy) {
    let runtime = another();
    proxy.set(Mode::Hold);
    for _ in 0..300 {
        let store = Arc::clone(store);
        runtime.spawn(async move {
            let limit = Limit::from(quota(PLENTY));
            let request = Request::new("left", &limit);
            let call = store.decide(&request);
            // Those who lead give up, and others go on for them.
            let _ = tokio::time::timeout(Duration::from_millis(20), call).await;
        });
    }
    let busy = runtime.handle().clone();
    poll::until(PATIENCE, "calls are under way", || {
        busy.metrics().num_alive_tasks() > 0
    });
    // The first ones have passed their turn on.
    poll::until(PATIENCE, "calls give up", || {
        busy.metrics().num_alive_tasks() < 200
    });
    runtime.shutdown_background();
    proxy.set(Mode::Pass);
}

#[test]
fn calls_left_behind_by_a_runtime_hold_nobody_up() {
    let proxy = Proxy::to(UNHARMED.port());
    let store = connected(builder(&proxy.url()));
    for _ in 0..5 {
        leave_calls_behind(&store, &proxy);
        limits_are_exact(&store);
    }
}

#[test]
fn a_store_left_alone_by_a_runtime_that_ended_is_asked_again_on_another() {
    let proxy = Proxy::to(UNHARMED.port());
    let store = connected(builder(&proxy.url()));
    let limiter: Limiter<RedisStore> = limiter(&store, PLENTY);
    let is_degraded = || async { limiter.decide(&limiter.request("alone")).await.degraded() };
    proxy.set(Mode::Refuse);
    let runtime = another();
    poll::until(PATIENCE, "the store is left alone", || {
        assert!(runtime.block_on(is_degraded()));
        limiter.store_is_down()
    });
    runtime.shutdown_background();
    proxy.set(Mode::Pass);
    poll::until(
        PATIENCE,
        "the store is asked again",
        || !wait(is_degraded()),
    );
}
