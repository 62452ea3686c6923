//! Counters on the real clock: beside the server's own in this process, or in its Redis, and what
//! happens there when nobody answers. Knows keys and limits; knows nothing of visitors.

use std::sync::Arc;
use std::time::Duration;

use tallygate::http::Limits;
use tallygate::{Decision, Key, Limiter, Look, MemoryStore, Quota, Request, Store, Verb};
use tokio::time::timeout;

use super::sessions::Gone;
use crate::state::Serving;

/// Room for every card of every visitor.
const CAPACITY: usize = 40_000;
/// How long a store may take to decide a step, to show a counter, or that it is there.
const ANSWER_WITHIN: Duration = Duration::from_millis(250);

/// Where cards on the real clock are counted.
pub(super) enum Real {
    /// In this process, in a store of their own: visitors take no room of anybody else's.
    Here(Limiter),
    /// Where the server counts, under names of their own.
    There(Arc<Serving>),
}

impl Real {
    pub(super) fn of(serving: &Arc<Serving>) -> Self {
        match serving.limiter.store().kind() {
            "memory" => {
                let store = MemoryStore::builder().capacity(CAPACITY).build();
                // Its own limit plays no part.
                Real::Here(Limiter::over(store, Quota::per_minute(1)))
            }
            _ => Real::There(Arc::clone(serving)),
        }
    }

    /// What kind of store it is, in a word.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Real::Here(_) => "memory",
            Real::There(serving) => serving.limiter.store().kind(),
        }
    }

    /// Whether the store answers.
    pub(super) async fn reachable(&self) -> bool {
        match self {
            Real::Here(_) => true,
            Real::There(serving) => {
                let limiter = &serving.limiter;
                let probed = timeout(ANSWER_WITHIN, limiter.store().probe());
                !limiter.store_is_down() && matches!(probed.await, Ok(Ok(())))
            }
        }
    }

    /// Decides one step; without the store, as the server's policy says.
    pub(super) async fn decide(
        &self,
        key: &Key<'_>,
        limits: &Limits,
        verb: Verb,
        cost: u32,
    ) -> Decision {
        let request = |limit| Request::new(key, limit).verb(verb).cost(cost);
        match self {
            Real::Here(limiter) => limiter.decide(&request(&limits[0])).await,
            Real::There(serving) => {
                // Nobody's request waits behind a visitor's, and a visitor would rather know.
                let patient = limits[0].clone().deadline(ANSWER_WITHIN);
                serving.limiter.decide(&request(&patient)).await
            }
        }
    }

    /// Looks at a counter; none if the store does not show it.
    pub(super) async fn look(&self, key: &Key<'_>, limits: &Limits) -> Option<Look> {
        match self {
            Real::Here(limiter) => Some(limiter.store().look(key, &limits[0])),
            Real::There(serving) => {
                let look = serving.limiter.store().look(key, &limits[0]);
                timeout(ANSWER_WITHIN, look).await.ok()?.ok()
            }
        }
    }

    /// Forgets counters; nobody waits for it.
    pub(super) fn forget(&self, gone: impl IntoIterator<Item = Gone>) {
        for Gone { key, limits } in gone {
            let request = Request::new(&key, &limits[0]).verb(Verb::Reset);
            match self {
                Real::Here(limiter) => limiter.store().carry_out(&request),
                Real::There(serving) => serving.limiter.store().carry_out(&request),
            }
        }
    }
}
