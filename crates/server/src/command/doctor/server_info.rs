//! What one server says of itself. Knows the forms of its answers; judges nothing.

use std::collections::HashMap;

use tallygate::{RedisError, RedisReply, RedisServer};

/// A server and its INFO.
pub(super) struct Look<'a> {
    pub(super) server: &'a RedisServer,
    /// None when the user may not look.
    info: Option<HashMap<String, String>>,
}

impl<'a> Look<'a> {
    /// Asks for INFO. Being refused that is no error.
    pub(super) async fn at(server: &'a RedisServer) -> Result<Self, RedisError> {
        let info = match server.command(&["INFO"]).await {
            Ok(RedisReply::Text(text)) => Some(fields(&text)),
            Ok(_) => None,
            Err(error) if is_right_missing(&error) => None,
            Err(error) => return Err(error),
        };
        Ok(Look { server, info })
    }

    /// A field of INFO.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.info.as_ref()?.get(name).map(String::as_str)
    }

    /// A number of INFO.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.field(name)?.parse().ok()
    }

    /// A setting, if the user may see it.
    pub(super) async fn setting(&self, name: &str) -> Option<String> {
        let reply = self.server.command(&["CONFIG", "GET", name]).await;
        match reply.ok()? {
            RedisReply::List(parts) => match parts.into_iter().nth(1)? {
                RedisReply::Text(value) => Some(value),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Lines of `name:value`.
pub(super) fn fields(text: &str) -> HashMap<String, String> {
    let pairs = text
        .lines()
        .filter_map(|line| line.trim_end().split_once(':'));
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Whether the user lacks a right.
pub(super) fn is_right_missing(error: &RedisError) -> bool {
    error.code() == Some("NOPERM")
}
