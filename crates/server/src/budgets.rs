//! What is left of named budgets, how fast they are spent by all services, and when they end at that
//! rate. The numbers are those of the store, which services share.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tallygate::rules::{KeyText, Rule, Rules, Source};
use tallygate::store::Snapshot;
use tallygate::{Key, Limit, Quota};
use tallygate_core::CounterState;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout, timeout_at};

use crate::state::ServerState;

const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);
/// What the present rate is measured over.
const RATE_US: u64 = 300_000_000;
/// With less history the rate is the average of the current window, if there is one.
const MIN_RATE_US: u64 = 60_000_000;
/// A counter is sampled for as long after somebody asked for it.
const ASKED_FOR: Duration = Duration::from_secs(600);
/// The counters that are sampled.
const MAX_COUNTERS: usize = 1_000;
const STORE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a round of samples goes on: the metrics wait for it.
const ROUND_TIMEOUT: Duration = Duration::from_secs(2);

/// The histories of the counters of budgets.
#[derive(Default)]
pub(crate) struct Budgets(Mutex<HashMap<CounterId, History>>);

/// A counter of a budget.
#[derive(Clone, PartialEq, Eq, Hash)]
struct CounterId {
    budget: String,
    key: Key<'static>,
    limit: String,
}

/// What was spent of a counter.
struct History {
    /// The counter when it was sampled last. A log has one entry, its sum.
    last: Snapshot,
    /// Times of the store, and thousandths of units spent until then since the first.
    samples: VecDeque<(u64, i64)>,
    asked: Instant,
}

/// A budget at one time.
#[derive(Serialize)]
pub(crate) struct BudgetReport {
    budget: String,
    /// Of the limit that ends first, or has the smallest part left.
    #[serde(flatten)]
    tightest: Figures,
    limits: Vec<LimitReport>,
}

/// One limit of a budget.
#[derive(Serialize)]
pub(crate) struct LimitReport {
    pub(crate) limit_name: String,
    pub(crate) quota: String,
    #[serde(flatten)]
    pub(crate) figures: Figures,
}

#[derive(Clone, Copy, Serialize)]
pub(crate) struct Figures {
    pub(crate) limit: u32,
    pub(crate) remaining: u64,
    /// `None` if it is not known yet.
    rate: Option<Rate>,
    /// When it ends at that rate; `None` if it does not.
    pub(crate) ends_in_us: Option<u64>,
}

/// Units spent over a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Rate {
    units: u64,
    over_us: u64,
    #[serde(skip)]
    milli: u64,
}

/// Why there is no report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BudgetError {
    Unknown,
    /// Its key has so many parts, and another number was given.
    WrongKey(usize),
    StoreFailed,
}

impl Budgets {
    /// What is left of a budget. The key has a text for each part, none if the budget is one for all
    /// clients.
    pub(crate) async fn report(
        &self,
        state: &ServerState,
        budget: &str,
        key: Option<&[String]>,
    ) -> Result<BudgetReport, BudgetError> {
        let rules = state.active_rules.rules();
        let rule = rules.rule_of_budget(budget).ok_or(BudgetError::Unknown)?;
        let given = key.map_or(0, <[String]>::len);
        let parts = if rule.has_key() { rule.key.len() } else { 0 };
        if given != parts {
            return Err(BudgetError::WrongKey(parts));
        }
        let text = key.map_or_else(|| constants(rule), KeyText::new);
        let mut limits = Vec::new();
        for (key, limit) in counters(&rules, rule, &text) {
            let snapshot = inspect(state, &key, &limit).await?;
            limits.push(self.add(budget, key, &limit, snapshot));
        }
        let tightest = limits.iter().map(|limit| limit.figures);
        let tightest = tightest.min_by(|a, b| {
            let ends = |figures: &Figures| figures.ends_in_us.unwrap_or(u64::MAX);
            let part = |a: &Figures, b: &Figures| a.remaining * u64::from(b.limit);
            ends(a).cmp(&ends(b)).then(part(a, b).cmp(&part(b, a)))
        });
        Ok(BudgetReport {
            budget: budget.to_owned(),
            tightest: tightest.ok_or(BudgetError::WrongKey(parts))?,
            limits,
        })
    }

