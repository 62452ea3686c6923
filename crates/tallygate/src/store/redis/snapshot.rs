//! Reads one counter without changing it.

use std::sync::Arc;

use redis::Value;
use tallygate_core::{Quota, State, Verb, lua};

use super::command::ScriptCall;
use super::error::StoreFailure;
use super::{Inner, RedisStore};
use crate::key::Key;
use crate::limit::Limit;
use crate::request::Request;
use crate::store::{Snapshot, StoreError};

impl RedisStore {
    /// Reads the counter of a key and a limit, by the server's clock. The entries of a log are
    /// read by a second command, and may be newer than the time returned.
    ///
    /// # Errors
    /// When the counter cannot be reached.
    pub async fn inspect(&self, key: &Key<'_>, limit: &Limit) -> Result<Snapshot, StoreError> {
        let request = Request::new(key, limit).verb(Verb::Peek).cost(0);
        let call = ScriptCall::from_request(&self.inner.keyspace, &request, None, None);
        Ok(self.inner.inspect(Arc::new(call)).await?)
    }
}

impl Inner {
    async fn inspect(&self, call: Arc<ScriptCall>) -> Result<Snapshot, StoreFailure> {
        let reply = self.send(Arc::clone(&call)).await?;
        let found = call.found(reply).next().ok_or(StoreFailure::InvalidReply)?;
        let (quota, now_us) = (found.quota, found.now_us);
        let state = match found.state {
            State::New => State::New,
            _ if quota.algorithm().is_log() => self.stored_log(&call, quota).await?,
            state => state,
        };
        let state = state.inspect(quota, now_us);
        Ok(Snapshot { now_us, state })
    }

    async fn stored_log(&self, call: &ScriptCall, quota: &Quota) -> Result<State, StoreFailure> {
        let key = call.keys().next().ok_or(StoreFailure::InvalidReply)?;
        // GETRANGE, as in the scripts: it needs no further permission.
        let read = redis::cmd("GETRANGE").arg(key).arg(0).arg(-1).take();
        match self.command(key, &read).await? {
            // It has expired since the first command.
            Value::BulkString(stored) if stored.is_empty() => Ok(State::New),
            Value::BulkString(stored) => {
                let log = lua::read_log(quota, &stored).ok_or(StoreFailure::InvalidReply)?;
                Ok(State::Log(log))
            }
            _ => Err(StoreFailure::InvalidReply),
        }
    }
}
