//! Whoever is dropped takes nothing in the end, and the next ones move up.

use tallygate::{Limit, Quota, Request, Verb, Wait};

use super::line::{Line, leave, settle};
use crate::behaviours::each_minute;

#[tokio::test(start_paused = true)]
async fn one_who_leaves_before_their_turn_takes_nothing() {
    for quota in [
        "fixed-window 1/s",
        "token-bucket 1/s",
        "sliding-window-log 1/s",
        "leaky-bucket 1/s queue 1",
    ] {
        let line = Line::of(quota);
        line.join("a").await;
        line.join("b").await;
        let c = line.join("c").await;
        line.join("d").await;
        line.until_ms(500).await;
        leave(c).await;
        line.until_ms(9_000).await;
        line.assert_through(&[("a", 0), ("b", 1_000), ("d", 2_000)]);
        line.assert_nobody_waits();
    }
}

#[tokio::test(start_paused = true)]
async fn when_the_first_leaves_the_second_takes_the_turn() {
    for quota in [
        "fixed-window 1/s",
        "token-bucket 1/s",
        "sliding-window-log 1/s",
        "leaky-bucket 1/s queue 1",
    ] {
        let line = Line::of(quota);
        line.join("a").await;
        let b = line.join("b").await;
        line.join("c").await;
        line.until_ms(500).await;
        leave(b).await;
        line.until_ms(9_000).await;
        line.assert_through(&[("a", 0), ("c", 1_000)]);
        line.assert_nobody_waits();
    }
}

#[tokio::test(start_paused = true)]
async fn everybody_may_leave_and_nothing_is_left_taken() {
    for quota in each_minute(2) {
        let line = Line::under(quota);
        let before = line.limiter.peek("k", 1);
        assert!(line.limiter.check_cost("k", 2).allowed());
        let mut waiters = Vec::new();
        for n in 0..20 {
            waiters.push(line.join(&n.to_string()).await);
        }
        for waiter in waiters {
            leave(waiter).await;
        }
        line.assert_nobody_waits();
        line.assert_through(&[]);
        assert_eq!(line.left(), 0, "{quota}");
        let _ = line.limiter.refund("k", 2);
        assert_eq!(line.limiter.peek("k", 1), before, "{quota}");
    }
}

/// The example: B leaves at 0.5 s, C runs at 1 s, D at 2 s, a newcomer gets the freed tail.
#[tokio::test(start_paused = true)]
async fn a_seat_in_the_middle_of_a_shaping_queue_passes_to_the_next() {
    let line = Line::of("leaky-bucket 1/s queue 10");
    line.join("a").await;
    let b = line.join("b").await;
    line.join("c").await;
    line.join("d").await;
    line.until_ms(500).await;
    leave(b).await;
    line.join("e").await;
    line.until_ms(20_000).await;
    line.assert_through(&[("a", 0), ("c", 1_000), ("d", 2_000), ("e", 3_000)]);
    line.assert_nobody_waits();
}

#[tokio::test(start_paused = true)]
async fn a_seat_at_the_tail_of_a_shaping_queue_is_given_back() {
    let line = Line::of("leaky-bucket 1/s queue 10");
    line.join("a").await;
    line.join("b").await;
    let c = line.join("c").await;
    line.until_ms(500).await;
    leave(c).await;
    let d = line.join("d").await;
    line.until_ms(1_500).await;
    leave(d).await;
    line.join("e").await;
    line.until_ms(20_000).await;
    line.assert_through(&[("a", 0), ("b", 1_000), ("e", 2_000)]);
    assert_eq!(line.left(), 10);
}

