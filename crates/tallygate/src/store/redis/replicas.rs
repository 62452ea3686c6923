//! Counts the processes that share the counters, so that each can take its share when the store
//! fails. Knows nothing of limits.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::Value;
use tokio::runtime::Handle;

use super::error::Trouble;
use super::{Inner, Reached, keys};

/// How often a process says that it is there.
const EVERY: Duration = Duration::from_secs(2);
/// After how many milliseconds of silence it is gone.
const GONE_AFTER_MS: u32 = 7_000;

#[derive(Default)]
pub(super) struct Replicas {
    started: AtomicBool,
    /// As last counted; 0 before that.
    counted: AtomicU32,
}

impl Replicas {
    pub(super) fn counted(&self) -> Option<u32> {
        Some(self.counted.load(Ordering::Relaxed)).filter(|&count| count > 0)
    }
}

impl Inner {
    /// Begins to count, once, for as long as the store lives.
    pub(super) fn count_replicas(self: &Arc<Self>) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        if !self.replicas.started.swap(true, Ordering::Relaxed) {
            runtime.spawn(keep_counting(Arc::downgrade(self)));
        }
    }

    async fn say_present(&self, who: &str) -> Result<u32, Trouble> {
        let key = self.names.replicas();
        let mut command = redis::cmd("EVAL");
        command.arg(include_str!("replicas.lua")).arg(1).arg(&key);
        command.arg(who).arg(GONE_AFTER_MS);
        let lane = match &self.servers {
            Reached::One(link) => link.lane().await?,
            Reached::Many(cluster) => cluster.lane(keys::slot(&key)).await?,
        };
        match lane.command(&command).await? {
            Value::Int(count) => u32::try_from(count).map_err(|_| Trouble::Garbled),
            _ => Err(Trouble::Garbled),
        }
    }
}

async fn keep_counting(store: Weak<Inner>) {
    let who = format!("{:016x}", fastrand::u64(..));
    while let Some(inner) = store.upgrade() {
        // While the store is silent, the last count stands.
        if let Ok(count) = inner.say_present(&who).await {
            inner.replicas.counted.store(count, Ordering::Relaxed);
        }
        drop(inner);
        tokio::time::sleep(EVERY).await;
    }
}
