//! A Redis store for one run of a command. Its counters have their own namespace and are deleted
//! at the end, also after a signal.

use std::future::{Future, pending};
use std::process;
use std::time::Duration;

use tallygate::store::RedisStoreBuilder;
use tallygate::{RedisError, RedisStore};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::error::Failure;

const CLEANUP_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) struct TempStore {
    runtime: Runtime,
    store: RedisStore,
    namespace: String,
    shutdown: watch::Receiver<bool>,
}

impl TempStore {
    /// Opens a store without waiting for a connection. The inner error is about the URL.
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
            let _entered = runtime.enter();
            builder.namespace(&namespace).open()
        };
        let store = match store {
            Ok(store) => store,
            Err(error) => return Ok(Err(error)),
        };
        let (sender, shutdown) = watch::channel(false);
        runtime.spawn(exit_on_signal(store.clone(), sender));
        Ok(Ok(TempStore {
            runtime,
            store,
            namespace,
            shutdown,
        }))
    }

    /// Opens a store and checks that it can be used.
    pub(crate) fn connect(builder: RedisStoreBuilder, purpose: &str) -> Result<Self, Failure> {
        let store = Self::open(builder, purpose)?
            .map_err(|error| Failure::Input(format!("--store: {error}")))?;
        store.run(store.store.check())?;
        Ok(store)
    }

    pub(crate) fn store(&self) -> &RedisStore {
        &self.store
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Runs a future to completion. After a signal the process exits, and this does not return.
    pub(crate) fn run<T>(&self, future: impl Future<Output = T>) -> T {
        let mut shutdown = self.shutdown.clone();
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                _ = shutdown.wait_for(|shutdown| *shutdown) => pending().await,
                output = future => output,
            }
        })
    }

    pub(crate) fn clear(&self) -> Result<(), Failure> {
        self.run(self.store.clear()).map_err(|error| {
            Failure::Outside(format!(
                "cannot delete the counters of this run, tallygate:1:{}:*; they expire within a \
                 day: {error}",
                self.namespace
            ))
        })
    }
}

async fn exit_on_signal(store: RedisStore, shutdown: watch::Sender<bool>) {
    let code = wait_for_signal().await;
    // Commands in flight run first, on the same connection; none follow.
    shutdown.send_replace(true);
    // Counters that cannot be deleted expire.
    let _ = timeout(CLEANUP_TIMEOUT, store.clear()).await;
    process::exit(code);
}

/// Waits for SIGINT or SIGTERM and returns the exit code.
#[cfg(unix)]
async fn wait_for_signal() -> i32 {
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
async fn wait_for_signal() -> i32 {
    match tokio::signal::ctrl_c().await {
        Ok(()) => 130,
        Err(_) => pending().await,
    }
}
