//! A look at a counter that is there: none is made, none changed, none shared.

use tallygate_core::{MAX_TIME_US, State};

use super::bucket::Bucket;
use super::table::Table;
use super::{Counter, MemoryStore};
use crate::clock::Clock;
use crate::key::Key;
use crate::limit::Limit;
use crate::store::Look;

impl<C: Clock> MemoryStore<C> {
    /// Looks at the counter of a key and a limit. One without a place of its own, for want of
    /// room, shows as new.
    ///
    /// ```
    /// use tallygate::{Limiter, Quota, CounterState};
    ///
    /// let limiter = Limiter::new("leaky-bucket 1/h burst 5".parse::<Quota>()?);
    /// let _ = limiter.check("user:42");
    /// let look = limiter.store().look(&"user:42".into(), &limiter.limits()[0]);
    /// assert_eq!(look.view, CounterState::Level { used_milli: 1_000 });
    /// # Ok::<(), tallygate::QuotaError>(())
    /// ```
    pub fn look(&self, key: &Key<'_>, limit: &Limit) -> Look {
        let counter = self.counter(key, limit);
        let now_us = self.clock.now_us().min(MAX_TIME_US);
        let state = if counter.logs() {
            find(self.logs.get(), counter)
        } else {
            find(self.flat.get(), counter)
        };
        let view = state.inspect(limit.quota(), now_us);
        Look { now_us, view }
    }
}

fn find<B: Bucket>(table: Option<&Table<B>>, counter: Counter<'_>) -> State {
    let quota = counter.limit.quota();
    let Some(table) = table else {
        return State::New;
    };
    let mut held = table.hold([counter.id].into_iter());
    let Some((claim, state)) = held.find(counter.id, quota) else {
        return State::New;
    };
    held.store(claim, quota, state.clone());
    state
}
