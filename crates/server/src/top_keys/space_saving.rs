//! Who occurs most often in a stream of any length, in a fixed number of places. Knows numbers that
//! stand for somebody; asks who that is only when they take a place.
//!
//! Whoever has no place takes that of the one who occurred least, and inherits its weight so that
//! nobody loses a place to a crowd of strangers (the Space-Saving algorithm of Metwally, Agrawal
//! and El Abbadi). What is told is what was counted since they took their place, so never too much.
//! Weights fade: what was counted leaves after the window, what was inherited by halves.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::{WINDOW, Who};

/// How many parts a table has, each with a lock of its own.
const SHARDS: usize = 8;
/// How many places a part has.
const PLACES: usize = 64;
/// How many steps the window leaves in.
const STEPS: usize = 10;

/// Who occurs most often.
pub(super) struct Table {
    shards: Box<[Mutex<Shard>; SHARDS]>,
    began: Instant,
}

struct Shard {
    /// Who is where; 0 where nobody is. Apart from the rest: it is read for every request.
    ids: [u64; PLACES],
    /// What speaks against giving the place away: what was counted, and what was inherited.
    weights: [u32; PLACES],
    places: Vec<Place>,
    step: u64,
}

struct Place {
    rule: Box<str>,
    who: Option<Who>,
    counts: [u32; STEPS],
    inherited: u32,
}

impl Table {
    pub(super) fn new(began: Instant) -> Self {
        let shard = |_| Mutex::new(Shard::new());
        Table {
            shards: Box::new(std::array::from_fn(shard)),
            began,
        }
    }

    /// Counts somebody once.
    #[inline]
    pub(super) fn count(&self, now: Instant, id: u64, rule: &str, who: impl FnOnce() -> Who) {
        // 0 stands for nobody.
        let id = id.max(1);
        let step = self.step(now);
        let mut shard = held(&self.shards[(id >> 32) as usize % SHARDS]);
        shard.advance(step);
        shard.count(id, rule, who);
    }

    /// Those who occurred most often, the most frequent first, and at least how often.
    pub(super) fn leaders(
        &self,
        now: Instant,
        most: usize,
        show: impl Fn(&str, &Who) -> String,
    ) -> Vec<(String, String, u64)> {
        let step = self.step(now);
        let mut best: Vec<(u64, usize, usize, u64)> = Vec::new();
        for (s, shard) in self.shards.iter().enumerate() {
            let mut shard = held(shard);
            shard.advance(step);
            for (p, (place, id)) in shard.places.iter().zip(shard.ids).enumerate() {
                let count = place.counted();
                if count > 0 {
                    best.push((count, s, p, id));
                }
            }
        }
        // The same order every time, also of those who are equal.
        best.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.3.cmp(&b.3)));
        best.truncate(most);
        let shown = |(count, s, p, id): (u64, usize, usize, u64)| {
            let shard = held(&self.shards[s]);
            let place = &shard.places[p];
            // Somebody else may have taken the place meanwhile.
            let who = place.who.as_ref().filter(|_| shard.ids[p] == id)?;
            Some((place.rule.to_string(), show(&place.rule, who), count))
        };
        best.into_iter().filter_map(shown).collect()
    }

    fn step(&self, now: Instant) -> u64 {
        let step = WINDOW / STEPS as u32;
        let since = now.saturating_duration_since(self.began);
        (since.as_nanos() / step.max(Duration::from_nanos(1)).as_nanos()) as u64
    }
}

fn held(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    // What it holds is whole between any two statements.
    shard.lock().unwrap_or_else(|held| held.into_inner())
}

impl Shard {
    fn new() -> Self {
        let place = || Place {
            rule: "".into(),
            who: None,
            counts: [0; STEPS],
            inherited: 0,
        };
        Shard {
            ids: [0; PLACES],
            weights: [0; PLACES],
            places: (0..PLACES).map(|_| place()).collect(),
            step: 0,
        }
    }

    fn count(&mut self, id: u64, rule: &str, who: impl FnOnce() -> Who) {
        let at = match self.ids.iter().position(|known| *known == id) {
            Some(at) => at,
            None => {
                let least = (0..PLACES).min_by_key(|at| self.weights[*at]);
                let at = least.expect("there are places");
                self.ids[at] = id;
                let place = &mut self.places[at];
                place.rule = rule.into();
                place.who = Some(who());
                place.counts = [0; STEPS];
                place.inherited = self.weights[at];
                at
            }
        };
        let now = &mut self.places[at].counts[(self.step % STEPS as u64) as usize];
        *now = now.saturating_add(1);
        self.weights[at] = self.weights[at].saturating_add(1);
    }

    /// Goes on to a step; a clock that is read earlier elsewhere does not lead back.
    #[inline]
    fn advance(&mut self, step: u64) {
        if step > self.step {
            self.fade(step);
        }
    }

    #[cold]
    fn fade(&mut self, step: u64) {
        let steps = (step - self.step).min(STEPS as u64);
        for (at, place) in self.places.iter_mut().enumerate() {
            for gone in 1..=steps {
                place.counts[((step - steps + gone) % STEPS as u64) as usize] = 0;
                place.inherited /= 2;
            }
            let weight = place.counted() + u64::from(place.inherited);
            self.weights[at] = u32::try_from(weight).unwrap_or(u32::MAX);
            if weight == 0 {
                self.ids[at] = 0;
                place.who = None;
            }
        }
        self.step = step;
    }
}

impl Place {
    fn counted(&self) -> u64 {
        self.counts.iter().map(|count| u64::from(*count)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who() -> Who {
        Who::Long("somebody".into())
    }

    fn counts(table: &Table, now: Instant) -> Vec<u64> {
        let leaders = table.leaders(now, 1_000, |_, _| String::new());
        leaders.into_iter().map(|(_, _, count)| count).collect()
    }

    #[test]
    fn the_frequent_keep_their_places_before_a_crowd() {
        let began = Instant::now();
        let table = Table::new(began);
        let mut random = fastrand::Rng::with_seed(7);
        let frequent: Vec<u64> = (0..20).map(|_| random.u64(1..)).collect();
        for _ in 0..2_000 {
            for id in &frequent {
                table.count(began, *id, "a", who);
            }
            // Four strangers, never seen again, for every one who is known.
            for _ in 0..80 {
                table.count(began, random.u64(1..), "a", who);
            }
        }
        let counts = counts(&table, began);
        assert!(counts.len() <= SHARDS * PLACES);
        // What is told is never too much, and of the frequent not much too little.
        assert!(
            counts[..20]
                .iter()
                .all(|count| (1_900..=2_000).contains(count)),
            "{counts:?}"
        );
        assert!(counts[20] < 200, "{counts:?}");
    }

    #[test]
    fn what_is_over_is_forgotten_step_by_step() {
        let began = Instant::now();
        let table = Table::new(began);
        let at = |steps: u32| began + WINDOW / STEPS as u32 * steps;
        for steps in 0..3 {
            table.count(at(steps), 1, "a", who);
        }
        assert_eq!(counts(&table, at(9)), [3]);
        assert_eq!(counts(&table, at(10)), [2]);
        assert_eq!(counts(&table, at(11)), [1]);
        assert_eq!(counts(&table, at(12)), [0u64; 0]);
        table.count(at(12), 1, "a", who);
        // Far later, and a clock that is a little behind.
        assert_eq!(counts(&table, at(10_000)), [0u64; 0]);
        table.count(at(9_999), 1, "a", who);
        assert_eq!(counts(&table, at(10_000)), [1]);
    }
}
