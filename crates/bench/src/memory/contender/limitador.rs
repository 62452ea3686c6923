//! limitador: fixed windows selected by CEL expressions, in a moka cache.

use std::collections::HashMap;
use std::hint::black_box;

use limitador::RateLimiter;
use limitador::limit::{Context, Limit, Namespace};

use super::Contender;
use crate::keys::Key;
use crate::quota_spec::QuotaSpec;

/// Its in-memory storage with one limit per value of the variable `key`.
pub(super) struct InMemory {
    limiter: RateLimiter,
    namespace: Namespace,
}

impl Contender for InMemory {
    const NAME: &'static str = "limitador";
    const DECISIONS_DIVISOR: usize = 25;
    const MAX_KEYS: usize = 1_000_000;

    fn new(spec: &QuotaSpec, capacity: usize) -> Self {
        // Twice the keys: near its capacity the cache evicts live counters.
        let limiter = RateLimiter::new(2 * capacity as u64);
        let variable = "key".try_into().expect("a name is a CEL expression");
        limiter.add_limit(Limit::new(
            "bench",
            spec.capacity.into(),
            spec.period.as_secs(),
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
        let result =
            self.limiter
                .check_rate_limited_and_update(&self.namespace, &Context::from(values), 1);
        black_box(&result)
            .as_ref()
            .is_ok_and(|result| !result.limited)
    }
}
