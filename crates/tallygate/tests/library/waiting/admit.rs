//! Going ahead in turn: refused at once or seated, and never waiting for room.

use std::future::Future;
use std::task::{Context, Waker};
use std::time::Duration;

use tallygate::{AcquireError, Decision, Limit, OnFailure, Quota, Request, RetryAfter, Verb, Wait};
use tokio::task::JoinHandle;

use super::line::{Line, leave, settle};
use crate::behaviours::each_minute;

const SECOND: Duration = Duration::from_secs(1);

type Task = JoinHandle<Result<Decision, AcquireError>>;

/// Somebody asks to be admitted to key `k` and has been seated or told when this returns.
async fn admit(line: &Line, name: &str, cost: u32, wait: Wait) -> Task {
    let (line, name) = (line.clone(), name.to_owned());
    let task = tokio::spawn(async move {
        let request = line.limiter.request("k").cost(cost);
        let outcome = line.limiter.admit(&request, wait).await;
        if outcome.as_ref().is_ok_and(Decision::allowed) {
            line.through.lock().unwrap().push((name, line.now_ms()));
        }
        outcome
    });
    settle().await;
    task
}

async fn told(task: Task) -> Decision {
    assert!(task.is_finished(), "it waits");
    task.await.unwrap().unwrap()
}

