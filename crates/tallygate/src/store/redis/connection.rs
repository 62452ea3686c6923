//! One connection to a server, and the batches of requests sent over it.
//!
//! A request that finds the connection idle is sent at once, with those that become ready in the
//! same scheduler tick. While calls are in flight, further requests queue, and are sent as one
//! batch when a reply arrives: one script call decides many requests. Up to two calls are in
//! flight, with half of the requests each. A call that may have run is never sent again.

use std::collections::{HashSet, VecDeque};
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult, Value};
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::task::yield_now;

use super::command::{ScriptCall, ScriptRef, ScriptReply, Scripts, parse_replies};
use super::connector::Connector;
use super::error::StoreFailure;

/// Script calls in flight before requests queue.
const MAX_IN_FLIGHT_CALLS: usize = 2;
/// Requests in one batch.
const MAX_BATCH: usize = 128;
/// Queued requests; the next one fails as overloaded.
const MAX_QUEUED: usize = 16_384;

const REPLACED: &str = "the previous connection was replaced";

pub(super) struct Connection {
    connection: MultiplexedConnection,
    scripts: Arc<Scripts>,
    runtime: Handle,
    batching: bool,
    /// Whether only requests of one slot may share a script call.
    by_slot: bool,
    queue: Mutex<Queue>,
    /// Notified when the connection has ended or must be replaced.
    broken: Arc<Notify>,
    sent: AtomicU64,
    received: AtomicU64,
}

#[derive(Default)]
struct Queue {
    in_flight_calls: usize,
    in_flight_requests: usize,
    waiting: VecDeque<QueuedCall>,
    /// Whether the connection has been replaced.
    closed: bool,
}

struct QueuedCall {
    call: Arc<ScriptCall>,
    reply: oneshot::Sender<Result<ScriptReply, StoreFailure>>,
}

type PendingReply = oneshot::Receiver<Result<ScriptReply, StoreFailure>>;

impl QueuedCall {
    fn new(call: &Arc<ScriptCall>) -> (Self, PendingReply) {
        let (reply, receiver) = oneshot::channel();
        let call = Arc::clone(call);
        (QueuedCall { call, reply }, receiver)
    }
}

impl Connection {
    pub(super) fn new(
        connection: MultiplexedConnection,
        connector: &Connector,
        by_slot: bool,
        broken: Arc<Notify>,
    ) -> Self {
        Connection {
            connection,
            scripts: Arc::clone(&connector.scripts),
            runtime: connector.runtime.clone(),
            batching: connector.batching,
            by_slot,
            queue: Mutex::default(),
            broken,
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
        }
    }

    /// Decides one call, by itself or in a batch.
    pub(super) async fn decide(
        self: &Arc<Self>,
        call: Arc<ScriptCall>,
    ) -> Result<ScriptReply, StoreFailure> {
        let unbatched = !self.batching || call.at_us.is_some();
        let pending = {
            let mut queue = self.queue();
            if queue.closed {
                return Err(StoreFailure::NotConnected(REPLACED));
            }
            let may_send = if unbatched {
                queue.in_flight_calls < MAX_QUEUED
            } else {
                queue.in_flight_calls < MAX_IN_FLIGHT_CALLS && queue.waiting.is_empty()
            };
            if may_send {
                queue.in_flight_calls += 1;
                queue.in_flight_requests += 1;
                None
            } else if !unbatched && queue.waiting.len() < MAX_QUEUED {
                let (queued, pending) = QueuedCall::new(&call);
                queue.waiting.push_back(queued);
                Some(pending)
            } else {
                return Err(StoreFailure::Overloaded);
            }
        };
        let pending = match pending {
            Some(pending) => pending,
            None => {
                let permit = SendPermit(self);
                let joined = if unbatched {
                    None
                } else {
                    // Requests that are ready now join this one.
                    yield_now().await;
                    self.join_queue(&call)
                };
                let Some(pending) = joined else {
                    // Boxed: waiting futures are moved, and should be small.
                    return Box::pin(self.decide_single(call)).await;
                };
                drop(permit);
                pending
            }
        };
        pending.await.unwrap_or(Err(StoreFailure::ConnectionLost))
    }

