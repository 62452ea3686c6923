//! Long random traces over unusual quotas at boundary times and costs, core against model.

use fastrand::Rng;
use tallygate_core::{Quota, Verb, Verdict};

use crate::compare_with_model::{Pair, Step};
use tallygate_testkit::{any, with_each_seed};

pub(crate) const UNUSUAL_QUOTAS: [&str; 32] = [
    "fixed-window 1/ms",
    "fixed-window 7/min",
    "fixed-window 1000000000/ms",
    "fixed-window 1000000000/366d",
    "sliding-window-log 1/ms",
    "sliding-window-log 5/1h30min",
    "sliding-window-log 100000/366d",
    "1/ms",
    "7/min",
    "1000003/d",
    "1000000000/ms",
    "1/366d",
    "1000000000/366d",
    "999999937/365d23h59min59s999ms",
    "gcra 7/min",
    "token-bucket 7/min burst 3",
    "token-bucket 97/d burst 50",
    "token-bucket 1000003/d",
    "token-bucket 1000000000/30d burst 1000000",
    "token-bucket 1000000000/ms",
    "token-bucket 1/ms burst 1000000000",
    "token-bucket 1000000000/ms burst 1",
    "token-bucket 1/366d burst 142",
    "token-bucket 999999937/366d burst 1000000000",
    "leaky-bucket 3/s burst 5",
    "leaky-bucket 1000000000/ms burst 1000000000",
    "leaky-bucket 1/366d burst 1",
    "leaky-bucket 7/s queue 4",
    "leaky-bucket 7/min queue 1",
    "leaky-bucket 1000000000/30d queue 1000000",
    "leaky-bucket 999999937/ms queue 1000000000",
    "leaky-bucket 1/366d queue 142",
];

pub(crate) const VERBS: [Verb; 12] = [
    Verb::Check,
    Verb::Check,
    Verb::Check,
    Verb::Check,
    Verb::Peek,
    Verb::Take,
    Verb::Take,
    Verb::Charge,
    Verb::Charge,
    Verb::Refund,
    Verb::Refund,
    Verb::Reset,
];

/// A time at or next to a boundary of the last verdict.
pub(crate) fn next_time(rng: &mut Rng, quota: &Quota, last: &LastRequest) -> u64 {
    let (t, period, span) = (last.t, quota.period_us(), quota.span_us());
    let mark = last.mark;
    let boundary = match rng.u8(..40) {
        0..8 => return t,
        8..14 => t.saturating_add(last.wait),
        14..18 => t.saturating_add(last.reset),
        18..22 => (t / period + 1).saturating_mul(period),
        22..26 => t.saturating_add(rng.u64(..span + 2)),
        26..29 => t.saturating_add(span / u64::from(quota.capacity())),
        29..31 => mark,
        31..33 => mark.saturating_sub(span),
        33..35 => t.saturating_sub(rng.u64(..span + 2)),
        35 => mark.saturating_add(span),
        36 => t.saturating_add(span.saturating_mul(2)),
        37 => any(rng, &[0, 1, period, span]),
        38 => any(
            rng,
            &[1 << 52, (1 << 52) - period, (1 << 52) - span.min(1 << 52)],
        ),
        _ => any(rng, &[u64::MAX, 1 << 53, 1_700_000_000_000_000]),
    };
    match rng.u8(..4) {
        0 => boundary.saturating_sub(1),
        1 => boundary.saturating_add(1),
        _ => boundary,
    }
}

/// A cost at or next to a boundary of the quota.
pub(crate) fn next_cost(rng: &mut Rng, quota: &Quota) -> u32 {
    let capacity = quota.capacity();
    match rng.u8(..16) {
        0 => 0,
        1..6 => 1,
        6..9 => rng.u32(1..=capacity),
        9 => capacity,
        10 => capacity + 1,
        11 => capacity - 1,
        12 => rng.u32(1..=capacity).isqrt(),
        13 => capacity.saturating_mul(3),
        14 => rng.u32(..),
        _ => any(rng, &[u32::MAX, 2, capacity / 2]),
    }
}

