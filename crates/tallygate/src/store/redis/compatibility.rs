//! What has to be true of a server before a store is trusted with it, asked when connecting.

use std::sync::Arc;

use redis::{InfoDict, Value};

use super::connection::Lane;
use super::error::{RedisError, Trouble};
use super::reconnect::takes_writes;
use super::{Reached, RedisStore};
use crate::limit::Limit;
use crate::request::Request;
use crate::store::StoreErrorKind;

/// The oldest version whose scripts can do what ours need.
const OLDEST: (u32, u32) = (6, 2);

impl RedisStore {
    /// Checks the version, the arrangement, whether writes are taken, and the rights, as [`connect`](RedisStore::connect)
    /// does.
    ///
    /// # Errors
    /// As there.
    pub async fn check(&self) -> Result<(), RedisError> {
        match &self.inner.servers {
            Reached::One(link) => {
                let lane = link.lane().await?;
                if version_and_arrangement(&lane).await? {
                    return Err(RedisError::new(
                        StoreErrorKind::Misconfigured,
                        "this server belongs to a cluster",
                        "use redis-cluster:// with the same hosts",
                    )
                    .called("ARRANGEMENT"));
                }
                takes_writes(&lane).await?;
            }
            Reached::Many(cluster) => {
                for link in cluster.masters().await.map_err(no_cluster)? {
                    let lane = link.lane().await?;
                    version_and_arrangement(&lane).await?;
                    takes_writes(&lane).await?;
                }
            }
        }
        // A peek runs the script and changes nothing.
        let limit = Limit::from(tallygate_core::Quota::per_second(1));
        let request = Request::new("check", &limit).verb(tallygate_core::Verb::Peek);
        self.inner.decide(&request, None).await?;
        Ok(())
    }
}

/// Why a cluster did not say who its servers are.
pub(super) fn no_cluster(trouble: Trouble) -> RedisError {
    match trouble {
        // A server of no cluster does not know the question.
        Trouble::Refused("ERR") => RedisError::new(
            StoreErrorKind::Misconfigured,
            "this server belongs to no cluster",
            "use redis:// for a single server",
        )
        .called("ARRANGEMENT"),
        other => other.into(),
    }
}

/// Refuses a server that is too old; answers whether it belongs to a cluster.
async fn version_and_arrangement(lane: &Arc<Lane>) -> Result<bool, RedisError> {
    let info = match lane.command(redis::cmd("INFO").arg("server")).await {
        // Without that right the script itself has to show whether it runs.
        Err(Trouble::Refused("NOPERM")) => return Ok(false),
        other => other?,
    };
    let info = read(info)?;
    let version: String = info.get("redis_version").unwrap_or_default();
    let mut numbers = version.split('.').map(|part| part.parse().unwrap_or(0));
    let version_is = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version_is < OLDEST {
        return Err(RedisError::new(
            StoreErrorKind::Misconfigured,
            format!("the server's version {version} is older than 6.2"),
            "upgrade it to Redis 6.2 or Valkey 7.2 or later",
        )
        .called("VERSION"));
    }
    let mode: String = info.get("redis_mode").unwrap_or_default();
    if mode == "sentinel" {
        return Err(RedisError::new(
            StoreErrorKind::Misconfigured,
            "this server is a sentinel",
            "use redis-sentinel:// and name the master: redis-sentinel://host:26379/master",
        )
        .called("ARRANGEMENT"));
    }
    Ok(mode == "cluster")
}

fn read(value: Value) -> Result<InfoDict, Trouble> {
    redis::from_redis_value(value).map_err(|_| Trouble::Garbled)
}
