//! The servers behind a store, for administration tools: connection details and raw commands.

use std::sync::Arc;

use redis::Value;

use super::batch::MAX_QUEUED;
use super::compatibility::cluster_failure;
use super::error::{RedisError, StoreFailure};
use super::reconnect::Node;
use super::{Backend, RedisStore};

/// How the servers of a store are deployed, according to its URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// One server.
    Single,
    /// One server, over a Unix socket.
    Socket,
    /// A master monitored by Sentinel.
    Sentinel,
    /// A cluster.
    Cluster,
    /// Independent servers, each with a part of the keys.
    Shards,
}

/// One server that holds counters of a [`RedisStore`], for administration tools.
pub struct RedisServer {
    address: String,
    node: Arc<Node>,
}

/// A server's reply to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RedisReply {
    /// Null.
    Nil,
    /// An integer.
    Number(i64),
    /// A string; invalid UTF-8 is replaced.
    Text(String),
    /// An array, or a map as alternating keys and values.
    List(Vec<RedisReply>),
}

impl RedisStore {
    /// How the servers are deployed, according to the URL.
    pub fn topology(&self) -> Topology {
        self.inner.url.topology
    }

    /// Whether the URL requires TLS.
    pub fn is_encrypted(&self) -> bool {
        self.inner.url.encrypted
    }

    /// The user in the URL; `None` means `default`.
    pub fn user(&self) -> Option<&str> {
        self.inner.url.user.as_deref()
    }

    /// The servers that are known now, and whether the circuit breaker of each is open: it has
    /// failed repeatedly and is probed until it answers.
    pub fn breakers(&self) -> Vec<(String, bool)> {
        let nodes = self.inner.backend.nodes();
        let state = |node: &Arc<Node>| (node.name().to_owned(), node.is_down());
        nodes.iter().map(state).collect()
    }

    /// How many calls may wait to be sent to each server. Further ones are shed.
    pub const MAX_QUEUED_CALLS: usize = MAX_QUEUED;

    /// The servers that are known now, and how many calls wait to be sent to each.
    pub fn queued_calls(&self) -> Vec<(String, usize)> {
        let nodes = self.inner.backend.nodes();
        let queued = |node: &Arc<Node>| (node.name().to_owned(), node.queued_calls());
        nodes.iter().map(queued).collect()
    }

    /// The servers that hold counters now: one, every master of a cluster, or every shard.
    ///
    /// # Errors
    /// When none can be reached. Single masters or shards may still be unreachable; their first
    /// command fails then.
    pub async fn servers(&self) -> Result<Vec<RedisServer>, RedisError> {
        let (backend, url) = (&self.inner.backend, &self.inner.url);
        if let Backend::Single(node) = backend {
            node.connection().await?;
        }
        let masters = backend.masters(&url.name).await.map_err(cluster_failure)?;
        let server = |(address, node)| RedisServer { address, node };
        Ok(masters.into_iter().map(server).collect())
    }
}

impl RedisServer {
    /// Its host and port, its socket, or its Sentinel master name.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Sends a command, once.
    ///
    /// # Errors
    /// When it fails or gets no reply.
    pub async fn command(&self, arguments: &[&str]) -> Result<RedisReply, RedisError> {
        let mut command = redis::Cmd::new();
        for argument in arguments {
            command.arg(argument);
        }
        let connection = self.node.connection().await?;
        Ok(parse_reply(connection.command(&command).await?)?)
    }
}

impl std::fmt::Debug for RedisServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisServer")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

fn parse_reply(value: Value) -> Result<RedisReply, StoreFailure> {
    let text = |bytes: &[u8]| RedisReply::Text(String::from_utf8_lossy(bytes).into_owned());
    let list = |values: Vec<Value>| {
        let replies: Result<Vec<RedisReply>, StoreFailure> =
            values.into_iter().map(parse_reply).collect();
        Ok(RedisReply::List(replies?))
    };
    match value {
        Value::Nil => Ok(RedisReply::Nil),
        Value::Int(number) => Ok(RedisReply::Number(number)),
        Value::Boolean(yes) => Ok(RedisReply::Number(yes.into())),
        Value::Okay => Ok(RedisReply::Text("OK".to_owned())),
        Value::BulkString(bytes) => Ok(text(&bytes)),
        Value::SimpleString(text) => Ok(RedisReply::Text(text)),
        Value::VerbatimString { text, .. } => Ok(RedisReply::Text(text)),
        Value::Double(number) => Ok(RedisReply::Text(number.to_string())),
        Value::Array(values) | Value::Set(values) => list(values),
        Value::Map(pairs) => list(pairs.into_iter().flat_map(<[Value; 2]>::from).collect()),
        Value::ServerError(error) => Err(StoreFailure::from(&redis::RedisError::from(error))),
        _ => Err(StoreFailure::InvalidReply),
    }
}
