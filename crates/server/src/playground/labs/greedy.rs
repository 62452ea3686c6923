//! The greedy tenant: one who asks too much beside one who does not, under one limit for all, one
//! for each, and one for each by what they pay for. On a clock that is moved by hand.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tallygate::{Limiter, ManualClock, MemoryStore, Quota};

use super::{Measured, failed, within};

/// The seconds that it lasts; the modest tenant asks once in each.
const SECONDS: u32 = 10;
const SHARED: &str = "sliding-window-log 20/min";
const OWN: &str = "sliding-window-log 10/min";
const FREE: &str = "sliding-window-log 5/min";
const PRO: &str = "sliding-window-log 15/min";

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Settings {
    greedy: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { greedy: 10 }
    }
}

/// One who asks.
struct Tenant {
    name: &'static str,
    /// Who is limited when they ask.
    key: &'static str,
    quota: &'static str,
    /// How often they ask, a second.
    asks: u32,
}

pub(super) fn run(settings: &Settings) -> Measured {
    within("greedy", settings.greedy, 1..=100)?;
    let greedy = |key, quota| Tenant {
        name: "greedy",
        key,
        quota,
        asks: settings.greedy,
    };
    let modest = |key, quota| Tenant {
        name: "modest",
        key,
        quota,
        asks: 1,
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
    let limiter = Limiter::over(
        store.clock(Arc::clone(&clock)).build(),
        Quota::per_minute(1),
    );
    let mut admitted = [0_u32; 2];
    for _ in 0..SECONDS {
        for (tenant, admitted) in tenants.iter().zip(&mut admitted) {
            let quota: Quota = tenant.quota.parse().map_err(failed)?;
            let limiter = limiter.with(quota);
            for _ in 0..tenant.asks {
                *admitted += u32::from(limiter.check(tenant.key).allowed());
            }
        }
        clock.advance(Duration::from_secs(1));
    }
    let each = tenants.iter().zip(admitted).map(|(tenant, admitted)| {
        json!({
            "tenant": tenant.name,
            "quota": tenant.quota,
            "sent": tenant.asks * SECONDS,
            "admitted": admitted,
        })
    });
    Ok(each.collect())
}
