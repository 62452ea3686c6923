//! One connection, and the requests that travel over it together. Knows scripts and calls; knows
//! nothing of other servers, and never sends anything again that may have run.
//!
//! A request that finds the connection idle is sent at once, together with those that are ready
//! at the same moment. While some are under way, the rest gather, and go as soon as an answer is
//! back: one script call decides many. Two calls take turns, with half of all requests each.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult, Value};
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::task::yield_now;

use super::command::{Answer, Call, read_time};
use super::connector::Settings;
use super::error::Trouble;
use super::script::{By, Scripts};

/// How many script calls may be under way before requests gather.
const MOST_SENDING: usize = 2;
/// How many requests travel together at most.
const MOST_TOGETHER: usize = 128;
/// How many requests may wait; the next one is told that the store is overloaded.
const MOST_WAITING: usize = 16_384;

const REPLACED: &str = "the last one was just given up";

/// A connection to one server.
pub(super) struct Lane {
    connection: MultiplexedConnection,
    scripts: Arc<Scripts>,
    runtime: Handle,
    batching: bool,
    /// Whether only requests of one slot may share a script call.
    by_slot: bool,
    queue: Mutex<Queue>,
    /// Notified when the connection has ended, or is no good any more.
    doubt: Arc<Notify>,
    sent: AtomicU64,
    heard: AtomicU64,
}

#[derive(Default)]
struct Queue {
    /// Script calls under way, and the requests in them.
    sending: usize,
    under_way: usize,
    waiting: VecDeque<Waiting>,
    /// Whether the connection has been replaced.
    closed: bool,
}

struct Waiting {
    call: Arc<Call>,
    answer: oneshot::Sender<Result<Answer, Trouble>>,
}

impl Lane {
    pub(super) fn new(
        connection: MultiplexedConnection,
        settings: &Settings,
        by_slot: bool,
        doubt: Arc<Notify>,
    ) -> Self {
        Lane {
            connection,
            scripts: Arc::clone(&settings.scripts),
            runtime: settings.runtime.clone(),
            batching: settings.batching,
            by_slot,
            queue: Mutex::default(),
            doubt,
            sent: AtomicU64::new(0),
            heard: AtomicU64::new(0),
        }
    }

    /// Decides one call, alone or with others.
    pub(super) async fn decide(self: &Arc<Self>, call: Arc<Call>) -> Result<Answer, Trouble> {
        let alone = !self.batching || call.at_us().is_some();
        let most = if alone { MOST_WAITING } else { MOST_SENDING };
        let answer = {
            let mut queue = self.queue();
            if queue.closed {
                return Err(Trouble::Down(REPLACED));
            }
            if queue.sending < most && (alone || queue.waiting.is_empty()) {
                queue.sending += 1;
                queue.under_way += 1;
                None
            } else if !alone && queue.waiting.len() < MOST_WAITING {
                let (answer, receiver) = oneshot::channel();
                queue.waiting.push_back(Waiting {
                    call: Arc::clone(&call),
                    answer,
                });
                Some(receiver)
            } else {
                return Err(Trouble::Overloaded);
            }
        };
        let answer = match answer {
            Some(answer) => answer,
            None => {
                let turn = Turn(self);
                if !alone {
                    // Whoever is ready at this moment comes along; if nobody is, nothing is lost.
                    yield_now().await;
                }
                let joined = if alone { None } else { self.joined(&call) };
                let Some(answer) = joined else {
                    // Boxed: those who wait are moved about, and should be small.
                    return Box::pin(self.alone(call)).await;
                };
                drop(turn);
                answer
            }
        };
        answer.await.unwrap_or(Err(Trouble::Broken))
    }

    /// Puts a call before those who have gathered, if there are any.
    fn joined(&self, call: &Arc<Call>) -> Option<oneshot::Receiver<Result<Answer, Trouble>>> {
        let mut queue = self.queue();
        if queue.waiting.is_empty() {
            return None;
        }
        let (answer, receiver) = oneshot::channel();
        queue.waiting.push_front(Waiting {
            call: Arc::clone(call),
            answer,
        });
        Some(receiver)
    }

