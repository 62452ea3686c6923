//! A look at the servers behind a store, for those who look after them. Knows no limit and no
//! counter; what a server says is passed on as it said it.

use std::sync::Arc;

use redis::Value;

use super::compatibility::no_cluster;
use super::error::{RedisError, Trouble};
use super::reconnect::Link;
use super::{Reached, RedisStore};

/// How the servers of a store are arranged, as its URL says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrangement {
    /// One server.
    Single,
    /// One server, reached by a socket of this machine.
    Socket,
    /// A master that sentinels watch over.
    Sentinel,
    /// A cluster.
    Cluster,
}

/// One server that holds counters of a [`RedisStore`].
///
/// For tools that look after the servers; limits need none of this.
pub struct RedisServer {
    address: String,
    link: Arc<Link>,
}

/// What a server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply {
    /// Nothing.
    Nil,
    /// A whole number.
    Number(i64),
    /// A text; what is no UTF-8 in it is replaced.
    Text(String),
    /// A list, or a map as a list of names and values.
    List(Vec<Reply>),
}

impl RedisStore {
    /// How the servers are arranged, as the URL says.
    pub fn arrangement(&self) -> Arrangement {
        self.inner.place.arrangement
    }

    /// Whether connections are encrypted, as the URL says.
    pub fn is_encrypted(&self) -> bool {
        self.inner.place.encrypted
    }

    /// The user that is signed in, as the URL says; none is the one called `default`.
    pub fn user(&self) -> Option<&str> {
        self.inner.place.user.as_deref()
    }

    /// The servers that hold counters right now: one, or every master of a cluster.
    ///
    /// # Errors
    /// When none can be reached. Of a cluster some may still be out of reach, as their first
    /// command tells.
    pub async fn servers(&self) -> Result<Vec<RedisServer>, RedisError> {
        match &self.inner.servers {
            Reached::One(link) => {
                link.lane().await?;
                Ok(vec![RedisServer {
                    address: self.inner.place.name.clone(),
                    link: Arc::clone(link),
                }])
            }
            Reached::Many(cluster) => {
                let holders = cluster.holders().await.map_err(no_cluster)?;
                let server = |(host, link): (super::url::Host, _)| RedisServer {
                    address: host.to_string(),
                    link,
                };
                Ok(holders.into_iter().map(server).collect())
            }
        }
    }
}

impl RedisServer {
    /// Its host and port, its socket, or the name that sentinels know it by.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Sends a command, once.
    ///
    /// # Errors
    /// When it is refused or not answered.
    pub async fn command(&self, words: &[&str]) -> Result<Reply, RedisError> {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(word);
        }
        let lane = self.link.lane().await?;
        Ok(reply(lane.command(&command).await?)?)
    }
}

impl std::fmt::Debug for RedisServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisServer")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

fn reply(value: Value) -> Result<Reply, Trouble> {
    let text = |bytes: &[u8]| Reply::Text(String::from_utf8_lossy(bytes).into_owned());
    let list = |values: Vec<Value>| {
        let replies: Result<Vec<Reply>, Trouble> = values.into_iter().map(reply).collect();
        Ok(Reply::List(replies?))
    };
    match value {
        Value::Nil => Ok(Reply::Nil),
        Value::Int(number) => Ok(Reply::Number(number)),
        Value::Boolean(yes) => Ok(Reply::Number(yes.into())),
        Value::Okay => Ok(Reply::Text("OK".to_owned())),
        Value::BulkString(bytes) => Ok(text(&bytes)),
        Value::SimpleString(said) => Ok(Reply::Text(said)),
        Value::VerbatimString { text, .. } => Ok(Reply::Text(text)),
        Value::Double(number) => Ok(Reply::Text(number.to_string())),
        Value::Array(values) | Value::Set(values) => list(values),
        Value::Map(pairs) => list(pairs.into_iter().flat_map(<[Value; 2]>::from).collect()),
        Value::ServerError(error) => Err(Trouble::from(&redis::RedisError::from(error))),
        _ => Err(Trouble::Garbled),
    }
}
