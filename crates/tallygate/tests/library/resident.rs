//! A table takes memory when it is used, not when it is allocated.

use std::env;
use std::fs;
use std::process::Command;

use tallygate::{Limiter, MemoryStore, Quota};

const KEYS: usize = 1_000_000;
/// In the child process: no other test runs beside it.
const CHILD: &str = "TALLYGATE_TEST_RESIDENT";
const TEST: &str = "resident::a_store_for_a_million_keys_takes_little_memory_before_its_first_key";

/// The resident memory of this process.
fn resident_bytes() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = resident.unwrap().trim().strip_suffix(" kB").unwrap();
    kilobytes.parse::<usize>().unwrap() << 10
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "reads /proc")]
fn a_store_for_a_million_keys_takes_little_memory_before_its_first_key() {
    if env::var_os(CHILD).is_some() {
        return measure();
    }
    let mut child = Command::new(env::current_exe().unwrap());
    child.args([TEST, "--exact", "--nocapture"]).env(CHILD, "1");
    let output = child.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    assert!(text.contains("1 passed"), "{text}");
}

fn measure() {
    let before = resident_bytes();
    let store = MemoryStore::builder().capacity(KEYS).build();
    // Allocates the table.
    let limiter = Limiter::with_store(store, Quota::per_hour(5));
    let allocated = resident_bytes().saturating_sub(before);
    assert!(
        allocated < 4 << 20,
        "{allocated} bytes before the first key"
    );
    for key in 0..KEYS / 2 {
        assert!(limiter.check(key.to_string()).allowed());
    }
    let used = resident_bytes().saturating_sub(before);
    assert!(used > 30 << 20, "{used} bytes: the table is elsewhere");
}
