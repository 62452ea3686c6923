//! Reads one counter without changing it.

use std::sync::Arc;

use redis::Value;
use tallygate_core::{Quota, State, StateSize, Verb, lua};

use super::command::{ScriptCall, counter_id};
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

    /// The number by which [`inspect`](RedisStore::inspect) tells a member or an owner from others:
    /// the same for all counters, and another one in each process.
    pub fn caller_id(&self, name: &Key<'_>) -> u64 {
        counter_id(&self.inner.keyspace.name(Some(name)))
    }
}

impl Inner {
    async fn inspect(&self, call: Arc<ScriptCall>) -> Result<Snapshot, StoreFailure> {
        let reply = self.send(Arc::clone(&call)).await?;
        let found = call.found(reply).next().ok_or(StoreFailure::InvalidReply)?;
        let (quota, now_us) = (found.quota, found.now_us);
        let state = match found.state {
            State::New => State::New,
            _ => match quota.algorithm().state_size() {
                StateSize::Packed => found.state,
                StateSize::Log => self.stored_log(&call, quota).await?,
                StateSize::Callers => self.stored_callers(&call, quota).await?,
            },
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

    /// A share with its members, or what owners hold. Each key is read by a command of its own: members
    /// may be newer than the bucket.
    async fn stored_callers(
        &self,
        call: &ScriptCall,
        quota: &Quota,
    ) -> Result<State, StoreFailure> {
        let key = call.first_key();
        let id = |name: &[u8]| counter_id(name);
        if quota.algorithm().is_concurrent() {
            return Ok(lua::read_holds(&self.stored_fields(key).await?, id));
        }
        let mut members = Vec::new();
        for suffix in lua::key_suffixes(quota) {
            let key = [key, suffix.as_bytes()].concat();
            members.push(self.stored_fields(&key).await?);
        }
        let read = redis::cmd("GET").arg(key).take();
        match (self.command(key, &read).await?, &*members) {
            (Value::BulkString(root), [even, odd]) => {
                let share = lua::read_share(&root, [even, odd], id);
                share.ok_or(StoreFailure::InvalidReply)
            }
            // It has expired since the first command.
            _ => Ok(State::New),
        }
    }

    async fn stored_fields(&self, key: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>, StoreFailure> {
        let read = redis::cmd("HGETALL").arg(key).take();
        let fields = self.command(key, &read).await?;
        redis::from_redis_value(fields).map_err(|_| StoreFailure::InvalidReply)
    }
}
