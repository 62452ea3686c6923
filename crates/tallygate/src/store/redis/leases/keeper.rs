//! The leases of a store: what requests spend from them, and the decisions over it. Performs no I/O
//! and reads no clock.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::quality::SeedableRandomState;
use smallvec::SmallVec;
use tallygate_core::{Outcome, Verb, Verdict};

use crate::decision::{Decision, TakenAt};
use crate::limit::LeaseSettings;
use crate::request::{Request, RequestEntry};
use crate::store::lease::{LeaseReturn, LeasedCounter, Leases, Spending, Spent};
use crate::store::{FailedLimit, PartialDecision};

pub(in crate::store::redis) struct LeaseKeeper {
    pub(in crate::store::redis) leases: Leases<Target>,
    hasher: SeedableRandomState,
}

/// The counter of a lease on the servers.
#[derive(Clone, Debug)]
pub(in crate::store::redis) struct Target {
    pub(in crate::store::redis) key: Arc<[u8]>,
    /// Its identifier in the refusal cache.
    pub(in crate::store::redis) cache_id: u64,
}

/// Units that a request spent from leases, by the positions of its limits.
#[derive(Default)]
pub(in crate::store::redis) struct SpentUnits<'r> {
    each: SmallVec<[(usize, LeasedCounter<'r>, Spent); 2]>,
}

/// Counters whose next lease is to be requested.
pub(in crate::store::redis) type DueCounters<'r> = SmallVec<[LeasedCounter<'r>; 2]>;

/// Whether requests may be decided from leases, or make them due.
pub(in crate::store::redis) fn may_lease(request: &Request<'_>) -> bool {
    let is_leased = |entry: &RequestEntry<'_>| entry.limit.own_lease().is_some();
    request.requested_verb() == Verb::Check && request.entries().iter().any(is_leased)
}

/// Whether requests may be decided from leases alone.
pub(in crate::store::redis) fn may_spend_all(request: &Request<'_>) -> bool {
    let is_leased = |entry: &RequestEntry<'_>| entry.limit.own_lease().is_some();
    request.requested_verb() == Verb::Check && request.entries().iter().all(is_leased)
}

impl LeaseKeeper {
    pub(in crate::store::redis) fn new(hasher: SeedableRandomState) -> Self {
        LeaseKeeper {
            leases: Leases::new(),
            hasher,
        }
    }

    pub(in crate::store::redis) fn id(&self, entry: &RequestEntry<'_>) -> u64 {
        self.hasher
            .hash_one((&entry.key, entry.limit.fingerprint()))
    }

    fn counter<'a>(&self, entry: &RequestEntry<'a>, settings: LeaseSettings) -> LeasedCounter<'a> {
        LeasedCounter {
            id: self.id(entry),
            quota: entry.limit.quota(),
            settings,
            cost: entry.cost(),
        }
    }

    /// Spends leased units for the limits that have some; for `all`, until one has none. `replicas`
    /// is the number of processes for a `hold`; `None` if this one may not lease.
    pub(in crate::store::redis) fn spend<'r>(
        &self,
        request: &Request<'r>,
        all: bool,
        replicas: impl Fn(u64) -> Option<u32>,
        now_us: u64,
    ) -> SpentUnits<'r> {
        let mut spent = SpentUnits::default();
        let spending = match request.entries() {
            [_] => Spending::Final,
            _ => Spending::Pending,
        };
        for (at, entry) in request.entries().iter().enumerate() {
            let units = entry.limit.own_lease().and_then(|settings| {
                let counter = self.counter(entry, settings);
                let replicas = replicas(settings.hold_us())?;
                let units = self.leases.spend(&counter, spending, replicas, now_us)?;
                Some((at, counter, units))
            });
            match units {
                Some(units) => spent.each.push(units),
                None if all => break,
                None => {}
            }
        }
        spent
    }

    /// Records that a request takes what it spent. Returns the counters whose next lease is due.
    pub(in crate::store::redis) fn keep<'r>(&self, spent: &SpentUnits<'r>) -> DueCounters<'r> {
        for (_, counter, spent) in &spent.each {
            self.leases.keep(counter.id, counter.cost, spent);
        }
        self.leases.count_saved();
        let renewed = spent.each.iter().filter(|(.., spent)| spent.renew);
        renewed.map(|(_, counter, _)| *counter).collect()
    }

    /// Puts back what a request spent without effect. Returns what has to be returned to the servers
    /// instead, because its lot is gone.
    pub(in crate::store::redis) fn put_back(
        &self,
        request: &Request<'_>,
        spent: SpentUnits<'_>,
        target: impl Fn(&RequestEntry<'_>) -> Target,
    ) -> Vec<LeaseReturn<Target>> {
        let gone = spent.each.into_iter().filter_map(|(at, counter, spent)| {
            let target = || target(&request.entries()[at]);
            self.leases.put_back(&counter, &spent, target)
        });
        gone.collect()
    }

    /// Puts units of a leased decision back where they can still be spent. Returns the positions of
    /// the limits whose units have to be returned to the servers.
    pub(in crate::store::redis) fn put_back_decided(
        &self,
        request: &Request<'_>,
        decision: &Decision,
        hash: impl Fn(&RequestEntry<'_>) -> u64,
    ) -> Vec<usize> {
        let is_back = |entry: &RequestEntry<'_>| {
            let taken_us = decision.counter_taken_us(|| hash(entry));
            entry.limit.own_lease().is_some()
                && taken_us.is_some_and(|taken_us| {
                    let id = self.id(entry);
                    self.leases.undo(id, decision.taken_units(entry), taken_us)
                })
        };
        let entries = request.entries().iter().enumerate();
        let rest = entries.filter(|(_, entry)| !is_back(entry));
        rest.map(|(at, _)| at).collect()
    }

    /// Learns from a decision of the servers which counters are worth a lease. Returns those whose
    /// lease is due.
    pub(in crate::store::redis) fn on_decision<'r>(
        &self,
        request: &Request<'r>,
        decision: &Decision,
        replicas: impl Fn(u64) -> Option<u32>,
        target: impl Fn(&RequestEntry<'_>) -> Target,
        now_us: u64,
    ) -> DueCounters<'r> {
        let mut due = SmallVec::new();
        for (entry, verdict) in request.entries().iter().zip(decision.verdicts()) {
            let Some(settings) = entry.limit.own_lease() else {
                continue;
            };
            // A process that is not counted has no share yet.
            let Some(replicas) = replicas(settings.hold_us()) else {
                continue;
            };
            let counter = self.counter(entry, settings);
            let leases = &self.leases;
            if leases.on_check(&counter, || target(entry), verdict, replicas, now_us) {
                due.push(counter);
            }
        }
        due
    }
}

