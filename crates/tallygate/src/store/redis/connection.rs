//! One connection to a server, and the batches of requests sent over it.
//!
//! Callers put requests in a queue; tasks on the store's runtime send them. While calls are in
//! flight, further requests queue, and are sent as one batch when a reply arrives: one script call
//! decides many requests. Up to two batches are in flight, with half of the requests each. A call
//! that may have run is never sent again.

use std::collections::{HashSet, VecDeque};
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult, Value};
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::task::yield_now;

use super::cache::CounterCache;
use super::command::{ScriptCall, ScriptRef, ScriptReply, Scripts, parse_replies};
use super::connector::Connector;
use super::error::StoreFailure;

/// Batches in flight before requests queue.
const MAX_IN_FLIGHT: usize = 2;
/// Counters in one batch, unless one request alone has more: bounds the time that one script
/// blocks the server.
const MAX_BATCH_COUNTERS: usize = 128;
/// Queued requests; the next one fails as overloaded.
const MAX_QUEUED: usize = 16_384;

const REPLACED: &str = "the previous connection was replaced";

pub(super) struct Connection {
    connection: MultiplexedConnection,
    scripts: Arc<Scripts>,
    cache: Option<Arc<CounterCache>>,
    runtime: Handle,
    batching: bool,
    /// Whether only requests of one slot may share a script call.
    by_slot: bool,
    queue: Mutex<Queue>,
    /// Held from the delivery of a batch's replies until the next batch is sent. If the replies of
    /// both batches arrive together, the server works on the next batch of the first while the
    /// second is delivered. Otherwise it would wait for both, again and again.
    delivery: tokio::sync::Mutex<()>,
    /// Notified when the connection has ended or must be replaced.
    broken: Arc<Notify>,
    /// Commands whose replies are awaited.
    in_flight: AtomicUsize,
    /// Notified when a command is sent.
    sent: Notify,
    received: AtomicU64,
    silent: AtomicBool,
}

#[derive(Default)]
struct Queue {
    /// Batches in flight, each with a [`BatchSender`].
    in_flight: usize,
    /// Requests in these batches.
    in_flight_requests: usize,
    waiting: VecDeque<QueuedCall>,
    /// Whether the connection has been replaced.
    closed: bool,
}

struct QueuedCall {
    call: Arc<ScriptCall>,
    reply: ReplySender,
}

type CallResult = Result<ScriptReply, StoreFailure>;
type ReplySender = oneshot::Sender<CallResult>;

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
            cache: connector.cache.clone(),
            runtime: connector.runtime.clone(),
            batching: connector.batching,
            by_slot,
            queue: Mutex::default(),
            delivery: tokio::sync::Mutex::default(),
            broken,
            in_flight: AtomicUsize::new(0),
            sent: Notify::new(),
            received: AtomicU64::new(0),
            silent: AtomicBool::new(false),
        }
    }

    /// Queues a call and waits for its reply.
    pub(super) async fn decide(
        self: &Arc<Self>,
        call: Arc<ScriptCall>,
    ) -> Result<ScriptReply, StoreFailure> {
        let pending = {
            let mut queue = self.queue();
            if queue.closed {
                return Err(StoreFailure::NotConnected(REPLACED));
            }
            if queue.waiting.len() >= MAX_QUEUED {
                return Err(StoreFailure::Overloaded);
            }
            let (reply, pending) = oneshot::channel();
            queue.waiting.push_back(QueuedCall { call, reply });
            if queue.in_flight < MAX_IN_FLIGHT {
                queue.in_flight += 1;
                self.runtime.spawn(BatchSender::new(Arc::clone(self)).run());
            }
            pending
        };
        pending.await.unwrap_or(Err(StoreFailure::ConnectionLost))
    }

    /// Requests that this connection be replaced.
    pub(super) fn mark_broken(&self) {
        self.broken.notify_one();
    }

    /// Waits until the connection has ended or was marked as broken.
    pub(super) async fn wait_broken(&self) {
        self.broken.notified().await;
    }

    /// Waits until a command is in flight.
    pub(super) async fn wait_in_flight(&self) {
        while self.in_flight.load(Ordering::Relaxed) == 0 {
            self.sent.notified().await;
        }
    }

    /// The number of replies received.
    pub(super) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Whether commands are in flight and the server has stopped replying.
    pub(super) fn is_silent(&self) -> bool {
        self.silent.load(Ordering::Relaxed)
    }

    pub(super) fn set_silent(&self, silent: bool) {
        self.silent.store(silent, Ordering::Relaxed);
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
        let _in_flight = InFlight::new(self);
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
        let _in_flight = InFlight::new(self);
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

    /// Decides a batch, and returns each caller with its reply.
    async fn decide_batch(
        &self,
        mut batch: Vec<QueuedCall>,
    ) -> impl Iterator<Item = (ReplySender, CallResult)> + use<> {
        if self.by_slot {
            batch.sort_by_key(|queued| queued.call.slot());
        }
        let (calls, senders): (Vec<_>, Vec<_>) = batch
            .into_iter()
            .map(|queued| (queued.call, queued.reply))
            .unzip();
        let groups = calls.chunk_by(|a, b| self.share_script(a, b));
        let groups = groups.map(<[_]>::to_vec).collect();
        let sent_us = self.cache.as_ref().map(|cache| cache.now_us());
        let replies = self.run(ScriptRef::Hash, groups).await;
        if let (Some(cache), Some(sent_us)) = (&self.cache, sent_us) {
            // Before any caller is answered: what it sends next may be refused by the cache.
            for (call, reply) in calls.iter().zip(&replies) {
                if let Ok(reply) = reply {
                    cache.on_reply(call, reply, sent_us);
                }
            }
        }
        senders.into_iter().zip(replies)
    }

    /// Whether one script call may decide both.
    fn share_script(&self, a: &ScriptCall, b: &ScriptCall) -> bool {
        self.batching
            && a.at_us.is_none()
            && b.at_us.is_none()
            && (!self.by_slot || a.slot() == b.slot())
    }
}

