//! One connection to a server, over which batches of requests are sent.
//!
//! Callers put requests in a [queue](CallQueue); tasks on the store's runtime send them. While calls
//! are in flight, further requests queue, and are sent as one batch when a reply arrives: one script
//! call decides many requests. Two batches are in flight, with half of the requests each; on a long
//! link, more full ones. A call that may have run is never sent again.

use std::slice;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult, Value};
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::task::yield_now;

use super::batch::{Batch, BatchEntry, CallQueue, CallResult, ReplySender};
use super::cache::{CacheClock, CounterCache};
use super::command::{RepeatedCall, ScriptCall, ScriptReply, Scripts, parse_replies};
use super::connector::Connector;
use super::error::StoreFailure;

const REPLACED: &str = "the previous connection was replaced";

pub(super) struct Connection {
    connection: MultiplexedConnection,
    scripts: Arc<Scripts>,
    cache: Option<Arc<CounterCache>>,
    runtime: Handle,
    batching: bool,
    /// Whether only requests of one slot may share a script call.
    by_slot: bool,
    queue: Mutex<CallQueue<ReplySender>>,
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

/// What is sent before script calls, in the same pipeline.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Prelude {
    None,
    /// The scripts.
    Load,
    /// The scripts, and `ASKING` for the only call.
    LoadAndAsk,
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
            cache: connector.cache.clone(),
            runtime: connector.runtime.clone(),
            batching: connector.batching,
            by_slot,
            queue: Mutex::new(CallQueue::new(connector.max_queued())),
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
            if queue.is_closed() {
                return Err(StoreFailure::NotConnected(REPLACED));
            }
            let (reply, pending) = oneshot::channel();
            queue.push(call, reply)?;
            if queue.begin_batch() {
                self.spawn_sender();
            }
            pending
        };
        pending.await.unwrap_or(Err(StoreFailure::ConnectionLost))
    }

    fn spawn_sender(self: &Arc<Self>) {
        self.runtime.spawn(BatchSender::new(Arc::clone(self)).run());
    }

    /// Requests that this connection be replaced.
    pub(super) fn mark_broken(&self) {
        self.broken.notify_one();
    }

    /// Waits until the connection has ended or was marked as broken.
    pub(super) async fn wait_broken(&self) {
        self.broken.notified().await;
    }

    /// How many calls wait to be sent.
    pub(super) fn queued_calls(&self) -> usize {
        self.queue().waiting()
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
        let waiting = self.queue().close();
        for reply in waiting {
            let failure = StoreFailure::NotConnected(REPLACED);
            let _ = reply.send(Err(failure));
        }
    }

    /// Decides calls in order, one script call each, in one pipeline.
    ///
    /// # Errors
    /// The first failure; how many of the later calls ran is unknown.
    pub(super) async fn decide_in_order(
        &self,
        calls: &[Arc<ScriptCall>],
    ) -> Result<Vec<ScriptReply>, StoreFailure> {
        let mut replies = Vec::with_capacity(calls.len());
        let calls: Vec<RepeatedCall> = calls.iter().map(RepeatedCall::once).collect();
        let mut calls = &calls[..];
        while !calls.is_empty() {
            // Loaded first: if one script is unknown, later calls of another would run before it.
            let groups: Vec<&[_]> = calls.chunks(1).collect();
            let values = self.send_groups(Prelude::Load, &groups).await;
            let mut missed = None;
            for (i, value) in values.into_iter().enumerate() {
                match (self.parse(groups[i], value?), missed) {
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
        let call = RepeatedCall::once(&call);
        let calls = slice::from_ref(&call);
        let mut values = self.send_groups(Prelude::LoadAndAsk, &[calls]).await;
        let value = values.pop().ok_or(StoreFailure::InvalidReply)??;
        let mut replies = self.parse(calls, value)?;
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
        prelude: Prelude,
        groups: Vec<Vec<RepeatedCall>>,
    ) -> Vec<Result<ScriptReply, StoreFailure>> {
        let values = self.send_groups(prelude, &groups).await;
        let mut replies = Vec::new();
        let (mut no_script, mut split) = (Vec::new(), Vec::new());
        for (group, value) in groups.into_iter().zip(values) {
            let start = replies.len();
            match value.and_then(|value| self.parse(&group, value)) {
                Ok(parsed) => replies.extend(parsed.into_iter().map(Ok)),
                Err(failure) => {
                    replies.extend(group.iter().map(|_| Err(failure.clone())));
                    if failure == StoreFailure::NoScript && prelude == Prelude::None {
                        no_script.push((start, group));
                    } else if failure == StoreFailure::TryAgain && group.len() > 1 {
                        let singles = group.into_iter().map(|call| vec![call]);
                        split.extend(singles.enumerate().map(|(i, call)| (start + i, call)));
                    }
                }
            }
        }
        for (prelude, retry) in [(Prelude::Load, no_script), (Prelude::None, split)] {
            if retry.is_empty() {
                continue;
            }
            let (starts, groups): (Vec<usize>, Vec<_>) = retry.into_iter().unzip();
            let lens: Vec<usize> = groups.iter().map(Vec::len).collect();
            let mut retried = Box::pin(self.run(prelude, groups)).await.into_iter();
            for (start, len) in starts.into_iter().zip(lens) {
                for reply in &mut replies[start..start + len] {
                    *reply = retried.next().unwrap_or(Err(StoreFailure::InvalidReply));
                }
            }
        }
        replies
    }

    /// Sends one script call for each group, in one pipeline.
    async fn send_groups<G: AsRef<[RepeatedCall]>>(
        &self,
        prelude: Prelude,
        groups: &[G],
    ) -> Vec<Result<Value, StoreFailure>> {
        let mut first = match prelude {
            Prelude::None => Vec::new(),
            Prelude::Load | Prelude::LoadAndAsk => self.scripts.load_commands(groups),
        };
        if prelude == Prelude::LoadAndAsk {
            first.push(redis::cmd("ASKING"));
        }
        if let ([group], []) = (groups, &first[..]) {
            let command = self.scripts.command(group.as_ref());
            return vec![self.command(&command).await];
        }
        let preludes = first.len();
        let mut pipeline = Pipeline::with_capacity(preludes + groups.len());
        for command in first {
            pipeline.add_command(command);
        }
        for group in groups {
            pipeline.add_command(self.scripts.command(group.as_ref()));
        }
        match self.send_pipeline(&pipeline, preludes + groups.len()).await {
            Ok(values) => {
                let mut values = values.into_iter().map(check_value);
                let failed = values.by_ref().take(preludes).find_map(Result::err);
                // An unknown script means little if it could not be loaded.
                let explain = |failure| match (failure, &failed) {
                    (StoreFailure::NoScript, Some(failed)) => failed.clone(),
                    (failure, _) => failure,
                };
                values.map(|value| value.map_err(explain)).collect()
            }
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
        calls: &[RepeatedCall],
        value: Value,
    ) -> Result<Vec<ScriptReply>, StoreFailure> {
        let Value::BulkString(text) = check_value(value)? else {
            return Err(self.invalid_reply());
        };
        parse_replies(calls, &text).ok_or_else(|| self.invalid_reply())
    }

    fn queue(&self) -> MutexGuard<'_, CallQueue<ReplySender>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides a batch, and returns each caller with its reply.
    async fn decide_batch(
        &self,
        mut batch: Vec<BatchEntry<ReplySender>>,
        is_full: bool,
    ) -> impl Iterator<Item = (ReplySender, CallResult)> + use<> {
        let groups = self.sort_into_groups(&mut batch);
        let sent_us = self.cache.as_ref().map(|cache| cache.now_us());
        let sent = Instant::now();
        let replies = self.run(Prelude::None, groups).await;
        if replies.iter().all(Result::is_ok) {
            self.queue().on_round_trip(is_full, sent.elapsed());
        }
        let cache = self.cache.as_deref().zip(sent_us).map(|(cache, sent_us)| {
            let received_us = cache.now_us();
            (
                cache,
                CacheClock {
                    sent_us,
                    received_us,
                },
            )
        });
        let mut callers = Vec::with_capacity(batch.len());
        for (entry, reply) in batch.into_iter().zip(replies) {
            callers.extend(entry.replies(reply, cache));
        }
        callers.into_iter()
    }

    /// Sorts a batch into groups that one script call each decides.
    fn sort_into_groups(&self, batch: &mut [BatchEntry<ReplySender>]) -> Vec<Vec<RepeatedCall>> {
        if self.by_slot {
            batch.sort_by_key(|entry| entry.call.slot());
        }
        let mut groups = Vec::new();
        for run in batch.chunk_by_mut(|a, b| self.may_share_script(&a.call, &b.call)) {
            let count = separate_logs(run);
            let (others, logs) = run.split_at(count);
            let parts = [others, logs].into_iter().filter(|part| !part.is_empty());
            groups.extend(parts.map(|part| part.iter().map(BatchEntry::repeated).collect()));
        }
        groups
    }

    /// Whether one script call may decide both.
    fn may_share_script(&self, a: &ScriptCall, b: &ScriptCall) -> bool {
        self.batching
            && a.at_us.is_none()
            && b.at_us.is_none()
            && (!self.by_slot || a.slot() == b.slot())
    }
}

/// So many counters are decided faster apart from a log, in spite of the second script call: they are
/// read by one command, and the script has fewer branches.
const MIN_READ_TOGETHER: usize = 2;

/// Sorts calls without a log before the others, and returns how many there are, if they are worth a
/// script call of their own, which reads all their counters by one command. Otherwise returns 0.
fn separate_logs(calls: &mut [BatchEntry<ReplySender>]) -> usize {
    let reads_values = |entry: &BatchEntry<ReplySender>| entry.call.kinds.reads_values();
    if calls.iter().all(reads_values) {
        return 0;
    }
    let others = calls.iter().filter(|entry| reads_values(entry));
    let (count, counters) = others.fold((0, 0), |(count, counters), entry| {
        (count + 1, counters + entry.call.len())
    });
    if counters < MIN_READ_TOGETHER {
        return 0;
    }
    calls.sort_by_key(|entry| !reads_values(entry));
    count
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
        while let Some((batch, is_full)) = self.next() {
            drop(delivery);
            let replies = connection.decide_batch(batch, is_full).await;
            delivery = connection.delivery.lock().await;
            connection
                .queue()
                .batch_delivered(std::mem::take(&mut self.requests));
            for (caller, reply) in replies {
                // An error means that the caller has stopped waiting.
                let _ = caller.send(reply);
            }
            // Callers that were just answered may send again.
            yield_now().await;
        }
    }

    /// Takes the next batch, or finishes under the same lock.
    fn next(&mut self) -> Option<(Vec<BatchEntry<ReplySender>>, bool)> {
        let connection = &self.connection;
        let cache = connection.cache.as_deref();
        let cache = cache.map(|cache| (cache, cache.now_us()));
        let mut queue = connection.queue();
        let Batch {
            entries,
            is_full,
            refused,
        } = queue.next_batch(cache, connection.batching);
        let more = queue.begin_full_batch();
        if entries.is_empty() {
            queue.end_batches();
            self.finished = true;
        }
        drop(queue);
        if more {
            connection.spawn_sender();
        }
        for (caller, refusal) in refused {
            let _ = caller.send(Ok(refusal));
        }
        if self.finished {
            return None;
        }
        self.requests = entries.iter().map(|entry| entry.callers.len()).sum();
        Some((entries, is_full))
    }
}

impl Drop for BatchSender {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        // The runtime is shutting down, and the connection with it.
        let mut queue = self.connection.queue();
        queue.batch_delivered(self.requests);
        queue.end_batches();
        queue.drop_unsent();
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
