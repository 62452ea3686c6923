//! Tallygate's Redis store with a limiter, as applications use it.

use std::hint::black_box;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use tallygate::store::RedisStoreBuilder;
use tallygate::{LeaseSettings, Limit, Limiter, Quota, RedisStore};
use tokio::runtime::Runtime;
use tokio::task::consume_budget;

use super::{Client, RESPONSE_TIMEOUT};
use crate::keys::Key;
use crate::quota_spec::QuotaSpec;
use crate::redis::concurrency::{DynClient, boxed};

struct Store(Limiter<RedisStore>);

/// Connects it, with batching.
pub(super) fn connect(runtime: &Runtime, url: &str, spec: &QuotaSpec) -> Box<dyn DynClient> {
    boxed(Store(limiter(runtime, RedisStore::builder(url), spec)))
}

/// Connects it to a cluster, with hash tags.
pub(super) fn connect_with_hash_tags(
    runtime: &Runtime,
    url: &str,
    spec: &QuotaSpec,
) -> Box<dyn DynClient> {
    let builder = RedisStore::builder(url).hash_tags(RedisStore::DEFAULT_HASH_TAGS);
    boxed(Store(limiter(runtime, builder, spec)))
}

/// Takes units ahead, and spends them without a call.
struct Leased(Limiter<RedisStore>);

/// Asks for costs of 1 and 2 in turn, so that no two checks in a row are equal.
struct Unequal {
    limiter: Limiter<RedisStore>,
    requests: AtomicU32,
}

/// Connects it, with leases.
pub(super) fn connect_leased(runtime: &Runtime, url: &str, spec: &QuotaSpec) -> Box<dyn DynClient> {
    let limit = Limit::from(quota(spec)).lease(LeaseSettings::default());
    let limit = limit.expect("the algorithm does not shape");
    let store = connected(runtime, RedisStore::builder(url));
    boxed(Leased(
        Limiter::with_store(store, limit).deadline(RESPONSE_TIMEOUT),
    ))
}

/// Connects it, for checks that are not coalesced.
pub(super) fn connect_unequal(
    runtime: &Runtime,
    url: &str,
    spec: &QuotaSpec,
) -> Box<dyn DynClient> {
    boxed(Unequal {
        limiter: limiter(runtime, RedisStore::builder(url), spec),
        requests: AtomicU32::new(0),
    })
}

impl Client for Leased {
    async fn check(&self, key: &Key) -> bool {
        // Without a call there is nothing to wait for: other tasks get their turn all the same.
        consume_budget().await;
        let decision = black_box(self.0.decide(&self.0.request(key)).await);
        decision.allowed() && !decision.degraded()
    }
}

impl Client for Unequal {
    async fn check(&self, key: &Key) -> bool {
        let cost = 1 + self.requests.fetch_add(1, Relaxed) % 2;
        let request = self.limiter.request(key).cost(cost);
        let decision = black_box(self.limiter.decide(&request).await);
        decision.allowed() && !decision.degraded()
    }
}

/// Connects it, without batching.
pub(super) fn connect_unbatched(
    runtime: &Runtime,
    url: &str,
    spec: &QuotaSpec,
) -> Box<dyn DynClient> {
    let builder = RedisStore::builder(url).batching(false);
    boxed(Store(limiter(runtime, builder, spec)))
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
    let limiter = limiter(runtime, RedisStore::builder(url), spec);
    for chunk in timed.chunks(1_000) {
        let requests: Vec<_> = chunk
            .iter()
            .map(|(key, at)| (limiter.request(key), *at))
            .collect();
        let decided = runtime.block_on(limiter.store().decide_many_at(&requests));
        decided.expect("the server replies");
    }
}

fn limiter(runtime: &Runtime, builder: RedisStoreBuilder, spec: &QuotaSpec) -> Limiter<RedisStore> {
    let store = connected(runtime, builder);
    Limiter::with_store(store, quota(spec)).deadline(RESPONSE_TIMEOUT)
}

fn quota(spec: &QuotaSpec) -> Quota {
    spec.to_string().parse().expect("a spec is a valid quota")
}

fn connected(runtime: &Runtime, builder: RedisStoreBuilder) -> RedisStore {
    let store = builder.response_timeout(RESPONSE_TIMEOUT);
    let store = runtime.block_on(store.connect());
    store.expect("the server replies")
}