    /// Puts a call at the front of the queue, if there is a queue.
    fn join_queue(&self, call: &Arc<ScriptCall>) -> Option<PendingReply> {
        let mut queue = self.queue();
        if queue.waiting.is_empty() {
            return None;
        }
        let (queued, pending) = QueuedCall::new(call);
        queue.waiting.push_front(queued);
        Some(pending)
    }

    /// Requests that this connection be replaced.
    pub(super) fn mark_broken(&self) {
        self.broken.notify_one();
    }

    /// Waits until the connection has ended or was marked as broken.
    pub(super) async fn wait_broken(&self) {
        self.broken.notified().await;
    }

    /// How many commands were sent and how many replies were received.
    pub(super) fn traffic(&self) -> (u64, u64) {
        let sent = self.sent.load(Ordering::Relaxed);
        (sent, self.received.load(Ordering::Relaxed))
    }

    /// Sends nothing more; queued calls fail as not sent.
    pub(super) fn close(&self) {
        let waiting = {
            let mut queue = self.queue();
            queue.closed = true;
            std::mem::take(&mut queue.waiting)
        };
        for queued in waiting {
            let failure = StoreFailure::NotConnected(REPLACED);
            let _ = queued.reply.send(Err(failure));
        }
    }

    async fn decide_single(&self, call: Arc<ScriptCall>) -> Result<ScriptReply, StoreFailure> {
        let mut replies = self.run(ScriptRef::Hash, vec![vec![call]]).await;
        replies.pop().unwrap_or(Err(StoreFailure::InvalidReply))
    }

    /// Decides calls in order, one script call each, in one pipeline.
    ///
    /// # Errors
    /// The first failure; how many of the later calls ran is unknown.
    pub(super) async fn decide_in_order(
        &self,
        mut calls: &[Arc<ScriptCall>],
    ) -> Result<Vec<ScriptReply>, StoreFailure> {
        let mut replies = Vec::with_capacity(calls.len());
        while !calls.is_empty() {
            let mut pipeline = Pipeline::with_capacity(calls.len());
            let mut loaded = HashSet::new();
            for call in calls {
                // The first call of each script carries its text. With a hash that is unknown,
                // later calls of another script would run before it.
                let script = if loaded.insert(call.kinds) {
                    ScriptRef::Text
                } else {
                    ScriptRef::Hash
                };
                pipeline.add_command(self.scripts.command(script, slice::from_ref(call)));
            }
            let mut missed = None;
            let values = self.send_pipeline(&pipeline, calls.len()).await?;
            for (i, value) in values.into_iter().enumerate() {
                match (self.parse(slice::from_ref(&calls[i]), value), missed) {
                    (Err(StoreFailure::NoScript), _) => missed = missed.or(Some(i)),
                    (Err(failure), _) => return Err(failure),
                    // Another client loaded the script in between: the order is broken.
                    (Ok(_), Some(_)) => return Err(StoreFailure::NoScript),
                    (Ok(parsed), None) => replies.extend(parsed),
                }
            }
            calls = missed.map_or(&[], |missed| &calls[missed..]);
        }
        Ok(replies)
    }

    /// Decides one call on the target of a slot migration: it needs `ASKING`, and may not have
    /// the script.
    pub(super) async fn decide_asking(
        &self,
        call: Arc<ScriptCall>,
    ) -> Result<ScriptReply, StoreFailure> {
        let mut pipeline = Pipeline::new();
        pipeline.add_command(redis::cmd("ASKING"));
        let command = self
            .scripts
            .command(ScriptRef::Text, slice::from_ref(&call));
        pipeline.add_command(command);
        let mut values = self.send_pipeline(&pipeline, 2).await?;
        let value = values.pop().ok_or(StoreFailure::InvalidReply)?;
        let mut replies = self.parse(&[call], value)?;
        replies.pop().ok_or(StoreFailure::InvalidReply)
    }

    /// Sends any other command.
    pub(super) async fn command(&self, command: &Cmd) -> Result<Value, StoreFailure> {
        self.sent.fetch_add(1, Ordering::Relaxed);
        let reply = self.connection.clone().send_packed_command(command).await;
        check_value(self.record_reply(reply)?)
    }

