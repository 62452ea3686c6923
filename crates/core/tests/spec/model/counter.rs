//! The state of one counter of the model (section 4 of the specification). Fractions are in units
//! times the period.

use tallygate_core::Algorithm;

use super::{MAX, WideQuota};

/// The state of a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ModelState {
    New,
    Windows {
        start: u128,
        previous: u128,
        current: u128,
    },
    /// Times and units, oldest first.
    Log(Vec<(u128, u128)>),
    /// The level is in units x period, so that one microsecond drains exactly `limit`.
    Bucket {
        changed: u128,
        level: u128,
        limit: u128,
    },
}

impl ModelState {
    /// The time of the last change.
    pub(crate) fn mark(&self) -> Option<u128> {
        match self {
            ModelState::New => None,
            ModelState::Windows { start, .. } => Some(*start),
            ModelState::Log(entries) => entries.last().map(|(time, _)| *time),
            ModelState::Bucket { changed, .. } => Some(*changed),
        }
    }

    /// The state under a quota whose limit may have changed: a bucket keeps its used units,
    /// rounded up, as of its last change.
    pub(crate) fn convert_to(&self, quota: &WideQuota) -> ModelState {
        match self {
            ModelState::Bucket {
                changed,
                level,
                limit,
            } if *limit != quota.limit => ModelState::Bucket {
                changed: *changed,
                level: (level.div_ceil(quota.period) * quota.period).min(quota.limit * MAX),
                limit: quota.limit,
            },
            same => same.clone(),
        }
    }

    /// The state advanced to `now`, which is not before its mark.
    fn at(&self, quota: &WideQuota, now: u128) -> ModelState {
        match self {
            ModelState::New => match quota.algorithm {
                Algorithm::FixedWindow | Algorithm::SlidingWindowCounter => ModelState::Windows {
                    start: now / quota.period * quota.period,
                    previous: 0,
                    current: 0,
                },
                Algorithm::SlidingWindowLog => ModelState::Log(Vec::new()),
                Algorithm::TokenBucket | Algorithm::LeakyPolicing | Algorithm::LeakyShaping => {
                    ModelState::Bucket {
                        changed: now,
                        level: 0,
                        limit: quota.limit,
                    }
                }
                other => unreachable!("{other:?} has a model of its own"),
            },
            ModelState::Windows {
                start,
                previous,
                current,
            } => {
                let current_start = now / quota.period * quota.period;
                let (previous, current) = match (current_start - start) / quota.period {
                    0 => (*previous, *current),
                    1 => (*current, 0),
                    _ => (0, 0),
                };
                ModelState::Windows {
                    start: current_start,
                    previous,
                    current,
                }
            }
            ModelState::Log(entries) => {
                ModelState::Log(live_entries(entries, quota, now).copied().collect())
            }
            ModelState::Bucket {
                changed,
                level,
                limit,
            } => ModelState::Bucket {
                changed: now,
                level: level.saturating_sub((now - changed) * limit),
                limit: *limit,
            },
        }
    }

    /// The used units at `now`, times the period; whole units for windows and logs.
    fn used(&self, quota: &WideQuota, now: u128) -> u128 {
        // A log may be long: avoid the copy in `at`.
        if let ModelState::Log(entries) = self {
            return units(live_entries(entries, quota, now)) * quota.period;
        }
        match self.at(quota, now) {
            ModelState::New | ModelState::Log(_) => 0,
            ModelState::Windows {
                start,
                previous,
                current,
            } => {
                let left = match quota.algorithm {
                    Algorithm::SlidingWindowCounter => quota.period - (now - start),
                    _ => 0,
                };
                (previous * left / quota.period + current) * quota.period
            }
            ModelState::Bucket { level, .. } => level,
        }
    }

    pub(crate) fn fits(&self, quota: &WideQuota, cost: u128, now: u128) -> bool {
        self.used(quota, now) + cost * quota.period <= quota.capacity * quota.period
    }

    /// The available units.
    pub(crate) fn available(&self, quota: &WideQuota, now: u128) -> u128 {
        let full = quota.capacity * quota.period;
        full.saturating_sub(self.used(quota, now)) / quota.period
    }

