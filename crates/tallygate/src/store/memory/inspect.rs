//! Reads a counter without changing it.

use tallygate_core::{MAX_TIME_US, State, StateSize};

use super::bucket::Bucket;
use super::table::{LockedBuckets, Place, Table};
use super::{Counter, MemoryStore};
use crate::clock::Clock;
use crate::key::Key;
use crate::limit::Limit;
use crate::store::Snapshot;

impl<C: Clock> MemoryStore<C> {
    /// Returns the state of the counter of a key and a limit. A counter without its own slot is
    /// shown as new.
    ///
    /// ```
    /// use tallygate::store::CounterState;
    /// use tallygate::{Limiter, Quota};
    ///
    /// let limiter = Limiter::new("leaky-bucket 1/h burst 5".parse::<Quota>()?);
    /// let _ = limiter.check("user:42");
    /// let snapshot = limiter.store().inspect(&"user:42".into(), &limiter.limits()[0]);
    /// assert_eq!(snapshot.state, CounterState::Level { used_milli: 1_000 });
    /// # Ok::<(), tallygate::QuotaError>(())
    /// ```
    pub fn inspect(&self, key: &Key<'_>, limit: &Limit) -> Snapshot {
        let counter = self.counter(key, limit);
        let now_us = self.clock.now_us().min(MAX_TIME_US);
        let part = self.part(limit);
        let state = match counter.size() {
            StateSize::Packed => find(part.existing_packed(), counter),
            StateSize::Log => find(part.existing_logs(), counter),
            StateSize::Callers => find(part.existing_callers(), counter),
        };
        let state = state.inspect(limit.quota(), now_us);
        Snapshot { now_us, state }
    }

    /// The number by which [`inspect`](MemoryStore::inspect) tells a member or an owner from others.
    /// It is another one for each counter and each store.
    ///
    /// ```
    /// use tallygate::store::CounterState;
    /// use tallygate::{Key, Limiter, Quota};
    ///
    /// let limiter = Limiter::new("token-bucket 100/s burst 100 shared 4".parse::<Quota>()?);
    /// let _ = limiter.decide_now(&limiter.request("api").member("acme"));
    /// let (key, limit) = (Key::from("api"), &limiter.limits()[0]);
    /// let CounterState::Shared { members, .. } = limiter.store().inspect(&key, limit).state else {
    ///     panic!("the limit is shared");
    /// };
    /// assert_eq!(members[0].id, limiter.store().caller_id(&key, limit, &"acme".into()));
    /// # Ok::<(), tallygate::QuotaError>(())
    /// ```
    pub fn caller_id(&self, key: &Key<'_>, limit: &Limit, name: &Key<'_>) -> u64 {
        self.name(name, self.counter(key, limit))
    }
}

fn find<B: Bucket>(table: Option<&Table<B>>, counter: Counter<'_>) -> State {
    let quota = counter.limit.quota();
    let Some(table) = table else {
        return State::New;
    };
    let id = counter.id;
    let place = Place { table, id };
    let mut buckets = LockedBuckets::lock([place].into_iter());
    let Some((claim, state)) = buckets.find(place, quota) else {
        return State::New;
    };
    buckets.store(place, claim, quota, state.clone());
    state
}