    /// Adds a sample of a counter and returns its figures.
    fn add(
        &self,
        budget: &str,
        key: Key<'static>,
        limit: &Limit,
        snapshot: Snapshot,
    ) -> LimitReport {
        let quota = limit.quota();
        let id = CounterId {
            budget: budget.to_owned(),
            key,
            limit: limit.name().to_owned(),
        };
        let mut histories = self.histories();
        if histories.len() >= MAX_COUNTERS && !histories.contains_key(&id) {
            let oldest = histories.iter().min_by_key(|(_, history)| history.asked);
            if let Some(oldest) = oldest.map(|(id, _)| id.clone()) {
                histories.remove(&oldest);
            }
        }
        let history = histories
            .entry(id)
            .or_insert_with(|| History::new(&snapshot));
        history.asked = Instant::now();
        history.add(quota, snapshot);
        let rate = history.rate(quota);
        let remaining_milli = remaining_milli(quota, &history.last);
        LimitReport {
            limit_name: limit.name().to_owned(),
            quota: quota.to_string(),
            figures: Figures {
                limit: quota.capacity(),
                remaining: remaining_milli / 1_000,
                rate,
                ends_in_us: rate.and_then(|rate| ends_in(quota, &history.last, rate)),
            },
        }
    }

    fn histories(&self) -> MutexGuard<'_, HashMap<CounterId, History>> {
        // No statement leaves a history half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Samples the budgets that all clients share, for the metrics, and those that somebody asked for.
    pub(crate) async fn sample(&self, state: &ServerState) {
        let deadline = Instant::now() + ROUND_TIMEOUT;
        let rules = state.active_rules.rules();
        let mut reports = Vec::new();
        let shared = rules.budgets().into_iter().filter(|rule| !rule.has_key());
        for rule in shared.take(MAX_COUNTERS) {
            let Some(budget) = &rule.budget else { continue };
            let report = self.report(state, budget.as_str(), None);
            let Ok(Ok(report)) = timeout_at(deadline, report).await else {
                // Others would wait for the store as long.
                break;
            };
            reports.push(report);
        }
        state.metrics.set_budgets(
            reports
                .iter()
                .flat_map(|report| report.limits.iter().map(|limit| (&*report.budget, limit))),
        );
        self.histories()
            .retain(|_, history| history.asked.elapsed() < ASKED_FOR);
        let mut asked: Vec<CounterId> = self.histories().keys().cloned().collect();
        asked.retain(|id| !reports.iter().any(|report| report.budget == id.budget));
        for id in asked {
            let limit = rules.limits().find(|limit| limit.name() == id.limit);
            let Some(limit) = limit else { continue };
            let snapshot = timeout_at(deadline, inspect(state, &id.key, limit));
            let Ok(Ok(snapshot)) = snapshot.await else {
                break;
            };
            if let Some(history) = self.histories().get_mut(&id) {
                history.add(limit.quota(), snapshot);
            }
        }
    }
}

/// Samples budgets for as long as the process lives.
pub(crate) async fn watch(state: Arc<ServerState>) {
    let mut ticks = interval(SAMPLE_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        state.budgets.sample(&state).await;
    }
}

/// The text of a key of constants only.
fn constants(rule: &Rule) -> KeyText {
    let sources = rule.key.iter().filter_map(|part| part.sources().next());
    KeyText::new(sources.filter_map(|source| match source {
        Source::Constant(text) => Some(text.to_string()),
        _ => None,
    }))
}

/// The counters of a budget for a key.
fn counters(rules: &Rules, rule: &Rule, text: &KeyText) -> Vec<(Key<'static>, Limit)> {
    let budget = |other: &Rule| other.budget == rule.budget && !other.shadow;
    let found = rules.key_limits(text).into_iter();
    // A key that could be from several sources is meant to be from the first.
    let found = found.filter(|limits| budget(limits.rule)).take(1);
    found
        .flat_map(|limits| {
            let key = limits.key;
            let limits = limits.limits.into_iter();
            limits.map(move |limit| (key.clone(), limit.clone()))
        })
        .collect()
}

async fn inspect(
    state: &ServerState,
    key: &Key<'_>,
    limit: &Limit,
) -> Result<Snapshot, BudgetError> {
    let inspected = timeout(STORE_TIMEOUT, state.engine.store().inspect(key, limit)).await;
    match inspected {
        Ok(Ok(snapshot)) => Ok(snapshot),
        Ok(Err(_)) | Err(_) => Err(BudgetError::StoreFailed),
    }
}

impl History {
    fn new(first: &Snapshot) -> Self {
        History {
            last: summarized(first.clone()),
            samples: VecDeque::from([(first.now_us, 0)]),
            asked: Instant::now(),
        }
    }

