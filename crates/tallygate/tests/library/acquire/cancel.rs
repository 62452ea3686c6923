//! A cancelled request takes nothing, and the requests behind it move up.

use tallygate::{Limit, Quota, Request, Verb, Wait};

use super::queue::{TestQueue, cancel, settle};
use crate::fixtures::{quotas_per_minute, remaining_by_limit};

const ONE_PER_SECOND: [&str; 4] = [
    "fixed-window 1/s",
    "token-bucket 1/s",
    "sliding-window-log 1/s",
    "leaky-bucket 1/s queue 1",
];

#[tokio::test(start_paused = true)]
async fn a_request_cancelled_before_its_turn_takes_nothing() {
    for quota in ONE_PER_SECOND {
        let queue = TestQueue::new(quota);
        queue.enqueue("a").await;
        queue.enqueue("b").await;
        let c = queue.enqueue("c").await;
        queue.enqueue("d").await;
        queue.until_ms(500).await;
        cancel(c).await;
        queue.until_ms(9_000).await;
        queue.assert_admitted(&[("a", 0), ("b", 1_000), ("d", 2_000)]);
        queue.assert_empty();
    }
}

#[tokio::test(start_paused = true)]
async fn the_second_request_takes_the_turn_of_a_cancelled_first_one() {
    for quota in ONE_PER_SECOND {
        let queue = TestQueue::new(quota);
        queue.enqueue("a").await;
        let b = queue.enqueue("b").await;
        queue.enqueue("c").await;
        queue.until_ms(500).await;
        cancel(b).await;
        queue.until_ms(9_000).await;
        queue.assert_admitted(&[("a", 0), ("c", 1_000)]);
        queue.assert_empty();
    }
}

#[tokio::test(start_paused = true)]
async fn if_all_requests_are_cancelled_nothing_stays_taken() {
    for quota in quotas_per_minute(2) {
        let queue = TestQueue::with_limit(quota);
        let before = queue.limiter.peek("k", 1);
        assert!(queue.limiter.check_cost("k", 2).allowed());
        let mut waiters = Vec::new();
        for n in 0..20 {
            waiters.push(queue.enqueue(&n.to_string()).await);
        }
        for waiter in waiters {
            cancel(waiter).await;
        }
        queue.assert_empty();
        queue.assert_admitted(&[]);
        assert_eq!(queue.remaining(), 0, "{quota}");
        let _ = queue.limiter.refund("k", 2);
        assert_eq!(queue.limiter.peek("k", 1), before, "{quota}");
    }
}

