//! Watches whether the store answers, and warns of servers that may evict counters.

use std::sync::Arc;
use std::time::Duration;

use tallygate::store::StoreErrorKind;
use tallygate::{RedisError, RedisStore, Store};

use crate::command::doctor;
use crate::metrics::Metrics;
use crate::state::ServerState;

/// How often a store that has not answered yet is probed.
const PROBE_INTERVAL: Duration = Duration::from_millis(200);
/// How often it is asked for a sign of life after that.
const PING_INTERVAL: Duration = Duration::from_secs(2);

/// How long the start waits for the first answer.
const CHECK_TIMEOUT: Duration = Duration::from_secs(3);

/// Fails if the store can only be used with another configuration: a password, a certificate, a
/// URL. A store that cannot be reached is watched instead.
pub(super) async fn check_configuration(store: &RedisStore) -> Result<(), RedisError> {
    match tokio::time::timeout(CHECK_TIMEOUT, store.check()).await {
        Ok(Err(error)) if error.is_permanent() => Err(error),
        Ok(Ok(()) | Err(_)) | Err(_) => Ok(()),
    }
}

/// Records whether the store answers, until dropped.
pub(super) async fn watch(state: Arc<ServerState>) {
    let mut failed = false;
    while let Err(error) = state.engine.store().probe().await {
        state.record_store_failure(error.kind());
        if !failed {
            failed = true;
            tracing::warn!(%error, "not ready: failure policies decide until the store answers");
        }
        tokio::time::sleep(PROBE_INTERVAL).await;
    }
    state.record_store_answer();
    if failed {
        tracing::info!("the store answers: ready");
    }
    let Some(store) = state.engine.store().redis_store() else {
        return;
    };
    warn_of_eviction(&state.metrics, store).await;
    loop {
        tokio::time::sleep(PING_INTERVAL).await;
        match ping(store).await {
            Ok(()) => state.record_store_answer(),
            Err(kind) => state.record_store_failure(kind),
        }
    }
}

/// Asks all servers for a sign of life. Unlike a probe it leaves connections as they are: the server
/// may be slow.
async fn ping(store: &RedisStore) -> Result<(), StoreErrorKind> {
    let is_lost = |kind: &StoreErrorKind| {
        matches!(kind, StoreErrorKind::Unreachable | StoreErrorKind::Timeout)
    };
    let servers = store.servers().await.map_err(|error| error.kind())?;
    for server in servers {
        let reply = server.command(&["PING"]).await;
        // An error reply, such as a missing permission, is an answer too.
        if let Some(kind) = reply.err().map(|error| error.kind()).filter(is_lost) {
            return Err(kind);
        }
    }
    Ok(())
}

/// Says in the log and in a metric which servers may evict counters.
async fn warn_of_eviction(metrics: &Metrics, store: &RedisStore) {
    for server in store.servers().await.unwrap_or_default() {
        let Some(evicts) = doctor::may_evict(&server).await else {
            continue;
        };
        metrics.set_evicts(server.address(), evicts);
        if evicts {
            tracing::warn!(
                server = server.address(),
                "the server may evict counters, and clients start anew: set maxmemory-policy \
                 noeviction"
            );
        }
    }
}
