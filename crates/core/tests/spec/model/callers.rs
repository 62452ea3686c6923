//! The model of what tells callers apart: shares, concurrency limits and reservations (sections 9 to
//! 11 of the specification). Levels are in parts of 1/limit of a microsecond, as one number; members
//! and owners are text.

use std::collections::BTreeMap;

use tallygate_core::{Quota, Retry, Verb};

use super::{MAX, ModelState, ModelVerdict, WideQuota, bind, decide, earliest};

const HOUR: u128 = 3_600_000_000;
const DAY: u128 = 86_400_000_000;
const MEMBERS: usize = 10_000;

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModelCaller {
    pub(crate) member: &'static str,
    pub(crate) weight: u128,
    pub(crate) owner: &'static str,
}

/// A limit and its counter.
#[derive(Clone, Debug)]
pub(crate) struct ModelLimit {
    quota: WideQuota,
    /// The units of a member of a shared limit.
    least: u128,
    counter: ModelCounter,
    reserved: BTreeMap<&'static str, Reserved>,
}

#[derive(Clone, Debug)]
enum ModelCounter {
    Plain(ModelState),
    Share(Share),
    Holds(BTreeMap<&'static str, (u128, u128)>),
}

#[derive(Clone, Copy, Debug)]
struct Reserved {
    taken: u128,
    estimate: u128,
    caller: ModelCaller,
}

#[derive(Clone, Debug, Default)]
struct Share {
    level: u128,
    changed: Option<u128>,
    /// The start and the length.
    epoch: Option<(u128, u128)>,
    current: BTreeMap<&'static str, Member>,
    previous: BTreeMap<&'static str, Member>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Member {
    level: u128,
    as_of: u128,
    weight: u128,
}

/// What one limit is asked to do.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ask {
    Peek(u128),
    Check(u128),
    Take(u128),
    Charge(u128),
    Refund(u128),
    Undo { units: u128, taken: u128 },
    Reset,
    Renew,
}

/// The free units and all waits of a counter at one time.
struct Figures {
    available: u128,
    remaining: u128,
    reset: u128,
}

fn weights(members: &BTreeMap<&'static str, Member>) -> u128 {
    members.values().map(|member| member.weight).sum()
}

impl ModelLimit {
    pub(crate) fn new(quota: &Quota) -> Self {
        let algorithm = quota.algorithm();
        ModelLimit {
            quota: WideQuota::from(quota),
            least: quota.shared_units().unwrap_or(0).into(),
            counter: if algorithm.is_shared() {
                ModelCounter::Share(Share::default())
            } else if algorithm.is_concurrent() {
                ModelCounter::Holds(BTreeMap::new())
            } else {
                ModelCounter::Plain(ModelState::New)
            },
            reserved: BTreeMap::new(),
        }
    }

    fn is_concurrent(&self) -> bool {
        matches!(self.counter, ModelCounter::Holds(_))
    }

    fn touches(&self, verb: Verb) -> bool {
        match verb {
            Verb::Renew | Verb::Release => self.is_concurrent(),
            Verb::Charge | Verb::Settle => !self.is_concurrent(),
            _ => true,
        }
    }

    /// A full drain of a bucket, in parts.
    fn full(&self) -> u128 {
        self.quota.capacity * self.quota.period
    }

    fn span(&self) -> u128 {
        match &self.counter {
            ModelCounter::Holds(_) => self.quota.period,
            _ => self.full().div_ceil(self.quota.limit),
        }
    }

    fn mark(&self) -> Option<u128> {
        match &self.counter {
            ModelCounter::Plain(state) => state.mark(),
            ModelCounter::Share(share) => share.changed,
            ModelCounter::Holds(holds) => {
                let newest = holds.values().map(|(_, until)| *until).max();
                newest.map(|until| until - self.quota.period)
            }
        }
    }

    /// The counter at the effective time, that time, and how far it lies after `t`.
    fn at(&self, t: u128) -> (ModelLimit, u128, u128) {
        let mut at = self.clone();
        let now = match self.mark() {
            Some(mark) if t < mark && mark - t <= self.span() => mark,
            Some(mark) if t < mark => {
                at.forget();
                t
            }
            _ => t,
        };
        at.advance(now);
        (at, now, now - t)
    }

