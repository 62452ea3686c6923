//! Coarse hash tags: a few tags for all keys of a cluster. Keys with the same tag share a slot, so that
//! one script decides many of them.

use super::{hash, slot};

/// The number of slots of a cluster.
const SLOTS: usize = 16_384;
const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// A power of two of tags, whose slots are at equal distances.
pub(in crate::store::redis) struct HashTags(Box<[Tag]>);

type Tag = [u8; HashTags::BYTES];

impl HashTags {
    /// The length of a tag.
    pub(in crate::store::redis) const BYTES: usize = 4;

    /// The first text for the middle of each of so many equal parts of the slots: a power of two, at
    /// most one part for each slot. It must never change: all processes have to agree.
    pub(in crate::store::redis) fn new(count: u32) -> Self {
        let count = usize::try_from(count).unwrap_or(SLOTS).clamp(1, SLOTS);
        let width = SLOTS / count;
        let mut tags: Vec<Option<Tag>> = vec![None; count];
        let mut missing = count;
        let mut number = 0;
        while missing > 0 {
            let tag = text(number);
            number += 1;
            let slot = usize::from(slot(&tag));
            let part = &mut tags[slot / width];
            if slot % width == width / 2 && part.is_none() {
                *part = Some(tag);
                missing -= 1;
            }
        }
        HashTags(tags.into_iter().flatten().collect())
    }

    pub(in crate::store::redis) fn len(&self) -> usize {
        self.0.len()
    }

    /// The tag of a limited key.
    pub(in crate::store::redis) fn select(&self, key: &[u8]) -> &[u8] {
        // The length is a power of two.
        let last = self.0.len() as u64 - 1;
        &self.0[(hash(key) & last) as usize]
    }
}

/// A number in base 36.
fn text(mut number: usize) -> Tag {
    let mut text = Tag::default();
    for digit in text.iter_mut().rev() {
        *digit = DIGITS[number % DIGITS.len()];
        number /= DIGITS.len();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(tags: &HashTags) -> Vec<usize> {
        tags.0.iter().map(|tag| slot(tag).into()).collect()
    }

    /// Every number that may be set has its tags, so that the search ends.
    #[test]
    fn the_slots_of_tags_are_at_equal_distances() {
        for count in (0..=14).map(|exponent| 1 << exponent) {
            let tags = HashTags::new(count);
            let width = SLOTS / count as usize;
            let expected: Vec<usize> = (0..count as usize).map(|i| i * width + width / 2).collect();
            assert_eq!(slots(&tags), expected, "{count}");
        }
    }

    /// With three masters, as `redis-cli --cluster create` divides the slots.
    #[test]
    fn masters_have_equal_numbers_of_tags() {
        let counts = [0..5_461, 5_461..10_923, 10_923..SLOTS].map(|range| {
            let slots = slots(&HashTags::new(64)).into_iter();
            slots.filter(|slot| range.contains(slot)).count()
        });
        assert_eq!(counts, [21, 22, 21]);
    }

    #[test]
    fn keys_are_spread_evenly_over_tags() {
        let tags = HashTags::new(64);
        let mut counts = std::collections::HashMap::new();
        for key in 0..64_000 {
            let key = format!("user:{key}");
            *counts.entry(tags.select(key.as_bytes())).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 64);
        assert!(counts.values().all(|count| (850..1_150).contains(count)));
    }

    /// Processes of different versions must agree.
    #[test]
    fn the_tag_of_a_key_never_changes() {
        let tags = HashTags::new(64);
        let tag = |key: &str| String::from_utf8_lossy(tags.select(key.as_bytes())).into_owned();
        let all: Vec<String> = ["user:1", "user:2", "10.0.0.1", ""].map(tag).to_vec();
        assert_eq!(all.join(" "), "00dd 0foq 0228 0c4e");
    }
}
