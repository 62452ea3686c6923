//! The state of one counter of the model: section 4 of the specification, in units times the period
//! where there are fractions.

use tallygate_core::Algorithm;

use super::{TOP, Terms};

/// One counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
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

impl Memory {
    /// The state's own time.
    pub(crate) fn mark(&self) -> Option<u128> {
        match self {
            Memory::New => None,
            Memory::Windows { start, .. } => Some(*start),
            Memory::Log(entries) => entries.last().map(|(time, _)| *time),
            Memory::Bucket { changed, .. } => Some(*changed),
        }
    }

    /// The same counter under a quota whose limit may have changed: a bucket keeps its used
    /// units, rounded up, as of its last change.
    pub(crate) fn under(&self, terms: &Terms) -> Memory {
        match self {
            Memory::Bucket {
                changed,
                level,
                limit,
            } if *limit != terms.limit => Memory::Bucket {
                changed: *changed,
                level: (level.div_ceil(terms.period) * terms.period).min(terms.limit * TOP),
                limit: terms.limit,
            },
            same => same.clone(),
        }
    }

    /// The counter as it stands at `now`, not before its mark.
    fn at(&self, terms: &Terms, now: u128) -> Memory {
        match self {
            Memory::New => match terms.algorithm {
                Algorithm::FixedWindow | Algorithm::SlidingWindowCounter => Memory::Windows {
                    start: now / terms.period * terms.period,
                    previous: 0,
                    current: 0,
                },
                Algorithm::SlidingWindowLog => Memory::Log(Vec::new()),
                Algorithm::TokenBucket | Algorithm::LeakyPolicing | Algorithm::LeakyShaping => {
                    Memory::Bucket {
                        changed: now,
                        level: 0,
                        limit: terms.limit,
                    }
                }
            },
            Memory::Windows {
                start,
                previous,
                current,
            } => {
                let begun = now / terms.period * terms.period;
                let (previous, current) = match (begun - start) / terms.period {
                    0 => (*previous, *current),
                    1 => (*current, 0),
                    _ => (0, 0),
                };
                Memory::Windows {
                    start: begun,
                    previous,
                    current,
                }
            }
            Memory::Log(entries) => Memory::Log(young(entries, terms, now).copied().collect()),
            Memory::Bucket {
                changed,
                level,
                limit,
            } => Memory::Bucket {
                changed: now,
                level: level.saturating_sub((now - changed) * limit),
                limit: *limit,
            },
        }
    }

    /// What is used at `now`, in units x period; for windows and logs always whole units.
    fn used(&self, terms: &Terms, now: u128) -> u128 {
        // Before anything is copied: a log may be long.
        if let Memory::Log(entries) = self {
            return units(young(entries, terms, now)) * terms.period;
        }
        match self.at(terms, now) {
            Memory::New | Memory::Log(_) => 0,
            Memory::Windows {
                start,
                previous,
                current,
            } => {
                let left = match terms.algorithm {
                    Algorithm::SlidingWindowCounter => terms.period - (now - start),
                    _ => 0,
                };
                (previous * left / terms.period + current) * terms.period
            }
            Memory::Bucket { level, .. } => level,
        }
    }

    /// Whether the cost fits.
    pub(crate) fn fits(&self, terms: &Terms, cost: u128, now: u128) -> bool {
        self.used(terms, now) + cost * terms.period <= terms.capacity * terms.period
    }

    /// The most that fits.
    pub(crate) fn room(&self, terms: &Terms, now: u128) -> u128 {
        let full = terms.capacity * terms.period;
        full.saturating_sub(self.used(terms, now)) / terms.period
    }

    /// Whether nothing tells the counter from one never seen, now or later.
    pub(crate) fn as_new(&self, terms: &Terms, now: u128) -> bool {
        // Everything here only ever shrinks with time, so nothing used now is nothing used later.
        self.used(terms, now) == 0
    }

    /// How long a request admitted now waits.
    pub(crate) fn delay(&self, terms: &Terms, now: u128) -> u128 {
        match terms.algorithm {
            Algorithm::LeakyShaping => self.used(terms, now).div_ceil(terms.limit),
            _ => 0,
        }
    }

    /// The counter with units taken, up to its saturation.
    pub(crate) fn take(&self, terms: &Terms, units: u128, now: u128) -> Memory {
        let mut memory = self.at(terms, now);
        match &mut memory {
            Memory::New => {}
            Memory::Windows { current, .. } => *current = (*current + units).min(TOP),
            Memory::Log(entries) => {
                let units = units.min(TOP - self::units(entries.iter()));
                match entries.last_mut() {
                    Some((time, n)) if *time == now => *n += units,
                    _ => entries.push((now, units)),
                }
            }
            Memory::Bucket { level, limit, .. } => {
                *level = (*level + units * terms.period).min(*limit * TOP);
            }
        }
        memory
    }

    /// The counter with units given back; forgotten if it is then as new.
    pub(crate) fn give_back(&self, terms: &Terms, units: u128, now: u128) -> Memory {
        let mut memory = self.at(terms, now);
        match &mut memory {
            Memory::New => {}
            Memory::Windows { current, .. } => *current = current.saturating_sub(units),
            Memory::Log(entries) => {
                let mut rest = units;
                while let Some((_, n)) = entries.last_mut() {
                    let given = rest.min(*n);
                    *n -= given;
                    rest -= given;
                    if *n > 0 {
                        break;
                    }
                    entries.pop();
                }
            }
            Memory::Bucket { level, .. } => *level = level.saturating_sub(units * terms.period),
        }
        if memory.as_new(terms, now) {
            return Memory::New;
        }
        memory
    }
}

/// The entries of a log that still count: one exactly a period old is gone.
fn young<'a>(
    entries: &'a [(u128, u128)],
    terms: &Terms,
    now: u128,
) -> impl Iterator<Item = &'a (u128, u128)> {
    let period = terms.period;
    entries.iter().filter(move |(time, _)| time + period > now)
}

fn units<'a>(entries: impl Iterator<Item = &'a (u128, u128)>) -> u128 {
    entries.map(|(_, n)| n).sum()
}
