//! The reference for stores: a map of states with the core's arithmetic. No state is dropped, and a
//! request takes from all of its counters or from none.

use std::collections::HashMap;

use tallygate::{Algorithm, Decision, Key, Request, Retry, Verb};
use tallygate_core::{Caller, Entry, Reservation, Room, State, evaluate, evaluate_all, undo_by};

#[derive(Default)]
pub(crate) struct Oracle {
    counters: HashMap<Identity, Counter>,
    reserved: HashMap<(Identity, Key<'static>), Reservation>,
    /// Members and owners by name, numbered from 1; 0 is the empty name.
    names: HashMap<Key<'static>, u64>,
    /// The latest time seen.
    latest: u64,
}

type Identity = (Key<'static>, String, Algorithm, u64);

#[derive(Clone, Default)]
struct Counter {
    state: State,
    /// When the counter is as new.
    expires_at: u64,
    /// The latest time seen at the last request that fitted here and that another limit refused.
    rolled_back_at: u64,
}

fn identities(request: &Request<'_>) -> Vec<Identity> {
    let identity = |entry: &tallygate::RequestEntry<'_>| {
        let quota = entry.limit.quota();
        (
            entry.key.clone().into_owned(),
            entry.limit.name().to_owned(),
            quota.algorithm(),
            quota.period_us(),
        )
    };
    request.entries().iter().map(identity).collect()
}

/// Where each limit's reservation is remembered.
fn reservations(
    request: &Request<'_>,
    identities: &[Identity],
) -> Vec<Option<(Identity, Key<'static>)>> {
    let id = request.requested_id();
    let id = id.filter(|_| request.requested_verb().needs_id());
    let place = |identity: &Identity| {
        let is_remembered = !identity.2.is_concurrent();
        let id = id.filter(|_| is_remembered)?;
        Some((identity.clone(), id.clone().into_owned()))
    };
    identities.iter().map(place).collect()
}

impl Oracle {
    /// Decides a request.
    pub(crate) fn decide(&mut self, request: &Request<'_>, now: u64) -> tallygate_core::Decision {
        self.latest = self.latest.max(now);
        let identities = identities(request);
        let before: Vec<Counter> = identities
            .iter()
            .map(|identity| self.counters.remove(identity).unwrap_or_default())
            .collect();
        let mut after = before.clone();
        let quotas = request.entries().iter().map(|entry| entry.limit.quota());
        let callers = self.callers(request);
        let ids = reservations(request, &identities);
        let reserved = |id: &Option<_>| id.as_ref().and_then(|id| self.reserved.get(id)).copied();
        let mut limits: Vec<_> = request
            .entries()
            .iter()
            .zip(&mut after)
            .zip(callers.into_iter().zip(&ids))
            .map(|((entry, counter), (caller, id))| Entry {
                caller,
                reservation: reserved(id),
                ..Entry::new(entry.limit.quota(), &mut counter.state, entry.cost())
            })
            .collect();
        let decision = evaluate_all(&mut limits, request.requested_verb(), now);
        let reservations: Vec<_> = limits.iter().map(|limit| limit.reservation).collect();
        for (id, reservation) in ids.into_iter().zip(reservations) {
            match (id, reservation) {
                (Some(id), Some(reservation)) => self.reserved.insert(id, reservation),
                (Some(id), None) => self.reserved.remove(&id),
                (None, _) => None,
            };
        }
        let each = identities.into_iter().zip(decision.verdicts());
        let each = each.zip(quotas).zip(before).zip(after);
        for ((((identity, verdict), quota), before), mut after) in each {
            if verdict.allowed() && !decision.verdict().allowed() {
                after.rolled_back_at = self.latest;
            }
            if after.state != before.state {
                let untouched = evaluate(quota, &mut after.state.clone(), Verb::Peek, 0, now);
                after.expires_at = now.saturating_add(untouched.reset_after_us);
            }
            self.counters.insert(identity, after);
        }
        decision
    }