impl Queue {
    /// Removes the next batch, without callers that have stopped waiting. While another batch is
    /// in flight, it holds half of all requests: the server works on one half while this process
    /// handles the other.
    ///
    /// Requests that the cache can refuse by now are answered and not sent.
    fn next_batch(&mut self, cache: Option<&CounterCache>) -> Vec<QueuedCall> {
        let waiting = self.waiting.len();
        let share = match self.in_flight {
            MAX_IN_FLIGHT.. => (self.in_flight_requests + waiting).div_ceil(MAX_IN_FLIGHT),
            _ => waiting,
        };
        let mut batch = Vec::with_capacity(share.min(waiting).min(MAX_BATCH_COUNTERS));
        let mut counters = 0;
        while batch.len() < share
            && let Some(next) = self.waiting.front()
            && (batch.is_empty() || counters + next.call.len() <= MAX_BATCH_COUNTERS)
            && let Some(queued) = self.waiting.pop_front()
        {
            if queued.reply.is_closed() {
                continue;
            }
            if let Some(refusal) = cache.and_then(|cache| cache.try_reply(&queued.call)) {
                let _ = queued.reply.send(Ok(refusal));
                continue;
            }
            counters += queued.call.len();
            batch.push(queued);
        }
        batch
    }
}

/// Sends batches until the queue is empty.
struct BatchSender {
    connection: Arc<Connection>,
    /// The requests of the batch in flight.
    requests: usize,
    finished: bool,
}

impl BatchSender {
    fn new(connection: Arc<Connection>) -> Self {
        BatchSender {
            connection,
            requests: 0,
            finished: false,
        }
    }

    async fn run(mut self) {
        let connection = Arc::clone(&self.connection);
        let mut delivery = connection.delivery.lock().await;
        while let Some(batch) = self.next() {
            drop(delivery);
            let replies = connection.decide_batch(batch).await;
            delivery = connection.delivery.lock().await;
            connection.queue().in_flight_requests -= std::mem::take(&mut self.requests);
            for (caller, reply) in replies {
                // An error means that the caller has stopped waiting.
                let _ = caller.send(reply);
            }
            // Callers that were just answered may send again.
            yield_now().await;
        }
    }

    /// Takes the next batch, or finishes under the same lock.
    fn next(&mut self) -> Option<Vec<QueuedCall>> {
        let mut queue = self.connection.queue();
        let batch = queue.next_batch(self.connection.cache.as_deref());
        if batch.is_empty() {
            queue.in_flight -= 1;
            self.finished = true;
            return None;
        }
        self.requests = batch.len();
        queue.in_flight_requests += self.requests;
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
        queue.in_flight_requests -= self.requests;
        queue.in_flight -= 1;
        if queue.in_flight == 0 {
            queue.waiting.clear();
        }
    }
}

/// Counts a command as in flight until dropped.
struct InFlight<'a>(&'a Connection);

impl<'a> InFlight<'a> {
    fn new(connection: &'a Connection) -> Self {
        if connection.in_flight.fetch_add(1, Ordering::Relaxed) == 0 {
            connection.sent.notify_one();
        }
        InFlight(connection)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

fn check_value(value: Value) -> Result<Value, StoreFailure> {
    match value {
        Value::ServerError(error) => Err(StoreFailure::from(&redis::RedisError::from(error))),
        value => Ok(value),
    }
}