    fn add(&mut self, quota: &Quota, snapshot: Snapshot) {
        let back_us = self.last.now_us.saturating_sub(snapshot.now_us);
        if back_us > 0 {
            // Answers of the store may overtake each other. A clock that steps back starts over.
            if u128::from(back_us) > STORE_TIMEOUT.as_micros() {
                let asked = self.asked;
                *self = History::new(&snapshot);
                self.asked = asked;
            }
            return;
        }
        let (last_us, spent) = self.samples.back().copied().unwrap_or_default();
        let spent = spent.saturating_add(spent_milli(quota, &self.last, &snapshot));
        match snapshot.now_us - last_us < 1_000_000 && self.samples.len() > 1 {
            // Whoever asks often does not shorten the history.
            true => self
                .samples
                .back_mut()
                .into_iter()
                .for_each(|last| last.1 = spent),
            false => self.samples.push_back((snapshot.now_us, spent)),
        }
        while self.samples.len() > 2 && snapshot.now_us - self.samples[1].0 >= RATE_US {
            self.samples.pop_front();
        }
        self.last = summarized(snapshot);
    }

    /// The present rate.
    fn rate(&self, quota: &Quota) -> Option<Rate> {
        let (first_us, before) = *self.samples.front()?;
        let (_, spent) = *self.samples.back()?;
        let over_us = self.last.now_us - first_us;
        let measured = || {
            let milli = u64::try_from(spent - before).unwrap_or_default();
            (over_us > 0).then(|| Rate::new(milli, over_us))
        };
        match over_us < MIN_RATE_US {
            true => window_rate(quota, &self.last).or_else(measured),
            false => measured(),
        }
    }
}

/// A snapshot whose log is one entry: a log may have 100,000, and only their sum is needed later.
fn summarized(mut snapshot: Snapshot) -> Snapshot {
    if let CounterState::Log { entries } = &mut snapshot.state
        && let Some((newest_us, _)) = entries.last().copied()
    {
        let units = entries.iter().map(|(_, units)| units).sum();
        *entries = vec![(newest_us, units)];
    }
    snapshot
}

impl Rate {
    fn new(milli: u64, over_us: u64) -> Self {
        Rate {
            // Samples are rounded to thousandths.
            units: (milli + 500) / 1_000,
            over_us,
            milli,
        }
    }
}

/// The average of the current window. `None` in a window that starts later: the clock stepped back.
fn window_rate(quota: &Quota, snapshot: &Snapshot) -> Option<Rate> {
    let since = |start_us: u64| snapshot.now_us.saturating_sub(start_us);
    let (units, over_us) = match &snapshot.state {
        CounterState::Window { start_us, used, .. } => (*used, since(*start_us)),
        CounterState::Windows {
            start_us, current, ..
        } => (*current, since(*start_us)),
        CounterState::Log { entries } => (
            entries.iter().map(|(_, units)| units).sum(),
            quota.period_us(),
        ),
        _ => return None,
    };
    (over_us > 0).then(|| Rate::new(units.saturating_mul(1_000), over_us))
}

/// Thousandths of units that were spent between two samples; negative if more was given back.
fn spent_milli(quota: &Quota, from: &Snapshot, to: &Snapshot) -> i64 {
    let milli = |units: u64| i64::try_from(units.saturating_mul(1_000)).unwrap_or(i64::MAX);
    match (&from.state, &to.state) {
        (
            CounterState::Window {
                start_us: from_us,
                used: before,
                ..
            },
            CounterState::Window {
                start_us: to_us,
                used: after,
                ..
            },
        ) => match from_us == to_us {
            true => milli(*after) - milli(*before),
            // What was spent at the end of the window before is not known.
            false => milli(*after),
        },
        (
            CounterState::Windows {
                start_us: from_us,
                current: before,
                end_us,
                ..
            },
            CounterState::Windows {
                start_us: to_us,
                previous,
                current: after,
                ..
            },
        ) => {
            if from_us == to_us {
                milli(*after) - milli(*before)
            } else if end_us == to_us {
                milli(*previous) - milli(*before) + milli(*after)
            } else {
                milli(*after)
            }
        }
        (_, CounterState::Log { entries }) => {
            let new = entries.iter().filter(|(at, _)| *at > from.now_us);
            milli(new.map(|(_, units)| units).sum())
        }
        (from_state, to_state) => match (level(from_state), level(to_state)) {
            (Some(before), Some(after)) => {
                let drained = drained_milli(quota, to.now_us - from.now_us);
                let before = u128::from(before).saturating_sub(drained);
                i64::try_from(i128::from(after) - i128::try_from(before).unwrap_or(i128::MAX))
                    .unwrap_or(i64::MAX)
            }
            _ => 0,
        },
    }
}

