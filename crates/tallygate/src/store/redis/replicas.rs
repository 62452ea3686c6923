//! Counts the processes that share the counters, so that each can admit its share when the store
//! fails, and lease its share of what is available.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use redis::Value;
use smallvec::SmallVec;
use tracing::warn;

use super::Inner;
use super::error::StoreFailure;

pub(super) const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(2);
/// A process without a heartbeat for so long is gone.
pub(super) const EXPIRY_MS: u32 = 7_000;
/// Leases rely on a count for so long: until then the other processes have counted this one.
const MAX_COUNT_AGE_US: u64 = 5_000_000;
/// Leases rely on the largest of so many counts: after a failover, processes are counted anew.
const LAST_COUNTS: usize = 3;

const _: () = assert!(MAX_COUNT_AGE_US < EXPIRY_MS as u64 * 1_000);

#[derive(Default)]
pub(super) struct Replicas {
    started: AtomicBool,
    counts: ReplicaCounts,
    /// Whether processes disagree on the number of hash tags.
    disagree: AtomicBool,
}

impl Replicas {
    /// Logs when processes begin to disagree on the number of hash tags.
    fn on_hash_tags(&self, own: Option<usize>, same: bool) {
        let were_different = self.disagree.swap(!same, Ordering::Relaxed);
        if !same && !were_different {
            warn!(
                hash_tags = own,
                "another process has another number of hash tags, or none: each counts alone"
            );
        }
    }

    pub(super) fn count(&self) -> Option<u32> {
        self.counts.count()
    }

    /// The number of processes that may lease units for `hold_us`. `None` if this one may not: it has
    /// not been counted of late, or others do not know of it yet.
    pub(super) fn lease_count(&self, now_us: u64, hold_us: u64) -> Option<u32> {
        self.counts.lease.get(now_us, hold_us)
    }
}

/// What the heartbeats of a process told it. Performs no I/O and reads no clock.
#[derive(Default)]
pub(super) struct ReplicaCounts {
    /// 0 before the first count.
    count: AtomicU32,
    /// At most [`LAST_COUNTS`].
    last: Mutex<SmallVec<[u32; LAST_COUNTS + 1]>>,
    pub(super) lease: LeaseCount,
}

impl ReplicaCounts {
    pub(super) fn count(&self) -> Option<u32> {
        Some(self.count.load(Ordering::Relaxed)).filter(|&count| count > 0)
    }

    /// Records a heartbeat: when it was sent and answered, and how many processes there are.
    pub(super) fn on_heartbeat(&self, sent_us: u64, received_us: u64, count: u32) {
        self.count.store(count, Ordering::Relaxed);
        let mut last = self.last.lock();
        last.push(count);
        if last.len() > LAST_COUNTS {
            last.remove(0);
        }
        self.lease.set(sent_us, received_us, &last);
    }
}

/// The number of processes that lease. All that do at one time have counted each other, so that their
/// shares add up to one:
///
/// - a process leases and spends only within [`MAX_COUNT_AGE_US`] of its last heartbeat, so that
///   others still count it;
/// - one that finds others starts only when they no longer rely on a count without it, nor spend a
///   lease that was taken by such a count.
///
/// Local times are in microseconds.
#[derive(Default)]
pub(super) struct LeaseCount {
    count: AtomicU32,
    /// It may be relied on until then; 0 before the first count.
    until_us: AtomicU64,
    /// A `hold` later, others know of this process.
    known_us: AtomicU64,
}

impl LeaseCount {
    pub(super) fn get(&self, now_us: u64, hold_us: u64) -> Option<u32> {
        let is_fresh = now_us < self.until_us.load(Ordering::Acquire);
        let known_us = self.known_us.load(Ordering::Relaxed);
        let is_known = known_us == 0 || now_us >= known_us.saturating_add(hold_us);
        (is_fresh && is_known).then(|| self.count.load(Ordering::Relaxed))
    }

