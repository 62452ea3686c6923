//! Requests of unequal cost in a shaping queue: after a cancellation those behind move up in order
//! and do not overlap.

use super::queue::{TestQueue, cancel, settle};
use tallygate_testkit::with_each_seed;

/// Checks that each request starts after the one before it is done.
fn assert_no_overlap(queue: &TestQueue, costs: &[(&str, u32)], ms_per_unit: u64) {
    let admitted = queue.admitted();
    let cost = |name: &str| {
        let found = costs.iter().find(|(other, _)| *other == name);
        u64::from(found.unwrap().1)
    };
    for pair in admitted.windows(2) {
        let done = pair[0].1 + cost(&pair[0].0) * ms_per_unit;
        assert!(pair[1].1 >= done, "{pair:?} overlap in {admitted:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_small_request_is_cancelled_larger_ones_move_up_without_overlap() {
    let queue = TestQueue::new("leaky-bucket 1/s queue 20");
    let costs = [("a", 1), ("b", 1), ("c", 3), ("d", 1), ("e", 2), ("f", 1)];
    queue.enqueue_cost("a", 1).await;
    let b = queue.enqueue_cost("b", 1).await;
    queue.enqueue_cost("c", 3).await;
    queue.enqueue_cost("d", 1).await;
    queue.enqueue_cost("e", 2).await;
    queue.until_ms(500).await;
    cancel(b).await;
    queue.enqueue_cost("f", 1).await;
    queue.until_ms(60_000).await;
    assert_no_overlap(&queue, &costs, 1_000);
    queue.assert_admitted(&[
        ("a", 0),
        ("c", 1_000),
        ("d", 4_000),
        ("e", 5_000),
        ("f", 7_000),
    ]);
}

#[tokio::test(start_paused = true)]
async fn after_a_large_request_is_cancelled_a_new_one_overlaps_with_none() {
    let queue = TestQueue::new("leaky-bucket 1/s queue 20");
    let costs = [("a", 1), ("b", 3), ("c", 1), ("d", 2), ("e", 1)];
    queue.enqueue_cost("a", 1).await;
    let b = queue.enqueue_cost("b", 3).await;
    queue.enqueue_cost("c", 1).await;
    queue.enqueue_cost("d", 2).await;
    queue.until_ms(500).await;
    cancel(b).await;
    queue.enqueue_cost("e", 1).await;
    queue.until_ms(60_000).await;
    assert_no_overlap(&queue, &costs, 1_000);
}

/// It would overlap with the slot of a request outside the queue.
#[tokio::test(start_paused = true)]
async fn a_large_request_does_not_move_into_a_slot_that_is_too_small() {
    let queue = TestQueue::new("leaky-bucket 1/s queue 20");
    queue.enqueue("a").await;
    let b = queue.enqueue("b").await;
    assert_eq!(queue.limiter.check("k").delay().as_secs(), 2);
    queue.enqueue_cost("large", 2).await;
    queue.until_ms(500).await;
    cancel(b).await;
    queue.until_ms(60_000).await;
    let admitted = queue.admitted();
    let at = admitted.last().unwrap().1;
    // Another request runs from 2 s to 3 s; two units from 1 s would last until 3 s.
    assert!(at >= 3_000, "{admitted:?} overlaps with the slot at 2 s");
}

/// Requests start and are cancelled at random: the others are in order, do not overlap, and nothing
/// stays taken.
#[test]
fn random_cancellations_of_equal_costs_keep_order_and_rate() {
    with_each_seed(|rng| (0..15).for_each(|_| random_cancellations(rng.fork(), 1..=1)));
}

#[test]
fn random_cancellations_of_unequal_costs_keep_order_and_rate() {
    with_each_seed(|rng| (0..15).for_each(|_| random_cancellations(rng.fork(), 1..=4)));
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn random_cancellations(mut rng: fastrand::Rng, costs: std::ops::RangeInclusive<u32>) {
    let queue = TestQueue::new("leaky-bucket 1/100ms queue 12");
    let mut events = Vec::new();
    let (mut names, mut waiters) = (Vec::new(), Vec::new());
    let mut now = 0;
    for n in 0..40 {
        if rng.bool() {
            now += rng.u64(..300);
            queue.until_ms(now).await;
        }
        if !waiters.is_empty() && rng.u32(..3) == 0 {
            let at = rng.usize(..waiters.len());
            let (name, waiter): (String, tokio::task::JoinHandle<_>) = waiters.swap_remove(at);
            events.push(format!("{now}: {name} is cancelled"));
            waiter.abort();
            settle().await;
        } else {
            let cost = rng.u32(costs.clone());
            let name = n.to_string();
            events.push(format!("{now}: {name} acquires {cost}"));
            waiters.push((name.clone(), queue.enqueue_cost(&name, cost).await));
            names.push((name, cost));
        }
    }
    queue.until_ms(now + 60_000).await;
    queue.assert_empty();
    assert_eq!(queue.remaining(), 12, "units stay taken\n{events:#?}");
    let admitted = queue.admitted();
    let position = |name: &str| names.iter().position(|(other, _)| other == name).unwrap();
    for pair in admitted.windows(2) {
        let (a, b) = (position(&pair[0].0), position(&pair[1].0));
        assert!(a < b, "{pair:?} out of order\n{events:#?}\n{admitted:?}");
        let done = pair[0].1 + u64::from(names[a].1) * 100;
        assert!(
            pair[1].1 >= done,
            "{pair:?} overlap\n{events:#?}\n{admitted:?}"
        );
    }
}