/// Thousandths of units that are used of a bucket.
fn level(state: &CounterState) -> Option<u64> {
    match state {
        CounterState::Level { used_milli } | CounterState::Shared { used_milli, .. } => {
            Some(*used_milli)
        }
        _ => None,
    }
}

fn drained_milli(quota: &Quota, over_us: u64) -> u128 {
    u128::from(over_us) * u128::from(quota.limit()) * 1_000 / u128::from(quota.period_us())
}

fn remaining_milli(quota: &Quota, snapshot: &Snapshot) -> u64 {
    let capacity = u64::from(quota.capacity()) * 1_000;
    let used = match &snapshot.state {
        CounterState::Window { used, .. } => used.saturating_mul(1_000),
        CounterState::Windows {
            end_us,
            previous,
            current,
            ..
        } => {
            let rest = u128::from(end_us.saturating_sub(snapshot.now_us));
            let weighted = u128::from(*previous) * rest / u128::from(quota.period_us());
            let weighted = u64::try_from(weighted).unwrap_or(u64::MAX);
            weighted.saturating_add(*current).saturating_mul(1_000)
        }
        CounterState::Log { entries } => {
            let used: u64 = entries.iter().map(|(_, units)| units).sum();
            used.saturating_mul(1_000)
        }
        CounterState::Holds { holds } => {
            holds.iter().map(|hold| u64::from(hold.units) * 1_000).sum()
        }
        state => level(state).unwrap_or_default(),
    };
    capacity.saturating_sub(used)
}

/// When a counter is used up at a rate, if it is.
fn ends_in(quota: &Quota, snapshot: &Snapshot, rate: Rate) -> Option<u64> {
    let remaining = u128::from(remaining_milli(quota, snapshot));
    let over = u128::from(rate.over_us);
    let spent = u128::from(rate.milli);
    let period = u128::from(quota.period_us());
    let limit = u128::from(quota.limit()) * 1_000;
    if spent == 0 {
        return None;
    }
    let ends = match &snapshot.state {
        CounterState::Window { end_us, .. } => {
            let ends = remaining * over / spent;
            // It starts anew before.
            (ends < u128::from(end_us.saturating_sub(snapshot.now_us))).then_some(ends)
        }
        CounterState::Windows { .. } | CounterState::Log { .. } => {
            (spent * period > limit * over).then(|| remaining * over / spent)
        }
        CounterState::Level { .. } | CounterState::Shared { .. } => {
            let refilled = drained_milli(quota, rate.over_us);
            (spent > refilled).then(|| remaining * over / (spent - refilled))
        }
        _ => None,
    };
    ends.and_then(|ends| u64::try_from(ends).ok())
}

#[cfg(test)]
mod tests {
    use tallygate::{ManualClock, MemoryStore, Request, Verb};

    use super::*;

    /// Charges units at times and returns the rate and the forecast at the end.
    fn forecast(quota: &str, charges: &[(u64, u32)]) -> (u64, Option<(u64, u64)>, Option<u64>) {
        let clock = Arc::new(ManualClock::at(1_000_000_000_000_000));
        let store = MemoryStore::builder().clock(Arc::clone(&clock)).build();
        let limit = Limit::from(quota.parse::<Quota>().unwrap());
        let key = Key::from("all");
        let mut history = History::new(&store.inspect(&key, &limit));
        for (after_s, units) in charges {
            clock.advance(Duration::from_secs(*after_s));
            let request = Request::new(&key, &limit).verb(Verb::Charge).cost(*units);
            store.decide(&request);
            history.add(limit.quota(), store.inspect(&key, &limit));
        }
        let rate = history.rate(limit.quota());
        let ends = rate.and_then(|rate| ends_in(limit.quota(), &history.last, rate));
        let rate = rate.map(|rate| (rate.units, rate.over_us / 1_000_000));
        let remaining = remaining_milli(limit.quota(), &history.last) / 1_000;
        (remaining, rate, ends.map(|ends| ends / 1_000_000))
    }