    fn forget(&mut self) {
        match &mut self.counter {
            ModelCounter::Plain(state) => *state = ModelState::New,
            ModelCounter::Share(share) => *share = Share::default(),
            ModelCounter::Holds(holds) => holds.clear(),
        }
    }

    fn advance(&mut self, now: u128) {
        let (limit, least, capacity) = (self.quota.limit, self.least, self.quota.capacity);
        let span = self.span();
        match &mut self.counter {
            ModelCounter::Plain(_) => {}
            ModelCounter::Holds(holds) => holds.retain(|_, (_, until)| *until > now),
            ModelCounter::Share(share) => {
                if let Some(changed) = &mut share.changed {
                    share.level = share.level.saturating_sub((now - *changed) * limit);
                    *changed = now;
                }
                for _ in 0..2 {
                    let Some((start, length)) = share.epoch else {
                        break;
                    };
                    if now < start + length {
                        break;
                    }
                    if share.current.is_empty() {
                        share.previous.clear();
                        share.epoch = None;
                        break;
                    }
                    let next = length_of_epoch(span, least, capacity, weights(&share.current));
                    share.epoch = Some((start + length, next));
                    share.previous = std::mem::take(&mut share.current);
                }
            }
        }
    }

    /// The active weight, the caller's level, the time it is as of, and its most.
    fn mine(&self, share: &Share, caller: ModelCaller, now: u128) -> (u128, u128, u128, u128) {
        let limit = self.quota.limit;
        let known = share.current.get(caller.member);
        let known = known.or_else(|| share.previous.get(caller.member));
        let all = weights(&share.current) + weights(&share.previous);
        let active = all - known.map_or(0, |known| known.weight) + caller.weight;
        let (mut level, mut as_of) = (0, now);
        if let Some(known) = known {
            let drained = (now - known.as_of) * caller.weight / active;
            level = known.level.saturating_sub(drained * limit);
            if level > 0 {
                as_of = known.as_of + (drained * active).div_ceil(caller.weight);
            }
        }
        let part = self.full() / limit * caller.weight / active * limit;
        let least = (self.least * caller.weight).min(self.quota.capacity) * self.quota.period;
        (active, level, as_of, part.max(least).min(self.full()))
    }

    fn figures(&self, caller: ModelCaller, now: u128) -> Figures {
        let capacity = self.quota.capacity;
        match &self.counter {
            ModelCounter::Plain(_) => unreachable!("decided by the model of one caller"),
            ModelCounter::Holds(holds) => {
                let all: u128 = holds.values().map(|(units, _)| units).sum();
                let own = holds.get(caller.owner).map_or(0, |(units, _)| *units);
                let last = holds.values().map(|(_, until)| *until).max();
                Figures {
                    available: capacity.saturating_sub(all - own),
                    remaining: capacity.saturating_sub(all),
                    reset: last.map_or(0, |until| until - now),
                }
            }
            ModelCounter::Share(share) => {
                let free = self.full().saturating_sub(share.level) / self.quota.period;
                let reserve = capacity / 4;
                let beyond = free.saturating_sub(reserve);
                let is_late =
                    !share.current.contains_key(caller.member) && share.current.len() >= MEMBERS;
                let (active, level, _, most) = self.mine(share, caller, now);
                let available = if is_late {
                    beyond
                } else if active == caller.weight {
                    free
                } else {
                    let (level_us, most_us) = (level / self.quota.limit, most / self.quota.limit);
                    let leave = (reserve * level_us).checked_div(most_us).unwrap_or(0);
                    let own = most.saturating_sub(level) / self.quota.period;
                    beyond.max(free.saturating_sub(leave).min(own))
                };
                let end = share.epoch.map_or(now, |(start, length)| {
                    let end = start + length;
                    match share.current.is_empty() {
                        true => end,
                        false => {
                            let weight = weights(&share.current);
                            end + length_of_epoch(self.span(), self.least, capacity, weight)
                        }
                    }
                });
                Figures {
                    available,
                    remaining: available,
                    reset: share.level.div_ceil(self.quota.limit).max(end - now),
                }
            }
        }
    }

