//! Guards of concurrency limits: renewed in the background, released when dropped.

use std::sync::Arc;
use std::time::Duration;

use tallygate::{Decision, Hold, Limit, Limiter, MemoryStore, Quota, Request, Retry, Verb};
use tokio::time::{Instant, sleep};

use crate::acquire::queue::{RuntimeClock, paused_store};

type TestLimiter = Limiter<Arc<MemoryStore<RuntimeClock>>>;

fn limiter(quota: &str) -> TestLimiter {
    let store = paused_store(Instant::now());
    Limiter::with_store(Arc::new(store), quota.parse::<Quota>().unwrap())
}

/// The units of a limit that nobody holds.
fn free(limiter: &TestLimiter) -> u32 {
    limiter.peek("k", 0).remaining()
}

#[tokio::test(start_paused = true)]
async fn a_hold_lasts_as_long_as_its_guard() {
    let limiter = limiter("concurrent 2 for 30s");
    let first = limiter.hold("k").await.unwrap();
    let second = limiter.hold("k").await.unwrap();
    assert_eq!((first.decision().remaining(), free(&limiter)), (1, 0));
    // Several hold times.
    sleep(Duration::from_secs(200)).await;
    assert_eq!(free(&limiter), 0);
    assert!(!first.is_lost() && !second.is_lost());
    drop(first);
    assert_eq!(free(&limiter), 1);
    second.release().await;
    assert_eq!(free(&limiter), 2);
    sleep(Duration::from_secs(200)).await;
    assert_eq!(free(&limiter), 2);
}

#[tokio::test(start_paused = true)]
async fn a_refused_hold_says_when_it_may_fit_at_the_latest() {
    let limiter = limiter("concurrent 1 for 30s");
    let _held = limiter.hold("k").await.unwrap();
    sleep(Duration::from_secs(4)).await;
    let refused = limiter.hold("k").await.unwrap_err();
    let retry = refused.decision().retry_after().unwrap();
    assert_eq!(retry, Retry::at_most_us(26_000_000));
    assert!(!retry.is_exact());
    assert_eq!(refused.to_string(), "refused: retry after 26s");
    // A refused request holds nothing.
    assert_eq!(limiter.peek("other", 0).remaining(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_task_releases() {
    let limiter = limiter("concurrent 1 for 30s");
    let task = tokio::spawn({
        let limiter = limiter.clone();
        async move {
            let _hold = limiter.hold("k").await.unwrap();
            std::future::pending::<()>().await;
        }
    });
    tokio::task::yield_now().await;
    assert_eq!(free(&limiter), 0);
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert_eq!(free(&limiter), 1);
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_someone_else_ended_is_lost() {
    let limiter = limiter("concurrent 1 for 30s");
    let hold = limiter.hold("k").await.unwrap();
    limiter.reset("k");
    let other = limiter.hold("k").await.unwrap();
    sleep(Duration::from_secs(11)).await;
    assert!(hold.is_lost() && !other.is_lost());
    // Its own hold only is released.
    drop(hold);
    assert_eq!(free(&limiter), 0);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_dies_holds_at_most_for_the_hold_time() {
    let limiter = limiter("concurrent 1 for 30s");
    std::mem::forget(limiter.request("k").owner("dead"));
    let request = limiter.request("k").owner("dead");
    assert!(limiter.decide_now(&request).allowed());
    sleep(Duration::from_millis(29_999)).await;
    assert!(limiter.hold("k").await.is_err());
    sleep(Duration::from_millis(1)).await;
    assert!(limiter.hold("k").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn rates_beside_a_concurrency_limit_are_charged_once() {
    let limiter = limiter("concurrent 2 for 30s");
    let limiter = limiter.and(Quota::fixed_window(3).per_hour()).unwrap();
    let remaining = |decision: &Decision| crate::fixtures::remaining_by_limit(decision);
    let hold = limiter.hold("k").await.unwrap();
    assert_eq!(remaining(hold.decision()), [1, 2]);
    sleep(Duration::from_secs(100)).await;
    assert_eq!(remaining(&limiter.peek("k", 0)), [1, 2]);
    drop(hold);
    assert_eq!(remaining(&limiter.peek("k", 0)), [2, 2]);
    // All or nothing: the window refuses, so nothing is held.
    assert!(limiter.check_cost("other", 3).granted() == 0);
    let two = limiter.request("k").cost(2);
    drop(limiter.engine().hold(&two).await.unwrap());
    assert!(limiter.hold("k").await.is_err());
    assert_eq!(remaining(&limiter.peek("k", 0)), [2, 0]);
}

#[tokio::test(start_paused = true)]
async fn the_shortest_hold_time_sets_the_pace() {
    let limiter = limiter("concurrent 2 for 1h");
    let limit = Limit::named("short", "concurrent 2 for 3s".parse::<Quota>().unwrap());
    let limiter = limiter.and(limit).unwrap();
    let hold = limiter.hold("k").await.unwrap();
    sleep(Duration::from_secs(60)).await;
    assert!(!hold.is_lost());
    let free = crate::fixtures::remaining_by_limit(&limiter.peek("k", 0));
    assert_eq!(free, [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_concurrency_limit_holds_nothing() {
    let limiter = limiter("fixed-window 2/h");
    let hold = limiter.hold("k").await.unwrap();
    assert_eq!(hold.decision().remaining(), 1);
    hold.release().await;
    assert_eq!(free(&limiter), 1);
}

#[tokio::test(start_paused = true)]
async fn a_hold_with_a_reservation_is_settled_and_released_apart() {
    let limiter = limiter("concurrent 1 for 30s");
    let tokens = Limit::named("tokens", "fixed-window 1000/h".parse::<Quota>().unwrap());
    let both = limiter.request("k").and_cost("k", &tokens, 100).unwrap();
    let reserve = both.clone().verb(Verb::Reserve).id("r1");
    let hold: Hold = limiter.engine().hold(&reserve).await.unwrap();
    let settle = Request::new("k", &tokens).verb(Verb::Settle).id("r1");
    let settled = limiter.decide(&settle.cost(30)).await;
    assert_eq!(settled.remaining(), 970);
    assert_eq!(free(&limiter), 0);
    drop(hold);
    assert_eq!(free(&limiter), 1);
}

#[tokio::test(start_paused = true)]
async fn guards_can_be_sent_to_other_tasks() {
    fn is_send<T: Send + Sync + 'static>(_: &T) {}
    let limiter = limiter("concurrent 1 for 30s");
    let hold = limiter.hold("k").await.unwrap();
    is_send(&hold);
    tokio::spawn(async move { drop(hold) }).await.unwrap();
    assert_eq!(free(&limiter), 1);
}