impl<'r> SpentUnits<'r> {
    pub(in crate::store::redis) fn is_empty(&self) -> bool {
        self.each.is_empty()
    }

    /// Whether it has units for every limit of a request.
    pub(in crate::store::redis) fn is_for_all(&self, request: &Request<'_>) -> bool {
        self.each.len() == request.entries().len()
    }

    /// The positions of the limits of a request without units.
    pub(in crate::store::redis) fn rest(&self, request: &Request<'_>) -> Vec<usize> {
        let has = |at: usize| self.each.iter().any(|(position, ..)| *position == at);
        let positions = 0..request.entries().len();
        positions.filter(|at| !has(*at)).collect()
    }

    /// The decision if they suffice for all limits. `hash` identifies the counter of a limit.
    pub(in crate::store::redis) fn decision(&self, hash: impl Fn(usize) -> u64) -> Decision {
        let times = self.each.iter().map(|(.., spent)| spent.taken_us);
        let times: SmallVec<[u64; 2]> = times.collect();
        let inner = match self.each.as_slice() {
            [(.., spent)] => tallygate_core::Decision::from_verdict(spent.verdict),
            each => {
                let verdicts = each.iter().map(|(.., spent)| spent.verdict);
                tallygate_core::Decision::from_verdicts(verdicts.collect())
            }
        };
        Decision::new(inner, TakenAt::new(&times, hash)).into_leased()
    }

    /// The decision over the limits with leases and those at some positions, which the servers
    /// decided, and the positions of all of them.
    pub(in crate::store::redis) fn combine(
        &self,
        request: &Request<'_>,
        positions: &[usize],
        decided: Option<&Decision>,
        hash: impl Fn(&RequestEntry<'_>) -> u64,
    ) -> (Vec<usize>, Decision) {
        let admitted = decided.is_none_or(Decision::allowed);
        let mut others = positions
            .iter()
            .zip(decided.iter().flat_map(|decided| decided.verdicts()));
        let mut all: Vec<(usize, Verdict, u64)> = Vec::with_capacity(request.entries().len());
        for (at, counter, spent) in &self.each {
            let verdict = match admitted {
                true => spent.verdict,
                false => uncharged(spent.verdict, counter.cost),
            };
            all.push((*at, verdict, spent.taken_us));
        }
        all.extend(others.by_ref().map(|(&at, verdict)| {
            let hash = || hash(&request.entries()[at]);
            let taken = decided.and_then(|decided| decided.counter_taken_us(hash));
            (at, *verdict, taken.unwrap_or(0))
        }));
        all.sort_unstable_by_key(|(at, ..)| *at);
        let positions: Vec<usize> = all.iter().map(|(at, ..)| *at).collect();
        let times: SmallVec<[u64; 4]> = all.iter().map(|(.., taken_us)| *taken_us).collect();
        let taken_at = TakenAt::new(&times, |i| hash(&request.entries()[positions[i]]));
        let former = decided.into_iter().flat_map(|decided| {
            let entries = positions.iter().map(|&at| &request.entries()[at]);
            let concurrent =
                entries.filter(|entry| entry.limit.quota().algorithm().is_concurrent());
            concurrent.map(&hash).filter_map(|counter| {
                let former = decided.former_hold(counter)?;
                Some((counter, former))
            })
        });
        let taken_at = taken_at.with_former(former.collect());
        let verdicts = all.into_iter().map(|(_, verdict, _)| verdict).collect();
        let inner = tallygate_core::Decision::from_verdicts(verdicts);
        (positions, Decision::new(inner, taken_at).into_leased())
    }

    /// What is decided of a request if the servers failed to decide the limits at the positions of
    /// `rest`, or some of them.
    pub(in crate::store::redis) fn combine_partial(
        &self,
        request: &Request<'_>,
        rest: &[usize],
        of_rest: &PartialDecision,
        hash: impl Fn(&RequestEntry<'_>) -> u64,
    ) -> PartialDecision {
        let decided: Vec<usize> = of_rest.decided.iter().map(|at| rest[*at]).collect();
        let failed = of_rest.failed.iter().map(|failed| FailedLimit {
            at: rest[failed.at],
            ..*failed
        });
        let of_servers = of_rest.decision.as_ref();
        let (decided, decision) = self.combine(request, &decided, of_servers, hash);
        PartialDecision {
            decision: Some(decision),
            decided,
            failed: failed.collect(),
        }
    }
}

/// The verdict of a limit whose units are put back because another limit refuses.
fn uncharged(verdict: Verdict, cost: u32) -> Verdict {
    Verdict {
        outcome: Outcome::Admitted {
            granted: 0,
            delay_us: 0,
        },
        remaining: verdict.remaining.saturating_add(cost).min(verdict.limit),
        ..verdict
    }
}
