//! A tenant that sends too much next to one that does not, with a shared limit, a limit each, and
//! tiers.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tallygate::{Limiter, ManualClock, MemoryStore, Quota};

use super::{LabResult, failed};

const SECONDS: u32 = 10;
const SHARED: &str = "sliding-window-log 20/min";
const OWN: &str = "sliding-window-log 10/min";
const FREE: &str = "sliding-window-log 5/min";
const PRO: &str = "sliding-window-log 15/min";

settings! {
    greedy: 10 in 1..=100,
}

pub(super) fn run(json: &[u8]) -> LabResult {
    let Settings { greedy } = Settings::parse(json)?;
    Ok(json!({
        "greedy": greedy,
        "seconds": SECONDS,
        "shared": compete(greedy, [("all", SHARED), ("all", SHARED)])?,
        "own": compete(greedy, [("greedy", OWN), ("modest", OWN)])?,
        "tiers": compete(greedy, [("greedy", FREE), ("modest", PRO)])?,
    }))
}

/// Sends `greedy` requests per second and one, with these keys and quotas.
fn compete(greedy: u32, limits: [(&str, &str); 2]) -> LabResult {
    let clock = Arc::new(ManualClock::at(1_000_000_000_000));
    let store = MemoryStore::builder().capacity(8).clock(Arc::clone(&clock));
    let limiter = Limiter::with_store(store.build(), Quota::per_minute(1));
    let tenants = [("greedy", greedy), ("modest", 1)];
    let mut admitted = [0_u32; 2];
    for _ in 0..SECONDS {
        for (i, (key, quota)) in limits.into_iter().enumerate() {
            let limiter = limiter.with_limit(quota.parse::<Quota>().map_err(failed)?);
            let allowed = |_: &u32| limiter.check(key).allowed();
            admitted[i] += (0..tenants[i].1).filter(allowed).count() as u32;
        }
        clock.advance(Duration::from_secs(1));
    }
    let each = tenants.into_iter().zip(limits).zip(admitted);
    let each = each.map(|(((tenant, requests), (_, quota)), admitted)| {
        json!({
            "tenant": tenant,
            "quota": quota,
            "sent": requests * SECONDS,
            "admitted": admitted,
        })
    });
    Ok(each.collect::<Vec<Value>>().into())
}