    fn put(&mut self, caller: ModelCaller, units: u128, now: u128) {
        let (period, limit, capacity) = (self.quota.period, self.quota.limit, self.quota.capacity);
        let span = self.span();
        let this = self.clone();
        match &mut self.counter {
            ModelCounter::Plain(_) => unreachable!("decided by the model of one caller"),
            ModelCounter::Holds(holds) => {
                holds.insert(caller.owner, (units, now + period));
            }
            ModelCounter::Share(share) => {
                let (_, level, as_of, most) = this.mine(share, caller, now);
                share.level = (share.level + units * period).min(MAX * limit);
                share.changed = Some(now);
                if !share.current.contains_key(caller.member) && share.current.len() >= MEMBERS {
                    return;
                }
                share.epoch.get_or_insert((now, span));
                let then = (level + units.min(capacity) * period).min(most);
                let entry = Member {
                    level: level.max(then),
                    as_of,
                    weight: caller.weight,
                };
                share.previous.remove(caller.member);
                share.current.insert(caller.member, entry);
            }
        }
    }

    /// Lowers the root and the member. Whether that is written.
    fn lower(
        &mut self,
        caller: ModelCaller,
        now: u128,
        root: u128,
        own: impl Fn(u128) -> u128,
    ) -> bool {
        let this = self.clone();
        let ModelCounter::Share(share) = &mut self.counter else {
            unreachable!("only shares are lowered");
        };
        let before = share.level;
        share.level = before.saturating_sub(root);
        let (active, level, as_of, _) = this.mine(share, caller, now);
        let level = level.saturating_sub(own(active));
        let mut is_member = false;
        for table in [&mut share.current, &mut share.previous] {
            if let Some(member) = table.get_mut(caller.member) {
                is_member = true;
                (member.level, member.as_of) = (level, as_of);
                if level == 0 {
                    table.remove(caller.member);
                }
            }
        }
        let is_memberless = share.current.is_empty() && share.previous.is_empty();
        if is_memberless {
            share.epoch = None;
        }
        let changed = share.level != before || is_member || is_memberless;
        if changed {
            share.changed = Some(now);
        }
        changed
    }

    fn refund(&mut self, caller: ModelCaller, units: u128, now: u128) -> bool {
        let parts = units * self.quota.period;
        let capped = parts.min(MAX * self.quota.limit);
        match &mut self.counter {
            ModelCounter::Plain(_) => unreachable!("decided by the model of one caller"),
            ModelCounter::Holds(holds) => match holds.get_mut(caller.owner) {
                None => false,
                Some((held, _)) if *held > units => {
                    *held -= units;
                    true
                }
                Some(_) => holds.remove(caller.owner).is_some(),
            },
            ModelCounter::Share(_) => self.lower(caller, now, capped, |_| capped),
        }
    }

    /// Returns what units taken then still weigh. Whether that is written.
    fn undo(&mut self, caller: ModelCaller, units: u128, taken: u128, now: u128) -> bool {
        let (limit, period) = (self.quota.limit, self.quota.period);
        let parts = (units * period).min(MAX * limit);
        match &mut self.counter {
            ModelCounter::Plain(state) => {
                let undone = state.undo(&self.quota, units, taken, now);
                match undone {
                    Some(undone) => {
                        *state = undone;
                        true
                    }
                    None => false,
                }
            }
            ModelCounter::Holds(_) => self.refund(caller, MAX, now),
            ModelCounter::Share(_) if now < taken => false,
            ModelCounter::Share(_) => {
                let elapsed = now - taken;
                self.lower(
                    caller,
                    now,
                    parts.saturating_sub(elapsed * limit),
                    |active| parts.saturating_sub(elapsed * caller.weight / active * limit),
                )
            }
        }
    }

