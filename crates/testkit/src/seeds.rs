//! Seeds of random tests: a fixed list, or `TALLYGATE_SEED` to repeat one.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

const SEEDS: [u64; 4] = [1, 7, 1_700_000_000, 0x7011_9a7e];

/// Runs a test once per seed and prints the seed that fails.
pub fn with_each_seed(test: impl Fn(&mut fastrand::Rng)) {
    let seeds = match std::env::var("TALLYGATE_SEED") {
        Ok(seed) => vec![seed.parse().expect("TALLYGATE_SEED is a whole number")],
        Err(_) => SEEDS.to_vec(),
    };
    for seed in seeds {
        let run = || test(&mut fastrand::Rng::with_seed(seed));
        if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
            eprintln!("to repeat: TALLYGATE_SEED={seed}");
            resume_unwind(panic);
        }
    }
}

/// A random element of a list.
pub fn any<T: Copy>(rng: &mut fastrand::Rng, list: &[T]) -> T {
    list[rng.usize(..list.len())]
}