#[tokio::test(start_paused = true)]
async fn several_seats_given_up_at_once_all_pass_on() {
    let line = Line::of("leaky-bucket 1/s queue 10");
    let mut waiters = Vec::new();
    for name in ["a", "b", "c", "d", "e", "f", "g"] {
        waiters.push((name, line.join(name).await));
    }
    line.until_ms(500).await;
    let mut kept = Vec::new();
    for (name, waiter) in waiters {
        if ["b", "d", "e"].contains(&name) {
            waiter.abort();
        } else {
            kept.push(waiter);
        }
    }
    settle().await;
    line.join("h").await;
    line.until_ms(20_000).await;
    line.assert_through(&[
        ("a", 0),
        ("c", 1_000),
        ("f", 2_000),
        ("g", 3_000),
        ("h", 4_000),
    ]);
    line.assert_nobody_waits();
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_for_a_seat_move_up_too() {
    let line = Line::of("leaky-bucket 1/s queue 3");
    let mut waiters = Vec::new();
    for name in ["a", "b", "c", "d", "e", "f"] {
        waiters.push(line.join(name).await);
    }
    line.until_ms(500).await;
    leave(waiters.remove(1)).await;
    line.until_ms(20_000).await;
    line.assert_through(&[
        ("a", 0),
        ("c", 1_000),
        ("d", 2_000),
        ("e", 3_000),
        ("f", 4_000),
    ]);
    line.assert_nobody_waits();
}

/// Somebody who does not wait, or another process, holds a place between: it stays where it is.
#[tokio::test(start_paused = true)]
async fn a_place_of_somebody_who_does_not_wait_here_stays_where_it_is() {
    let line = Line::of("leaky-bucket 1/s queue 10");
    line.join("a").await;
    let b = line.join("b").await;
    let elsewhere = line.limiter.check("k");
    assert_eq!(elsewhere.delay().as_secs(), 2);
    line.join("c").await;
    line.join("d").await;
    line.until_ms(500).await;
    leave(b).await;
    line.join("e").await;
    line.until_ms(20_000).await;
    // At 2 s runs the other one.
    line.assert_through(&[("a", 0), ("c", 1_000), ("d", 3_000), ("e", 4_000)]);
}

/// The same with a waiter between the one who leaves and that place.
#[tokio::test(start_paused = true)]
async fn a_place_further_back_of_somebody_who_does_not_wait_here_stays_too() {
    let line = Line::of("leaky-bucket 1/s queue 10");
    line.join("a").await;
    let b = line.join("b").await;
    line.join("c").await;
    assert_eq!(line.limiter.check("k").delay().as_secs(), 3);
    line.join("d").await;
    line.until_ms(500).await;
    leave(b).await;
    line.join("e").await;
    line.until_ms(20_000).await;
    // At 3 s runs the other one.
    line.assert_through(&[("a", 0), ("c", 1_000), ("d", 2_000), ("e", 4_000)]);
}

/// A unit takes two thirds of a microsecond: 3,000 of them take 2 ms, whoever leaves.
#[tokio::test(start_paused = true)]
async fn at_a_high_rate_one_who_leaves_makes_nobody_run_later() {
    let line = Line::of("leaky-bucket 1500/ms queue 10000");
    line.join("0").await;
    let leaves = line.join("leaves").await;
    for n in 1..3_000 {
        line.join(&n.to_string()).await;
    }
    leave(leaves).await;
    line.until_ms(100).await;
    let through = line.through();
    assert_eq!(through.len(), 3_000);
    let latest = through.iter().map(|(_, at)| at).max().unwrap();
    assert_eq!(*latest, 2, "the last one ran at {latest} ms");
}

/// The waiter took its unit of a window that is over; the one that runs now owes it nothing.
#[tokio::test(start_paused = true)]
async fn one_who_leaves_after_its_window_ended_gives_the_next_window_nothing() {
    let window = Limit::named("window", "fixed-window 2/s".parse().unwrap());
    let line =
        Line::under(window.clone()).and("leaky-bucket 1/2s queue 9".parse::<Quota>().unwrap());
    line.join("a").await;
    let b = line.join("b").await;
    line.until_ms(1_000).await;
    let direct = Request::new("k", &window);
    let admitted = |tries: u32| {
        (0..tries)
            .filter(|_| line.limiter.decide_now(&direct).allowed())
            .count()
    };
    assert_eq!(admitted(5), 2);
    line.until_ms(1_500).await;
    leave(b).await;
    assert_eq!(admitted(5), 0, "more than 2 in one window");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_wait_gives_the_schedule_back_and_nothing_that_may_be_of_the_past() {
    let line = Line::of("fixed-window 9/h")
        .and("token-bucket 9/h".parse::<Quota>().unwrap())
        .and("leaky-bucket 1/h queue 9".parse::<Quota>().unwrap());
    line.join("a").await;
    let b = line.join_for("b", 3).await;
    let c = line.join_for("c", 2).await;
    line.until_ms(100).await;
    leave(b).await;
    leave(c).await;
    let peek = line.limiter.request("k").verb(Verb::Peek);
    let decision = line.limiter.decide_now(&peek);
    let left: Vec<u32> = decision.verdicts().iter().map(|v| v.remaining).collect();
    assert_eq!(left, [3, 3, 8]);
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_was_never_polled_takes_nothing() {
    let line = Line::of("fixed-window 1/h");
    drop(line.limiter.acquire("k"));
    let request = line.limiter.request("k");
    drop(line.limiter.acquire_with(&request, Wait::forever()));
    assert_eq!(line.left(), 1);
    line.assert_nobody_waits();
}