    /// Says that the connection is no good any more.
    pub(super) fn doubt(&self) {
        self.doubt.notify_one();
    }

    /// Waits until somebody has said so, or the connection has ended.
    pub(super) async fn doubted(&self) {
        self.doubt.notified().await;
    }

    /// How many commands went out and how many replies came in.
    pub(super) fn traffic(&self) -> (u64, u64) {
        let sent = self.sent.load(Ordering::Relaxed);
        (sent, self.heard.load(Ordering::Relaxed))
    }

    /// Sends nothing more: what still waits goes back, and was not sent.
    pub(super) fn close(&self) {
        let waiting = {
            let mut queue = self.queue();
            queue.closed = true;
            std::mem::take(&mut queue.waiting)
        };
        for each in waiting {
            let _ = each.answer.send(Err(Trouble::Down(REPLACED)));
        }
    }

    async fn alone(&self, call: Arc<Call>) -> Result<Answer, Trouble> {
        let mut answers = self.run(By::Hash, vec![vec![call]]).await;
        answers.pop().unwrap_or(Err(Trouble::Garbled))
    }

    /// Decides calls in their order, each in a script call of its own, many in one go.
    ///
    /// # Errors
    /// The first trouble; how many of the later calls ran is not known then.
    pub(super) async fn in_order(&self, mut calls: &[Arc<Call>]) -> Result<Vec<Answer>, Trouble> {
        let mut answers = Vec::with_capacity(calls.len());
        while !calls.is_empty() {
            let mut pipeline = Pipeline::with_capacity(calls.len());
            let mut brought = HashSet::new();
            for call in calls {
                // The first call of each script brings it along: were it not known there, later
                // calls of another script would overtake it.
                let by = if brought.insert(call.kinds()) {
                    By::Text
                } else {
                    By::Hash
                };
                pipeline.add_command(self.scripts.command(by, std::slice::from_ref(call)));
            }
            let mut lost = None;
            let values = self.send(&pipeline, calls.len()).await?;
            for (i, value) in values.into_iter().enumerate() {
                let one = std::slice::from_ref(&calls[i]);
                match (self.read(one, value), lost) {
                    (Err(Trouble::NoScript), _) => lost = lost.or(Some(i)),
                    (Err(trouble), _) => return Err(trouble),
                    // Somebody else brought the script back in the middle: the order is broken.
                    (Ok(_), Some(_)) => return Err(Trouble::NoScript),
                    (Ok(read), None) => answers.extend(read),
                }
            }
            calls = lost.map_or(&[], |lost| &calls[lost..]);
        }
        Ok(answers)
    }

    /// Decides one call on a server that only has it on its way: it answers to nobody else, and
    /// may not know the script.
    pub(super) async fn asking(&self, call: Arc<Call>) -> Result<Answer, Trouble> {
        let mut pipeline = Pipeline::new();
        pipeline.add_command(redis::cmd("ASKING"));
        pipeline.add_command(self.scripts.command(By::Text, std::slice::from_ref(&call)));
        let mut values = self.send(&pipeline, 2).await?;
        let value = values.pop().ok_or(Trouble::Garbled)?;
        self.read(&[call], value)?.pop().ok_or(Trouble::Garbled)
    }

    /// Asks the server anything else.
    pub(super) async fn command(&self, command: &Cmd) -> Result<Value, Trouble> {
        self.sent.fetch_add(1, Ordering::Relaxed);
        let reply = self.connection.clone().send_packed_command(command).await;
        checked(self.heard(reply)?)
    }

