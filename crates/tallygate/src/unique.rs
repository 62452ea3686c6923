//! Names that no other process or call uses: owners of holds and ids of reservations.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A random number of this process, and a number of this call.
pub(crate) fn unique_name() -> String {
    static PROCESS: OnceLock<u64> = OnceLock::new();
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let process = PROCESS.get_or_init(|| RandomState::new().hash_one(0));
    format!("{process:016x}-{:x}", CALLS.fetch_add(1, Relaxed))
}
