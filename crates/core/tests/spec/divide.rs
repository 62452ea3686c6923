//! `Quota::divide`: all parts together keep the rate, and no part is smaller than necessary.

use tallygate_core::{MAX_PERIOD_US, Quota};
use tallygate_testkit::{any, with_each_seed};

use crate::long_traces::any_quota;

fn part(quota: &str, replicas: u32) -> String {
    let quota: Quota = quota.parse().unwrap();
    let part = quota.divide(replicas);
    part.map_or("none".into(), |part| part.to_string())
}

#[test]
fn limit_and_burst_are_divided_and_rounded_down() {
    assert_eq!(part("100/min", 3), "sliding-window-counter 33/min");
    assert_eq!(
        part("token-bucket 10/s burst 50", 4),
        "token-bucket 2/s burst 12"
    );
    assert_eq!(
        part("leaky-bucket 10/s queue 3", 4),
        "leaky-bucket 2/s queue 1"
    );
    assert_eq!(part("sliding-window-log 7/s", 1), "sliding-window-log 7/s");
    assert_eq!(part("sliding-window-log 7/s", 0), "sliding-window-log 7/s");
}

#[test]
fn a_part_below_one_unit_has_a_longer_period() {
    assert_eq!(part("fixed-window 2/s", 5), "fixed-window 1/2s500ms");
    assert_eq!(
        part("token-bucket 3/s burst 9", 10),
        "token-bucket 1/3s334ms burst 1"
    );
    assert_eq!(part("1/366d", 2), "none");
}

#[test]
fn a_part_of_a_share_keeps_the_units_of_a_member_as_far_as_its_burst_allows() {
    let shared = "token-bucket 100/s burst 100 shared 10";
    assert_eq!(part(shared, 2), "token-bucket 50/s burst 50 shared 10");
    assert_eq!(part(shared, 10), "token-bucket 10/s burst 10 shared 2");
    // Too small to be shared.
    assert_eq!(part(shared, 26), "token-bucket 3/s burst 3");
    assert_eq!(
        part("leaky-bucket 100/s burst 100 shared 10", 26),
        "leaky-bucket 3/s burst 3"
    );
}

#[test]
fn a_part_of_a_concurrency_limit_is_at_least_one_for_the_same_time() {
    assert_eq!(part("concurrent 10 for 30s", 3), "concurrent 3 for 30s");
    assert_eq!(part("concurrent 10 for 30s", 100), "concurrent 1 for 30s");
}

#[test]
fn all_parts_together_keep_the_rate() {
    with_each_seed(|rng| {
        for _ in 0..3_000 {
            let quota = any_quota(rng);
            let bits = rng.u32(1..=31);
            let replicas = any(
                rng,
                &[1, 2, 3, quota.limit(), rng.clone().u32(1..1 << bits)],
            );
            let Some(part) = quota.divide(replicas) else {
                let longer = u128::from(quota.period_us()) * u128::from(replicas);
                let longest = u128::from(MAX_PERIOD_US - 1_000) * u128::from(quota.limit());
                assert!(longer > longest, "{quota} among {replicas}");
                continue;
            };
            let wide = |quota: &Quota, times: u32| u128::from(quota.limit()) * u128::from(times);
            let together = wide(&part, replicas) * u128::from(quota.period_us());
            let whole = wide(&quota, 1) * u128::from(part.period_us());
            assert!(together <= whole, "{quota} among {replicas}: {part}");
            // A part is only rounded down.
            let more =
                (wide(&part, replicas) + u128::from(replicas)) * u128::from(quota.period_us());
            assert!(
                more > whole || part.period_us() > quota.period_us(),
                "{quota} among {replicas}: {part}"
            );
            assert_eq!(part.algorithm(), quota.algorithm());
        }
    });
}