    /// Asks the server several other things in one go.
    pub(super) async fn commands(
        &self,
        commands: impl ExactSizeIterator<Item = Cmd>,
    ) -> Result<Vec<Value>, Trouble> {
        let count = commands.len();
        if count == 0 {
            return Ok(Vec::new());
        }
        let mut pipeline = Pipeline::with_capacity(count);
        for command in commands {
            pipeline.add_command(command);
        }
        let values = self.send(&pipeline, count).await?;
        values.into_iter().map(checked).collect()
    }

    /// Runs groups of calls, each group in one script call, and sends again only those that
    /// certainly did not run: the server did not know the script, or some of a group's counters
    /// are on their way to another server, but not those of each call.
    async fn run(&self, by: By, groups: Vec<Vec<Arc<Call>>>) -> Vec<Result<Answer, Trouble>> {
        let values = self.groups(by, &groups).await;
        let mut answers = Vec::new();
        let (mut lost, mut apart) = (Vec::new(), Vec::new());
        for (group, value) in groups.into_iter().zip(values) {
            let place = answers.len();
            match value.and_then(|value| self.read(&group, value)) {
                Ok(read) => answers.extend(read.into_iter().map(Ok)),
                Err(trouble) => {
                    answers.extend(group.iter().map(|_| Err(trouble.clone())));
                    if trouble == Trouble::NoScript && by == By::Hash {
                        lost.push((place, group));
                    } else if trouble == Trouble::TryAgain && group.len() > 1 {
                        let each = group.into_iter().map(|call| vec![call]);
                        apart.extend(each.enumerate().map(|(i, call)| (place + i, call)));
                    }
                }
            }
        }
        for (by, again) in [(By::Text, lost), (By::Hash, apart)] {
            if again.is_empty() {
                continue;
            }
            let (places, groups): (Vec<usize>, Vec<_>) = again.into_iter().unzip();
            let lens: Vec<usize> = groups.iter().map(Vec::len).collect();
            let mut again = Box::pin(self.run(by, groups)).await.into_iter();
            for (place, len) in places.into_iter().zip(lens) {
                for answer in &mut answers[place..place + len] {
                    *answer = again.next().unwrap_or(Err(Trouble::Garbled));
                }
            }
        }
        answers
    }

    async fn groups(&self, by: By, groups: &[Vec<Arc<Call>>]) -> Vec<Result<Value, Trouble>> {
        if let [group] = groups {
            return vec![self.command(&self.scripts.command(by, group)).await];
        }
        let mut pipeline = Pipeline::with_capacity(groups.len());
        for group in groups {
            pipeline.add_command(self.scripts.command(by, group));
        }
        match self.send(&pipeline, groups.len()).await {
            Ok(values) => values.into_iter().map(checked).collect(),
            Err(trouble) => groups.iter().map(|_| Err(trouble.clone())).collect(),
        }
    }

    async fn send(&self, pipeline: &Pipeline, count: usize) -> Result<Vec<Value>, Trouble> {
        self.sent.fetch_add(1, Ordering::Relaxed);
        let mut connection = self.connection.clone();
        let replies = connection.send_packed_commands(pipeline, 0, count).await;
        let values = self.heard(replies)?;
        if values.len() == count {
            Ok(values)
        } else {
            Err(self.garbled())
        }
    }

    /// Takes note of a reply.
    fn heard<T>(&self, reply: RedisResult<T>) -> Result<T, Trouble> {
        let reply = reply.map_err(|error| Trouble::from(&error));
        if reply.as_ref().err().is_none_or(Trouble::not_run) {
            self.heard.fetch_add(1, Ordering::Relaxed);
        }
        if let Err(Trouble::Garbled) = reply {
            self.doubt();
        }
        reply
    }

    /// After an answer that makes no sense the next one may be to another question.
    fn garbled(&self) -> Trouble {
        self.doubt();
        Trouble::Garbled
    }

