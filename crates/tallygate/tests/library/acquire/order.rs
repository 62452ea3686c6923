//! Waiting requests are admitted when there is capacity, in order of arrival for each key.

use tallygate::{Limit, Quota, Request, Wait};

use super::queue::TestQueue;

#[tokio::test(start_paused = true)]
async fn waiting_requests_are_admitted_as_soon_as_there_is_capacity() {
    // The weight of the previous window of a sliding window counter falls gradually.
    let cases: [(&str, &[u64]); 5] = [
        ("fixed-window 2/s", &[0, 0, 1_000, 1_000, 2_000]),
        ("sliding-window-log 2/s", &[0, 0, 1_000, 1_000, 2_000]),
        ("sliding-window-counter 2/s", &[0, 0, 1_001, 1_501, 2_001]),
        ("token-bucket 2/s burst 2", &[0, 0, 500, 1_000, 1_500]),
        ("leaky-bucket 2/s burst 2", &[0, 0, 500, 1_000, 1_500]),
    ];
    for (quota, times) in cases {
        let queue = TestQueue::new(quota);
        let mut waiters = Vec::new();
        for n in 0..times.len() {
            waiters.push(queue.enqueue(&n.to_string()).await);
        }
        for waiter in waiters {
            assert!(waiter.await.unwrap().unwrap().allowed(), "{quota}");
        }
        let admitted = queue.admitted();
        let names: Vec<&str> = admitted.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["0", "1", "2", "3", "4"], "{quota}");
        let at: Vec<u64> = admitted.iter().map(|(_, at)| *at).collect();
        assert_eq!(at, times, "{quota}");
        queue.assert_empty();
    }
}

#[tokio::test(start_paused = true)]
async fn acquire_waits_for_the_shaping_delay() {
    // The queue has five slots: the other requests wait for one first.
    let queue = TestQueue::new("leaky-bucket 10/s queue 5");
    for n in 0..12 {
        queue.enqueue(&n.to_string()).await;
    }
    queue.until_ms(5_000).await;
    let expected: Vec<(String, u64)> = (0..12).map(|n| (n.to_string(), n * 100)).collect();
    assert_eq!(queue.admitted(), expected);
    queue.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn sequential_calls_are_spaced_by_the_quota() {
    let queue = TestQueue::new("leaky-bucket 1/5ms queue 1");
    for n in 0..10 {
        let decision = queue.limiter.acquire("k").await.unwrap();
        assert!(decision.allowed());
        assert_eq!(queue.now_ms(), 5 * n);
    }
}

#[tokio::test(start_paused = true)]
async fn requests_are_admitted_in_order_of_arrival() {
    for quota in [
        "fixed-window 3/s",
        "sliding-window-log 3/s",
        "sliding-window-counter 3/s",
        "token-bucket 3/s burst 2",
        "leaky-bucket 3/s burst 2",
        "leaky-bucket 3/s queue 20",
        "leaky-bucket 3/s queue 200",
    ] {
        let queue = TestQueue::new(quota);
        let mut waiters = Vec::new();
        for n in 0..100 {
            if n % 10 == 9 {
                queue.until_ms(37 * n).await;
            }
            waiters.push(queue.enqueue_cost(&n.to_string(), 1 + n as u32 % 2).await);
        }
        for waiter in waiters {
            assert!(waiter.await.unwrap().unwrap().allowed());
        }
        let admitted = queue.admitted();
        let expected: Vec<String> = (0..100).map(|n| n.to_string()).collect();
        let names: Vec<String> = admitted.into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, expected, "{quota}");
        queue.assert_empty();
    }
}

#[tokio::test(start_paused = true)]
async fn a_small_request_does_not_overtake_a_large_one() {
    let queue = TestQueue::new("token-bucket 1/s burst 5");
    assert!(queue.limiter.check_cost("k", 5).allowed());
    queue.enqueue_cost("large", 5).await;
    queue.enqueue_cost("small", 1).await;
    queue.until_ms(20_000).await;
    queue.assert_admitted(&[("large", 5_000), ("small", 6_000)]);
}

