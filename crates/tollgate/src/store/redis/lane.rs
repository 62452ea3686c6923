//! One connection, and the requests that travel over it together. Knows scripts and calls; knows
//! nothing of other servers, and never sends anything again that may have run.
//!
//! A request that finds the connection idle is sent at once. While some are under way, the rest
//! gather, and go together as soon as an answer is back: one script call decides them all.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, Value};
use tokio::sync::oneshot;

use super::call::{Answer, Call, read_time};
use super::error::Trouble;
use super::script::{By, Scripts};

/// How many script calls may be under way before requests gather.
const MOST_SENDING: usize = 2;
/// How many requests travel together at most.
const MOST_TOGETHER: usize = 128;
/// How many requests may wait; the next one is told that the store is overloaded.
const MOST_WAITING: usize = 16_384;

/// A connection to one server.
pub(super) struct Lane {
    connection: MultiplexedConnection,
    scripts: Arc<Scripts>,
    batching: bool,
    /// Whether only requests of one slot may share a script call.
    by_slot: bool,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    sending: usize,
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    call: Arc<Call>,
    answer: oneshot::Sender<Result<Answer, Trouble>>,
}

impl Lane {
    pub(super) fn new(
        connection: MultiplexedConnection,
        scripts: Arc<Scripts>,
        batching: bool,
        by_slot: bool,
    ) -> Self {
        Lane {
            connection,
            scripts,
            batching,
            by_slot,
            queue: Mutex::default(),
        }
    }

    /// Decides one call, alone or with others.
    pub(super) async fn decide(self: &Arc<Self>, call: Arc<Call>) -> Result<Answer, Trouble> {
        if !self.batching || call.at_us().is_some() {
            return self.alone(call).await;
        }
        let answer = {
            let mut queue = self.queue();
            if queue.sending < MOST_SENDING && queue.waiting.is_empty() {
                queue.sending += 1;
                None
            } else if queue.waiting.len() < MOST_WAITING {
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
        match answer {
            Some(answer) => answer.await.unwrap_or(Err(Trouble::Broken)),
            None => {
                let _turn = Turn(self);
                self.alone(call).await
            }
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
        let mut by = By::Hash;
        while !calls.is_empty() {
            let mut pipeline = Pipeline::with_capacity(calls.len());
            for call in calls {
                // The first one brings the script along if it was lost.
                let by = std::mem::replace(&mut by, By::Hash);
                pipeline.add_command(self.scripts.command(by, std::slice::from_ref(call)));
            }
            let mut lost = None;
            for (i, value) in self
                .send(&pipeline, calls.len())
                .await?
                .into_iter()
                .enumerate()
            {
                let one = std::slice::from_ref(&calls[i]);
                match (read(one, value), lost) {
                    (Err(Trouble::NoScript), _) => lost = lost.or(Some(i)),
                    (Err(trouble), _) => return Err(trouble),
                    // Somebody else brought the script back in the middle: the order is broken.
                    (Ok(_), Some(_)) => return Err(Trouble::NoScript),
                    (Ok(read), None) => {
                        for answer in read {
                            answers.push(answer?);
                        }
                    }
                }
            }
            calls = lost.map_or(&[], |lost| &calls[lost..]);
            by = By::Text;
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
        read(&[call], value)?.pop().unwrap_or(Err(Trouble::Garbled))
    }

    /// Asks the server anything else.
    pub(super) async fn command(&self, command: &Cmd) -> Result<Value, Trouble> {
        let sent = self.connection.clone().send_packed_command(command).await;
        checked(sent.map_err(|error| Trouble::from(&error))?)
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
    /// certainly did not run because the server did not know the script.
    async fn run(&self, by: By, groups: Vec<Vec<Arc<Call>>>) -> Vec<Result<Answer, Trouble>> {
        let values = self.groups(by, &groups).await;
        let mut answers = Vec::new();
        let mut lost = Vec::new();
        for (group, value) in groups.into_iter().zip(values) {
            match value.and_then(|value| read(&group, value)) {
                Ok(read) => answers.extend(read),
                Err(Trouble::NoScript) if by == By::Hash => {
                    lost.push((answers.len(), group.clone()));
                    answers.extend(group.iter().map(|_| Err(Trouble::NoScript)));
                }
                Err(trouble) => answers.extend(group.iter().map(|_| Err(trouble.clone()))),
            }
        }
        if !lost.is_empty() {
            let (places, groups): (Vec<usize>, Vec<_>) = lost.into_iter().unzip();
            let lens: Vec<usize> = groups.iter().map(Vec::len).collect();
            let mut again = Box::pin(self.run(By::Text, groups)).await.into_iter();
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
        let mut connection = self.connection.clone();
        let sent = connection.send_packed_commands(pipeline, 0, count).await;
        let values = sent.map_err(|error| Trouble::from(&error))?;
        if values.len() == count {
            Ok(values)
        } else {
            Err(Trouble::Garbled)
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next requests that still have somebody waiting; none gives the turn up.
    fn gathered(&self) -> Option<Vec<Waiting>> {
        let mut queue = self.queue();
        let mut together = Vec::new();
        while together.len() < MOST_TOGETHER
            && let Some(waiting) = queue.waiting.pop_front()
        {
            if !waiting.answer.is_closed() {
                together.push(waiting);
            }
        }
        if together.is_empty() {
            queue.sending -= 1;
            return None;
        }
        Some(together)
    }

    async fn go_on(self: Arc<Self>) {
        while let Some(mut together) = self.gathered() {
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
}

/// The right to send; passed on to those who gathered, also when its holder is dropped.
struct Turn<'a>(&'a Arc<Lane>);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let Turn(lane) = self;
        let mut queue = lane.queue();
        if queue.waiting.is_empty() {
            queue.sending -= 1;
            return;
        }
        drop(queue);
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(Arc::clone(lane).go_on())),
            // The runtime is gone, and with it whoever waited.
            Err(_) => lane.queue().waiting.clear(),
        }
    }
}

fn checked(value: Value) -> Result<Value, Trouble> {
    match value {
        Value::ServerError(error) => Err(Trouble::from(&redis::RedisError::from(error))),
        value => Ok(value),
    }
}

/// Reads the answers to calls that one script decided.
fn read(calls: &[Arc<Call>], value: Value) -> Result<Vec<Result<Answer, Trouble>>, Trouble> {
    let Value::BulkString(text) = checked(value)? else {
        return Err(Trouble::Garbled);
    };
    let (now_us, mut rest) = read_time(&text)?;
    let answers = calls
        .iter()
        .map(|call| call.read(now_us, &mut rest))
        .collect();
    if rest.is_empty() {
        Ok(answers)
    } else {
        Err(Trouble::Garbled)
    }
}
