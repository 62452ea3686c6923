//! Tallygate's Redis store with a limiter, as applications use it.

use std::hint::black_box;

use tallygate::{Limiter, Quota, RedisStore};
use tokio::runtime::Runtime;

use super::{Client, RESPONSE_TIMEOUT};
use crate::keys::Key;
use crate::quota_spec::QuotaSpec;
use crate::redis::concurrency::{DynClient, boxed};

struct Store(Limiter<RedisStore>);

/// Connects it, with batching.
pub(super) fn connect(runtime: &Runtime, url: &str, spec: &QuotaSpec) -> Box<dyn DynClient> {
    boxed(Store(limiter(runtime, url, spec, true)))
}

/// Connects it, without batching.
pub(super) fn connect_unbatched(
    runtime: &Runtime,
    url: &str,
    spec: &QuotaSpec,
) -> Box<dyn DynClient> {
    boxed(Store(limiter(runtime, url, spec, false)))
}

impl Client for Store {
    async fn check(&self, key: &Key) -> bool {
        let decision = self.0.decide(&self.0.request(key)).await;
        let decision = black_box(decision);
        decision.allowed() && !decision.degraded()
    }
}

/// Decides requests in order, each at its own time.
pub(crate) fn decide_at(runtime: &Runtime, url: &str, spec: &QuotaSpec, timed: &[(Key, u64)]) {
    let limiter = limiter(runtime, url, spec, true);
    for chunk in timed.chunks(1_000) {
        let requests: Vec<_> = chunk
            .iter()
            .map(|(key, at)| (limiter.request(key), *at))
            .collect();
        let decided = runtime.block_on(limiter.store().decide_many_at(&requests));
        decided.expect("the server replies");
    }
}

fn limiter(runtime: &Runtime, url: &str, spec: &QuotaSpec, batching: bool) -> Limiter<RedisStore> {
    let quota: Quota = spec.to_string().parse().expect("a spec is a valid quota");
    let store = RedisStore::builder(url)
        .batching(batching)
        .response_timeout(RESPONSE_TIMEOUT);
    let store = runtime.block_on(store.connect());
    let store = store.expect("the server replies");
    Limiter::with_store(store, quota).deadline(RESPONSE_TIMEOUT)
}