/// The last request and its verdict.
pub(crate) struct LastRequest {
    t: u64,
    /// When units were last taken, or the time of the counter if that is known.
    pub(crate) mark: u64,
    wait: u64,
    reset: u64,
}

impl LastRequest {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        let t = any(rng, &[0, 1_700_000_000_000_000, (1 << 52) - 1_000_000]);
        LastRequest {
            t,
            mark: t,
            wait: 0,
            reset: 0,
        }
    }

    pub(crate) fn update(&mut self, t: u64, verdict: &Verdict) {
        self.t = t;
        if verdict.granted() > 0 {
            self.mark = t;
        }
        self.wait = verdict.retry_after_us().unwrap_or(verdict.delay_us());
        self.reset = verdict.reset_after_us;
    }
}

fn run(rng: &mut Rng, quota: &Quota, steps: usize) {
    let mut pair = Pair::new();
    let mut last = LastRequest::new(rng);
    let mut path = Vec::new();
    for _ in 0..steps {
        let step = Step {
            t: next_time(rng, quota, &last),
            verb: any(rng, &VERBS),
            cost: next_cost(rng, quota),
        };
        path.push(step);
        match pair.step(quota, step) {
            Ok(verdict) => {
                last.update(step.t, &verdict);
                last.mark = pair.mark().unwrap_or(step.t);
            }
            Err(difference) => {
                let tail = &path[path.len().saturating_sub(12)..];
                panic!("{quota}, step {}: {difference}\nafter {tail:?}", path.len());
            }
        }
    }
}

#[test]
fn long_traces_over_unusual_quotas_agree() {
    with_each_seed(|rng| {
        for text in UNUSUAL_QUOTAS {
            run(rng, &text.parse().unwrap(), 1_000);
        }
    });
}

/// Logs that fill, drain and wrap around, with and without debt.
#[test]
fn long_traces_over_busy_logs_agree() {
    with_each_seed(|rng| {
        for text in ["sliding-window-log 40/s", "sliding-window-log 9/366d"] {
            let quota: Quota = text.parse().unwrap();
            let mut pair = Pair::new();
            let mut t = 1_700_000_000_000_000;
            for i in 0..3_000 {
                let gap = quota.period_us() / any(rng, &[2, 20, 40, 60, 1_000]);
                t += rng.u64(..2 * gap);
                let step = Step {
                    t: t - any(rng, &[0, 0, 0, 1, gap]),
                    verb: any(rng, &VERBS[..11]),
                    cost: any(rng, &[1, 1, 1, 2, 5, 60, u32::MAX]),
                };
                if let Err(difference) = pair.step(&quota, step) {
                    panic!("{quota}, step {i}: {difference}\nat {step:?}");
                }
            }
        }
    });
}

#[test]
fn traces_over_any_quota_agree() {
    with_each_seed(|rng| {
        for _ in 0..400 {
            let quota = any_quota(rng);
            run(rng, &quota, 60);
        }
    });
}

/// A random valid quota with small or large numbers.
pub(crate) fn any_quota(rng: &mut Rng) -> Quota {
    loop {
        let algorithm = any(rng, &tallygate_core::Algorithm::BASIC);
        let number = |rng: &mut Rng| {
            let bits = rng.u32(1..=30);
            rng.u32(1..1 << bits)
        };
        let limit = number(rng);
        let bits = rng.u32(1..=35);
        let period_ms = rng.u64(1..=1 << bits);
        let capacity = match algorithm.capacity_keyword() {
            Some(_) => number(rng),
            None => limit,
        };
        let period = std::time::Duration::from_millis(period_ms);
        if let Ok(quota) = Quota::with_capacity(algorithm, limit, period, capacity) {
            return quota;
        }
    }
}
