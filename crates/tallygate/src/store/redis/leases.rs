//! Leases over the servers of a store: takes them, spends them on requests, and returns what is left.

mod keeper;

use std::iter::once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use foldhash::quality::SeedableRandomState;
use futures_util::future::join_all;
use smallvec::SmallVec;
use tallygate_core::lua::Operation;
use tallygate_core::{Quota, Verb, evaluate_lease};
use tokio::sync::RwLock;

use super::Inner;
use super::command::{Counter, ScriptCall, ScriptReply, counter_id};
use crate::decision::Decision;
use crate::request::{Request, RequestEntry};
use crate::store::lease::{LeaseRequest, LeaseReturn, LeasedCounter, Leases};
use crate::store::store_time::Timing;
use crate::store::{PartialDecision, StoreError};
pub(super) use keeper::{LeaseKeeper, SpentUnits, Target, may_lease, may_spend_all};

/// Between two looks at leases that may have ended.
pub(super) const TICK: Duration = Duration::from_millis(25);

/// The leases of a store, their clock, and the calls for them.
pub(super) struct StoreLeases {
    keeper: LeaseKeeper,
    started: Instant,
    ticking: AtomicBool,
    /// Read while a lease or units are on their way.
    calls: RwLock<()>,
}

impl Default for StoreLeases {
    fn default() -> Self {
        StoreLeases {
            keeper: LeaseKeeper::new(SeedableRandomState::random()),
            started: Instant::now(),
            ticking: AtomicBool::new(false),
            calls: RwLock::default(),
        }
    }
}

impl StoreLeases {
    pub(super) fn leases(&self) -> &Leases<Target> {
        &self.keeper.leases
    }

    pub(super) fn now_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// Units that a request spent from leases. Put back when dropped, unless they are kept.
struct SpentGuard<'a, 'r> {
    inner: &'a Arc<Inner>,
    request: &'a Request<'r>,
    spent: SpentUnits<'r>,
}

impl SpentGuard<'_, '_> {
    /// The request takes them.
    fn keep(mut self) {
        let spent = std::mem::take(&mut self.spent);
        for counter in self.inner.leases.keeper.keep(&spent) {
            self.inner.request_lease(&counter);
        }
    }
}

impl Drop for SpentGuard<'_, '_> {
    fn drop(&mut self) {
        let (inner, spent) = (self.inner, std::mem::take(&mut self.spent));
        if spent.is_empty() {
            return;
        }
        let target = |entry: &RequestEntry<'_>| inner.lease_target(entry);
        let keeper = &inner.leases.keeper;
        inner.spawn_returns(keeper.put_back(self.request, spent, target));
    }
}

impl Inner {
    /// Decides a request from leases alone.
    pub(super) fn try_spend(self: &Arc<Self>, request: &Request<'_>) -> Option<Decision> {
        if !may_spend_all(request) {
            return None;
        }
        let guard = self.spend(request, true);
        if !guard.spent.is_for_all(request) {
            return None;
        }
        let hash = |at: usize| self.counter_hash(&request.entries()[at]);
        let decision = guard.spent.decision(hash);
        guard.keep();
        Some(decision)
    }

    fn spend<'a, 'r>(
        self: &'a Arc<Self>,
        request: &'a Request<'r>,
        all: bool,
    ) -> SpentGuard<'a, 'r> {
        let now_us = self.leases.now_us();
        let replicas = |hold_us| self.replicas.lease_count(now_us, hold_us);
        let keeper = &self.leases.keeper;
        SpentGuard {
            inner: self,
            request,
            spent: keeper.spend(request, all, replicas, now_us),
        }
    }

    /// Decides a request of which some limits may have leases: those from their leases, the others by
    /// the store, all or nothing.
    pub(super) async fn decide_leasing(
        self: &Arc<Self>,
        request: &Request<'_>,
        deadline: Option<Duration>,
    ) -> Result<Decision, StoreError> {
        if !may_lease(request) {
            return self.decide_by_store(request, deadline).await;
        }
        if request.entries().len() > 1 {
            let guard = self.spend(request, false);
            if !guard.spent.is_empty() {
                return self.decide_rest(request, guard, deadline).await;
            }
        }
        let decision = self.decide_by_store(request, deadline).await?;
        self.observe(request, &decision);
        Ok(decision)
    }