    /// Sends other commands in one pipeline.
    pub(super) async fn commands(
        &self,
        commands: impl ExactSizeIterator<Item = Cmd>,
    ) -> Result<Vec<Value>, StoreFailure> {
        let count = commands.len();
        if count == 0 {
            return Ok(Vec::new());
        }
        let mut pipeline = Pipeline::with_capacity(count);
        for command in commands {
            pipeline.add_command(command);
        }
        let values = self.send_pipeline(&pipeline, count).await?;
        values.into_iter().map(check_value).collect()
    }

    /// Runs groups of calls, one script call each. Sends again only what certainly did not run:
    /// the server did not have the script, or the counters of a group, but not those of each of
    /// its calls, are split by a slot migration.
    async fn run(
        &self,
        script: ScriptRef,
        groups: Vec<Vec<Arc<ScriptCall>>>,
    ) -> Vec<Result<ScriptReply, StoreFailure>> {
        let values = self.send_groups(script, &groups).await;
        let mut replies = Vec::new();
        let (mut no_script, mut split) = (Vec::new(), Vec::new());
        for (group, value) in groups.into_iter().zip(values) {
            let start = replies.len();
            match value.and_then(|value| self.parse(&group, value)) {
                Ok(parsed) => replies.extend(parsed.into_iter().map(Ok)),
                Err(failure) => {
                    replies.extend(group.iter().map(|_| Err(failure.clone())));
                    if failure == StoreFailure::NoScript && script == ScriptRef::Hash {
                        no_script.push((start, group));
                    } else if failure == StoreFailure::TryAgain && group.len() > 1 {
                        let singles = group.into_iter().map(|call| vec![call]);
                        split.extend(singles.enumerate().map(|(i, call)| (start + i, call)));
                    }
                }
            }
        }
        for (script, retry) in [(ScriptRef::Text, no_script), (ScriptRef::Hash, split)] {
            if retry.is_empty() {
                continue;
            }
            let (starts, groups): (Vec<usize>, Vec<_>) = retry.into_iter().unzip();
            let lens: Vec<usize> = groups.iter().map(Vec::len).collect();
            let mut retried = Box::pin(self.run(script, groups)).await.into_iter();
            for (start, len) in starts.into_iter().zip(lens) {
                for reply in &mut replies[start..start + len] {
                    *reply = retried.next().unwrap_or(Err(StoreFailure::InvalidReply));
                }
            }
        }
        replies
    }

    async fn send_groups(
        &self,
        script: ScriptRef,
        groups: &[Vec<Arc<ScriptCall>>],
    ) -> Vec<Result<Value, StoreFailure>> {
        if let [group] = groups {
            return vec![self.command(&self.scripts.command(script, group)).await];
        }
        let mut pipeline = Pipeline::with_capacity(groups.len());
        for group in groups {
            pipeline.add_command(self.scripts.command(script, group));
        }
        match self.send_pipeline(&pipeline, groups.len()).await {
            Ok(values) => values.into_iter().map(check_value).collect(),
            Err(failure) => groups.iter().map(|_| Err(failure.clone())).collect(),
        }
    }

    async fn send_pipeline(
        &self,
        pipeline: &Pipeline,
        count: usize,
    ) -> Result<Vec<Value>, StoreFailure> {
        self.sent.fetch_add(1, Ordering::Relaxed);
        let mut connection = self.connection.clone();
        let replies = connection.send_packed_commands(pipeline, 0, count).await;
        let values = self.record_reply(replies)?;
        if values.len() == count {
            Ok(values)
        } else {
            Err(self.invalid_reply())
        }
    }

    fn record_reply<T>(&self, reply: RedisResult<T>) -> Result<T, StoreFailure> {
        let reply = reply.map_err(|error| StoreFailure::from(&error));
        if reply.as_ref().err().is_none_or(StoreFailure::did_not_run) {
            self.received.fetch_add(1, Ordering::Relaxed);
        }
        if let Err(StoreFailure::InvalidReply) = reply {
            self.mark_broken();
        }
        reply
    }

    /// After an invalid reply, the next one may belong to another command: replace the connection.
    fn invalid_reply(&self) -> StoreFailure {
        self.mark_broken();
        StoreFailure::InvalidReply
    }

