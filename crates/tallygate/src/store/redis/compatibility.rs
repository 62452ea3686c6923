//! Checks that a server can hold counters: version, topology, role and permissions.

use std::sync::Arc;

use futures_util::future::join_all;
use redis::InfoDict;

use super::connection::Connection;
use super::error::{RedisError, StoreFailure};
use super::reconnect::{Node, check_writable};
use super::shards::Shard;
use super::{Backend, RedisStore};
use crate::limit::Limit;
use crate::request::Request;
use crate::store::StoreErrorKind;

const MIN_VERSION: (u32, u32) = (6, 2);

impl RedisStore {
    /// Checks that the servers can be reached and used: their version, topology and role, and the
    /// permissions of the user.
    ///
    /// # Errors
    /// When one cannot. An error of kind [`Misconfigured`](StoreErrorKind::Misconfigured) stays until
    /// the configuration is changed; it takes precedence over others.
    pub async fn check(&self) -> Result<(), RedisError> {
        let servers = match &self.inner.backend {
            Backend::Single(node) => {
                let in_cluster = check_server(node).await;
                vec![in_cluster.and_then(|in_cluster| reject_cluster(in_cluster, "this server"))]
            }
            Backend::Cluster(cluster) => {
                let masters = cluster.masters().await.map_err(cluster_failure)?;
                let each = masters.iter().map(|(_, node)| check_server(node));
                let checked = join_all(each).await.into_iter();
                checked.map(|in_cluster| in_cluster.map(drop)).collect()
            }
            Backend::Shards(shards) => {
                let list = shards.list();
                let checked = join_all(list.iter().map(|shard| check_server(&shard.node))).await;
                let each = checked.into_iter().zip(list.iter());
                let reject = |(in_cluster, shard): (Result<bool, _>, &Shard)| {
                    reject_cluster(in_cluster?, &format!("the shard {}", shard.host))
                };
                each.map(reject).collect::<Vec<_>>()
            }
        };
        let errors: Vec<RedisError> = servers.into_iter().filter_map(Result::err).collect();
        let permanent = errors.iter().position(RedisError::is_permanent);
        if let Some(error) = errors.into_iter().nth(permanent.unwrap_or(0)) {
            return Err(error);
        }
        // Runs the script, and changes nothing.
        let limit = Limit::from(tallygate_core::Quota::per_second(1));
        let request = Request::new("check", &limit).verb(tallygate_core::Verb::Peek);
        let call = self.inner.call(&request, None);
        self.inner
            .decide_call(call, request.requested_verb())
            .await?;
        Ok(())
    }
}

/// Checks one server; returns whether it is part of a cluster.
async fn check_server(node: &Node) -> Result<bool, RedisError> {
    let connection = node.connection().await?;
    let in_cluster = check_info(&connection).await?;
    check_writable(&connection).await?;
    Ok(in_cluster)
}

fn reject_cluster(in_cluster: bool, server: &str) -> Result<(), RedisError> {
    if !in_cluster {
        return Ok(());
    }
    let problem = format!("{server} is part of a cluster");
    let advice = "use redis-cluster:// with the same hosts";
    let error = RedisError::new(StoreErrorKind::Misconfigured, problem, advice);
    Err(error.with_code("TOPOLOGY"))
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
