//! A map of plain states under the core's arithmetic: what a store answers if it never forgets
//! too early, never mixes counters up and decides all or nothing.

use std::collections::HashMap;

use tallygate::{Algorithm, Decision, Key, Request, RetryAfter, Verb};
use tallygate_core::{State, evaluate, evaluate_all, undo};

#[derive(Default)]
pub(crate) struct Oracle {
    counters: HashMap<Identity, Counter>,
    /// The latest time seen.
    latest: u64,
}

type Identity = (Key<'static>, String, Algorithm, u64);

#[derive(Clone, Default)]
struct Counter {
    state: State,
    forget_at: u64,
    /// The latest time seen when a request last fitted here that another limit refused.
    spared_at: u64,
}

fn identities(request: &Request<'_>) -> Vec<Identity> {
    let identity = |asked: &tallygate::RequestEntry<'_>| {
        let quota = asked.limit.quota();
        (
            asked.key.clone().into_owned(),
            asked.limit.name().to_owned(),
            quota.algorithm(),
            quota.period_us(),
        )
    };
    request.entries().iter().map(identity).collect()
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
        let quotas = request.entries().iter().map(|asked| asked.limit.quota());
        let mut limits: Vec<_> = request
            .entries()
            .iter()
            .zip(&mut after)
            .map(|(asked, counter)| (asked.limit.quota(), &mut counter.state, asked.cost()))
            .collect();
        let decision = evaluate_all(&mut limits, request.requested_verb(), now);
        let each = identities.into_iter().zip(decision.verdicts());
        let each = each.zip(quotas).zip(before).zip(after);
        for ((((identity, verdict), quota), before), mut after) in each {
            if verdict.allowed() && !decision.verdict().allowed() {
                after.spared_at = self.latest;
            }
            if after.state != before.state {
                let untouched = evaluate(quota, &mut after.state.clone(), Verb::Peek, 0, now);
                after.forget_at = now.saturating_add(untouched.reset_after_us);
            }
            self.counters.insert(identity, after);
        }
        decision
    }

    /// When a request would take from each of its counters.
    pub(crate) fn moments(&self, request: &Request<'_>, now: u64) -> Vec<u64> {
        let each = identities(request).into_iter().zip(request.entries());
        let moment = |(identity, asked): (Identity, &tallygate::RequestEntry<'_>)| {
            let counter = self.counters.get(&identity).cloned().unwrap_or_default();
            counter.state.effective_time_us(asked.limit.quota(), now)
        };
        each.map(moment).collect()
    }

    /// Takes back what each counter of a request gave, and when.
    pub(crate) fn undo(
        &mut self,
        request: &Request<'_>,
        taken: impl Iterator<Item = (u64, u32)>,
        now: u64,
    ) {
        self.latest = self.latest.max(now);
        let each = identities(request).into_iter().zip(request.entries());
        for ((identity, asked), (taken_us, units)) in each.zip(taken) {
            let counter = self.counters.entry(identity).or_default();
            let before = counter.state.clone();
            let undone = undo(
                asked.limit.quota(),
                &mut counter.state,
                taken_us,
                units,
                now,
            );
            if counter.state != before {
                counter.forget_at = now.saturating_add(undone.reset_after_us);
            }
        }
    }

    /// Whether one of these counters had no part in a refusal, and the clock has stepped back
    /// since or had before: a store that took from it and gave back has another state of it.
    pub(crate) fn was_spared_later(&self, request: &Request<'_>, now: u64) -> bool {
        let spared_later = |identity: &Identity| {
            let counter = self.counters.get(identity);
            counter.is_some_and(|counter| now < counter.spared_at)
        };
        identities(request).iter().any(spared_later)
    }

    /// Whether a store may have forgotten one of these counters at some later time already, and
    /// the clock has stepped back to before that: then both answers are right.
    pub(crate) fn is_open(&self, request: &Request<'_>, now: u64) -> bool {
        let open = |identity: &Identity| {
            self.counters
                .get(identity)
                .is_some_and(|counter| now < counter.forget_at && counter.forget_at <= self.latest)
        };
        identities(request).iter().any(open)
    }
}

/// How an answer differs from the oracle's, if it does.
pub(crate) fn difference(given: &Decision, right: &tallygate_core::Decision) -> Option<String> {
    let verdict = right.verdict();
    // None inside: never.
    let retry = given.retry_after().map(RetryAfter::duration);
    let retry = retry.map(|wait| wait.map(|wait| wait.as_micros() as u64));
    let right_retry = verdict.retry().map(|_| verdict.retry_after_us());
    let figures = (
        given.allowed(),
        given.granted(),
        given.limit(),
        given.remaining(),
        given.reset_after().as_micros(),
        given.delay().as_micros(),
        given.binding(),
    );
    let right_figures = (
        verdict.allowed(),
        verdict.granted(),
        verdict.limit,
        verdict.remaining,
        u128::from(verdict.reset_after_us),
        u128::from(verdict.delay_us()),
        right.binding(),
    );
    let same = figures == right_figures
        && retry == right_retry
        && given.verdicts() == right.verdicts()
        && !given.shared();
    (!same).then(|| format!("{given:?}\nis not\n{right:?}"))
}