#[tokio::test(start_paused = true)]
async fn whoever_is_admitted_with_a_delay_sits_it_out_in_order() {
    let line = Line::of("leaky-bucket 1/s queue 4");
    let mut tasks = Vec::new();
    for name in ["a", "b", "c", "d"] {
        tasks.push(admit(&line, name, 1, Wait::forever()).await);
    }
    assert_eq!(line.limiter.waiting(), 3);
    line.until_ms(20_000).await;
    line.assert_through(&[("a", 0), ("b", 1_000), ("c", 2_000), ("d", 3_000)]);
    assert_eq!(line.limiter.waiting(), 0);
    for (i, task) in tasks.into_iter().enumerate() {
        let decision = task.await.unwrap().unwrap();
        assert_eq!(decision.delay(), SECOND * u32::try_from(i).unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn where_there_is_no_room_it_is_refused_at_once() {
    for quota in each_minute(2) {
        let line = Line::under(quota);
        assert!(line.limiter.check_cost("k", 2).allowed());
        let right = line.limiter.peek("k", 1);
        assert!(!right.allowed());
        for wait in [Wait::forever(), Wait::at_most(SECOND * 1_000)] {
            assert_eq!(
                told(admit(&line, "a", 1, wait).await).await,
                right,
                "{quota}"
            );
        }
        let never = told(admit(&line, "a", 3, Wait::forever()).await).await;
        assert_eq!(never.retry_after(), Some(RetryAfter::Never));
        assert_eq!((line.now_ms(), line.limiter.waiting()), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_delay_longer_than_the_longest_wait_is_refused_and_charged_to_none() {
    let window = Limit::named("window", "fixed-window 9/h".parse().unwrap());
    let line = Line::of("leaky-bucket 1/s queue 9").and(window);
    for _ in 0..3 {
        assert!(line.limiter.check("k").allowed());
    }
    let wait = Wait::at_most(SECOND * 2);
    let refused = told(admit(&line, "early", 1, wait).await).await;
    assert!(!refused.allowed() && !refused.degraded());
    assert_eq!((refused.binding(), refused.granted()), (0, 0));
    assert_eq!(refused.retry_after(), Some(RetryAfter::After(SECOND)));
    let left: Vec<u32> = refused.verdicts().iter().map(|v| v.remaining).collect();
    assert_eq!(left, [6, 6], "nothing was charged");
    line.until_ms(999).await;
    assert!(!told(admit(&line, "early", 1, wait).await).await.allowed());
    line.until_ms(1_000).await;
    admit(&line, "in time", 1, wait).await;
    line.until_ms(20_000).await;
    line.assert_through(&[("in time", 3_000)]);
}

#[tokio::test(start_paused = true)]
async fn the_place_of_one_who_is_dropped_passes_to_the_next() {
    let line = Line::of("leaky-bucket 1/s queue 10");
    let mut tasks = Vec::new();
    for name in ["a", "b", "c", "d"] {
        tasks.push(admit(&line, name, 1, Wait::forever()).await);
    }
    line.until_ms(500).await;
    leave(tasks.remove(1)).await;
    admit(&line, "e", 1, Wait::forever()).await;
    line.until_ms(20_000).await;
    line.assert_through(&[("a", 0), ("c", 1_000), ("d", 2_000), ("e", 3_000)]);
    assert_eq!(line.limiter.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_tail_is_given_back() {
    let line = Line::of("leaky-bucket 1/s queue 10");
    admit(&line, "a", 1, Wait::forever()).await;
    let b = admit(&line, "b", 3, Wait::forever()).await;
    assert_eq!(line.left(), 6);
    leave(b).await;
    assert_eq!(line.left(), 9);
}

/// Those who wait for room and those who do not share the schedule, in the order of their seats.
#[tokio::test(start_paused = true)]
async fn nobody_is_held_up_by_one_who_waits_for_room() {
    let line = Line::of("leaky-bucket 1/s queue 3");
    line.join("a").await;
    line.join("b").await;
    line.join_for("large", 3).await;
    admit(&line, "c", 1, Wait::forever()).await;
    let refused = admit(&line, "d", 1, Wait::forever()).await;
    assert!(!told(refused).await.allowed());
    line.until_ms(20_000).await;
    line.assert_through(&[("a", 0), ("b", 1_000), ("c", 2_000), ("large", 3_000)]);
    line.assert_nobody_waits();
}

#[tokio::test(start_paused = true)]
async fn without_a_shaping_limit_nobody_stands_in_line() {
    let window = Limit::named("window", "fixed-window 9/h".parse().unwrap());
    let shaping = Limit::named("shaping", "leaky-bucket 1/h queue 9".parse().unwrap());
    let line = Line::under(window.clone());
    let limiter = &line.limiter;
    // All places are taken: whoever enters a line is turned away.
    assert!(limiter.check_cost("crowd", 9).allowed());
    let crowd = limiter.request("crowd");
    let mut waiters = Vec::new();
    while limiter.waiting() < 100_000 {
        let mut waiter = Box::pin(limiter.acquire_with(&crowd, Wait::forever()));
        let mut context = Context::from_waker(Waker::noop());
        assert!(waiter.as_mut().poll(&mut context).is_pending());
        waiters.push(waiter);
    }
    let plain = Request::new("k", &window);
    assert!(
        limiter
            .admit(&plain, Wait::forever())
            .await
            .unwrap()
            .allowed()
    );
    let free = plain.clone().and_cost("k", &shaping, 0).unwrap();
    assert!(
        limiter
            .admit(&free, Wait::forever())
            .await
            .unwrap()
            .allowed()
    );
    let before = line.left();
    let both = plain.and("k", &shaping).unwrap();
    let crowded = limiter.admit(&both, Wait::forever()).await;
    assert!(matches!(crowded, Err(AcquireError::TooManyWaiting)));
    assert_eq!(line.left(), before, "nothing was charged");
}

#[tokio::test(start_paused = true)]
async fn the_verb_plays_no_part() {
    for verb in Verb::ALL {
        let line = Line::of("token-bucket 1/s burst 5");
        let request = line.limiter.request("k").cost(2).verb(verb);
        let decision = line.limiter.admit(&request, Wait::forever()).await.unwrap();
        assert_eq!((decision.granted(), line.left()), (2, 3), "{verb}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_closed_policy_refuses_and_nobody_waits() {
    let quota: Quota = "leaky-bucket 1/s queue 9".parse().unwrap();
    let limiter = crate::failing::broken(quota).on_failure(OnFailure::Closed);
    for wait in [Wait::forever(), Wait::at_most(SECOND)] {
        let decision = limiter.admit(&limiter.request("k"), wait).await.unwrap();
        assert!(decision.unavailable());
    }
    assert_eq!(limiter.waiting(), 0);
}
