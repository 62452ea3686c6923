//! A Redis store for one run: its counters have a namespace of their own and are deleted at the
//! end, also when a signal ends it. Knows no command.

use std::future::{Future, pending};
use std::process;
use std::sync::Arc;
use std::time::Duration;

use tallygate::{RedisError, RedisStore, RedisStoreBuilder};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::error::Failure;

/// How long a run that was told to end goes on deleting.
const DELETE_WITHIN: Duration = Duration::from_secs(5);

/// A store and what runs it.
pub(crate) struct Scratch {
    runtime: Runtime,
    store: Arc<RedisStore>,
    namespace: String,
    /// Whether a signal has come.
    told_to_end: watch::Receiver<bool>,
}

impl Scratch {
    /// Opens a store without waiting for a connection. The inner error is the URL's.
    pub(crate) fn open(
        builder: RedisStoreBuilder,
        purpose: &str,
    ) -> Result<Result<Self, RedisError>, Failure> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(|error| Failure::Outside(format!("cannot start threads: {error}")))?;
        let namespace = format!("{purpose}-{:016x}", fastrand::u64(..));
        let store = {
            let _within = runtime.enter();
            builder.namespace(&namespace).open()
        };
        let store = match store {
            Ok(store) => Arc::new(store),
            Err(error) => return Ok(Err(error)),
        };
        let (sender, told_to_end) = watch::channel(false);
        runtime.spawn(end_when_told(Arc::clone(&store), sender));
        Ok(Ok(Scratch {
            runtime,
            store,
            namespace,
            told_to_end,
        }))
    }

    /// Opens a store and makes sure that it can be used.
    pub(crate) fn connect(builder: RedisStoreBuilder, purpose: &str) -> Result<Self, Failure> {
        let scratch = Self::open(builder, purpose)?
            .map_err(|error| Failure::Input(format!("--store: {error}")))?;
        scratch.run(scratch.store.check())?;
        Ok(scratch)
    }

    pub(crate) fn store(&self) -> &Arc<RedisStore> {
        &self.store
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Works until done; once told to end, the process ends and this does not come back.
    pub(crate) fn run<T>(&self, work: impl Future<Output = T>) -> T {
        let mut told = self.told_to_end.clone();
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                _ = told.wait_for(|told| *told) => pending().await,
                done = work => done,
            }
        })
    }

    /// Deletes what was counted.
    pub(crate) fn clear(&self) -> Result<(), Failure> {
        self.run(self.store.clear()).map_err(|error| {
            Failure::Outside(format!(
                "cannot delete the counters of this run, tallygate:1:{}:*, which expire within a \
                 day: {error}",
                self.namespace
            ))
        })
    }
}

async fn end_when_told(store: Arc<RedisStore>, tell: watch::Sender<bool>) {
    let code = signal().await;
    // What is under way goes first over the same connection; nothing follows.
    tell.send_replace(true);
    // There is nobody left to tell; what remains expires by itself.
    let _ = timeout(DELETE_WITHIN, store.clear()).await;
    process::exit(code);
}

/// Waits to be told to end, and says with which exit code.
#[cfg(unix)]
async fn signal() -> i32 {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
    ) else {
        return pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => 130,
        _ = terminate.recv() => 143,
    }
}

#[cfg(not(unix))]
async fn signal() -> i32 {
    match tokio::signal::ctrl_c().await {
        Ok(()) => 130,
        Err(_) => pending().await,
    }
}
