//! Checks that a server can hold counters: version, topology, role and permissions.

use std::sync::Arc;

use redis::InfoDict;

use super::connection::Connection;
use super::error::{RedisError, StoreFailure};
use super::reconnect::check_writable;
use super::{Backend, RedisStore};
use crate::limit::Limit;
use crate::request::Request;
use crate::store::StoreErrorKind;

const MIN_VERSION: (u32, u32) = (6, 2);

impl RedisStore {
    /// Checks the version, the topology, the role and the permissions, as
    /// [`connect`](RedisStore::connect) does.
    ///
    /// # Errors
    /// As for [`connect`](RedisStore::connect).
    pub async fn check(&self) -> Result<(), RedisError> {
        match &self.inner.backend {
            Backend::Single(node) => {
                let connection = node.connection().await?;
                if check_info(&connection).await? {
                    return Err(RedisError::new(
                        StoreErrorKind::Misconfigured,
                        "this server is part of a cluster",
                        "use redis-cluster:// with the same hosts",
                    )
                    .with_code("TOPOLOGY"));
                }
                check_writable(&connection).await?;
            }
            Backend::Cluster(cluster) => {
                for (_, node) in cluster.masters().await.map_err(cluster_failure)? {
                    let connection = node.connection().await?;
                    check_info(&connection).await?;
                    check_writable(&connection).await?;
                }
            }
        }
        // Runs the script, and changes nothing.
        let limit = Limit::from(tallygate_core::Quota::per_second(1));
        let request = Request::new("check", &limit).verb(tallygate_core::Verb::Peek);
        self.inner.decide(&request, None).await?;
        Ok(())
    }
}

/// Explains why the slot map cannot be fetched.
pub(super) fn cluster_failure(failure: StoreFailure) -> RedisError {
    match failure {
        // CLUSTER SLOTS is unknown outside a cluster.
        StoreFailure::Rejected("ERR") => RedisError::new(
            StoreErrorKind::Misconfigured,
            "this server is not part of a cluster",
            "use redis:// for a single server",
        )
        .with_code("TOPOLOGY"),
        other => other.into(),
    }
}

/// Rejects a server that is too old; returns whether it is part of a cluster.
async fn check_info(connection: &Arc<Connection>) -> Result<bool, RedisError> {
    let info = match connection.command(redis::cmd("INFO").arg("server")).await {
        // Without this permission, running the script is the only check.
        Err(StoreFailure::Rejected("NOPERM")) => return Ok(false),
        other => other?,
    };
    let info: InfoDict = redis::from_redis_value(info).map_err(|_| StoreFailure::InvalidReply)?;
    let version: String = info.get("redis_version").unwrap_or_default();
    let mut numbers = version.split('.').map(|part| part.parse().unwrap_or(0));
    let parsed = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if parsed < MIN_VERSION {
        return Err(RedisError::new(
            StoreErrorKind::Misconfigured,
            format!("the server's version {version} is older than 6.2"),
            "upgrade it to Redis 6.2 or Valkey 7.2 or later",
        )
        .with_code("VERSION"));
    }
    let mode: String = info.get("redis_mode").unwrap_or_default();
    if mode == "sentinel" {
        return Err(RedisError::new(
            StoreErrorKind::Misconfigured,
            "this server is a sentinel",
            "use redis-sentinel:// with the master's name: redis-sentinel://host:26379/master",
        )
        .with_code("TOPOLOGY"));
    }
    Ok(mode == "cluster")
}
