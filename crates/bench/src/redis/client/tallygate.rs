//! Tallygate's Redis store under a limiter, as users have it.

use std::hint::black_box;

use tallygate::{Limiter, Quota, RedisStore};
use tokio::runtime::Runtime;

use super::{Client, PATIENCE};
use crate::keys::Key;
use crate::redis::concurrency::{Lane, lane};
use crate::setting::Setting;

struct Store(Limiter<RedisStore>);

/// Connects it; requests in flight travel together.
pub(super) fn connect(runtime: &Runtime, url: &str, setting: &Setting) -> Box<dyn Lane> {
    lane(Store(limiter(runtime, url, setting, true)))
}

/// Connects it; each request travels by itself.
pub(super) fn connect_unbatched(runtime: &Runtime, url: &str, setting: &Setting) -> Box<dyn Lane> {
    lane(Store(limiter(runtime, url, setting, false)))
}

impl Client for Store {
    async fn check(&self, key: &Key) -> bool {
        let decision = self.0.decide(&self.0.request(key)).await;
        let decision = black_box(decision);
        decision.allowed() && !decision.degraded()
    }
}

/// Decides these requests in order, each at its own time.
pub(crate) fn decide_at(runtime: &Runtime, url: &str, setting: &Setting, asked: &[(Key, u64)]) {
    let limiter = limiter(runtime, url, setting, true);
    for asked in asked.chunks(1_000) {
        let requests: Vec<_> = asked
            .iter()
            .map(|(key, at)| (limiter.request(key), *at))
            .collect();
        let decided = runtime.block_on(limiter.store().decide_many_at(&requests));
        decided.expect("the server answers");
    }
}

fn limiter(runtime: &Runtime, url: &str, setting: &Setting, batching: bool) -> Limiter<RedisStore> {
    let quota: Quota = setting.to_string().parse().expect("a setting is a quota");
    let store = RedisStore::builder(url)
        .batching(batching)
        .response_timeout(PATIENCE);
    let store = runtime.block_on(store.connect());
    let store = store.expect("the server answers");
    Limiter::with_store(store, quota).deadline(PATIENCE)
}
