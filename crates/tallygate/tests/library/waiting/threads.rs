//! Waiting on many threads, on the machine's clock where time has to pass.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tallygate::{AcquireError, Limit, Limiter, Quota, Request, Wait};
use tokio::task::JoinSet;

use crate::behaviours::{quotas, store};

fn sent<F: Future + Send>(future: F) -> F {
    future
}

#[tokio::test]
async fn the_futures_of_waiting_may_move_between_threads() {
    let limiter = Limiter::new(Quota::per_minute(9));
    let key = String::from("k");
    assert!(sent(limiter.acquire("k")).await.is_ok());
    assert!(sent(limiter.acquire(&key)).await.is_ok());
    assert!(sent(limiter.acquire(key.clone())).await.is_ok());
    let request = limiter.request("k").cost(2);
    let waiting = sent(limiter.acquire_with(&request, Wait::forever()));
    assert!(waiting.await.is_ok());
    let inside = limiter.clone();
    let task = tokio::spawn(async move { inside.acquire("k").await });
    assert!(task.await.unwrap().is_ok());
    assert_eq!(limiter.peek("k", 1).remaining(), 3);
}

/// The clock stands still and a unit takes a day: what does not fit now is too late.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn hundreds_of_tasks_get_exactly_the_limit() {
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
        // In a shaping queue only the first need not wait for a day.
        let right = if quota.algorithm().is_shaping() {
            1
        } else {
            LIMIT
        };
        assert_eq!((admitted, late), (right, LIMIT + 100 - right), "{quota}");
        assert!(format!("{limiter:?}").contains("waiting: 0"));
        assert_eq!(limiter.peek("k", 1).remaining(), LIMIT - right, "{quota}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn hundreds_of_tasks_all_get_through_in_the_end() {
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

/// Tasks come and are dropped at any moment, on several threads: in the end nothing is taken but
/// by those who got through, and nobody waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tasks_dropped_at_any_moment_leave_nothing_behind() {
    // Nothing drains while this runs, and the queue has room for all.
    for quota in quotas(2_000, Duration::from_secs(366 * 86_400)) {
        let limiter = Limiter::new(quota);
        let mut tasks = JoinSet::new();
        let mut handles = Vec::new();
        let through = Arc::new(AtomicU32::new(0));
        for _ in 0..400 {
            let (limiter, through) = (limiter.clone(), Arc::clone(&through));
            handles.push(tasks.spawn(async move {
                let decision = limiter.acquire("k").await.unwrap();
                through.fetch_add(decision.granted(), SeqCst);
            }));
            if handles.len() % 3 == 0 {
                handles[handles.len() / 2].abort();
            }
        }
        tasks.abort_all();
        while tasks.join_next().await.is_some() {}
        assert!(format!("{limiter:?}").contains("waiting: 0"), "{quota}");
        let taken = 2_000 - limiter.peek("k", 1).remaining();
        assert_eq!(taken, through.load(SeqCst), "{quota}");
    }
}

/// There is a bound to how many may wait; whoever comes after is told, and the bound is not used up.
#[tokio::test(start_paused = true)]
async fn a_crowd_of_waiters_has_a_bound() {
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
