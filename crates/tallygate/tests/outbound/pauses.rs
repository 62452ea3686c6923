//! Pauses apply to new calls and to calls that wait already.

use std::task::{Context, Waker};
use std::time::Duration;

use tallygate::Verb;
use tallygate::outbound::OutboundLayer;

use crate::remote::{Calls, cancel, limiter};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_during_a_pause() {
    for answer in [
        "429&retry-after=5",
        "503&retry-after=5",
        "200&ratelimit=a;r=0;t=5",
        "200&ratelimit=remaining=0,reset=5",
        "404&x-ratelimit-remaining=0&x-ratelimit-reset=5",
    ] {
        let calls = Calls::with_quota("token-bucket 100/s burst 100");
        calls.call(&format!("a?{answer}")).await;
        calls.remote.until_ms(1_000).await;
        calls.call("b").await;
        calls.call("c").await;
        calls.remote.until_ms(4_000).await;
        calls.call("d").await;
        calls.remote.until_ms(4_999).await;
        calls.remote.assert_arrived(&[("a", 0)]);
        assert_eq!(calls.queue_sizes(), (3, 1), "{answer}");
        calls.remote.until_ms(9_000).await;
        let expected = [("a", 0), ("b", 5_000), ("c", 5_000), ("d", 5_000)];
        calls.remote.assert_arrived(&expected);
        assert_eq!(calls.queue_sizes(), (0, 0), "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn other_responses_change_nothing() {
    for answer in [
        "200&retry-after=5",
        "429",
        "503",
        "429&retry-after=0",
        "429&retry-after=soon",
        "429&retry-after=-5",
        "429&ratelimit=a;r=1;t=5",
        "200&x-ratelimit-remaining=0",
        "200&x-ratelimit-remaining=1&x-ratelimit-reset=5",
        "200&x-ratelimit-remaining=0&x-ratelimit-reset=1500000000",
    ] {
        let calls = Calls::with_quota("token-bucket 100/s burst 100");
        calls.call(&format!("a?{answer}")).await;
        calls.call("b").await;
        calls.remote.assert_arrived(&[("a", 0), ("b", 0)]);
        assert_eq!(calls.queue_sizes(), (0, 0), "{answer}");
    }
}

/// They wait in a shaping queue when the pause starts, and are spaced again when it ends.
#[tokio::test(start_paused = true)]
async fn calls_are_spaced_after_a_pause() {
    let calls = Calls::with_quota("leaky-bucket 10/s queue 100");
    calls.call("0").await;
    calls.call("1?429&retry-after=2").await;
    for n in 2..10 {
        calls.call(&n.to_string()).await;
    }
    calls.remote.until_ms(1_000).await;
    // A call made during the pause is last.
    calls.call("10").await;
    calls.remote.until_ms(9_000).await;
    let mut expected = vec![("0".to_owned(), 0), ("1".to_owned(), 100)];
    expected.extend((2..11).map(|n| (n.to_string(), 2_100 + 100 * (n - 2))));
    assert_eq!(calls.remote.arrived(), expected);
    assert_eq!(calls.queue_sizes(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn order_and_quota_hold_across_pauses_with_any_quota() {
    let pauses = [
        "3?429&retry-after=2",
        "9?429&retry-after=1",
        "10?503&retry-after=1",
    ];
    for quota in [
        "fixed-window 2/s",
        "sliding-window-log 2/s",
        "sliding-window-counter 2/s",
        "token-bucket 2/s burst 2",
        "leaky-bucket 2/s burst 2",
        "leaky-bucket 2/s queue 9",
    ] {
        let calls = Calls::with_quota(quota);
        for n in 0..30 {
            let name = n.to_string();
            let pause = pauses
                .iter()
                .find(|pause| pause.starts_with(&format!("{n}?")));
            calls.call(pause.unwrap_or(&&*name)).await;
            if n % 7 == 0 {
                calls.remote.until_ms(n * 150).await;
            }
        }
        calls.remote.until_ms(100_000).await;
        let arrived = calls.remote.arrived();
        let names: Vec<String> = arrived.iter().map(|(name, _)| name.clone()).collect();
        let expected: Vec<String> = (0..30).map(|n| n.to_string()).collect();
        assert_eq!(names, expected, "{quota}");
        let times: Vec<u64> = arrived.iter().map(|(_, at)| *at).collect();
        assert!(times[4] >= times[3] + 2_000, "{quota}: {times:?}");
        assert!(times[11] >= times[10] + 1_000, "{quota}: {times:?}");
        // Two a second; twice that around a window boundary or with a full bucket.
        for five in times.windows(5) {
            assert!(five[4] - five[0] >= 1_000, "{quota}: {times:?}");
        }
        assert_eq!(calls.queue_sizes(), (0, 0), "{quota}");
    }
}

/// A recalled call is not charged.
#[tokio::test(start_paused = true)]
async fn a_pause_charges_nothing() {
    for quota in [
        "fixed-window 4/h",
        "token-bucket 4/h",
        "sliding-window-log 4/h",
        "leaky-bucket 1/h queue 9",
    ] {
        let limiter = limiter(quota);
        let calls = Calls::through(&OutboundLayer::new(limiter.clone()));
        let before = limiter.peek("", 1).remaining();
        let first = calls.call("a?429&after=500&retry-after=60").await;
        let mut others = Vec::new();
        for n in 0..8 {
            others.push(calls.call(&n.to_string()).await);
        }
        calls.remote.until_ms(1_000).await;
        assert_eq!(first.await.unwrap().unwrap(), 429);
        let went = calls.remote.arrived().len();
        let peek = limiter.request("").verb(Verb::Peek);
        let left = limiter.decide_now(&peek).remaining() as usize;
        assert_eq!(before as usize - left, went, "{quota}");
        for other in others {
            if !other.is_finished() {
                cancel(other).await;
            }
        }
        assert_eq!(calls.queue_sizes(), (0, 1), "{quota}");
        assert_eq!(limiter.peek("", 1).remaining() as usize, left, "{quota}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_can_only_be_lengthened() {
    let calls = Calls::with_quota("token-bucket 100/s burst 100");
    calls.call("a?429&after=1000&retry-after=5").await;
    calls.call("b?429&after=2000&retry-after=1").await;
    calls.call("c?200&after=2500").await;
    calls.call("d?429&after=5000&retry-after=7").await;
    calls.remote.until_ms(4_000).await;
    calls.call("e").await;
    calls.call("f").await;
    calls.remote.until_ms(50_000).await;
    let expected = ["a", "b", "c", "d"].map(|name| (name, 0));
    let expected = [&expected[..], &[("e", 12_000), ("f", 12_000)]].concat();
    calls.remote.assert_arrived(&expected);
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_during_a_pause_blocks_no_other() {
    let calls = Calls::with_quota("leaky-bucket 1/s queue 10");
    calls.call("a?429&retry-after=5").await;
    let b = calls.call("b").await;
    let c = calls.call("c").await;
    calls.call("d").await;
    calls.call("e").await;
    calls.remote.until_ms(1_000).await;
    cancel(b).await;
    calls.remote.until_ms(2_000).await;
    cancel(c).await;
    calls.remote.until_ms(50_000).await;
    let expected = [("a", 0), ("d", 5_000), ("e", 6_000)];
    calls.remote.assert_arrived(&expected);
    assert_eq!(calls.queue_sizes(), (0, 0));
}

/// The pause starts after the units were taken but before the task is polled: they are kept.
#[tokio::test(start_paused = true)]
async fn a_turn_that_coincides_with_a_pause_is_kept() {
    let limiter = limiter("leaky-bucket 1/s queue 10");
    let calls = Calls::through(&OutboundLayer::new(limiter.clone()));
    calls.call("a?429&after=1200&retry-after=5").await;
    let mut b = Box::pin(calls.calling("b"));
    let mut context = Context::from_waker(Waker::noop());
    assert!(b.as_mut().poll(&mut context).is_pending());
    calls.remote.until_ms(1_300).await;
    let b = tokio::spawn(b);
    calls.remote.until_ms(6_199).await;
    calls.remote.assert_arrived(&[("a", 0)]);
    let before = limiter.peek("", 1);
    assert_eq!(b.await.unwrap().unwrap(), 200);
    calls.remote.assert_arrived(&[("a", 0), ("b", 6_200)]);
    assert_eq!(limiter.peek("", 1).remaining(), before.remaining());
    assert_eq!(calls.queue_sizes(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn pauses_are_limited_to_max_pause() {
    // A few days, a huge number, the year 3000.
    for wait in ["999999", "99999999999999999999999999", "32503680000"] {
        let target = format!("a?429&retry-after={wait}");
        for (bound, due) in [(None, 3_600_000), (Some(10 * SECOND), 10_000)] {
            let mut layer = OutboundLayer::new(limiter("token-bucket 100/s burst 100"));
            if let Some(bound) = bound {
                layer = layer.max_pause(bound);
            }
            let calls = Calls::through(&layer);
            calls.call(&target).await;
            calls.call("b").await;
            calls.remote.until_ms(10_000_000).await;
            calls.remote.assert_arrived(&[("a", 0), ("b", due)]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_max_pause_of_zero_disables_pauses() {
    let layer = OutboundLayer::new(limiter("token-bucket 100/s burst 100"));
    let calls = Calls::through(&layer.max_pause(Duration::ZERO));
    calls.call("a?429&retry-after=5").await;
    calls.call("b").await;
    calls.remote.assert_arrived(&[("a", 0), ("b", 0)]);
}

#[tokio::test(start_paused = true)]
async fn huge_settings_do_not_overflow() {
    let layer = OutboundLayer::new(limiter("token-bucket 100/s burst 100"))
        .max_pause(Duration::MAX)
        .max_wait(Duration::MAX)
        .jitter(Duration::MAX);
    let calls = Calls::through(&layer);
    calls.call("a?429&retry-after=999999999").await;
    calls.call("b").await;
    calls.remote.until_ms(366 * 24 * 3_600_000 - 1).await;
    calls.remote.assert_arrived(&[("a", 0)]);
    calls.remote.until_ms(2 * 366 * 24 * 3_600_000 + 1).await;
    assert_eq!(calls.remote.arrived().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn jitter_lengthens_a_pause_within_its_bound() {
    let mut seen = Vec::new();
    for _ in 0..40 {
        let layer = OutboundLayer::new(limiter("token-bucket 100/s burst 100"));
        let calls = Calls::through(&layer.jitter(SECOND / 5));
        calls.call("a?429&retry-after=1").await;
        calls.call("b").await;
        calls.call("c").await;
        calls.remote.until_ms(5_000).await;
        let arrived = calls.remote.arrived();
        let at = arrived[1].1;
        assert!((1_000..=1_201).contains(&at), "{at}");
        // It moves the end of the pause for all waiting calls.
        assert_eq!(arrived[2].1, at);
        seen.push(at);
    }
    seen.dedup();
    assert!(seen.len() > 5, "always {seen:?}");
}
