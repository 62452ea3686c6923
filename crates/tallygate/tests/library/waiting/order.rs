//! Who waits gets through when there is room, first come, first served for each key.

use tallygate::{Limit, Quota, Request, Wait};

use super::line::Line;

#[tokio::test(start_paused = true)]
async fn a_window_lets_waiters_through_when_it_has_room() {
    // The sliding window counter forgets its full previous window bit by bit.
    let cases: [(&str, &[u64]); 5] = [
        ("fixed-window 2/s", &[0, 0, 1_000, 1_000, 2_000]),
        ("sliding-window-log 2/s", &[0, 0, 1_000, 1_000, 2_000]),
        ("sliding-window-counter 2/s", &[0, 0, 1_001, 1_501, 2_001]),
        ("token-bucket 2/s burst 2", &[0, 0, 500, 1_000, 1_500]),
        ("leaky-bucket 2/s burst 2", &[0, 0, 500, 1_000, 1_500]),
    ];
    for (quota, times) in cases {
        let line = Line::of(quota);
        let mut waiters = Vec::new();
        for n in 0..times.len() {
            waiters.push(line.join(&n.to_string()).await);
        }
        for waiter in waiters {
            assert!(waiter.await.unwrap().unwrap().allowed(), "{quota}");
        }
        let through = line.through();
        let names: Vec<&str> = through.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["0", "1", "2", "3", "4"], "{quota}");
        let at: Vec<u64> = through.iter().map(|(_, at)| *at).collect();
        assert_eq!(at, times, "{quota}");
        line.assert_nobody_waits();
    }
}

#[tokio::test(start_paused = true)]
async fn a_shaping_delay_really_passes() {
    let line = Line::of("leaky-bucket 10/s queue 5");
    for n in 0..12 {
        // The queue holds five: the others wait for a place in it first.
        line.join(&n.to_string()).await;
    }
    line.until_ms(5_000).await;
    let right: Vec<(String, u64)> = (0..12).map(|n| (n.to_string(), n * 100)).collect();
    assert_eq!(line.through(), right);
    line.assert_nobody_waits();
}

#[tokio::test(start_paused = true)]
async fn a_lone_caller_paces_itself() {
    let line = Line::of("leaky-bucket 1/5ms queue 1");
    for n in 0..10 {
        let decision = line.limiter.acquire("k").await.unwrap();
        assert!(decision.allowed());
        assert_eq!(line.now_ms(), 5 * n);
    }
}

#[tokio::test(start_paused = true)]
async fn many_waiters_are_served_in_the_order_they_came() {
    for quota in [
        "fixed-window 3/s",
        "sliding-window-log 3/s",
        "sliding-window-counter 3/s",
        "token-bucket 3/s burst 2",
        "leaky-bucket 3/s burst 2",
        "leaky-bucket 3/s queue 20",
        "leaky-bucket 3/s queue 200",
    ] {
        let line = Line::of(quota);
        let mut waiters = Vec::new();
        for n in 0..100 {
            if n % 10 == 9 {
                line.until_ms(37 * n).await;
            }
            waiters.push(line.join_for(&n.to_string(), 1 + n as u32 % 2).await);
        }
        for waiter in waiters {
            assert!(waiter.await.unwrap().unwrap().allowed());
        }
        let through = line.through();
        let right: Vec<String> = (0..100).map(|n| n.to_string()).collect();
        let names: Vec<String> = through.into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, right, "{quota}");
        line.assert_nobody_waits();
    }
}

#[tokio::test(start_paused = true)]
async fn a_large_request_in_front_is_not_overtaken_by_small_ones() {
    let line = Line::of("token-bucket 1/s burst 5");
    assert!(line.limiter.check_cost("k", 5).allowed());
    line.join_for("large", 5).await;
    line.join_for("small", 1).await;
    line.until_ms(20_000).await;
    line.assert_through(&[("large", 5_000), ("small", 6_000)]);
}

#[tokio::test(start_paused = true)]
async fn different_keys_do_not_wait_for_one_another() {
    for quota in [
        "fixed-window 1/h",
        "leaky-bucket 1/h queue 9",
        "token-bucket 1/h",
    ] {
        let line = Line::of(quota);
        for n in 0..50 {
            let key = (n % 10).to_string();
            line.join_with(&n.to_string(), &key, 1, Wait::forever())
                .await;
        }
        let right: Vec<(String, u64)> = (0..10).map(|n| (n.to_string(), 0)).collect();
        assert_eq!(line.through(), right, "{quota}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_limit_of_a_request_is_waited_for() {
    let line =
        Line::of("fixed-window 2/s").and("leaky-bucket 5/s queue 3".parse::<Quota>().unwrap());
    for n in 0..5 {
        line.join(&n.to_string()).await;
    }
    line.until_ms(10_000).await;
    let right = [
        ("0", 0),
        ("1", 200),
        ("2", 1_000),
        ("3", 1_200),
        ("4", 2_000),
    ];
    line.assert_through(&right);
}

#[tokio::test(start_paused = true)]
async fn one_who_needs_no_wait_gets_the_decision_of_a_check() {
    let line = Line::of("token-bucket 10/s burst 5");
    let decision = line.limiter.acquire("k").await.unwrap();
    assert_eq!((decision.granted(), decision.remaining()), (1, 4));
    let request = line.limiter.request("k").cost(3);
    let decision = line
        .limiter
        .acquire_with(&request, Wait::forever())
        .await
        .unwrap();
    assert_eq!((decision.granted(), decision.remaining()), (3, 1));
    let nothing = line.limiter.request("k").cost(0);
    let decision = line
        .limiter
        .acquire_with(&nothing, Wait::forever())
        .await
        .unwrap();
    assert_eq!((decision.granted(), decision.remaining()), (0, 1));
    assert_eq!(line.now_ms(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_carries_its_own_limits_is_waited_for() {
    let line = Line::of("fixed-window 1/h");
    let own = Limit::from("fixed-window 1/s".parse::<Quota>().unwrap());
    let request = Request::new("k", &own);
    for n in 0..3 {
        let through = line.limiter.acquire_with(&request, Wait::forever()).await;
        assert!(through.unwrap().allowed());
        assert_eq!(line.now_ms(), n * 1_000);
    }
}

#[tokio::test(start_paused = true)]
async fn clones_and_changed_quotas_stand_in_one_line() {
    let line = Line::of("fixed-window 1/s");
    let larger = Line {
        limiter: line
            .limiter
            .with_limit("fixed-window 2/s".parse::<Quota>().unwrap()),
        ..line.clone()
    };
    line.join("a").await;
    line.join("b").await;
    larger.join("c").await;
    line.clone().join("d").await;
    line.until_ms(10_000).await;
    line.assert_through(&[("a", 0), ("b", 1_000), ("c", 1_000), ("d", 2_000)]);
}

#[tokio::test(start_paused = true)]
async fn one_who_takes_without_waiting_only_makes_the_waiters_wait_longer() {
    let line = Line::of("token-bucket 1/s burst 1");
    assert!(line.limiter.check("k").allowed());
    line.join("a").await;
    line.join("b").await;
    line.until_ms(500).await;
    assert!(line.limiter.charge("k", 1).allowed());
    line.until_ms(9_000).await;
    line.assert_through(&[("a", 2_000), ("b", 3_000)]);
    line.assert_nobody_waits();
}
