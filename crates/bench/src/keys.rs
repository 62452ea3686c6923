//! Generates keys and their order of arrival.

use std::fmt::Write as _;

use fastrand::Rng;

/// A key of 20 bytes.
///
/// A `String`, because governor looks up keys by `&String`; the others borrow it as `&str`.
pub type Key = String;

/// How often each key occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// All keys equally often.
    Uniform,
    /// The k-th most frequent key in proportion to 1/k.
    Zipf,
}

impl Spread {
    /// Its name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Spread::Uniform => "uniform",
            Spread::Zipf => "Zipf",
        }
    }
}

/// Writes the key number `index` over `key`.
pub fn write_key(index: usize, key: &mut Key) {
    key.clear();
    write!(key, "key:{:016x}", mix(index as u64)).expect("writing to a String succeeds");
}

/// The key number `index`.
pub fn key(index: usize) -> Key {
    let mut key = Key::with_capacity(20);
    write_key(index, &mut key);
    key
}

/// Generates `count` requests over keys `0..keys`, in memory in the order of arrival.
///
/// In order, because a key that was just parsed from a request is in the cache; a cache miss on the
/// harness's own key would hide the differences between contenders.
pub fn requests(spread: Spread, keys: usize, count: usize, seed: u64) -> Vec<Key> {
    indices(spread, keys, count, seed)
        .into_iter()
        .map(key)
        .collect()
}

/// The order of arrival as key indices.
pub fn indices(spread: Spread, keys: usize, count: usize, seed: u64) -> Vec<usize> {
    let mut random = Rng::with_seed(seed);
    match spread {
        Spread::Uniform => (0..count).map(|_| random.usize(..keys)).collect(),
        Spread::Zipf => {
            let ranks = Zipf::new(keys);
            (0..count)
                .map(|_| scatter(ranks.rank(random.f64()), keys))
                .collect()
        }
    }
}

/// Ranks with the odds of Zipf's law, exponent 1.
struct Zipf {
    /// The sum of 1/k up to each rank.
    cumulated: Vec<f64>,
}

impl Zipf {
    fn new(ranks: usize) -> Zipf {
        let mut sum = 0.0;
        let cumulated = (1..=ranks)
            .map(|rank| {
                sum += 1.0 / rank as f64;
                sum
            })
            .collect();
        Zipf { cumulated }
    }

    /// The rank, from 0, at that point of the distribution.
    fn rank(&self, point: f64) -> usize {
        let last = self.cumulated.len() - 1;
        let height = point * self.cumulated[last];
        self.cumulated
            .partition_point(|&sum| sum <= height)
            .min(last)
    }
}

/// Spreads neighbouring ranks over all keys: the frequent keys must not be those inserted first,
/// which are adjacent in a peer's heap.
fn scatter(rank: usize, keys: usize) -> usize {
    const PRIME: u128 = 2_654_435_761;
    (rank as u128 * PRIME % keys as u128) as usize
}

/// A bijection on 64 bits (the finalizer of splitmix64): distinct in, distinct out.
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn keys_are_distinct_and_twenty_bytes_long() {
        let keys: HashSet<Key> = (0..10_000).map(key).collect();
        assert_eq!(keys.len(), 10_000);
        assert!(keys.iter().all(|key| key.len() == 20));
    }

    #[test]
    fn zipf_gives_the_k_th_key_one_k_th_of_the_first() {
        let (keys, count) = (1_000, 200_000);
        let mut hits = vec![0_u32; keys];
        for index in indices(Spread::Zipf, keys, count, 1) {
            hits[index] += 1;
        }
        let share = |rank| f64::from(hits[scatter(rank, keys)]) / count as f64;
        // The sum of 1/k up to 1000 is 7.485.
        for rank in [0, 1, 4, 9] {
            let due = 1.0 / (rank as f64 + 1.0) / 7.485;
            let got = share(rank);
            assert!((got / due - 1.0).abs() < 0.1, "rank {rank}: {got}, {due}");
        }
    }

    #[test]
    fn zipf_reaches_the_first_and_the_last_rank_and_no_further() {
        let zipf = Zipf::new(10);
        assert_eq!(zipf.rank(0.0), 0);
        assert_eq!(zipf.rank(0.999_999), 9);
        assert_eq!(zipf.rank(1.0), 9);
    }

    #[test]
    fn scattering_loses_no_key() {
        for keys in [1, 1_000, 20_000, 1_000_000] {
            let seen: HashSet<usize> = (0..keys).map(|rank| scatter(rank, keys)).collect();
            assert_eq!(seen.len(), keys);
        }
    }

    #[test]
    fn uniform_requests_every_key_about_equally() {
        let mut hits = [0_u32; 100];
        for index in indices(Spread::Uniform, 100, 100_000, 1) {
            hits[index] += 1;
        }
        assert!(hits.iter().all(|&hit| (850..1_150).contains(&hit)));
    }
}
