//! The INFO and CONFIG of one server.

use std::collections::HashMap;

use tallygate::{RedisError, RedisReply, RedisServer};

pub(super) struct ServerInfo<'a> {
    pub(super) server: &'a RedisServer,
    /// `None` if the user may not call INFO.
    info: Option<HashMap<String, String>>,
}

impl<'a> ServerInfo<'a> {
    /// Fetches INFO. A missing permission is not an error.
    pub(super) async fn fetch(server: &'a RedisServer) -> Result<Self, RedisError> {
        let info = match server.command(&["INFO"]).await {
            Ok(RedisReply::Text(text)) => Some(fields(&text)),
            Ok(_) => None,
            Err(error) if is_permission_error(&error) => None,
            Err(error) => return Err(error),
        };
        Ok(ServerInfo { server, info })
    }

    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.info.as_ref()?.get(name).map(String::as_str)
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.field(name)?.parse().ok()
    }

    pub(super) async fn setting(&self, name: &str) -> Option<String> {
        let reply = self.server.command(&["CONFIG", "GET", name]).await;
        let RedisReply::List(parts) = reply.ok()? else {
            return None;
        };
        match parts.into_iter().nth(1)? {
            RedisReply::Text(value) => Some(value),
            _ => None,
        }
    }
}

pub(super) fn fields(text: &str) -> HashMap<String, String> {
    let pairs = text
        .lines()
        .filter_map(|line| line.trim_end().split_once(':'));
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

pub(super) fn is_permission_error(error: &RedisError) -> bool {
    error.code() == Some("NOPERM")
}
