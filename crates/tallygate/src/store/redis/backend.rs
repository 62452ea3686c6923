//! The servers behind a store: one, a cluster, or shards.

use std::sync::Arc;
use std::time::Instant;

use super::cluster::Cluster;
use super::command::{ScriptCall, ScriptReply};
use super::error::StoreFailure;
use super::keys;
use super::reconnect::Node;
use super::shards::{Shard, Shards};

pub(super) enum Backend {
    Single(Arc<Node>),
    Cluster(Arc<Cluster>),
    Shards(Arc<Shards>),
}

impl Backend {
    /// The part of the servers that holds a key: one script reaches only counters of one part.
    pub(super) fn part(&self, key: &[u8]) -> u16 {
        match self {
            Backend::Single(_) => 0,
            Backend::Cluster(_) => keys::slot(key),
            Backend::Shards(shards) => shards.position(key),
        }
    }

    /// Whether the counters of a call are in several parts.
    pub(super) fn is_split(&self, call: &ScriptCall) -> bool {
        if matches!(self, Backend::Single(_)) || call.len() < 2 {
            return false;
        }
        let mut parts = call.keys().map(|key| self.part(key));
        let first = parts.next();
        parts.any(|part| Some(part) != first)
    }

    /// Sends a call whose counters are in one part. If it did not run, it is not sent again after
    /// `until`.
    pub(super) async fn decide(
        &self,
        call: Arc<ScriptCall>,
        until: Option<Instant>,
    ) -> Result<ScriptReply, StoreFailure> {
        match self {
            Backend::Single(node) => decide_on(node, call).await,
            // Boxed: waiting futures are moved, and should be small.
            Backend::Cluster(cluster) => Box::pin(cluster.decide(call, until)).await,
            Backend::Shards(shards) => {
                let node = shards.node(call.first_key());
                decide_on(&node, call).await
            }
        }
    }

    /// Sends a command about one key, which may run twice.
    pub(super) async fn command(
        &self,
        key: &[u8],
        command: &redis::Cmd,
    ) -> Result<redis::Value, StoreFailure> {
        match self {
            Backend::Single(node) => node.connection().await?.command(command).await,
            Backend::Cluster(cluster) => cluster.command(keys::slot(key), command).await,
            Backend::Shards(shards) => {
                let connection = shards.node(key).connection().await?;
                connection.command(command).await
            }
        }
    }

    /// All known servers.
    pub(super) fn nodes(&self) -> Vec<Arc<Node>> {
        match self {
            Backend::Single(node) => vec![Arc::clone(node)],
            Backend::Cluster(cluster) => cluster.nodes(),
            Backend::Shards(shards) => {
                let list = shards.list();
                list.iter().map(|shard| Arc::clone(&shard.node)).collect()
            }
        }
    }

    /// The servers that hold counters, each with its address.
    ///
    /// # Errors
    /// Why the masters of a cluster are not known.
    pub(super) async fn masters(
        &self,
        name: &str,
    ) -> Result<Vec<(String, Arc<Node>)>, StoreFailure> {
        Ok(match self {
            Backend::Single(node) => vec![(name.to_owned(), Arc::clone(node))],
            Backend::Cluster(cluster) => {
                let masters = cluster.masters().await?.into_iter();
                masters
                    .map(|(host, node)| (host.to_string(), node))
                    .collect()
            }
            Backend::Shards(shards) => {
                let list = shards.list();
                let one = |shard: &Shard| (shard.host.to_string(), Arc::clone(&shard.node));
                list.iter().map(one).collect()
            }
        })
    }

    /// Whether a server that holds a key has stopped replying.
    pub(super) fn is_silent(&self, key: &[u8]) -> bool {
        match self {
            Backend::Single(node) => node.is_silent(key),
            Backend::Cluster(cluster) => cluster.is_silent(key),
            Backend::Shards(shards) => shards.node(key).is_silent(key),
        }
    }

    /// Checks whether calls are worth sending, and replaces connections that are not usable.
    pub(super) async fn probe(&self) -> Result<(), StoreFailure> {
        match self {
            Backend::Single(node) => node.probe().await,
            Backend::Cluster(cluster) => cluster.probe().await,
            Backend::Shards(_) => super::cluster::probe_most(&self.nodes()).await,
        }
    }
}

async fn decide_on(node: &Arc<Node>, call: Arc<ScriptCall>) -> Result<ScriptReply, StoreFailure> {
    let mut reply = node.decide(Arc::clone(&call)).await;
    if let Err(StoreFailure::NotConnected(_)) = reply {
        // Not sent: the connection was just replaced.
        reply = node.decide(call).await;
    }
    if let Err(StoreFailure::ReadOnly) = reply {
        // The master has become a replica.
        node.mark_broken();
    }
    reply
}
