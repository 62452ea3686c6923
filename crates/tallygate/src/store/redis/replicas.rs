//! Counts the processes that share the counters, so that each can admit its share when the store
//! fails.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::Value;

use super::Inner;
use super::error::StoreFailure;

const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(2);
/// A process without a heartbeat for so long is gone.
const EXPIRY_MS: u32 = 7_000;

#[derive(Default)]
pub(super) struct Replicas {
    started: AtomicBool,
    /// 0 before the first count.
    count: AtomicU32,
}

impl Replicas {
    pub(super) fn count(&self) -> Option<u32> {
        Some(self.count.load(Ordering::Relaxed)).filter(|&count| count > 0)
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
        let mut command = redis::cmd("EVAL");
        command.arg(include_str!("replicas.lua")).arg(1).arg(&key);
        command.arg(process).arg(EXPIRY_MS);
        match self.command(&key, &command).await? {
            Value::Int(count) => u32::try_from(count).map_err(|_| StoreFailure::InvalidReply),
            _ => Err(StoreFailure::InvalidReply),
        }
    }
}

async fn send_heartbeats(store: Weak<Inner>) {
    let replica = format!("{:016x}", fastrand::u64(..));
    while let Some(inner) = store.upgrade() {
        // While the store fails, the last count stays.
        if let Ok(count) = inner.heartbeat(&replica).await {
            inner.replicas.count.store(count, Ordering::Relaxed);
        }
        drop(inner);
        tokio::time::sleep(HEARTBEAT_INTERVAL).await;
    }
}
