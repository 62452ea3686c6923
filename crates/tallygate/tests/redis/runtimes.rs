//! A store outlives the runtimes it is used on: calls abandoned on one do not block another.

use std::time::Duration;

use tallygate::{Limit, Limiter, RedisStore, Request, Store};
use tallygate_testkit::poll;
use tallygate_testkit::proxy::{Mode, Proxy};
use tokio::runtime::{Builder, Runtime};

use crate::fixtures::{
    HEALTHY, TIMEOUT, block_on, builder, connected, limiter, limits_are_exact, patient_limiter,
    quota, used,
};
use crate::traffic::LARGE_QUOTA;

fn new_runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().unwrap()
}

/// Abandons calls on a runtime that shuts down.
fn abandon_calls(store: &RedisStore, proxy: &Proxy) {
    let runtime = new_runtime();
    proxy.set(Mode::Hold);
    for _ in 0..300 {
        let store = store.clone();
        runtime.spawn(async move {
            let limit = Limit::from(quota(LARGE_QUOTA));
            let request = Request::new("left", &limit);
            let call = store.decide(&request);
            // The callers that hold permits give up; queued calls follow.
            let _ = tokio::time::timeout(Duration::from_millis(20), call).await;
        });
    }
    let busy = runtime.handle().clone();
    poll::until(TIMEOUT, "calls are under way", || {
        busy.metrics().num_alive_tasks() > 0
    });
    // The first ones have passed on their permits.
    poll::until(TIMEOUT, "calls give up", || {
        busy.metrics().num_alive_tasks() < 200
    });
    runtime.shutdown_background();
    proxy.set(Mode::Pass);
}

#[test]
fn abandoned_calls_do_not_block_another_runtime() {
    let proxy = Proxy::to(HEALTHY.port());
    let store = connected(builder(&proxy.url()));
    for _ in 0..5 {
        abandon_calls(&store, &proxy);
        limits_are_exact(&store);
    }
}

#[test]
fn a_store_that_failed_on_one_runtime_recovers_on_another() {
    let proxy = Proxy::to(HEALTHY.port());
    let store = connected(builder(&proxy.url()));
    let limiter: Limiter<RedisStore> = limiter(&store, LARGE_QUOTA);
    let is_degraded = || async { limiter.decide(&limiter.request("alone")).await.degraded() };
    proxy.set(Mode::Refuse);
    let runtime = new_runtime();
    poll::until(TIMEOUT, "the breaker opens", || {
        assert!(runtime.block_on(is_degraded()));
        limiter.store_is_down()
    });
    runtime.shutdown_background();
    proxy.set(Mode::Pass);
    poll::until(TIMEOUT, "the store is used again", || {
        !block_on(is_degraded())
    });
}

#[test]
fn a_store_is_opened_and_used_without_a_runtime() {
    let store = builder(&HEALTHY.url()).open().unwrap();
    let limit = Limit::from(quota("10/min"));
    store.submit(&Request::new("plain", &limit));
    let limiter = patient_limiter(&store, "10/min");
    poll::until(TIMEOUT, "the request is counted", || {
        used(&limiter, "plain") == 1
    });
}
