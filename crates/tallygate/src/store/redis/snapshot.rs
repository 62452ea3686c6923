//! A look at a counter as a server stores it. Changes nothing, and decides nothing on what it sees.

use std::sync::Arc;

use redis::Value;
use tallygate_core::{Quota, State, Verb, lua};

use super::command::Call;
use super::error::Trouble;
use super::{Inner, Reached, RedisStore};
use crate::key::Key;
use crate::limit::Limit;
use crate::request::Request;
use crate::store::{Look, StoreError};

impl RedisStore {
    /// Looks at the counter of a key and a limit, on the server's clock. The entries of a log are
    /// read a moment after the rest.
    ///
    /// # Errors
    /// When the counter cannot be reached.
    pub async fn look(&self, key: &Key<'_>, limit: &Limit) -> Result<Look, StoreError> {
        let request = Request::new(key, limit).verb(Verb::Peek).cost(0);
        let call = Arc::new(Call::of(&self.inner.names, &request, None));
        Ok(self.inner.look(call).await?)
    }
}

impl Inner {
    async fn look(&self, call: Arc<Call>) -> Result<Look, Trouble> {
        let answer = self.send(Arc::clone(&call)).await?;
        let found = call.found(answer).next().ok_or(Trouble::Garbled)?;
        let (quota, now_us) = (found.quota, found.now_us);
        let state = match found.state {
            State::New => State::New,
            _ if quota.algorithm().is_log() => self.stored_log(&call, quota).await?,
            state => state,
        };
        let view = state.inspect(quota, now_us);
        Ok(Look { now_us, view })
    }

    async fn stored_log(&self, call: &Call, quota: &Quota) -> Result<State, Trouble> {
        let lane = match &self.servers {
            Reached::One(link) => link.lane().await?,
            Reached::Many(cluster) => cluster.lane(call.slot()).await?,
        };
        let name = call.names().next().ok_or(Trouble::Garbled)?;
        // As scripts read it, so that no right is needed that they do without.
        let read = redis::cmd("GETRANGE").arg(name).arg(0).arg(-1).take();
        match lane.command(&read).await? {
            // It expired in between.
            Value::BulkString(stored) if stored.is_empty() => Ok(State::New),
            Value::BulkString(stored) => {
                let log = lua::read_log(quota, &stored).ok_or(Trouble::Garbled)?;
                Ok(State::Log(log))
            }
            _ => Err(Trouble::Garbled),
        }
    }
}