    fn parse(
        &self,
        calls: &[Arc<ScriptCall>],
        value: Value,
    ) -> Result<Vec<ScriptReply>, StoreFailure> {
        let Value::BulkString(text) = check_value(value)? else {
            return Err(self.invalid_reply());
        };
        parse_replies(calls, &text).ok_or_else(|| self.invalid_reply())
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides a batch and sends each caller its reply.
    async fn send_batch(&self, mut batch: Vec<QueuedCall>) {
        if self.by_slot {
            batch.sort_by_key(|queued| queued.call.slot());
        }
        let (calls, senders): (Vec<_>, Vec<_>) = batch
            .into_iter()
            .map(|queued| (queued.call, queued.reply))
            .unzip();
        let groups = if self.by_slot {
            let same_slot = |a: &Arc<ScriptCall>, b: &Arc<ScriptCall>| a.slot() == b.slot();
            calls.chunk_by(same_slot).map(<[_]>::to_vec).collect()
        } else {
            vec![calls]
        };
        let replies = self.run(ScriptRef::Hash, groups).await;
        for (sender, reply) in senders.into_iter().zip(replies) {
            // An error means that the caller has stopped waiting.
            let _ = sender.send(reply);
        }
    }
}

impl Queue {
    /// Removes the next batch, without callers that have stopped waiting. While another call is
    /// in flight, it holds half of all requests: the server works on one half while this process
    /// handles the other.
    fn next_batch(&mut self) -> Vec<QueuedCall> {
        let waiting = self.waiting.len();
        let share = match self.in_flight_calls {
            MAX_IN_FLIGHT_CALLS.. => {
                (self.in_flight_requests + waiting).div_ceil(MAX_IN_FLIGHT_CALLS)
            }
            _ => waiting,
        };
        let size = share.min(MAX_BATCH);
        let mut batch = Vec::with_capacity(size.min(waiting));
        while batch.len() < size
            && let Some(queued) = self.waiting.pop_front()
        {
            if !queued.reply.is_closed() {
                batch.push(queued);
            }
        }
        batch
    }
}

/// Permission for one call in flight; passes to the queue when it is dropped.
struct SendPermit<'a>(&'a Arc<Connection>);

impl Drop for SendPermit<'_> {
    fn drop(&mut self) {
        let SendPermit(connection) = self;
        let mut queue = connection.queue();
        queue.in_flight_requests -= 1;
        if queue.waiting.is_empty() {
            queue.in_flight_calls -= 1;
            return;
        }
        drop(queue);
        let sender = BatchSender {
            connection: Arc::clone(connection),
            in_flight_requests: 0,
            finished: false,
        };
        // On the store's runtime: the caller's may end before the queue is served.
        connection.runtime.spawn(sender.run());
    }
}

/// Holds a permit and sends batches until the queue is empty.
struct BatchSender {
    connection: Arc<Connection>,
    in_flight_requests: usize,
    finished: bool,
}

impl BatchSender {
    async fn run(mut self) {
        while let Some(batch) = self.next() {
            self.connection.send_batch(batch).await;
            // Callers that were just answered may send again.
            yield_now().await;
        }
    }

    /// Takes the next batch, or gives up the permit under the same lock.
    fn next(&mut self) -> Option<Vec<QueuedCall>> {
        let mut queue = self.connection.queue();
        queue.in_flight_requests -= std::mem::take(&mut self.in_flight_requests);
        let batch = queue.next_batch();
        if batch.is_empty() {
            queue.in_flight_calls -= 1;
            self.finished = true;
            return None;
        }
        self.in_flight_requests = batch.len();
        queue.in_flight_requests += self.in_flight_requests;
        Some(batch)
    }
}

impl Drop for BatchSender {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        // The runtime is shutting down, and the connection with it.
        let mut queue = self.connection.queue();
        queue.in_flight_requests -= self.in_flight_requests;
        queue.in_flight_calls -= 1;
        if queue.in_flight_calls == 0 {
            queue.waiting.clear();
        }
    }
}

fn check_value(value: Value) -> Result<Value, StoreFailure> {
    match value {
        Value::ServerError(error) => Err(StoreFailure::from(&redis::RedisError::from(error))),
        value => Ok(value),
    }
}
