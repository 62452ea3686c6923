//! Checks that the store decides correctly and fast. Uses its own namespace, and deletes its
//! counters with no more permissions than limits need.

use std::time::Instant;

use tallygate::{Limit, Quota, RedisStore, Request, Store, StoreError, Verb};
use tallygate_core::Algorithm;

use super::report::Finding;
use crate::format::duration;

const TIMED_CHECKS: u64 = 100;
/// The default deadline of a limiter.
const DEADLINE_US: u64 = 50_000;

pub(super) async fn scripts(store: &RedisStore) -> Finding {
    for algorithm in Algorithm::BASIC {
        let hour = std::time::Duration::from_secs(3_600);
        let quota = Quota::new(algorithm, 10, hour).expect("10/h is valid for every algorithm");
        if let Err(error) = test_quota(store, quota).await {
            let text = format!("{}: {error}", algorithm.behaviour());
            return Finding::fail(
                "scripts",
                text,
                "check the other findings and the server's log",
            );
        }
    }
    Finding::ok("scripts", "every algorithm peeks and checks")
}

async fn test_quota(store: &RedisStore, quota: Quota) -> Result<(), String> {
    let limit = Limit::from(quota);
    let request = Request::new("doctor", &limit);
    let text = |error: StoreError| error.to_string();
    let peeked = store.decide(&request.clone().verb(Verb::Peek)).await;
    let peeked = peeked.map_err(text)?;
    let checked = store.decide(&request).await.map_err(text)?;
    store
        .decide(&request.verb(Verb::Reset))
        .await
        .map_err(text)?;
    if (peeked.remaining(), checked.granted(), checked.remaining()) == (10, 1, 9) {
        Ok(())
    } else {
        Err("a new counter with limit 10 does not have 9 left after one check".to_owned())
    }
}

/// Times sequential checks, each with a new key.
pub(super) async fn latency(store: &RedisStore) -> Finding {
    let limit = Limit::from(Quota::per_minute(10));
    let mut times_us = Vec::new();
    let keys: Vec<String> = (0..TIMED_CHECKS).map(|i| format!("timed {i}")).collect();
    for key in &keys {
        let started = Instant::now();
        if let Err(error) = store.decide(&Request::new(key.as_str(), &limit)).await {
            let advice = "check the other findings and the server's log";
            return Finding::fail("latency", error.to_string(), advice);
        }
        let us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        times_us.push(us);
    }
    let reset = |key| (Request::new(key, &limit).verb(Verb::Reset), 0);
    let resets: Vec<_> = keys.iter().map(String::as_str).map(reset).collect();
    // Counters that are not deleted expire within two minutes.
    let _ = store.decide_many_at(&resets).await;
    times_us.sort_unstable();
    let percentile = |percent: usize| times_us[(times_us.len() * percent).div_ceil(100) - 1];
    let (p50, p99) = (percentile(50), percentile(99));
    let text = format!(
        "{TIMED_CHECKS} checks: p50 {}, p99 {}; the default deadline is 50 ms",
        duration(p50),
        duration(p99)
    );
    if p99 > DEADLINE_US / 2 {
        let advice = "move the store closer, find slow commands (SLOWLOG GET), or set a longer \
                      deadline; requests that miss it follow the failure policy";
        return Finding::warn("latency", text, advice);
    }
    Finding::ok("latency", text)
}
