//! Unpredictable bits, without a dependency.

use std::hash::{BuildHasher, RandomState};

/// 128 bits that cannot be guessed, nor computed from others.
pub(crate) fn random_u128() -> u128 {
    // Hashes keyed by the operating system's randomness.
    let keys = RandomState::new();
    u128::from(keys.hash_one(0)) << 64 | u128::from(keys.hash_one(1))
}
