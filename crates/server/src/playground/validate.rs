//! The bounds of what visitors may request.

use serde_json::{Value, json};
use tallygate::Quota;

use crate::problem::{Code, Problem};

/// The largest limit, burst and queue.
pub(super) const MAX_LIMIT: u32 = 1_000;
const MAX_PERIOD_S: u64 = 3_600;
/// The longest time for a full bucket to drain.
const MAX_DRAIN_S: u64 = 86_400;
const MAX_COST: u32 = 1_000_000;
pub(super) const MAX_STEPS: usize = 500;
const MAX_CARD_NAME_CHARS: usize = 32;

const SECOND_US: u64 = 1_000_000;

pub(super) fn bounds() -> Value {
    json!({
        "limit": MAX_LIMIT,
        "burst": MAX_LIMIT,
        "period_s": MAX_PERIOD_S,
        "drain_s": MAX_DRAIN_S,
        "cost": MAX_COST,
        "steps": MAX_STEPS,
        "card": MAX_CARD_NAME_CHARS,
    })
}

pub(super) fn check_quota(quota: &Quota) -> Result<(), Problem> {
    let capacity = quota.algorithm().capacity_keyword().unwrap_or("limit");
    let period_s = quota.period_us().div_ceil(SECOND_US);
    for (what, value, max) in [
        ("limit", quota.limit().into(), MAX_LIMIT.into()),
        (capacity, quota.capacity().into(), MAX_LIMIT.into()),
        ("a period in seconds of", period_s, MAX_PERIOD_S),
    ] {
        check_max(Code::BadQuota, what, value, max)?;
    }
    check_drain(quota)
}

pub(super) fn check_drain(quota: &Quota) -> Result<(), Problem> {
    let drain_s = quota.span_us().div_ceil(SECOND_US);
    let what = "a drain time in seconds of";
    check_max(Code::BadQuota, what, drain_s, MAX_DRAIN_S)
}

pub(super) fn check_cost(cost: u32) -> Result<(), Problem> {
    check_max(Code::BadField, "cost", cost.into(), MAX_COST.into())
}

fn check_max(code: Code, what: &str, value: u64, max: u64) -> Result<(), Problem> {
    if value <= max {
        return Ok(());
    }
    let detail = format!("in the playground, {what} {value} is above {max}");
    Err(Problem::new(code, detail))
}

/// Refuses a charge after which the counter would take too long to drain.
pub(super) fn check_charge(quota: &Quota, cost: u32, reset_after_us: u64) -> Result<(), Problem> {
    let added_us = match quota.algorithm().capacity_keyword() {
        Some(_) => {
            let drain = u128::from(cost) * u128::from(quota.period_us());
            drain / u128::from(quota.limit())
        }
        None => 0,
    };
    if added_us + u128::from(reset_after_us) > u128::from(2 * MAX_DRAIN_S * SECOND_US) {
        let detail = format!(
            "the card would take more than {} s to drain; reset it",
            2 * MAX_DRAIN_S
        );
        return Err(Problem::new(Code::BadField, detail));
    }
    Ok(())
}

pub(super) fn check_card_name(name: &str) -> Result<(), Problem> {
    let length = name.chars().count();
    if length == 0 || length > MAX_CARD_NAME_CHARS || name.chars().any(char::is_control) {
        let detail =
            format!("the card's name is not 1 to {MAX_CARD_NAME_CHARS} printable characters");
        return Err(Problem::new(Code::BadField, detail));
    }
    Ok(())
}
