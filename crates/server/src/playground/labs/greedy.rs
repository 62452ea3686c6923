//! A tenant that sends too much next to one that does not, with a shared limit, a limit each, and
//! tiers.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tallygate::{Limiter, ManualClock, MemoryStore, Quota};

use super::{LabResult, failed};

/// The duration; the modest tenant sends one request per second.
const SECONDS: u32 = 10;
const SHARED: &str = "sliding-window-log 20/min";
const OWN: &str = "sliding-window-log 10/min";
const FREE: &str = "sliding-window-log 5/min";
const PRO: &str = "sliding-window-log 15/min";

settings! {
    greedy: u32 = 10 in 1..=100,
}

struct Tenant {
    name: &'static str,
    key: &'static str,
    quota: &'static str,
    requests_per_second: u32,
}

pub(super) fn run(settings: &Settings) -> LabResult {
    settings.check()?;
    let greedy = |key, quota| Tenant {
        name: "greedy",
        key,
        quota,
        requests_per_second: settings.greedy,
    };
    let modest = |key, quota| Tenant {
        name: "modest",
        key,
        quota,
        requests_per_second: 1,
    };
    Ok(json!({
        "greedy": settings.greedy,
        "seconds": SECONDS,
        "shared": compete([greedy("all", SHARED), modest("all", SHARED)])?,
        "own": compete([greedy("greedy", OWN), modest("modest", OWN)])?,
        "tiers": compete([greedy("greedy", FREE), modest("modest", PRO)])?,
    }))
}

fn compete(tenants: [Tenant; 2]) -> Result<Vec<Value>, super::Problem> {
    let clock = Arc::new(ManualClock::at(1_000_000_000_000));
    let store = MemoryStore::builder().capacity(8);
    let limiter = Limiter::with_store(
        store.clock(Arc::clone(&clock)).build(),
        Quota::per_minute(1),
    );
    let mut admitted = [0_u32; 2];
    for _ in 0..SECONDS {
        for (tenant, admitted) in tenants.iter().zip(&mut admitted) {
            let quota: Quota = tenant.quota.parse().map_err(failed)?;
            let limiter = limiter.with_limit(quota);
            for _ in 0..tenant.requests_per_second {
                *admitted += u32::from(limiter.check(tenant.key).allowed());
            }
        }
        clock.advance(Duration::from_secs(1));
    }
    let each = tenants.iter().zip(admitted).map(|(tenant, admitted)| {
        json!({
            "tenant": tenant.name,
            "quota": tenant.quota,
            "sent": tenant.requests_per_second * SECONDS,
            "admitted": admitted,
        })
    });
    Ok(each.collect())
}