    /// Who asks, for each limit.
    fn callers(&mut self, request: &Request<'_>) -> Vec<Caller> {
        let names = &mut self.names;
        let mut number = |name: &Key<'_>| {
            if *name == Key::from("") || *name == Key::secret("") {
                return 0;
            }
            let next = names.len() as u64 + 1;
            *names.entry(name.clone().into_owned()).or_insert(next)
        };
        let caller = |entry| {
            let mut caller = Caller::NONE;
            if let Some(member) = request.member_of(entry) {
                caller.member = number(member.name());
                caller.weight = member.own_weight();
                if member.is_pinned() {
                    caller.room = Room::Always;
                }
            }
            if let Some(owner) = request.requested_owner() {
                caller.owner = number(owner);
            }
            caller
        };
        request.entries().iter().map(caller).collect()
    }

    /// Whether a store may have forgotten the request's id, although the clock has stepped back to
    /// before that.
    pub(crate) fn may_have_forgotten(&self, request: &Request<'_>, now: u64) -> bool {
        let ids = reservations(request, &identities(request));
        ids.into_iter().flatten().any(|id| {
            let known = self.reserved.get(&id);
            known.is_some_and(|known| {
                now < known.expires_at_us() && known.expires_at_us() <= self.latest
            })
        })
    }

    /// The effective time of a request for each of its counters.
    pub(crate) fn effective_times(&self, request: &Request<'_>, now: u64) -> Vec<u64> {
        let each = identities(request).into_iter().zip(request.entries());
        let effective_time = |(identity, entry): (Identity, &tallygate::RequestEntry<'_>)| {
            let counter = self.counters.get(&identity).cloned().unwrap_or_default();
            counter.state.effective_time_us(entry.limit.quota(), now)
        };
        each.map(effective_time).collect()
    }

    /// Undoes a request; `taken` has the time and the units of each counter.
    pub(crate) fn undo(
        &mut self,
        request: &Request<'_>,
        taken: impl Iterator<Item = (u64, u32)>,
        now: u64,
    ) {
        self.latest = self.latest.max(now);
        let callers = self.callers(request);
        let each = identities(request).into_iter().zip(request.entries());
        let each = each.zip(callers);
        for (((identity, entry), caller), (taken_us, units)) in each.zip(taken) {
            let counter = self.counters.entry(identity).or_default();
            let before = counter.state.clone();
            let undone = undo_by(
                entry.limit.quota(),
                &mut counter.state,
                &caller,
                taken_us,
                units,
                now,
            );
            if counter.state != before {
                counter.expires_at = now.saturating_add(undone.reset_after_us);
            }
        }
    }

    /// Whether a store that rolls back may have another state of one of these counters: a request
    /// was rolled back there at a time later than `now`.
    pub(crate) fn was_rolled_back_later(&self, request: &Request<'_>, now: u64) -> bool {
        let rolled_back_later = |identity: &Identity| {
            let counter = self.counters.get(identity);
            counter.is_some_and(|counter| now < counter.rolled_back_at)
        };
        identities(request).iter().any(rolled_back_later)
    }

    /// Whether a store may have dropped one of these counters: it expired at a time already seen,
    /// and the clock has stepped back to before that. Both decisions are then correct.
    pub(crate) fn may_be_expired(&self, request: &Request<'_>, now: u64) -> bool {
        let may_be_expired = |identity: &Identity| {
            self.counters.get(identity).is_some_and(|counter| {
                now < counter.expires_at && counter.expires_at <= self.latest
            })
        };
        identities(request).iter().any(may_be_expired)
    }
}

/// The difference between a decision and the oracle's, if there is one.
pub(crate) fn difference(actual: &Decision, expected: &tallygate_core::Decision) -> Option<String> {
    let verdict = expected.verdict();
    // None inside: never.
    let retry = actual.retry_after().map(Retry::duration);
    let retry = retry.map(|wait| wait.map(|wait| wait.as_micros() as u64));
    let expected_retry = verdict.retry().map(|_| verdict.retry_after_us());
    let fields = (
        actual.allowed(),
        actual.granted(),
        actual.limit(),
        actual.remaining(),
        actual.reset_after().as_micros(),
        actual.delay().as_micros(),
        actual.binding(),
    );
    let expected_fields = (
        verdict.allowed(),
        verdict.granted(),
        verdict.limit,
        verdict.remaining,
        u128::from(verdict.reset_after_us),
        u128::from(verdict.delay_us()),
        expected.binding(),
    );
    let same = fields == expected_fields
        && retry == expected_retry
        && actual.verdicts() == expected.verdicts()
        && !actual.shared();
    (!same).then(|| format!("{actual:?}\nis not\n{expected:?}"))
}
