//! Finds counters that are asked for often, in bounded memory. Reads no clock.
//!
//! Each counter has one set of places. A new counter takes the place that was asked for least of
//! late: a stream of keys that are asked for once takes places of its own kind, not those of hot ones.

/// Places of one set: compared with each other only.
const WAYS: usize = 8;

/// The most asked counters of one shard, allocated at the first use.
pub(crate) struct HotKeys {
    places: Vec<Place>,
    sets: usize,
}

#[derive(Clone, Copy, Default)]
struct Place {
    id: u64,
    since_us: u64,
    /// 0: free.
    asked: u32,
}

impl Place {
    /// How often it was asked for in the period that ends now; 0 if that has passed.
    fn asked_of_late(&self, period_us: u64, now_us: u64) -> u32 {
        match now_us.saturating_sub(self.since_us) > period_us {
            true => 0,
            false => self.asked,
        }
    }
}

impl HotKeys {
    /// Has places for so many counters, at least one set of them.
    pub(crate) fn with_capacity(counters: usize) -> Self {
        HotKeys {
            places: Vec::new(),
            sets: (counters / WAYS).max(1),
        }
    }

    /// Counts a request for a counter. Returns how many there were in the present period, with it.
    pub(crate) fn count(&mut self, id: u64, period_us: u64, now_us: u64) -> u32 {
        if self.places.is_empty() {
            self.places = vec![Place::default(); self.sets * WAYS];
        }
        let set = usize::try_from(id & u64::from(u32::MAX)).unwrap_or(0) % self.sets;
        let places = &mut self.places[set * WAYS..][..WAYS];
        let known = places
            .iter()
            .position(|place| place.asked > 0 && place.id == id);
        let coldest = || {
            let by_use = |place: &&Place| {
                let asked = place.asked_of_late(period_us, now_us);
                (asked, place.since_us)
            };
            let places = places.iter().enumerate();
            let coldest = places.min_by_key(|(_, place)| by_use(place));
            coldest.map_or(0, |(at, _)| at)
        };
        let at = known.unwrap_or_else(coldest);
        let place = &mut places[at];
        if known.is_none() || place.asked_of_late(period_us, now_us) == 0 {
            *place = Place {
                id,
                since_us: now_us,
                asked: 0,
            };
        }
        place.asked = place.asked.saturating_add(1);
        place.asked
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;

    const PERIOD: u64 = 1_000;

    #[test]
    fn requests_of_the_present_period_are_counted() {
        let mut hot = HotKeys::with_capacity(64);
        assert_eq!(
            [0, 10, 1_000].map(|now| hot.count(7, PERIOD, now)),
            [1, 2, 3]
        );
        assert_eq!(hot.count(7, PERIOD, 1_001), 1);
        assert_eq!(hot.count(8, PERIOD, 1_001), 1);
    }

    #[test]
    fn a_flood_of_invented_keys_does_not_hide_a_hot_one() {
        let mut rng = Rng::with_seed(1);
        let mut hot = HotKeys::with_capacity(1_024);
        let mut asked = 0;
        for now in 0..100_000 {
            assert_eq!(hot.count(rng.u64(..), 100_000, now), 1);
            if now % 100 < 2 {
                asked = hot.count(42, 100_000, now);
            }
        }
        assert_eq!(asked, 2_000);
        assert!(hot.places.len() <= 1_024);
    }

    #[test]
    fn counters_that_are_no_longer_asked_for_give_way() {
        let mut hot = HotKeys::with_capacity(8);
        for id in 0..8 {
            for _ in 0..100 {
                hot.count(id, PERIOD, 0);
            }
        }
        let late = 5_000;
        for id in 100..108 {
            assert_eq!(hot.count(id, PERIOD, late), 1);
        }
        for id in 100..108 {
            assert_eq!(hot.count(id, PERIOD, late), 2);
        }
    }
}
