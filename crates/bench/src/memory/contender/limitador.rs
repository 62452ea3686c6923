//! limitador: fixed windows found by CEL expressions, counted in a moka cache.

use std::collections::HashMap;
use std::hint::black_box;

use limitador::RateLimiter;
use limitador::limit::{Context, Limit, Namespace};

use super::Contender;
use crate::keys::Key;
use crate::setting::Setting;

/// Its in-memory storage, one limit with the key as its variable.
pub(super) struct InMemory {
    limiter: RateLimiter,
    namespace: Namespace,
}

impl Contender for InMemory {
    const NAME: &'static str = "limitador";
    const SLOWNESS: usize = 25;
    const MOST_KEYS: usize = 1_000_000;

    fn new(setting: &Setting, capacity: usize) -> Self {
        // Twice the keys: near its capacity the cache drops counters that are still needed.
        let limiter = RateLimiter::new(2 * capacity as u64);
        let variable = "key".try_into().expect("a name is a CEL expression");
        limiter.add_limit(Limit::new(
            "bench",
            setting.capacity.into(),
            setting.period.as_secs(),
            vec![],
            vec![variable],
        ));
        InMemory {
            limiter,
            namespace: "bench".into(),
        }
    }

    fn check(&self, key: &Key) -> bool {
        let values = HashMap::from([("key".to_owned(), key.clone())]);
        let answer =
            self.limiter
                .check_rate_limited_and_update(&self.namespace, &Context::from(values), 1);
        black_box(&answer)
            .as_ref()
            .is_ok_and(|answer| !answer.limited)
    }
}
