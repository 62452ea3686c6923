//! The most frequent and the most refused keys of the last minutes, in bounded memory.

mod space_saving;

use std::hash::BuildHasher;
use std::time::{Duration, Instant};

use foldhash::quality::RandomState;
use tallygate::Key;
use tallygate::http::Outcome;

use self::space_saving::SpaceSaving;
use crate::redact::Redactor;

/// Older requests do not count.
pub(crate) const WINDOW: Duration = Duration::from_secs(300);

/// Longer keys are stored as a hash.
const MAX_KEY_BYTES: usize = 256;

pub(crate) struct TopKeys {
    hottest: SpaceSaving,
    refused: SpaceSaving,
    /// Randomly keyed: clients cannot choose keys that collide.
    hasher: RandomState,
    redactor: Redactor,
}

pub(crate) struct TopKey {
    pub(crate) rule: String,
    /// A lower bound.
    pub(crate) count: u64,
    stored: StoredKey,
}

#[derive(Clone)]
enum StoredKey {
    Whole(Key<'static>),
    /// Longer than [`MAX_KEY_BYTES`].
    Hash(String),
}

impl TopKeys {
    pub(crate) fn new(redactor: Redactor) -> Self {
        let now = Instant::now();
        TopKeys {
            hottest: SpaceSaving::new(now),
            refused: SpaceSaving::new(now),
            hasher: RandomState::default(),
            redactor,
        }
    }

    pub(crate) fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    pub(crate) fn count(&self, now: Instant, rule: &str, key: &Key<'_>, outcome: Outcome) {
        let is_refused = match outcome {
            Outcome::Refused | Outcome::ShadowRefused => true,
            // An outage refuses every key.
            Outcome::Admitted
            | Outcome::Delayed
            | Outcome::DegradedAdmitted
            | Outcome::DegradedRefused => false,
        };
        let id = self.hasher.hash_one((rule, key));
        let stored = || self.stored(key);
        self.hottest.count(now, id, rule, stored);
        if is_refused {
            self.refused.count(now, id, rule, stored);
        }
    }

    /// The most frequent keys.
    pub(crate) fn hottest(&self, limit: usize) -> Vec<TopKey> {
        self.hottest.top(Instant::now(), limit)
    }

    /// The most refused keys, including refusals by shadow rules.
    pub(crate) fn refused(&self, limit: usize) -> Vec<TopKey> {
        self.refused.top(Instant::now(), limit)
    }

    /// The recent keys of both lists that are shown as this text.
    pub(crate) fn find(&self, shown: &str, parts: impl Fn(&str) -> usize) -> Vec<TopKey> {
        let mut all = self.hottest(usize::MAX);
        all.extend(self.refused(usize::MAX));
        all.retain(|top| self.show(top, parts(&top.rule)) == shown);
        all
    }

    /// A key as it is shown. `parts` is how many parts of the rule's key are configured; the rest is
    /// internal.
    pub(crate) fn show(&self, top: &TopKey, parts: usize) -> String {
        self.redact_stored(&top.stored, parts)
    }

    /// Redacts a key as the lists do.
    pub(crate) fn redact(&self, key: &Key<'_>, parts: usize) -> String {
        self.redact_stored(&self.stored(key), parts)
    }

    fn redact_stored(&self, key: &StoredKey, parts: usize) -> String {
        match key {
            StoredKey::Whole(key) => self.redactor.redact(key, parts),
            StoredKey::Hash(hash) => hash.clone(),
        }
    }

    fn stored(&self, key: &Key<'_>) -> StoredKey {
        match key.parts().map(|part| part.bytes.len()).sum() {
            0..=MAX_KEY_BYTES => StoredKey::Whole(Key::from(key).into_owned()),
            _ => StoredKey::Hash(self.redactor.hash(key.parts().map(|part| part.bytes))),
        }
    }
}

impl TopKey {
    /// The key; `None` if only its hash is stored.
    pub(crate) fn key(&self) -> Option<&Key<'static>> {
        match &self.stored {
            StoredKey::Whole(key) => Some(key),
            StoredKey::Hash(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn top_keys() -> TopKeys {
        TopKeys::new(Redactor::new(true))
    }

    #[test]
    fn the_most_frequent_and_most_refused_keys_come_first() {
        let top_keys = top_keys();
        let now = Instant::now();
        for (key, times, outcome) in [
            ("busy", 9, Outcome::Admitted),
            ("bad", 5, Outcome::Refused),
            ("shadow", 3, Outcome::ShadowRefused),
            ("outage", 2, Outcome::DegradedRefused),
        ] {
            for _ in 0..times {
                top_keys.count(now, "login", &Key::from(key), outcome);
            }
        }
        let pairs = |list: Vec<TopKey>| -> Vec<(String, u64)> {
            let pair = |top: TopKey| (top_keys.show(&top, 9), top.count);
            list.into_iter().map(pair).collect()
        };
        let named = |pairs: &[(&str, u64)]| -> Vec<(String, u64)> {
            pairs.iter().map(|(key, n)| ((*key).into(), *n)).collect()
        };
        let hottest = [("busy", 9), ("bad", 5), ("shadow", 3), ("outage", 2)];
        assert_eq!(pairs(top_keys.hottest(9)), named(&hottest));
        assert_eq!(pairs(top_keys.hottest(2)), named(&hottest[..2]));
        let refused = [("bad", 5), ("shadow", 3)];
        assert_eq!(pairs(top_keys.refused(9)), named(&refused));
        let found = top_keys.find("bad", |_| 9);
        assert!(
            found
                .iter()
                .all(|top| *top.key().unwrap() == Key::from("bad"))
        );
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn one_key_under_two_rules_is_counted_per_rule() {
        let top_keys = top_keys();
        let now = Instant::now();
        top_keys.count(now, "a", &Key::from("k"), Outcome::Admitted);
        top_keys.count(now, "b", &Key::from("k"), Outcome::Admitted);
        assert_eq!(top_keys.hottest(9).len(), 2);
    }

    #[test]
    fn a_long_key_is_stored_as_a_hash() {
        let top_keys = top_keys();
        let key = "x".repeat(MAX_KEY_BYTES + 1);
        top_keys.count(Instant::now(), "a", &Key::from(&key), Outcome::Admitted);
        let list = top_keys.hottest(9);
        let hash = top_keys.redactor().hash([&key]);
        assert_eq!(top_keys.show(&list[0], 9), hash);
        assert!(list[0].key().is_none());
    }
}