    /// Asks this limit alone.
    fn ask(&mut self, ask: Ask, caller: ModelCaller, t: u128) -> ModelVerdict {
        if let ModelCounter::Plain(state) = &mut self.counter {
            let verb = match ask {
                Ask::Peek(units) => Some((Verb::Peek, units)),
                Ask::Check(units) => Some((Verb::Check, units)),
                Ask::Take(units) => Some((Verb::Take, units)),
                Ask::Charge(units) => Some((Verb::Charge, units)),
                Ask::Refund(units) => Some((Verb::Refund, units)),
                Ask::Reset => Some((Verb::Reset, 0)),
                Ask::Undo { .. } | Ask::Renew => None,
            };
            if let Some((verb, units)) = verb {
                let cost = units.try_into().unwrap();
                let limits = &mut [(self.quota, state, cost)];
                return decide(limits, verb, t.try_into().unwrap())[0];
            }
            let Ask::Undo { units, taken } = ask else {
                unreachable!("renew does not touch it");
            };
            let now = match state.mark() {
                Some(mark) if t < mark && mark - t <= self.quota.span() => mark,
                Some(mark) if t < mark => {
                    // As new: nothing is left to return.
                    return self.ask(Ask::Peek(0), caller, t);
                }
                _ => t,
            };
            self.undo(caller, units, taken, now);
            return self.ask(Ask::Peek(0), caller, t);
        }
        let (mut at, now, lag) = self.at(t);
        let capacity = self.quota.capacity;
        let available = at.figures(caller, now).available;
        let wait = |units: u128| {
            if units > capacity {
                return Retry::Never;
            }
            let wait = earliest(|d| {
                let mut later = at.clone();
                later.advance(now + d);
                later.figures(caller, now + d).available >= units
            });
            let us = (wait + lag).try_into().unwrap();
            match self.is_concurrent() {
                true => Retry::at_most_us(us),
                false => Retry::after_us(us),
            }
        };
        let (mut granted, mut retry, mut changed) = (0, None, false);
        match ask {
            Ask::Peek(units) | Ask::Check(units) if units > available => retry = Some(wait(units)),
            Ask::Take(units) if units > 0 && available == 0 => retry = Some(wait(1)),
            Ask::Peek(_) => {}
            Ask::Check(units) | Ask::Charge(units) => granted = units,
            Ask::Take(units) => granted = units.min(available),
            Ask::Refund(units) => changed = units > 0 && at.refund(caller, units, now),
            Ask::Undo { units, taken } => {
                changed = units > 0 && at.undo(caller, units, taken, now);
            }
            Ask::Reset => {
                at.forget();
                self.forget();
                return self.verdict(None, 0, t, 0, caller);
            }
            Ask::Renew => match &at.counter {
                ModelCounter::Holds(holds) => match holds.get(caller.owner) {
                    Some((units, _)) => granted = *units,
                    None => retry = Some(Retry::Never),
                },
                _ => unreachable!("only holds are renewed"),
            },
        }
        if granted > 0 {
            at.put(caller, granted, now);
            changed = true;
        }
        let verdict = at.verdict(retry, granted, now, lag, caller);
        if changed {
            if verdict.reset_after == 0 {
                at.forget();
            }
            self.counter = at.counter;
        }
        verdict
    }

    fn verdict(
        &self,
        retry: Option<Retry>,
        granted: u128,
        now: u128,
        lag: u128,
        caller: ModelCaller,
    ) -> ModelVerdict {
        let Figures {
            remaining, reset, ..
        } = self.figures(caller, now);
        ModelVerdict {
            retry,
            granted,
            limit: self.quota.capacity,
            remaining,
            reset_after: if reset == 0 { 0 } else { reset + lag },
            delay: 0,
        }
    }

    fn reserved(&self, id: &str, t: u128) -> Option<Reserved> {
        let known = self.reserved.get(id).copied();
        known.filter(|known| t < known.taken + HOUR)
    }

    /// What the limit would take part in, and whether it refuses.
    fn peek_of(&self, verb: Verb, id: &str, cost: u128, t: u128) -> u128 {
        match verb {
            Verb::Reserve if !self.is_concurrent() && self.reserved(id, t).is_some() => 0,
            Verb::Check | Verb::Peek | Verb::Reserve => cost,
            Verb::Take => cost.min(1),
            _ => 0,
        }
    }

    fn refusal(&self, request: &ModelRequest, t: u128) -> ModelVerdict {
        let mut alone = self.clone();
        match request.verb {
            Verb::Renew if self.is_concurrent() => {
                let verdict = alone.ask(Ask::Renew, request.caller, t);
                match verdict.retry {
                    Some(_) => verdict,
                    None => self.clone().ask(Ask::Peek(0), request.caller, t),
                }
            }
            verb => {
                let units = self.peek_of(verb, request.id, request.cost, t);
                let verdict = alone.ask(Ask::Peek(units), request.caller, t);
                ModelVerdict {
                    granted: 0,
                    ..verdict
                }
            }
        }
    }

