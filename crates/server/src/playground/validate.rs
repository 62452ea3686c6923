//! What visitors may ask for, at most. Knows quotas; knows nothing of who asks.

use serde_json::{Value, json};
use tallygate::Quota;

use crate::problem::{Code, Problem};

/// The largest limit.
pub(super) const MOST: u32 = 1_000;
/// The longest period, in seconds.
const LONGEST_PERIOD_S: u64 = 3_600;
/// The longest time that a full bucket, or a charge, may take to drain, in seconds.
const LONGEST_DRAIN_S: u64 = 86_400;
/// The largest cost.
const MOST_COST: u32 = 1_000_000;
/// The most steps at once.
pub(super) const MOST_STEPS: usize = 500;
/// The most characters of a card's name.
const LONGEST_NAME: usize = 32;

const SECOND_US: u64 = 1_000_000;

/// As the page is told.
pub(super) fn told() -> Value {
    json!({
        "limit": MOST,
        "burst": MOST,
        "period_s": LONGEST_PERIOD_S,
        "drain_s": LONGEST_DRAIN_S,
        "cost": MOST_COST,
        "steps": MOST_STEPS,
        "card": LONGEST_NAME,
    })
}

/// Whether a quota is small enough for a visitor.
pub(super) fn quota(quota: &Quota) -> Result<(), Problem> {
    let wrong = |what: &str, value: u64, most: u64| {
        let detail = format!("in the playground, {what} {value} is above {most}");
        Err(Problem::new(Code::BadQuota, detail))
    };
    let most = u64::from(MOST);
    if u64::from(quota.limit()) > most {
        return wrong("limit", quota.limit().into(), most);
    }
    if u64::from(quota.capacity()) > most {
        let word = quota.algorithm().capacity_keyword().unwrap_or("limit");
        return wrong(word, quota.capacity().into(), most);
    }
    let longest = LONGEST_PERIOD_S * SECOND_US;
    if quota.period_us() > longest {
        let period = quota.period_us().div_ceil(SECOND_US);
        return wrong("a period in seconds of", period, LONGEST_PERIOD_S);
    }
    drains(quota)
}

/// Whether a bucket drains within reasonable time.
pub(super) fn drains(quota: &Quota) -> Result<(), Problem> {
    let drain_s = quota.span_us().div_ceil(SECOND_US);
    if drain_s > LONGEST_DRAIN_S {
        let detail = format!(
            "in the playground, the {drain_s} s that it takes to drain are above {LONGEST_DRAIN_S} s"
        );
        return Err(Problem::new(Code::BadQuota, detail));
    }
    Ok(())
}

/// Whether a counter can be charged this much more without living for too long.
pub(super) fn charge(quota: &Quota, cost: u32, reset_after_us: u64) -> Result<(), Problem> {
    let adds = match quota.algorithm().capacity_keyword() {
        Some(_) => {
            let drain = u128::from(cost) * u128::from(quota.period_us());
            drain / u128::from(quota.limit())
        }
        None => 0,
    };
    if adds + u128::from(reset_after_us) > u128::from(2 * LONGEST_DRAIN_S * SECOND_US) {
        let detail = format!(
            "the card would take longer than {} s to drain; reset it",
            2 * LONGEST_DRAIN_S
        );
        return Err(Problem::new(Code::BadField, detail));
    }
    Ok(())
}

/// Whether a cost is one that can be tried.
pub(super) fn cost(cost: u32) -> Result<(), Problem> {
    if cost > MOST_COST {
        let detail = format!("in the playground, cost {cost} is above {MOST_COST}");
        return Err(Problem::new(Code::BadField, detail));
    }
    Ok(())
}

/// Whether a card's name is one.
pub(super) fn name(name: &str) -> Result<(), Problem> {
    let length = name.chars().count();
    if length == 0 || length > LONGEST_NAME || name.chars().any(char::is_control) {
        let detail = format!("a card's name is not 1 to {LONGEST_NAME} visible characters");
        return Err(Problem::new(Code::BadField, detail));
    }
    Ok(())
}
