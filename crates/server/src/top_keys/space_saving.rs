//! The Space-Saving algorithm (Metwally, Agrawal, El Abbadi): the most frequent items of a stream
//! in a fixed number of slots.
//!
//! A new item evicts the one of least weight and inherits that weight, so that a stream of unique
//! items cannot evict frequent ones. Reported counts exclude inherited weight: they are lower
//! bounds. Counts leave with the window, inherited weight halves at every step of it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{StoredKey, TopKey, WINDOW};

const SHARDS: usize = 8;
const SLOTS_PER_SHARD: usize = 64;
/// The window slides in this many steps.
const STEPS: usize = 10;

/// Counts items by id. The key is only built when an item takes a slot.
pub(super) struct SpaceSaving {
    shards: Box<[Mutex<Shard>; SHARDS]>,
    started: Instant,
}

struct Shard {
    /// The id in each slot, 0 if empty. Apart from the slots: every request scans them.
    ids: [u64; SLOTS_PER_SHARD],
    /// Counted and inherited weight of each slot.
    weights: [u32; SLOTS_PER_SHARD],
    slots: Vec<Slot>,
    step: u64,
}

struct Slot {
    rule: Box<str>,
    key: Option<StoredKey>,
    counts: [u32; STEPS],
    inherited: u32,
}

impl SpaceSaving {
    pub(super) fn new(started: Instant) -> Self {
        let shard = |_| Mutex::new(Shard::new());
        SpaceSaving {
            shards: Box::new(std::array::from_fn(shard)),
            started,
        }
    }

    #[inline]
    pub(super) fn count(&self, now: Instant, id: u64, rule: &str, key: impl FnOnce() -> StoredKey) {
        // 0 marks an empty slot.
        let id = id.max(1);
        let step = self.step(now);
        let mut shard = lock(&self.shards[(id >> 32) as usize % SHARDS]);
        shard.advance(step);
        shard.count(id, rule, key);
    }

    /// The most frequent keys in descending order.
    pub(super) fn top(&self, now: Instant, limit: usize) -> Vec<TopKey> {
        let step = self.step(now);
        let mut top: Vec<(u64, usize, usize, u64)> = Vec::new();
        for (s, shard) in self.shards.iter().enumerate() {
            let mut shard = lock(shard);
            shard.advance(step);
            for (i, (slot, id)) in shard.slots.iter().zip(shard.ids).enumerate() {
                let count = slot.count();
                if count > 0 {
                    top.push((count, s, i, id));
                }
            }
        }
        // By id among equal counts, for a stable order.
        top.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.3.cmp(&b.3)));
        top.truncate(limit);
        let top_key = |(count, s, i, id): (u64, usize, usize, u64)| {
            let shard = lock(&self.shards[s]);
            let slot = &shard.slots[i];
            // The slot may have been reused since.
            let key = slot.key.as_ref().filter(|_| shard.ids[i] == id)?;
            Some(TopKey {
                rule: slot.rule.to_string(),
                count,
                stored: key.clone(),
            })
        };
        top.into_iter().filter_map(top_key).collect()
    }

    fn step(&self, now: Instant) -> u64 {
        let step = WINDOW / STEPS as u32;
        let since = now.saturating_duration_since(self.started);
        (since.as_nanos() / step.max(Duration::from_nanos(1)).as_nanos()) as u64
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    // No statement leaves a shard half changed.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shard {
    fn new() -> Self {
        let slot = || Slot {
            rule: "".into(),
            key: None,
            counts: [0; STEPS],
            inherited: 0,
        };
        Shard {
            ids: [0; SLOTS_PER_SHARD],
            weights: [0; SLOTS_PER_SHARD],
            slots: (0..SLOTS_PER_SHARD).map(|_| slot()).collect(),
            step: 0,
        }
    }

    fn count(&mut self, id: u64, rule: &str, key: impl FnOnce() -> StoredKey) {
        let i = match self.ids.iter().position(|other| *other == id) {
            Some(i) => i,
            None => {
                let lightest = (0..SLOTS_PER_SHARD).min_by_key(|i| self.weights[*i]);
                let i = lightest.expect("a shard has slots");
                self.ids[i] = id;
                let slot = &mut self.slots[i];
                slot.rule = rule.into();
                slot.key = Some(key());
                slot.counts = [0; STEPS];
                slot.inherited = self.weights[i];
                i
            }
        };
        let count = &mut self.slots[i].counts[(self.step % STEPS as u64) as usize];
        *count = count.saturating_add(1);
        self.weights[i] = self.weights[i].saturating_add(1);
    }

    /// Advances to a step. Earlier steps, from a clock read before the lock, are ignored.
    #[inline]
    fn advance(&mut self, step: u64) {
        if step > self.step {
            self.expire(step);
        }
    }

    #[cold]
    fn expire(&mut self, step: u64) {
        let steps = (step - self.step).min(STEPS as u64);
        for (i, slot) in self.slots.iter_mut().enumerate() {
            for expired in 1..=steps {
                slot.counts[((step - steps + expired) % STEPS as u64) as usize] = 0;
                slot.inherited /= 2;
            }
            let weight = slot.count() + u64::from(slot.inherited);
            self.weights[i] = u32::try_from(weight).unwrap_or(u32::MAX);
            if weight == 0 {
                self.ids[i] = 0;
                slot.key = None;
            }
        }
        self.step = step;
    }
}

impl Slot {
    fn count(&self) -> u64 {
        self.counts.iter().map(|count| u64::from(*count)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> StoredKey {
        StoredKey::Hash("key".into())
    }

    fn counts(table: &SpaceSaving, now: Instant) -> Vec<u64> {
        let top = table.top(now, 1_000);
        top.into_iter().map(|top| top.count).collect()
    }

    #[test]
    fn unique_items_do_not_evict_frequent_ones() {
        let start = Instant::now();
        let table = SpaceSaving::new(start);
        let mut random = fastrand::Rng::with_seed(7);
        let frequent: Vec<u64> = (0..20).map(|_| random.u64(1..)).collect();
        for _ in 0..2_000 {
            for id in &frequent {
                table.count(start, *id, "a", key);
            }
            // Four unique items for every frequent one.
            for _ in 0..80 {
                table.count(start, random.u64(1..), "a", key);
            }
        }
        let counts = counts(&table, start);
        assert!(counts.len() <= SHARDS * SLOTS_PER_SHARD);
        // Counts are lower bounds, and close for frequent items.
        assert!(
            counts[..20]
                .iter()
                .all(|count| (1_900..=2_000).contains(count)),
            "{counts:?}"
        );
        assert!(counts[20] < 200, "{counts:?}");
    }

    #[test]
    fn counts_expire_step_by_step() {
        let start = Instant::now();
        let table = SpaceSaving::new(start);
        let at = |steps: u32| start + WINDOW / STEPS as u32 * steps;
        for steps in 0..3 {
            table.count(at(steps), 1, "a", key);
        }
        assert_eq!(counts(&table, at(9)), [3]);
        assert_eq!(counts(&table, at(10)), [2]);
        assert_eq!(counts(&table, at(11)), [1]);
        assert_eq!(counts(&table, at(12)), [0u64; 0]);
        table.count(at(12), 1, "a", key);
        // Far later, and from a clock that is slightly behind.
        assert_eq!(counts(&table, at(10_000)), [0u64; 0]);
        table.count(at(9_999), 1, "a", key);
        assert_eq!(counts(&table, at(10_000)), [1]);
    }
}