    /// Executes an admitted request.
    fn commit(&mut self, request: &ModelRequest, cost: u128, t: u128) -> ModelVerdict {
        let ModelRequest {
            verb, caller, id, ..
        } = *request;
        if !self.touches(verb) {
            return self.ask(Ask::Peek(0), caller, t);
        }
        match verb {
            Verb::Check => self.ask(Ask::Check(cost), caller, t),
            Verb::Peek => self.ask(Ask::Peek(cost), caller, t),
            Verb::Take => self.ask(Ask::Take(cost), caller, t),
            Verb::Charge => self.ask(Ask::Charge(cost), caller, t),
            Verb::Refund => self.ask(Ask::Refund(cost), caller, t),
            Verb::Reset => self.ask(Ask::Reset, caller, t),
            Verb::Renew => self.ask(Ask::Renew, caller, t),
            Verb::Release => self.ask(Ask::Refund(MAX), caller, t),
            Verb::Reserve if self.is_concurrent() => self.ask(Ask::Check(cost), caller, t),
            Verb::Reserve => {
                if let Some(known) = self.reserved(id, t) {
                    let verdict = self.ask(Ask::Peek(0), caller, t);
                    return ModelVerdict {
                        granted: known.estimate,
                        ..verdict
                    };
                }
                let taken = match self.mark() {
                    Some(mark) if t < mark && mark - t <= self.effective_span() => mark,
                    _ => t,
                };
                let verdict = self.ask(Ask::Check(cost), caller, t);
                if verdict.retry.is_none() && cost > 0 {
                    let reserved = Reserved {
                        taken,
                        estimate: cost,
                        caller,
                    };
                    self.reserved.insert(id, reserved);
                }
                verdict
            }
            Verb::Settle => {
                let Some(known) = self.reserved(id, t) else {
                    return self.ask(Ask::Peek(0), caller, t);
                };
                self.reserved.remove(id);
                let Reserved {
                    taken, estimate, ..
                } = known;
                if cost > estimate {
                    let verdict = self.ask(Ask::Charge(cost - estimate), known.caller, t);
                    return ModelVerdict {
                        delay: 0,
                        ..verdict
                    };
                }
                let units = estimate - cost;
                match units {
                    0 => self.ask(Ask::Peek(0), known.caller, t),
                    _ => self.ask(Ask::Undo { units, taken }, known.caller, t),
                }
            }
        }
    }

    fn effective_span(&self) -> u128 {
        match &self.counter {
            ModelCounter::Plain(_) => self.quota.span(),
            _ => self.span(),
        }
    }
}

/// An epoch: full drains, as many as give each weight its least units, within a day.
fn length_of_epoch(drain: u128, least: u128, capacity: u128, weight: u128) -> u128 {
    drain * (least * weight / capacity).min(DAY / drain).max(1)
}

/// One request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModelRequest {
    pub(crate) verb: Verb,
    pub(crate) cost: u128,
    pub(crate) caller: ModelCaller,
    pub(crate) id: &'static str,
}

/// Decides a request over several limits, all or nothing: the combined verdict and that of each.
pub(crate) fn decide_for(
    limits: &mut [ModelLimit],
    request: &ModelRequest,
    t: u64,
) -> (ModelVerdict, Vec<ModelVerdict>) {
    let t = u128::from(t).min(MAX);
    let verb = request.verb;
    let refusals: Vec<ModelVerdict> = limits
        .iter()
        .map(|limit| limit.refusal(request, t))
        .collect();
    if refusals.iter().any(|verdict| verdict.retry.is_some()) {
        let (_, combined) = bind(&refusals);
        return (combined, refusals);
    }
    let mut cost = request.cost;
    if verb == Verb::Take {
        let granted = limits.iter().map(|limit| {
            let mut alone = limit.clone();
            alone.commit(request, cost, t).granted
        });
        cost = granted.min().unwrap_or(cost);
    }
    let verdicts: Vec<ModelVerdict> = limits
        .iter_mut()
        .map(|limit| limit.commit(request, cost, t))
        .collect();
    let touched = limits
        .iter()
        .zip(&verdicts)
        .filter(|(limit, _)| limit.touches(verb));
    let granted = touched
        .map(|(_, verdict)| verdict.granted)
        .min()
        .unwrap_or(0);
    let (_, combined) = bind(&verdicts);
    (
        ModelVerdict {
            granted,
            ..combined
        },
        verdicts,
    )
}
