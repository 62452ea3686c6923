//! `Quota::share`: all shares together keep the rate, and no share is smaller than necessary.

use tallygate_core::{MAX_PERIOD_US, Quota};
use tallygate_testkit::{any, with_each_seed};

use crate::long_traces::any_quota;

fn share(quota: &str, replicas: u32) -> String {
    let quota: Quota = quota.parse().unwrap();
    let share = quota.share(replicas);
    share.map_or("none".into(), |share| share.to_string())
}

#[test]
fn limit_and_burst_are_divided_and_rounded_down() {
    assert_eq!(share("100/min", 3), "sliding-window-counter 33/min");
    assert_eq!(
        share("token-bucket 10/s burst 50", 4),
        "token-bucket 2/s burst 12"
    );
    assert_eq!(
        share("leaky-bucket 10/s queue 3", 4),
        "leaky-bucket 2/s queue 1"
    );
    assert_eq!(share("sliding-window-log 7/s", 1), "sliding-window-log 7/s");
    assert_eq!(share("sliding-window-log 7/s", 0), "sliding-window-log 7/s");
}

#[test]
fn a_share_below_one_unit_has_a_longer_period() {
    assert_eq!(share("fixed-window 2/s", 5), "fixed-window 1/2s500ms");
    assert_eq!(
        share("token-bucket 3/s burst 9", 10),
        "token-bucket 1/3s334ms burst 1"
    );
    assert_eq!(share("1/366d", 2), "none");
}

#[test]
fn all_shares_together_keep_the_rate() {
    with_each_seed(|rng| {
        for _ in 0..3_000 {
            let quota = any_quota(rng);
            let bits = rng.u32(1..=31);
            let replicas = any(
                rng,
                &[1, 2, 3, quota.limit(), rng.clone().u32(1..1 << bits)],
            );
            let Some(share) = quota.share(replicas) else {
                let longer = u128::from(quota.period_us()) * u128::from(replicas);
                let longest = u128::from(MAX_PERIOD_US - 1_000) * u128::from(quota.limit());
                assert!(longer > longest, "{quota} among {replicas}");
                continue;
            };
            let wide = |quota: &Quota, times: u32| u128::from(quota.limit()) * u128::from(times);
            let together = wide(&share, replicas) * u128::from(quota.period_us());
            let whole = wide(&quota, 1) * u128::from(share.period_us());
            assert!(together <= whole, "{quota} among {replicas}: {share}");
            // A share is only rounded down.
            let more =
                (wide(&share, replicas) + u128::from(replicas)) * u128::from(quota.period_us());
            assert!(
                more > whole || share.period_us() > quota.period_us(),
                "{quota} among {replicas}: {share}"
            );
            assert_eq!(share.algorithm(), quota.algorithm());
        }
    });
}
