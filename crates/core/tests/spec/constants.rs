//! Quotas in constants: builders and literals, as users write them.

use std::time::Duration;

use tallygate_core::{Algorithm, Quota, quota};
use tallygate_testkit::with_each_seed;

use crate::long_traces::any_quota;

const DAILY: Quota = Quota::fixed_window(50).per_day();
const LOGIN: Quota = Quota::sliding_window_log(5).per_minute();
const DEFAULT: Quota = Quota::sliding_window_counter(100).per_hour();
const SEARCH: Quota = Quota::token_bucket(10).per_second().burst(50);
const MAIL: Quota = Quota::leaky_bucket(1)
    .per(Duration::from_millis(500))
    .queue(20);
const TENANTS: Quota = Quota::token_bucket(100).per_second().shared(4);
const STREAMS: Quota = Quota::concurrent(10, Duration::from_secs(60));
static LITERAL: Quota = quota!("token-bucket 10/s burst 50");

#[test]
fn builders_and_literals_make_the_quotas_of_the_text_form() {
    for (quota, text) in [
        (DAILY, "fixed-window 50/d"),
        (LOGIN, "sliding-window-log 5/min"),
        (DEFAULT, "sliding-window-counter 100/h"),
        (SEARCH, "token-bucket 10/s burst 50"),
        (LITERAL, "token-bucket 10/s burst 50"),
        (MAIL, "leaky-bucket 1/500ms queue 20"),
        (TENANTS, "token-bucket 100/s burst 100 shared 4"),
        (STREAMS, "concurrent 10 for 1min"),
        (
            quota!("leaky-bucket 9/s burst 8 shared 2"),
            "leaky-bucket 9/s burst 8 shared 2",
        ),
        (quota!("concurrent 1 for 1s"), "concurrent 1 for 1s"),
        (
            Quota::leaky_bucket(10).per_second().burst(20),
            "leaky-bucket 10/s burst 20",
        ),
        (
            Quota::leaky_bucket(10).per_second(),
            "leaky-bucket 10/s burst 10",
        ),
        (
            Quota::token_bucket(10).per_second(),
            "token-bucket 10/s burst 10",
        ),
        (quota!("7/15min"), "sliding-window-counter 7/15min"),
        (quota!("gcra 1/1h30min"), "token-bucket 1/1h30min burst 1"),
        (
            quota!("leaky-bucket 10/s queue 20"),
            "leaky-bucket 10/s queue 20",
        ),
        (Quota::per_second(3), "sliding-window-counter 3/s"),
        (Quota::per_day(3), "sliding-window-counter 3/d"),
    ] {
        assert_eq!(quota.to_string(), text);
        assert_eq!(text.parse(), Ok(quota));
    }
}

#[test]
fn a_built_quota_equals_the_checked_one() {
    with_each_seed(|rng| {
        for _ in 0..1_000 {
            let quota = any_quota(rng);
            let (limit, capacity) = (quota.limit(), quota.capacity());
            let builder = match quota.algorithm() {
                Algorithm::FixedWindow => Quota::fixed_window(limit),
                Algorithm::SlidingWindowLog => Quota::sliding_window_log(limit),
                Algorithm::SlidingWindowCounter => Quota::sliding_window_counter(limit),
                Algorithm::TokenBucket => Quota::token_bucket(limit),
                _ => Quota::leaky_bucket(limit),
            };
            if Quota::new(quota.algorithm(), limit, quota.period()).is_err() {
                // A drain of the limit is out of range.
                continue;
            }
            let built = builder.per(quota.period());
            let built = match quota.algorithm().capacity_keyword() {
                Some("queue") => built.queue(capacity),
                Some(_) => built.burst(capacity),
                None => built,
            };
            assert_eq!(built, quota);
        }
    });
}

#[track_caller]
fn assert_panics(build: fn() -> Quota, message: &str) {
    let panic = std::panic::catch_unwind(build).expect_err("the quota is invalid");
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    assert_eq!(text, Some(message));
}

#[test]
fn an_invalid_builder_panics_with_the_reason() {
    assert_panics(
        || Quota::token_bucket(0).per_second(),
        "the limit is out of range: 1 to 1000000000, of a log 100000, at once 10000",
    );
    assert_panics(
        || Quota::sliding_window_log(100_001).per_second(),
        "the limit is out of range: 1 to 1000000000, of a log 100000, at once 10000",
    );
    assert_panics(
        || Quota::token_bucket(1).per(Duration::from_nanos(1_500_000)),
        "the period is not a whole number of milliseconds",
    );
    assert_panics(
        || Quota::token_bucket(1).per(Duration::ZERO),
        "the period is out of range: 1ms to 366d",
    );
    assert_panics(
        || Quota::token_bucket(1).per(Duration::MAX),
        "the period is not a whole number of milliseconds",
    );
    assert_panics(
        || Quota::token_bucket(1).per_day().burst(1_000_000),
        "a full drain (capacity x period / limit) is above 4503599627370496 microseconds",
    );
    assert_panics(
        || Quota::token_bucket(1).per_day().burst(0),
        "the burst or queue is out of range: 1 to 1000000000",
    );
    assert_panics(
        || Quota::fixed_window(1).per_day().burst(5),
        "only buckets have a burst, and only leaky buckets a queue",
    );
    assert_panics(
        || Quota::token_bucket(1).per_day().queue(5),
        "only buckets have a burst, and only leaky buckets a queue",
    );
    assert_panics(
        || Quota::token_bucket(8).per_second().shared(3),
        "the burst is below four times the units of a member",
    );
    assert_panics(
        || Quota::token_bucket(8).per_second().shared(0),
        "the units of a member are below 1",
    );
    assert_panics(
        || Quota::fixed_window(8).per_second().shared(1),
        "only token buckets and leaky buckets with a burst can be shared",
    );
    assert_panics(
        || Quota::token_bucket(8).per_second().shared(1).burst(9),
        "the burst is set before the share",
    );
    assert_panics(
        || Quota::concurrent(1, Duration::from_millis(999)),
        "the hold time is out of range: 1s to 24h",
    );
    assert_panics(
        || Quota::concurrent(10_001, Duration::from_secs(1)),
        "the limit is out of range: 1 to 1000000000, of a log 100000, at once 10000",
    );
    assert_panics(
        || Quota::leaky_bucket(1).per_day().burst(5).queue(5),
        "a bucket has a burst or a queue, not both",
    );
}
