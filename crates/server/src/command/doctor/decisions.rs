//! Whether the store decides, and how fast. Counts under a namespace of its own and forgets it
//! with the rights that limits need anyway.

use std::time::Instant;

use tallygate::{Limit, Quota, RedisStore, Request, Store, StoreError, Verb};
use tallygate_core::Algorithm;

use super::finding::Finding;
use crate::format::duration;

/// How many checks are timed.
const TIMED: u64 = 100;
/// A limiter's deadline unless told otherwise.
const DEADLINE_US: u64 = 50_000;

/// Lets every behaviour peek and check.
pub(super) async fn scripts(store: &RedisStore) -> Finding {
    for algorithm in Algorithm::ALL {
        let hour = std::time::Duration::from_secs(3_600);
        let quota = Quota::new(algorithm, 10, hour).expect("ten an hour suit every behaviour");
        if let Err(error) = decides(store, quota).await {
            let text = format!("{}: {error}", algorithm.behaviour());
            return Finding::fail(
                "scripts",
                text,
                "see the other findings and the server's log",
            );
        }
    }
    Finding::ok("scripts", "every behaviour peeks and checks")
}

async fn decides(store: &RedisStore, quota: Quota) -> Result<(), String> {
    let limit = Limit::from(quota);
    let request = Request::new("doctor", &limit);
    let said = |error: StoreError| error.to_string();
    let peeked = store.decide(&request.clone().verb(Verb::Peek)).await;
    let peeked = peeked.map_err(said)?;
    let checked = store.decide(&request).await.map_err(said)?;
    store
        .decide(&request.verb(Verb::Reset))
        .await
        .map_err(said)?;
    if (peeked.remaining(), checked.granted(), checked.remaining()) == (10, 1, 9) {
        Ok(())
    } else {
        Err("a new counter of ten does not have nine left after one".to_owned())
    }
}

/// Times checks one after another, each of another key.
pub(super) async fn latency(store: &RedisStore) -> Finding {
    let limit = Limit::from(Quota::per_minute(10));
    let mut took_us = Vec::new();
    let keys: Vec<String> = (0..TIMED).map(|i| format!("timed {i}")).collect();
    for key in &keys {
        let began = Instant::now();
        if let Err(error) = store.decide(&Request::new(key.as_str(), &limit)).await {
            let advice = "see the other findings and the server's log";
            return Finding::fail("latency", error.to_string(), advice);
        }
        let us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        took_us.push(us);
    }
    let forget = |key| (Request::new(key, &limit).verb(Verb::Reset), 0);
    let forget: Vec<_> = keys.iter().map(String::as_str).map(forget).collect();
    // What is not forgotten now expires within two minutes.
    let _ = store.decide_many_at(&forget).await;
    took_us.sort_unstable();
    let at = |percent: usize| took_us[(took_us.len() * percent).div_ceil(100) - 1];
    let (half, most) = (at(50), at(99));
    let text = format!(
        "{TIMED} checks: half within {}, 99 of 100 within {}; the default deadline is 50 ms",
        duration(half),
        duration(most)
    );
    if most > DEADLINE_US / 2 {
        let advice = "move the store nearer, find what slows it (SLOWLOG GET), or set a longer \
                      deadline; what misses it follows the failure policy";
        return Finding::warn("latency", text, advice);
    }
    Finding::ok("latency", text)
}
