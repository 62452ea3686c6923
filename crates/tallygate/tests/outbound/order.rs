//! Calls are sent in order of arrival, spaced by the quota.

use std::future::poll_fn;
use std::task::Poll;

use tallygate::Quota;
use tallygate::outbound::OutboundLayer;

use crate::remote::{Calls, cancel, limiter};

const EACH: [&str; 6] = [
    "fixed-window 2/s",
    "sliding-window-log 2/s",
    "sliding-window-counter 2/s",
    "token-bucket 2/s burst 2",
    "leaky-bucket 2/s burst 2",
    "leaky-bucket 2/s queue 9",
];

#[tokio::test(start_paused = true)]
async fn the_quota_spaces_calls() {
    let calls = Calls::with_quota("leaky-bucket 10/s queue 100");
    for n in 0..5 {
        calls.call(&n.to_string()).await;
    }
    calls.remote.until_ms(10_000).await;
    let expected = [("0", 0), ("1", 100), ("2", 200), ("3", 300), ("4", 400)];
    calls.remote.assert_arrived(&expected);
    assert_eq!(calls.queue_sizes(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn calls_are_sent_in_order_of_arrival_with_any_quota() {
    for quota in EACH {
        let calls = Calls::with_quota(quota);
        let mut tasks = Vec::new();
        for n in 0..50 {
            tasks.push(calls.call(&n.to_string()).await);
            if n % 10 == 0 {
                calls.remote.until_ms(n * 31).await;
            }
        }
        for task in tasks {
            assert_eq!(task.await.unwrap().unwrap(), 200, "{quota}");
        }
        let arrived = calls.remote.arrived();
        let names: Vec<String> = arrived.iter().map(|(name, _)| name.clone()).collect();
        let expected: Vec<String> = (0..50).map(|n| n.to_string()).collect();
        assert_eq!(names, expected, "{quota}");
        assert_eq!(calls.queue_sizes(), (0, 0), "{quota}");
    }
}

/// Tokio's cooperative budget limits how often a task may poll.
#[tokio::test(start_paused = true)]
async fn a_call_without_budget_keeps_its_position() {
    let calls = Calls::with_quota("token-bucket 1/s burst 1");
    calls.call("a").await;
    calls.call("b").await;
    let mut third = Box::pin(calls.calling("c"));
    let mut used_up = false;
    let third = poll_fn(move |context| {
        while !used_up {
            let look = std::pin::pin!(tokio::task::coop::consume_budget());
            used_up = look.poll(context).is_pending();
        }
        third.as_mut().poll(context)
    });
    let third = tokio::spawn(third);
    let fourth = tokio::spawn(calls.calling("d"));
    assert_eq!(third.await.unwrap().unwrap(), 200);
    assert_eq!(fourth.await.unwrap().unwrap(), 200);
    let expected = [("a", 0), ("b", 1_000), ("c", 2_000), ("d", 3_000)];
    calls.remote.assert_arrived(&expected);
}

#[tokio::test(start_paused = true)]
async fn calls_of_one_task_are_in_order() {
    let calls = Calls::with_quota("token-bucket 100/s burst 1");
    let mut set = Vec::new();
    for n in 0..300 {
        set.push(Box::pin(calls.calling(&n.to_string())));
    }
    while !set.is_empty() {
        poll_fn(|context| {
            let before = set.len();
            set.retain_mut(|call| call.as_mut().poll(context).is_pending());
            if set.len() < before {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
    let arrived = calls.remote.arrived();
    let expected: Vec<(String, u64)> = (0..300).map(|n| (n.to_string(), n * 10)).collect();
    assert_eq!(arrived, expected);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_leaves_the_queue() {
    let calls = Calls::with_quota("leaky-bucket 1/s queue 10");
    calls.call("a").await;
    let b = calls.call("b").await;
    calls.call("c").await;
    calls.call("d").await;
    calls.remote.until_ms(500).await;
    cancel(b).await;
    calls.remote.until_ms(10_000).await;
    calls
        .remote
        .assert_arrived(&[("a", 0), ("c", 1_000), ("d", 2_000)]);
    assert_eq!(calls.queue_sizes(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_not_polled_blocks_no_other() {
    let calls = Calls::with_quota("leaky-bucket 1/s queue 10");
    let idle = calls.calling("idle");
    calls.call("a").await;
    drop(idle);
    calls.remote.assert_arrived(&[("a", 0)]);
    assert_eq!(calls.queue_sizes(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn keys_have_separate_queues() {
    let layer = OutboundLayer::new(limiter("leaky-bucket 1/s queue 10"));
    let calls = Calls::through(&layer.by(|head| head.uri().path().into()));
    for name in ["a", "b", "a", "b", "c"] {
        calls.call(name).await;
    }
    calls.remote.until_ms(5_000).await;
    let expected = [("a", 0), ("b", 0), ("c", 0), ("a", 1_000), ("b", 1_000)];
    calls.remote.assert_arrived(&expected);
}

#[tokio::test(start_paused = true)]
async fn a_call_is_charged_its_cost() {
    let layer = OutboundLayer::new(limiter("leaky-bucket 1/s queue 10"));
    let cost = |path: &str| path.trim_start_matches('/').parse().unwrap();
    let calls = Calls::through(&layer.cost(move |head| cost(head.uri().path())));
    for name in ["3", "2", "0", "1"] {
        calls.call(name).await;
    }
    calls.remote.until_ms(20_000).await;
    // A call of cost 0 does not wait.
    let expected = [("3", 0), ("0", 0), ("2", 3_000), ("1", 5_000)];
    calls.remote.assert_arrived(&expected);
}

#[tokio::test(start_paused = true)]
async fn every_limit_of_the_limiter_applies() {
    let several = limiter("token-bucket 2/s burst 2")
        .and("fixed-window 3/10s".parse::<Quota>().unwrap())
        .unwrap();
    let calls = Calls::through(&OutboundLayer::new(several));
    for name in ["a", "b", "c", "d"] {
        calls.call(name).await;
    }
    calls.remote.until_ms(60_000).await;
    calls
        .remote
        .assert_arrived(&[("a", 0), ("b", 0), ("c", 500), ("d", 10_000)]);
}
