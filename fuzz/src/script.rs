//! Decodes bytes into requests at boundary times and costs.

use tallygate_core::{MAX_TIME_US, Quota, Verb, Verdict};

use crate::counter::{Counter, Step};

/// The maximum number of steps of a script, so that long ones do not slow the search.
const MAX_STEPS: usize = 48;

/// The script of a quota without one: bursts, debts, refunds, minimal and maximal times, steps
/// back.
const DEFAULT_SCRIPT: &[u8] = b"\
    \x00\x02\x0f\x00\x00\x01\x00\x00\x02\x05\x01\x00\x00\x01\x02\x00\
    \x03\x03\x05\x00\x00\x01\x06\x00\x04\x01\x07\x00\x02\x04\x08\x00\
    \x03\x04\x0c\x00\x00\x01\x0d\x00\x04\x04\x0b\x00\x00\x02\x09\x00\
    \x00\x06\x0a\x80\x05\x00\x00\x00\x00\x02\x03\x00\x01\x02\x04\x00";

/// Runs a script of four bytes per step on a new counter; the default script if it is empty.
pub fn run(quota: &Quota, script: &[u8]) {
    let script = if script.is_empty() {
        DEFAULT_SCRIPT
    } else {
        script
    };
    let mut counter = Counter::new(*quota);
    let mut t_us = 1_700_000_000_000_000;
    let mut last: Option<Verdict> = None;
    for step in script.chunks_exact(4).take(MAX_STEPS) {
        let &[verb, cost, time, amount] = step else {
            return;
        };
        t_us = next_time(quota, t_us, last.as_ref(), time, amount);
        let request = Step {
            verb: Verb::BASIC[usize::from(verb) % Verb::BASIC.len()],
            cost: next_cost(quota, last.as_ref(), cost, amount),
            t_us,
        };
        last = Some(counter.decide(request));
    }
}

fn next_cost(quota: &Quota, last: Option<&Verdict>, kind: u8, amount: u8) -> u32 {
    let capacity = quota.capacity();
    match kind % 8 {
        0 => 0,
        1 => 1,
        2 => capacity,
        3 => capacity + 1,
        4 => u32::MAX,
        5 => last.map_or(1, |verdict| verdict.remaining),
        6 => amount.into(),
        _ => capacity / 256 * u32::from(amount),
    }
}

/// A boundary of the last verdict, a microsecond before it, a step back, or an extreme time.
fn next_time(quota: &Quota, t_us: u64, last: Option<&Verdict>, kind: u8, amount: u8) -> u64 {
    let (period, span) = (quota.period_us(), quota.span_us());
    let (wait, reset) = last.map_or((1, 1), |verdict| {
        let wait = verdict.retry_after_us().unwrap_or(verdict.delay_us());
        (wait, verdict.reset_after_us)
    });
    let next_window = (t_us / period).saturating_add(1).saturating_mul(period);
    match kind % 18 {
        0 => t_us,
        1 => t_us.saturating_add(wait),
        2 => t_us.saturating_add(wait.saturating_sub(1)),
        3 => t_us.saturating_add(reset),
        4 => t_us.saturating_add(reset.saturating_sub(1)),
        5 => next_window,
        6 => next_window - 1,
        7 => t_us.saturating_sub(1),
        8 => t_us.saturating_sub(span),
        9 => t_us.saturating_sub(span + 1),
        10 => t_us.saturating_add(span / 256 * u64::from(amount)),
        11 => u64::from(amount),
        12 => MAX_TIME_US - u64::from(amount),
        13 => u64::MAX - u64::from(amount),
        14 => MAX_TIME_US - span,
        15 => 1_700_000_000_000_000 + u64::from(amount),
        16 => t_us.saturating_add(amount.into()),
        _ => t_us.saturating_add(span.saturating_mul(2)),
    }
}