#[tokio::test(start_paused = true)]
async fn keys_have_separate_queues() {
    for quota in [
        "fixed-window 1/h",
        "leaky-bucket 1/h queue 9",
        "token-bucket 1/h",
    ] {
        let queue = TestQueue::new(quota);
        for n in 0..50 {
            let key = (n % 10).to_string();
            queue
                .enqueue_with(&n.to_string(), &key, 1, Wait::forever())
                .await;
        }
        let expected: Vec<(String, u64)> = (0..10).map(|n| (n.to_string(), 0)).collect();
        assert_eq!(queue.admitted(), expected, "{quota}");
    }
}

#[tokio::test(start_paused = true)]
async fn acquire_waits_for_every_limit() {
    let queue = TestQueue::new("fixed-window 2/s")
        .and("leaky-bucket 5/s queue 3".parse::<Quota>().unwrap());
    for n in 0..5 {
        queue.enqueue(&n.to_string()).await;
    }
    queue.until_ms(10_000).await;
    let expected = [
        ("0", 0),
        ("1", 200),
        ("2", 1_000),
        ("3", 1_200),
        ("4", 2_000),
    ];
    queue.assert_admitted(&expected);
}

#[tokio::test(start_paused = true)]
async fn without_a_wait_the_decision_is_that_of_check() {
    let queue = TestQueue::new("token-bucket 10/s burst 5");
    let decision = queue.limiter.acquire("k").await.unwrap();
    assert_eq!((decision.granted(), decision.remaining()), (1, 4));
    let request = queue.limiter.request("k").cost(3);
    let decision = queue
        .limiter
        .acquire_with(&request, Wait::forever())
        .await
        .unwrap();
    assert_eq!((decision.granted(), decision.remaining()), (3, 1));
    let nothing = queue.limiter.request("k").cost(0);
    let decision = queue
        .limiter
        .acquire_with(&nothing, Wait::forever())
        .await
        .unwrap();
    assert_eq!((decision.granted(), decision.remaining()), (0, 1));
    assert_eq!(queue.now_ms(), 0);
}

#[tokio::test(start_paused = true)]
async fn acquire_waits_for_the_limits_of_the_request() {
    let queue = TestQueue::new("fixed-window 1/h");
    let own = Limit::from("fixed-window 1/s".parse::<Quota>().unwrap());
    let request = Request::new("k", &own);
    for n in 0..3 {
        let outcome = queue.limiter.acquire_with(&request, Wait::forever()).await;
        assert!(outcome.unwrap().allowed());
        assert_eq!(queue.now_ms(), n * 1_000);
    }
}

#[tokio::test(start_paused = true)]
async fn clones_and_changed_quotas_share_a_queue() {
    let queue = TestQueue::new("fixed-window 1/s");
    let larger = TestQueue {
        limiter: queue
            .limiter
            .with_limit("fixed-window 2/s".parse::<Quota>().unwrap()),
        ..queue.clone()
    };
    queue.enqueue("a").await;
    queue.enqueue("b").await;
    larger.enqueue("c").await;
    queue.clone().enqueue("d").await;
    queue.until_ms(10_000).await;
    queue.assert_admitted(&[("a", 0), ("b", 1_000), ("c", 1_000), ("d", 2_000)]);
}

#[tokio::test(start_paused = true)]
async fn a_charge_delays_waiting_requests() {
    let queue = TestQueue::new("token-bucket 1/s burst 1");
    assert!(queue.limiter.check("k").allowed());
    queue.enqueue("a").await;
    queue.enqueue("b").await;
    queue.until_ms(500).await;
    assert!(queue.limiter.charge("k", 1).allowed());
    queue.until_ms(9_000).await;
    queue.assert_admitted(&[("a", 2_000), ("b", 3_000)]);
    queue.assert_empty();
}
