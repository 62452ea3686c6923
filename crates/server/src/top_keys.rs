//! The keys that are asked for most and refused most, of the last minutes, in bounded memory. Knows
//! keys and rules by name; knows nothing of who looks at it.

mod space_saving;

use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foldhash::quality::RandomState;
use tallygate::Key;
use tallygate::http::Outcome;

use self::space_saving::Table;
use crate::redact::Mask;

/// How far back it goes.
pub(crate) const WINDOW: Duration = Duration::from_secs(300);

/// The keys that are asked for most and refused most.
pub(crate) struct Top {
    hottest: Table,
    refused: Table,
    /// Keyed at random: nobody can choose keys that meet.
    hasher: RandomState,
    mask: Arc<Mask>,
}

/// A key in a list.
pub(crate) struct Leader {
    /// The rule that counted it.
    pub(crate) rule: String,
    /// Who, as people may see it.
    pub(crate) key: String,
    /// How often at least.
    pub(crate) count: u64,
}

/// Who a place in a list is taken by.
enum Who {
    Key(Key<'static>),
    /// One so long that it is only known by its hash.
    Long(String),
}

/// The longest key that is kept as it is.
const LONGEST: usize = 256;

impl Top {
    /// Lists of nobody.
    pub(crate) fn new(mask: Arc<Mask>) -> Self {
        let now = Instant::now();
        Top {
            hottest: Table::new(now),
            refused: Table::new(now),
            hasher: RandomState::default(),
            mask,
        }
    }

    /// What keys are shown through.
    pub(crate) fn mask(&self) -> &Arc<Mask> {
        &self.mask
    }

    /// Counts what a rule came to with a key.
    pub(crate) fn count(&self, now: Instant, rule: &str, key: &Key<'_>, outcome: Outcome) {
        let refused = match outcome {
            Outcome::Refused | Outcome::ShadowRefused => true,
            // Without the store everybody is refused: that says nothing of the key.
            Outcome::Admitted
            | Outcome::Delayed
            | Outcome::DegradedAdmitted
            | Outcome::DegradedRefused => false,
        };
        let id = self.hasher.hash_one((rule, key));
        let who = || self.who(key);
        self.hottest.count(now, id, rule, who);
        if refused {
            self.refused.count(now, id, rule, who);
        }
    }

    /// The keys that are asked for most. `parts` tells how many parts of a rule's key people know.
    pub(crate) fn hottest(&self, most: usize, parts: impl Fn(&str) -> usize) -> Vec<Leader> {
        self.leaders(&self.hottest, most, parts)
    }

    /// The keys that are refused most, by rules that only watch too.
    pub(crate) fn refused(&self, most: usize, parts: impl Fn(&str) -> usize) -> Vec<Leader> {
        self.leaders(&self.refused, most, parts)
    }

    /// A key as the lists show it; people know of that many of its parts.
    pub(crate) fn shown(&self, key: &Key<'_>, parts: usize) -> String {
        match self.who(key) {
            Who::Key(key) => self.mask.show(&key, parts),
            Who::Long(hash) => hash,
        }
    }

    fn leaders(&self, table: &Table, most: usize, parts: impl Fn(&str) -> usize) -> Vec<Leader> {
        let shown = |rule: &str, who: &Who| match who {
            Who::Key(key) => self.mask.show(key, parts(rule)),
            Who::Long(hash) => hash.clone(),
        };
        let leaders = table.leaders(Instant::now(), most, shown);
        let leader = |(rule, key, count)| Leader { rule, key, count };
        leaders.into_iter().map(leader).collect()
    }

    fn who(&self, key: &Key<'_>) -> Who {
        match key.parts().map(|part| part.bytes.len()).sum() {
            0..=LONGEST => Who::Key(Key::from(key).into_owned()),
            _ => Who::Long(self.mask.hash(key.parts().map(|part| part.bytes))),
        }
    }
}

impl std::fmt::Debug for Top {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Top").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn top() -> Top {
        Top::new(Arc::new(Mask::new().clear(true)))
    }

    #[test]
    fn the_hottest_and_the_most_refused_come_first() {
        let top = top();
        let now = Instant::now();
        for (key, times, outcome) in [
            ("busy", 9, Outcome::Admitted),
            ("bad", 5, Outcome::Refused),
            ("watched", 3, Outcome::ShadowRefused),
            ("storeless", 2, Outcome::DegradedRefused),
        ] {
            for _ in 0..times {
                top.count(now, "login", &Key::from(key), outcome);
            }
        }
        let list = |leaders: Vec<Leader>| -> Vec<(String, u64)> {
            let pair = |leader: Leader| (leader.key, leader.count);
            leaders.into_iter().map(pair).collect()
        };
        let named = |pairs: &[(&str, u64)]| -> Vec<(String, u64)> {
            pairs.iter().map(|(key, n)| ((*key).into(), *n)).collect()
        };
        let hottest = [("busy", 9), ("bad", 5), ("watched", 3), ("storeless", 2)];
        assert_eq!(list(top.hottest(9, |_| 9)), named(&hottest));
        assert_eq!(list(top.hottest(2, |_| 9)), named(&hottest[..2]));
        let refused = [("bad", 5), ("watched", 3)];
        assert_eq!(list(top.refused(9, |_| 9)), named(&refused));
    }

    #[test]
    fn one_key_before_two_rules_is_two() {
        let top = top();
        let now = Instant::now();
        top.count(now, "a", &Key::from("k"), Outcome::Admitted);
        top.count(now, "b", &Key::from("k"), Outcome::Admitted);
        assert_eq!(top.hottest(9, |_| 9).len(), 2);
    }

    #[test]
    fn a_giant_key_is_kept_as_a_hash() {
        let top = top();
        let key = "x".repeat(LONGEST + 1);
        top.count(Instant::now(), "a", &Key::from(&key), Outcome::Admitted);
        let leaders = top.hottest(9, |_| 9);
        assert_eq!(leaders[0].key, top.mask().hash([&key]));
    }
}