/// B is cancelled at 0.5 s; C runs at 1 s, D at 2 s, and a new request at 3 s.
#[tokio::test(start_paused = true)]
async fn a_cancelled_slot_of_a_shaping_queue_passes_to_the_next_request() {
    let queue = TestQueue::new("leaky-bucket 1/s queue 10");
    queue.enqueue("a").await;
    let b = queue.enqueue("b").await;
    queue.enqueue("c").await;
    queue.enqueue("d").await;
    queue.until_ms(500).await;
    cancel(b).await;
    queue.enqueue("e").await;
    queue.until_ms(20_000).await;
    queue.assert_admitted(&[("a", 0), ("c", 1_000), ("d", 2_000), ("e", 3_000)]);
    queue.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_last_slot_of_a_shaping_queue_is_refunded() {
    let queue = TestQueue::new("leaky-bucket 1/s queue 10");
    queue.enqueue("a").await;
    queue.enqueue("b").await;
    let c = queue.enqueue("c").await;
    queue.until_ms(500).await;
    cancel(c).await;
    let d = queue.enqueue("d").await;
    queue.until_ms(1_500).await;
    cancel(d).await;
    queue.enqueue("e").await;
    queue.until_ms(20_000).await;
    queue.assert_admitted(&[("a", 0), ("b", 1_000), ("e", 2_000)]);
    assert_eq!(queue.remaining(), 10);
}

#[tokio::test(start_paused = true)]
async fn several_slots_cancelled_together_all_pass_on() {
    let queue = TestQueue::new("leaky-bucket 1/s queue 10");
    let mut waiters = Vec::new();
    for name in ["a", "b", "c", "d", "e", "f", "g"] {
        waiters.push((name, queue.enqueue(name).await));
    }
    queue.until_ms(500).await;
    let mut kept = Vec::new();
    for (name, waiter) in waiters {
        if ["b", "d", "e"].contains(&name) {
            waiter.abort();
        } else {
            kept.push(waiter);
        }
    }
    settle().await;
    queue.enqueue("h").await;
    queue.until_ms(20_000).await;
    queue.assert_admitted(&[
        ("a", 0),
        ("c", 1_000),
        ("f", 2_000),
        ("g", 3_000),
        ("h", 4_000),
    ]);
    queue.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_for_a_slot_move_up_too() {
    let queue = TestQueue::new("leaky-bucket 1/s queue 3");
    let mut waiters = Vec::new();
    for name in ["a", "b", "c", "d", "e", "f"] {
        waiters.push(queue.enqueue(name).await);
    }
    queue.until_ms(500).await;
    cancel(waiters.remove(1)).await;
    queue.until_ms(20_000).await;
    queue.assert_admitted(&[
        ("a", 0),
        ("c", 1_000),
        ("d", 2_000),
        ("e", 3_000),
        ("f", 4_000),
    ]);
    queue.assert_empty();
}

/// A slot taken by `check`, or by another process, is between: it does not move.
#[tokio::test(start_paused = true)]
async fn a_slot_of_a_request_outside_the_queue_does_not_move() {
    let queue = TestQueue::new("leaky-bucket 1/s queue 10");
    queue.enqueue("a").await;
    let b = queue.enqueue("b").await;
    let outside = queue.limiter.check("k");
    assert_eq!(outside.delay().as_secs(), 2);
    queue.enqueue("c").await;
    queue.enqueue("d").await;
    queue.until_ms(500).await;
    cancel(b).await;
    queue.enqueue("e").await;
    queue.until_ms(20_000).await;
    // The other request runs at 2 s.
    queue.assert_admitted(&[("a", 0), ("c", 1_000), ("d", 3_000), ("e", 4_000)]);
}

/// The same with a queued request before that slot.
#[tokio::test(start_paused = true)]
async fn a_later_slot_of_a_request_outside_the_queue_does_not_move() {
    let queue = TestQueue::new("leaky-bucket 1/s queue 10");
    queue.enqueue("a").await;
    let b = queue.enqueue("b").await;
    queue.enqueue("c").await;
    assert_eq!(queue.limiter.check("k").delay().as_secs(), 3);
    queue.enqueue("d").await;
    queue.until_ms(500).await;
    cancel(b).await;
    queue.enqueue("e").await;
    queue.until_ms(20_000).await;
    // The other request runs at 3 s.
    queue.assert_admitted(&[("a", 0), ("c", 1_000), ("d", 2_000), ("e", 4_000)]);
}

/// A unit takes two thirds of a microsecond, so 3,000 take 2 ms.
#[tokio::test(start_paused = true)]
async fn at_a_high_rate_a_cancelled_request_delays_no_other() {
    let queue = TestQueue::new("leaky-bucket 1500/ms queue 10000");
    queue.enqueue("0").await;
    let cancelled = queue.enqueue("cancelled").await;
    for n in 1..3_000 {
        queue.enqueue(&n.to_string()).await;
    }
    cancel(cancelled).await;
    queue.until_ms(100).await;
    let admitted = queue.admitted();
    assert_eq!(admitted.len(), 3_000);
    let latest = admitted.iter().map(|(_, at)| at).max().unwrap();
    assert_eq!(*latest, 2, "the last request ran at {latest} ms");
}

/// Its unit was taken from a window that has ended.
#[tokio::test(start_paused = true)]
async fn a_request_cancelled_after_its_window_refunds_nothing_to_the_next_window() {
    let window = Limit::named("window", "fixed-window 2/s".parse().unwrap());
    let queue = TestQueue::with_limit(window.clone())
        .and("leaky-bucket 1/2s queue 9".parse::<Quota>().unwrap());
    queue.enqueue("a").await;
    let b = queue.enqueue("b").await;
    queue.until_ms(1_000).await;
    let direct = Request::new("k", &window);
    let admitted = |tries: u32| {
        (0..tries)
            .filter(|_| queue.limiter.decide_now(&direct).allowed())
            .count()
    };
    assert_eq!(admitted(5), 2);
    queue.until_ms(1_500).await;
    cancel(b).await;
    assert_eq!(admitted(5), 0, "more than 2 in one window");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_request_is_refunded_to_shaping_limits_only() {
    let queue = TestQueue::new("fixed-window 9/h")
        .and("token-bucket 9/h".parse::<Quota>().unwrap())
        .and("leaky-bucket 1/h queue 9".parse::<Quota>().unwrap());
    queue.enqueue("a").await;
    let b = queue.enqueue_cost("b", 3).await;
    let c = queue.enqueue_cost("c", 2).await;
    queue.until_ms(100).await;
    cancel(b).await;
    cancel(c).await;
    let peek = queue.limiter.request("k").verb(Verb::Peek);
    let decision = queue.limiter.decide_now(&peek);
    let remaining = remaining_by_limit(&decision);
    assert_eq!(remaining, [3, 3, 8]);
}

#[tokio::test(start_paused = true)]
async fn a_future_that_is_never_polled_takes_nothing() {
    let queue = TestQueue::new("fixed-window 1/h");
    drop(queue.limiter.acquire("k"));
    let request = queue.limiter.request("k");
    drop(queue.limiter.acquire_with(&request, Wait::forever()));
    assert_eq!(queue.remaining(), 1);
    queue.assert_empty();
}