    /// Reads the answers to calls that one script decided.
    fn read(&self, calls: &[Arc<Call>], value: Value) -> Result<Vec<Answer>, Trouble> {
        let Value::BulkString(text) = checked(value)? else {
            return Err(self.garbled());
        };
        read(calls, &text).ok_or_else(|| self.garbled())
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves those who gathered, by a right to send that was had already.
    fn take_turns(self: &Arc<Self>) {
        let turns = Turns {
            lane: Arc::clone(self),
            under_way: 0,
            over: false,
        };
        // Not where the caller lives: that may end before those who gathered are served.
        self.runtime.spawn(turns.go_on());
    }

    /// The next requests that still have somebody waiting. While another call is under way, no
    /// more than their fair share: the server decides some while this process sees to the others.
    fn gathered(queue: &mut Queue) -> Vec<Waiting> {
        let waiting = queue.waiting.len();
        let share = match queue.sending {
            MOST_SENDING.. => (queue.under_way + waiting).div_ceil(MOST_SENDING),
            _ => waiting,
        };
        let most = share.min(MOST_TOGETHER);
        let mut together = Vec::with_capacity(most.min(waiting));
        while together.len() < most
            && let Some(waiting) = queue.waiting.pop_front()
        {
            if !waiting.answer.is_closed() {
                together.push(waiting);
            }
        }
        together
    }

    /// Decides together what gathered.
    async fn batch(&self, mut together: Vec<Waiting>) {
        if self.by_slot {
            together.sort_by_key(|waiting| waiting.call.slot());
        }
        let (calls, waiting): (Vec<_>, Vec<_>) = together
            .into_iter()
            .map(|each| (each.call, each.answer))
            .unzip();
        let groups = if self.by_slot {
            let same = |a: &Arc<Call>, b: &Arc<Call>| a.slot() == b.slot();
            calls.chunk_by(same).map(<[_]>::to_vec).collect()
        } else {
            vec![calls]
        };
        for (waiting, answer) in waiting.into_iter().zip(self.run(By::Hash, groups).await) {
            // Whoever has stopped waiting has got an answer elsewhere.
            let _ = waiting.send(answer);
        }
    }
}

/// The right to send; passed on to those who gathered, also when its holder is dropped.
struct Turn<'a>(&'a Arc<Lane>);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let Turn(lane) = self;
        let mut queue = lane.queue();
        queue.under_way -= 1;
        if queue.waiting.is_empty() {
            queue.sending -= 1;
            return;
        }
        drop(queue);
        lane.take_turns();
    }
}

/// The right to send for as long as somebody gathers.
struct Turns {
    lane: Arc<Lane>,
    under_way: usize,
    over: bool,
}

impl Turns {
    async fn go_on(mut self) {
        while let Some(together) = self.next() {
            self.lane.batch(together).await;
            // Those who were answered may well ask again at once.
            yield_now().await;
        }
    }

    /// Those who go next; if there are none, the right is given up in the same moment.
    fn next(&mut self) -> Option<Vec<Waiting>> {
        let mut queue = self.lane.queue();
        queue.under_way -= std::mem::take(&mut self.under_way);
        let together = Lane::gathered(&mut queue);
        if together.is_empty() {
            queue.sending -= 1;
            self.over = true;
            return None;
        }
        self.under_way = together.len();
        queue.under_way += self.under_way;
        Some(together)
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        // The runtime ends, and the connection with it.
        let mut queue = self.lane.queue();
        queue.under_way -= self.under_way;
        queue.sending -= 1;
        if queue.sending == 0 {
            queue.waiting.clear();
        }
    }
}

fn checked(value: Value) -> Result<Value, Trouble> {
    match value {
        Value::ServerError(error) => Err(Trouble::from(&redis::RedisError::from(error))),
        value => Ok(value),
    }
}

/// The answers to calls that one script decided; none if the text is something else.
fn read(calls: &[Arc<Call>], text: &[u8]) -> Option<Vec<Answer>> {
    let (now_us, mut rest) = read_time(text)?;
    let answers = calls.iter().map(|call| call.read(now_us, &mut rest));
    let answers = answers.collect::<Option<Vec<_>>>()?;
    rest.is_empty().then_some(answers)
}