    /// Records a heartbeat: when it was sent and answered, and the last counts.
    fn set(&self, sent_us: u64, received_us: u64, last_counts: &[u32]) {
        let lapsed = received_us >= self.until_us.load(Ordering::Relaxed);
        if lapsed {
            let is_alone = last_counts.last() == Some(&1);
            let known_us = match is_alone {
                true => 0,
                false => received_us.saturating_add(MAX_COUNT_AGE_US),
            };
            self.known_us.store(known_us, Ordering::Relaxed);
        }
        let count = last_counts.iter().copied().max().unwrap_or(1);
        self.count.store(count, Ordering::Relaxed);
        let until_us = sent_us.saturating_add(MAX_COUNT_AGE_US);
        self.until_us.store(until_us, Ordering::Release);
    }
}

impl Inner {
    /// Starts the heartbeat, once; it ends with the store.
    pub(super) fn count_replicas(self: &Arc<Self>) {
        if !self.replicas.started.swap(true, Ordering::Relaxed) {
            let runtime = self.runtime.handle();
            runtime.spawn(send_heartbeats(Arc::downgrade(self)));
        }
    }

    async fn heartbeat(&self, process: &str) -> Result<u32, StoreFailure> {
        let key = self.keyspace.replicas_key();
        let hash_tags = self.keyspace.hash_tags();
        let mut command = redis::cmd("EVAL");
        command.arg(include_str!("replicas.lua")).arg(1).arg(&key);
        match hash_tags {
            None => command.arg(process).arg(EXPIRY_MS),
            Some(tags) => {
                let process = format!("{process}:{tags}");
                command.arg(process).arg(EXPIRY_MS).arg(tags)
            }
        };
        let reply = self.command(&key, &command).await?;
        let invalid = |_| StoreFailure::InvalidReply;
        let count = match reply {
            Value::Array(reply) => {
                let [count, same] =
                    redis::from_redis_value(Value::Array(reply)).map_err(invalid)?;
                self.replicas.on_hash_tags(hash_tags, same == 1);
                count
            }
            count => redis::from_redis_value::<i64>(count).map_err(invalid)?,
        };
        u32::try_from(count).map_err(|_| StoreFailure::InvalidReply)
    }
}

async fn send_heartbeats(store: Weak<Inner>) {
    let replica = format!("{:016x}", fastrand::u64(..));
    while let Some(inner) = store.upgrade() {
        let sent_us = inner.leases.now_us();
        // While the store fails, the last count stays.
        if let Ok(count) = inner.heartbeat(&replica).await {
            let received_us = inner.leases.now_us();
            let counts = &inner.replicas.counts;
            counts.on_heartbeat(sent_us, received_us, count);
        }
        drop(inner);
        tokio::time::sleep(HEARTBEAT_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn a_process_alone_leases_at_once_and_until_its_heartbeats_fail() {
        let lease = LeaseCount::default();
        assert_eq!(lease.get(0, SECOND), None);
        lease.set(SECOND, 2 * SECOND, &[1]);
        assert_eq!(lease.get(2 * SECOND, 60 * SECOND), Some(1));
        assert_eq!(lease.get(6 * SECOND - 1, SECOND), Some(1));
        assert_eq!(lease.get(6 * SECOND, SECOND), None);
    }

    #[test]
    fn a_process_that_finds_others_waits_until_they_know_of_it() {
        let lease = LeaseCount::default();
        for sent in 1..=8 {
            lease.set(sent * SECOND, sent * SECOND + 1, &[2]);
        }
        // Found at 1 s; the others count again until 6 s, and their leases end a hold later.
        assert_eq!(lease.get(7 * SECOND, SECOND), None);
        assert_eq!(lease.get(7 * SECOND + 1, SECOND), Some(2));
        assert_eq!(lease.get(7 * SECOND + 1, 2 * SECOND), None);
    }

    #[test]
    fn a_process_that_was_cut_off_is_new_again() {
        let lease = LeaseCount::default();
        lease.set(SECOND, SECOND, &[1]);
        lease.set(9 * SECOND, 9 * SECOND, &[1, 2]);
        assert_eq!(lease.get(9 * SECOND, SECOND), None);
        lease.set(13 * SECOND, 13 * SECOND, &[1, 2, 2]);
        assert_eq!(lease.get(15 * SECOND, SECOND), Some(2));
    }

    #[test]
    fn the_largest_of_the_last_counts_is_relied_on() {
        let lease = LeaseCount::default();
        lease.set(0, 0, &[1]);
        lease.set(SECOND, SECOND, &[1, 5, 2]);
        assert_eq!(lease.get(SECOND, SECOND), Some(5));
    }
}