    /// Whether the counter decides like a new one, now and later.
    pub(crate) fn as_new(&self, quota: &WideQuota, now: u128) -> bool {
        // Usage never grows with time.
        self.used(quota, now) == 0
    }

    /// The delay of a request admitted now.
    pub(crate) fn delay(&self, quota: &WideQuota, now: u128) -> u128 {
        match quota.algorithm {
            Algorithm::LeakyShaping => self.used(quota, now).div_ceil(quota.limit),
            _ => 0,
        }
    }

    /// The state after taking units, up to the maximum.
    pub(crate) fn take(&self, quota: &WideQuota, units: u128, now: u128) -> ModelState {
        let mut state = self.at(quota, now);
        match &mut state {
            ModelState::New => {}
            ModelState::Windows { current, .. } => *current = (*current + units).min(MAX),
            ModelState::Log(entries) => {
                let units = units.min(MAX - self::units(entries.iter()));
                match entries.last_mut() {
                    Some((time, n)) if *time == now => *n += units,
                    _ => entries.push((now, units)),
                }
            }
            ModelState::Bucket { level, limit, .. } => {
                *level = (*level + units * quota.period).min(*limit * MAX);
            }
        }
        state
    }

    /// The state after a refund; new if nothing is used. `None` if there is nothing to refund.
    pub(crate) fn refund(&self, quota: &WideQuota, units: u128, now: u128) -> Option<ModelState> {
        let before = self.at(quota, now);
        let mut state = before.clone();
        match &mut state {
            ModelState::New => {}
            ModelState::Windows { current, .. } => *current = current.saturating_sub(units),
            ModelState::Log(entries) => {
                let mut rest = units;
                while let Some((_, n)) = entries.last_mut() {
                    let refunded = rest.min(*n);
                    *n -= refunded;
                    rest -= refunded;
                    if *n > 0 {
                        break;
                    }
                    entries.pop();
                }
            }
            ModelState::Bucket { level, .. } => *level = level.saturating_sub(units * quota.period),
        }
        if state == before {
            return None;
        }
        if state.as_new(quota, now) {
            return Some(ModelState::New);
        }
        Some(state)
    }

    /// The state after an undo of units taken then, of which a part may have drained. `None` if there
    /// is nothing to return.
    pub(crate) fn undo(
        &self,
        quota: &WideQuota,
        units: u128,
        taken: u128,
        now: u128,
    ) -> Option<ModelState> {
        let before = self.convert_to(quota).at(quota, now);
        let mut state = before.clone();
        match &mut state {
            ModelState::New => {}
            ModelState::Windows {
                start,
                previous,
                current,
            } => {
                let window = taken / quota.period * quota.period;
                let has_previous = quota.algorithm == Algorithm::SlidingWindowCounter;
                if window == *start {
                    *current = current.saturating_sub(units);
                } else if has_previous && window + quota.period == *start {
                    *previous = previous.saturating_sub(units);
                }
            }
            ModelState::Log(entries) => {
                let oldest = entries.len().saturating_sub(256);
                let newest = entries[oldest..].iter_mut();
                for (_, n) in newest.filter(|(time, _)| *time == taken) {
                    *n = n.saturating_sub(units);
                }
                entries.retain(|(_, n)| *n > 0);
            }
            ModelState::Bucket { level, limit, .. } => {
                let parts = (units * quota.period).min(*limit * MAX);
                let is_left = now >= taken && parts / *limit >= now - taken;
                if is_left {
                    *level = level.saturating_sub(parts - (now - taken) * *limit);
                }
            }
        }
        if state == before {
            return None;
        }
        match state.as_new(quota, now) {
            true => Some(ModelState::New),
            false => Some(state),
        }
    }
}

/// The entries of a log younger than a period.
fn live_entries<'a>(
    entries: &'a [(u128, u128)],
    quota: &WideQuota,
    now: u128,
) -> impl Iterator<Item = &'a (u128, u128)> {
    let period = quota.period;
    entries.iter().filter(move |(time, _)| time + period > now)
}

fn units<'a>(entries: impl Iterator<Item = &'a (u128, u128)>) -> u128 {
    entries.map(|(_, n)| n).sum()
}