    /// Decides the limits without leases, after the others. With a deadline, those that the store
    /// fails to decide are reported as failed, and the others as decided.
    async fn decide_rest(
        self: &Arc<Self>,
        request: &Request<'_>,
        guard: SpentGuard<'_, '_>,
        deadline: Option<Duration>,
    ) -> Result<Decision, StoreError> {
        let hash = |entry: &RequestEntry<'_>| self.counter_hash(entry);
        let rest = guard.spent.rest(request);
        if rest.is_empty() {
            let (_, decision) = guard.spent.combine(request, &[], None, hash);
            guard.keep();
            return Ok(decision);
        }
        let subset = request.subset(&rest);
        match self.decide_by_store(&subset, deadline).await {
            Ok(decided) => {
                self.observe(&subset, &decided);
                let (_, decision) = guard.spent.combine(request, &rest, Some(&decided), hash);
                if decided.allowed() {
                    guard.keep();
                }
                Ok(decision)
            }
            Err(error) if deadline.is_none() => Err(error),
            Err(mut error) => {
                let kind = error.kind();
                let nothing = || PartialDecision::undecided(rest.len(), kind);
                let of_rest = error.take_partial().unwrap_or_else(nothing);
                let partial = guard.spent.combine_partial(request, &rest, &of_rest, hash);
                guard.keep();
                Err(error.with_partial(partial))
            }
        }
    }

    /// Learns from a decision of the store which counters are worth a lease.
    fn observe(self: &Arc<Self>, request: &Request<'_>, decision: &Decision) {
        let now_us = self.leases.now_us();
        let replicas = |hold_us| {
            let count = self.replicas.lease_count(now_us, hold_us);
            if count.is_none() {
                self.count_replicas();
            }
            count
        };
        let target = |entry: &RequestEntry<'_>| self.lease_target(entry);
        let keeper = &self.leases.keeper;
        for counter in keeper.on_decision(request, decision, replicas, target, now_us) {
            self.request_lease(&counter);
        }
    }

    fn lease_target(&self, entry: &RequestEntry<'_>) -> Target {
        Target {
            key: self.keyspace.counter_key(&entry.key, entry.limit).into(),
            cache_id: self.cache().map_or(0, |cache| cache.id(entry)),
        }
    }

    fn counter_hash(&self, entry: &RequestEntry<'_>) -> u64 {
        counter_id(&self.keyspace.counter_key(&entry.key, entry.limit))
    }

    fn request_lease(self: &Arc<Self>, counter: &LeasedCounter<'_>) {
        let hold_us = counter.settings.hold_us();
        let Some(replicas) = self.replicas.lease_count(self.leases.now_us(), hold_us) else {
            return;
        };
        if let Some(request) = self.leases.leases().request(counter.id, replicas) {
            let inner = Arc::clone(self);
            let runtime = self.runtime.handle();
            runtime.spawn(async move { inner.take_lease(request).await });
        }
    }

    async fn take_lease(self: &Arc<Self>, request: LeaseRequest<Target>) {
        let _call = self.leases.calls.read().await;
        let leases = self.leases.leases();
        if leases.is_closed() {
            return leases.on_failed(&request, false);
        }
        let call = Arc::new(lease_call(&request));
        let sent_us = self.leases.now_us();
        match self.send(Arc::clone(&call)).await {
            Err(failure) => leases.on_failed(&request, !failure.did_not_run()),
            Ok(reply) => {
                let received_us = self.leases.now_us();
                on_granted(leases, &request, &call, reply, (sent_us, received_us));
            }
        }
        self.spawn_ticks();
    }

    /// Looks for leases that have ended, as long as there are any.
    fn spawn_ticks(self: &Arc<Self>) {
        if !self.leases.leases().is_active() || self.leases.ticking.swap(true, Ordering::AcqRel) {
            return;
        }
        let store = Arc::downgrade(self);
        self.runtime.handle().spawn(tick(store));
    }

    fn spawn_returns(self: &Arc<Self>, returns: Vec<LeaseReturn<Target>>) {
        if returns.is_empty() {
            return;
        }
        let inner = Arc::clone(self);
        let runtime = self.runtime.handle();
        runtime.spawn(async move { inner.return_units(returns).await });
    }

