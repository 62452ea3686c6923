//! limitador's asynchronous Redis store: fixed windows, one round trip to check and one to count.

use std::collections::HashMap;
use std::hint::black_box;

use limitador_redis::AsyncRateLimiter;
use limitador_redis::limit::{Limit, Namespace};
use limitador_redis::storage::redis::AsyncRedisStorage;
use tokio::runtime::Runtime;

use super::Client;
use crate::keys::Key;
use crate::quota_spec::QuotaSpec;
use crate::redis::concurrency::{DynClient, boxed};

struct Limitador {
    limiter: AsyncRateLimiter,
    namespace: Namespace,
}

/// Connects it, with one limit per value of the variable `key`.
pub(super) fn connect(runtime: &Runtime, url: &str, spec: &QuotaSpec) -> Box<dyn DynClient> {
    let store = runtime.block_on(AsyncRedisStorage::new(url));
    let store = store.expect("the server replies");
    let limiter = AsyncRateLimiter::new_with_storage(Box::new(store));
    let (max, seconds) = (spec.capacity.into(), spec.period.as_secs());
    let conditions: [&str; 0] = [];
    limiter.add_limit(Limit::new("bench", max, seconds, conditions, ["key"]));
    boxed(Limitador {
        limiter,
        namespace: "bench".into(),
    })
}

impl Client for Limitador {
    async fn check(&self, key: &Key) -> bool {
        let values = HashMap::from([("key".to_owned(), key.clone())]);
        let result = self
            .limiter
            .check_rate_limited_and_update(&self.namespace, &values, 1, true)
            .await;
        black_box(result).is_ok_and(|result| !result.limited)
    }
}