    #[test]
    fn a_budget_ends_at_the_rate_at_which_it_was_spent() {
        let minute = [(20, 10), (20, 10), (20, 10)];
        for (quota, remaining, rate, ends) in [
            // 30 in a minute: 970 last for 1,940 s.
            ("sliding-window-log 1000/h", 970, (30, 60), Some(1_940)),
            // They come back as fast as they are spent.
            ("sliding-window-log 1800/h", 1_770, (30, 60), None),
            // 30 spent and 1 refilled.
            ("token-bucket 60/h burst 1000", 971, (30, 60), Some(2_008)),
            ("token-bucket 1/s burst 1000", 1_000, (30, 60), None),
            ("leaky-bucket 60/h burst 1000", 971, (30, 60), Some(2_008)),
        ] {
            let found = forecast(quota, &minute);
            let (left, measured, ends_in) = found;
            assert!(left.abs_diff(remaining) <= 10, "{quota}: {left}");
            assert_eq!(measured, Some(rate), "{quota}");
            match (ends_in, ends) {
                (Some(found), Some(expected)) => {
                    assert!(found.abs_diff(expected) <= 30, "{quota}: {found}");
                }
                (found, expected) => assert_eq!(found, expected, "{quota}"),
            }
        }
    }

    #[test]
    fn the_rate_is_that_of_the_last_minutes() {
        let mut charges = vec![(10, 1_000); 60];
        charges.extend([(10, 1); 60]);
        let (_, rate, _) = forecast("token-bucket 1000/d burst 1000000", &charges);
        assert_eq!(rate, Some((30, 300)));
    }

    #[test]
    fn at_first_the_rate_is_the_average_of_the_window() {
        // The store's clock is 46 min 40 s after the start of an hour.
        let (remaining, rate, ends) = forecast("fixed-window 1000/h", &[(0, 999)]);
        assert_eq!(remaining, 1);
        assert_eq!(rate, Some((999, 2_800)));
        assert_eq!(ends, Some(2));
        // It starts anew before it ends.
        let (_, _, ends) = forecast("fixed-window 1000/h", &[(0, 100)]);
        assert_eq!(ends, None);
        assert_eq!(forecast("token-bucket 1/h burst 10", &[]).1, None);
    }

    #[test]
    fn answers_that_overtake_each_other_do_not_start_over_and_clocks_that_step_back_do() {
        for quota in [
            "fixed-window 1000/h",
            "sliding-window-counter 1000/h",
            "sliding-window-log 1000/h",
            "token-bucket 60/h burst 1000",
        ] {
            let clock = Arc::new(ManualClock::at(1_000_000_000_000_000));
            let store = MemoryStore::builder().clock(Arc::clone(&clock)).build();
            let limit = Limit::from(quota.parse::<Quota>().unwrap());
            let key = Key::from("all");
            let mut history = History::new(&store.inspect(&key, &limit));
            let charge = Request::new(&key, &limit).verb(Verb::Charge).cost(10);
            for _ in 0..12 {
                clock.advance(Duration::from_secs(10));
                store.decide(&charge);
                let earlier = store.inspect(&key, &limit);
                clock.advance(Duration::from_millis(300));
                let later = store.inspect(&key, &limit);
                clock.advance(Duration::from_millis(300));
                let latest = store.inspect(&key, &limit);
                for snapshot in [latest, earlier, later] {
                    history.add(limit.quota(), snapshot);
                }
            }
            let rate = history.rate(limit.quota()).unwrap();
            assert_eq!((rate.units, rate.over_us), (120, 127_200_000), "{quota}");
            // Before the start of the stored window.
            clock.set(1_000_000_000_000_000 - 50 * 60 * 1_000_000);
            history.add(limit.quota(), store.inspect(&key, &limit));
            assert_eq!(history.samples.len(), 1, "{quota}");
            let rate = history.rate(limit.quota());
            assert!(rate.is_none_or(|rate| rate.over_us <= limit.quota().period_us()));
        }
    }

    #[test]
    fn what_is_given_back_is_not_spent() {
        let clock = Arc::new(ManualClock::at(1_000_000_000_000_000));
        let store = MemoryStore::builder().clock(Arc::clone(&clock)).build();
        let limit = Limit::from("fixed-window 10000/d".parse::<Quota>().unwrap());
        let key = Key::from("all");
        let mut history = History::new(&store.inspect(&key, &limit));
        for _ in 0..12 {
            for (verb, units) in [(Verb::Charge, 1_000), (Verb::Refund, 900)] {
                clock.advance(Duration::from_secs(5));
                store.decide(&Request::new(&key, &limit).verb(verb).cost(units));
                history.add(limit.quota(), store.inspect(&key, &limit));
            }
        }
        assert_eq!(history.rate(limit.quota()).unwrap().units, 1_200);
    }
}