    /// Returns units. What cannot be returned stays charged: a lost call is not sent again.
    async fn return_units(self: &Arc<Self>, returns: Vec<LeaseReturn<Target>>) {
        let _call = self.leases.calls.read().await;
        let one = async |one: LeaseReturn<Target>| {
            let call = Arc::new(return_call(&one));
            let _invalidation = self.cache().and_then(|cache| cache.invalidate(&call));
            let returned = self.send(call).await.is_ok();
            self.leases.leases().on_returned(&one, returned);
        };
        join_all(returns.into_iter().map(one)).await;
    }

    /// Puts units of a leased decision back where they can still be spent. Returns the positions of
    /// the limits whose units have to be returned to the servers.
    pub(super) fn put_back(&self, request: &Request<'_>, decision: &Decision) -> Vec<usize> {
        let hash = |entry: &RequestEntry<'_>| self.counter_hash(entry);
        self.leases.keeper.put_back_decided(request, decision, hash)
    }

    /// Forgets leases on counters that a request resets: now and, because others may be taken until
    /// the reset takes effect, when the guard is dropped.
    pub(super) fn forget_leases(self: &Arc<Self>, request: &Request<'_>) -> Option<LeaseReset> {
        if request.requested_verb() != Verb::Reset {
            return None;
        }
        let leased = |entry: &&RequestEntry<'_>| entry.limit.own_lease().is_some();
        let leased = request.entries().iter().filter(leased);
        let ids: SmallVec<[u64; 2]> = leased.map(|entry| self.leases.keeper.id(entry)).collect();
        if ids.is_empty() {
            return None;
        }
        let reset = LeaseReset {
            inner: Arc::clone(self),
            ids,
        };
        reset.apply();
        Some(reset)
    }

    /// Ends all leases and returns what is left of them, also of those that are on their way.
    pub(super) async fn close_leases(self: &Arc<Self>) {
        let returns = self.leases.leases().close();
        self.return_units(returns).await;
        drop(self.leases.calls.write().await);
        let late = self.leases.leases().tick(self.leases.now_us());
        self.return_units(late).await;
    }
}

/// Leases that are forgotten once more when this is dropped.
pub(super) struct LeaseReset {
    inner: Arc<Inner>,
    ids: SmallVec<[u64; 2]>,
}

impl LeaseReset {
    fn apply(&self) {
        let ids = self.ids.iter();
        ids.for_each(|id| self.inner.leases.leases().forget(*id));
    }
}

impl Drop for LeaseReset {
    fn drop(&mut self) {
        self.apply();
    }
}

async fn tick(store: Weak<Inner>) {
    loop {
        tokio::time::sleep(TICK).await;
        let Some(inner) = store.upgrade() else {
            return;
        };
        let store_leases = &inner.leases;
        let leases = store_leases.leases();
        inner.spawn_returns(leases.tick(store_leases.now_us()));
        if !leases.is_active() {
            store_leases.ticking.store(false, Ordering::Release);
            // A lease may have been granted in between.
            return inner.spawn_ticks();
        }
    }
}

/// The call that takes a lease.
pub(super) fn lease_call(request: &LeaseRequest<Target>) -> ScriptCall {
    let divisor = request.divisor;
    let operation = Operation::Lease { divisor };
    target_call(&request.target, request.quota, request.max, operation)
}

/// The call that returns units.
pub(super) fn return_call(one: &LeaseReturn<Target>) -> ScriptCall {
    let operation = Operation::Undo {
        taken_us: one.taken_us,
    };
    target_call(&one.target, one.quota, one.units, operation)
}

fn target_call(target: &Target, quota: Quota, units: u32, operation: Operation) -> ScriptCall {
    let counter = Counter::new(target.key.to_vec(), quota, units, target.cache_id);
    ScriptCall::new(once(counter), operation, None)
}

/// Records the reply to a [`lease_call`] that was sent and received at these local times.
pub(super) fn on_granted(
    leases: &Leases<Target>,
    request: &LeaseRequest<Target>,
    call: &ScriptCall,
    reply: ScriptReply,
    (sent_us, received_us): (u64, u64),
) {
    for mut found in call.found(reply) {
        let taken_us = found.effective_time_us();
        let timing = Timing {
            sent_us,
            received_us,
            found_us: found.now_us,
        };
        let verdict = evaluate_lease(
            &request.quota,
            &mut found.state,
            request.max,
            request.divisor,
            found.now_us,
        );
        leases.on_granted(request, &verdict, taken_us, timing);
    }
}
