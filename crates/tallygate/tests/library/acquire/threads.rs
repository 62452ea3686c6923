//! `acquire` on many threads, on the system clock if time has to pass.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tallygate::{AcquireError, Limit, Limiter, Quota, Request, Wait};
use tokio::task::JoinSet;

use crate::fixtures::{quotas, store};

fn assert_send<F: Future + Send>(future: F) -> F {
    future
}

#[tokio::test]
async fn the_futures_are_send() {
    let limiter = Limiter::new(Quota::per_minute(9));
    let key = String::from("k");
    assert!(assert_send(limiter.acquire("k")).await.is_ok());
    assert!(assert_send(limiter.acquire(&key)).await.is_ok());
    assert!(assert_send(limiter.acquire(key.clone())).await.is_ok());
    let request = limiter.request("k").cost(2);
    let waiting = assert_send(limiter.acquire_with(&request, Wait::forever()));
    assert!(waiting.await.is_ok());
    let inside = limiter.clone();
    let task = tokio::spawn(async move { inside.acquire("k").await });
    assert!(task.await.unwrap().is_ok());
    assert_eq!(limiter.peek("k", 1).remaining(), 3);
}

/// The clock is stopped and a unit takes a day: a request that does not fit now is too late.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn hundreds_of_tasks_are_admitted_exactly_the_limit() {
    const LIMIT: u32 = 300;
    for quota in quotas(LIMIT, Duration::from_secs(300 * 86_400)) {
        let (_, store) = store(100);
        let limiter = Limiter::with_store(store, quota);
        let mut tasks = JoinSet::new();
        for _ in 0..LIMIT + 100 {
            let limiter = limiter.clone();
            tasks.spawn(async move {
                let request = limiter.request("k");
                let wait = Wait::at_most(Duration::from_secs(3_600));
                limiter.acquire_with(&request, wait).await
            });
        }
        let (mut admitted, mut late) = (0, 0);
        while let Some(outcome) = tasks.join_next().await {
            match outcome.unwrap() {
                Ok(decision) => admitted += decision.granted(),
                Err(AcquireError::TooLate { .. }) => late += 1,
                Err(error) => panic!("{error}"),
            }
        }
        // In a shaping queue, all but the first would wait for a day.
        let expected = if quota.algorithm().is_shaping() {
            1
        } else {
            LIMIT
        };
        assert_eq!(
            (admitted, late),
            (expected, LIMIT + 100 - expected),
            "{quota}"
        );
        assert!(format!("{limiter:?}").contains("waiting: 0"));
        assert_eq!(
            limiter.peek("k", 1).remaining(),
            LIMIT - expected,
            "{quota}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn hundreds_of_tasks_are_all_admitted_eventually() {
    for text in [
        "token-bucket 1/ms burst 5",
        "leaky-bucket 1/ms queue 40",
        "sliding-window-log 20/20ms",
    ] {
        let limiter = Limiter::new(text.parse::<Quota>().unwrap());
        let done = Arc::new(AtomicU32::new(0));
        let mut tasks = JoinSet::new();
        for n in 0..300 {
            let (limiter, done) = (limiter.clone(), Arc::clone(&done));
            tasks.spawn(async move {
                let key = (n % 3).to_string();
                let decision = limiter.acquire(&key).await.unwrap();
                done.fetch_add(decision.granted(), SeqCst);
            });
        }
        while let Some(outcome) = tasks.join_next().await {
            outcome.unwrap();
        }
        assert_eq!(done.load(SeqCst), 300, "{text}");
        assert!(format!("{limiter:?}").contains("waiting: 0"), "{text}");
    }
}

/// Tasks are aborted at any time, on several threads: only admitted tasks have taken units, and the
/// queues are empty.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tasks_aborted_at_any_time_take_nothing() {
    // Nothing drains meanwhile, and the queue has room for all.
    for quota in quotas(2_000, Duration::from_secs(366 * 86_400)) {
        let limiter = Limiter::new(quota);
        let mut tasks = JoinSet::new();
        let mut handles = Vec::new();
        let admitted_units = Arc::new(AtomicU32::new(0));
        for _ in 0..400 {
            let (limiter, admitted_units) = (limiter.clone(), Arc::clone(&admitted_units));
            handles.push(tasks.spawn(async move {
                let decision = limiter.acquire("k").await.unwrap();
                admitted_units.fetch_add(decision.granted(), SeqCst);
            }));
            if handles.len() % 3 == 0 {
                handles[handles.len() / 2].abort();
            }
        }
        tasks.abort_all();
        while tasks.join_next().await.is_some() {}
        assert!(format!("{limiter:?}").contains("waiting: 0"), "{quota}");
        let taken = 2_000 - limiter.peek("k", 1).remaining();
        assert_eq!(taken, admitted_units.load(SeqCst), "{quota}");
    }
}

/// A request beyond the bound fails, and a cancelled one makes room.
#[tokio::test(start_paused = true)]
async fn the_number_of_waiting_requests_is_bounded() {
    let limiter = Limiter::with_store(
        store(10).1,
        Limit::from("fixed-window 1/d".parse::<Quota>().unwrap()),
    );
    assert!(limiter.check("k").allowed());
    let request: Request<'_> = limiter.request("k");
    let mut context = Context::from_waker(Waker::noop());
    let mut waiters = Vec::new();
    let error = loop {
        let mut waiter = Box::pin(limiter.acquire_with(&request, Wait::forever()));
        match waiter.as_mut().poll(&mut context) {
            Poll::Pending => waiters.push(waiter),
            Poll::Ready(outcome) => break outcome.unwrap_err(),
        }
        assert!(waiters.len() < 1_000_000, "no bound");
    };
    assert!(matches!(error, AcquireError::TooManyWaiting), "{error}");
    waiters.pop();
    let mut waiter = Box::pin(limiter.acquire_with(&request, Wait::forever()));
    assert!(waiter.as_mut().poll(&mut context).is_pending());
    drop(waiter);
    drop(waiters);
    assert!(format!("{limiter:?}").contains("waiting: 0"));
}
