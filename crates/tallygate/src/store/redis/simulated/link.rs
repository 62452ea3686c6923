//! A process' link to a server: the connection, its queue, and its breaker.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::super::batch::{Batch, BatchEntry, CallQueue, Caller};
use super::super::cache::CounterCache;
use super::super::command::{RepeatedCall, ScriptCall, ScriptReply};
use super::super::cross_slot::Part;
use super::super::error::StoreFailure;
use super::super::leases::Target;
use super::super::link::{Backoff, STABLE_AFTER, Silence};
use super::{Body, Message, RequestId};
use crate::store::breaker::Circuit;
use crate::store::lease::{LeaseRequest, LeaseReturn};

/// Who waits for a reply.
#[derive(Clone)]
pub(super) struct Waiting {
    pub(super) purpose: Rc<Purpose>,
    /// Whether a request has been answered meanwhile.
    pub(super) left: Rc<Cell<bool>>,
    /// Whether it was sent again, after the connection had been replaced.
    pub(super) again: bool,
}

pub(super) enum Purpose {
    Request(RequestId),
    Part(RequestId, Part),
    Lease {
        request: LeaseRequest<Target>,
        call: Arc<ScriptCall>,
        sent_us: u64,
    },
    Return(LeaseReturn<Target>, Arc<ScriptCall>),
    Undo(Arc<ScriptCall>),
}

impl Caller for Waiting {
    fn has_left(&self) -> bool {
        self.left.get()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkState {
    Connecting,
    Up,
    Down,
}

pub(super) struct Link {
    pub(super) state: LinkState,
    /// Counts connections: what belongs to an earlier one is ignored.
    pub(super) connection: u32,
    connected_us: u64,
    pub(super) backoff: Backoff,
    pub(super) circuit: Rc<Circuit>,
    queue: CallQueue<Waiting>,
    /// Calls that wait for the connection.
    held: Vec<(Arc<ScriptCall>, Waiting)>,
    /// Batches under way, also of earlier connections.
    sent: BTreeMap<u64, SentBatch>,
    received: u64,
    silence: Silence,
    /// Whether a tick of `silence` is to come.
    pub(super) ticking: bool,
    pub(super) silent: bool,
}

/// What is taken from a queue.
pub(super) struct NextBatch {
    /// `None` if there is nothing to send.
    pub(super) message: Option<Message>,
    pub(super) refused: Vec<(Waiting, ScriptReply)>,
    /// Whether another batch may be in flight.
    pub(super) more: bool,
}

struct SentBatch {
    entries: Vec<BatchEntry<Waiting>>,
    is_full: bool,
    connection: u32,
    requests: usize,
    sent_us: u64,
}

/// A batch whose reply, or failure, is known.
pub(super) struct EndedBatch {
    pub(super) entries: Vec<BatchEntry<Waiting>>,
    pub(super) sent_us: u64,
    /// Whether its connection is the present one, so that the next batch may follow.
    pub(super) is_current: bool,
}

impl Link {
    pub(super) fn new(circuit: Rc<Circuit>) -> Self {
        Link {
            state: LinkState::Up,
            connection: 0,
            connected_us: 0,
            backoff: Backoff::default(),
            circuit,
            queue: CallQueue::default(),
            held: Vec::new(),
            sent: BTreeMap::new(),
            received: 0,
            silence: Silence::new(0),
            ticking: false,
            silent: false,
        }
    }

    /// Queues a call. Returns whether a batch is to be taken from the queue, or the failure.
    pub(super) fn submit(
        &mut self,
        call: &Arc<ScriptCall>,
        waiting: &Waiting,
    ) -> Result<bool, StoreFailure> {
        if self.circuit.is_open() {
            return Err(StoreFailure::BreakerOpen);
        }
        match self.state {
            LinkState::Up => {
                self.queue.push(Arc::clone(call), waiting.clone())?;
                Ok(self.queue.begin_batch())
            }
            LinkState::Connecting => {
                self.held.push((Arc::clone(call), waiting.clone()));
                Ok(false)
            }
            LinkState::Down => Err(StoreFailure::NotConnected("connection refused")),
        }
    }

    /// Takes the next batch, and what the cache refuses.
    pub(super) fn next_batch(
        &mut self,
        cache: Option<(&CounterCache, u64)>,
        batching: bool,
        number: u64,
        now_us: u64,
    ) -> NextBatch {
        let Batch {
            entries,
            is_full,
            refused,
        } = self.queue.next_batch(cache, batching);
        let more = self.queue.begin_full_batch();
        if entries.is_empty() {
            self.queue.end_batches();
            return NextBatch {
                message: None,
                refused,
                more,
            };
        }
        let calls: Vec<RepeatedCall> = entries.iter().map(BatchEntry::repeated).collect();
        let batch = SentBatch {
            requests: entries.iter().map(|entry| entry.callers.len()).sum(),
            entries,
            is_full,
            connection: self.connection,
            sent_us: now_us,
        };
        self.sent.insert(number, batch);
        NextBatch {
            message: Some(self.message(Body::Batch { number, calls })),
            refused,
            more,
        }
    }

    pub(super) fn message(&self, body: Body) -> Message {
        Message {
            connection: self.connection,
            body,
        }
    }

    /// The reply to a batch has been received at some time, or is no longer waited for.
    pub(super) fn end_batch(&mut self, number: u64, replied_us: Option<u64>) -> Option<EndedBatch> {
        let batch = self.sent.remove(&number)?;
        let is_current = batch.connection == self.connection && self.state == LinkState::Up;
        if is_current {
            if let Some(replied_us) = replied_us {
                let round_trip = Duration::from_micros(replied_us.saturating_sub(batch.sent_us));
                self.queue.on_round_trip(batch.is_full, round_trip);
            }
            self.queue.batch_delivered(batch.requests);
        }
        Some(EndedBatch {
            entries: batch.entries,
            sent_us: batch.sent_us,
            is_current,
        })
    }

    /// The batches of the connection that broke.
    pub(super) fn broken_batches(&mut self) -> Vec<EndedBatch> {
        let connection = self.connection;
        let broken = self.sent.iter();
        let broken = broken.filter(|(_, batch)| batch.connection == connection);
        let numbers: Vec<u64> = broken.map(|(number, _)| *number).collect();
        let ended = numbers.into_iter().filter_map(|number| {
            let batch = self.sent.remove(&number)?;
            Some(EndedBatch {
                entries: batch.entries,
                sent_us: batch.sent_us,
                is_current: false,
            })
        });
        ended.collect()
    }

    pub(super) fn has_in_flight(&self) -> bool {
        let mut sent = self.sent.values();
        sent.any(|batch| batch.connection == self.connection)
    }

    pub(super) fn on_received(&mut self) {
        self.received += 1;
    }

    /// A tick while commands are in flight. Returns whether the server is silent.
    pub(super) fn on_silence_tick(&mut self) -> bool {
        self.silence.on_tick(self.received)
    }

    /// The connection is there. Returns the calls that waited for it.
    pub(super) fn on_connected(&mut self, now_us: u64) -> Vec<(Arc<ScriptCall>, Waiting)> {
        self.state = LinkState::Up;
        self.connected_us = now_us;
        self.silent = false;
        self.silence = Silence::new(self.received);
        self.queue = CallQueue::default();
        std::mem::take(&mut self.held)
    }

    /// Leaves the connection. Returns the callers whose calls were not sent.
    pub(super) fn disconnect(&mut self, state: LinkState) -> Vec<Waiting> {
        self.state = state;
        self.connection += 1;
        self.ticking = false;
        let mut unsent: Vec<Waiting> = self.queue.close().collect();
        if state == LinkState::Down {
            let held = std::mem::take(&mut self.held);
            unsent.extend(held.into_iter().map(|(_, waiting)| waiting));
        }
        unsent
    }

    /// Whether the connection has lasted long enough for another attempt at once.
    pub(super) fn is_stable(&self, now_us: u64) -> bool {
        let stable_us = u64::try_from(STABLE_AFTER.as_micros()).unwrap_or(u64::MAX);
        now_us.saturating_sub(self.connected_us) >= stable_us
    }

    /// Whether there is no connection, or the server has stopped replying.
    pub(super) fn is_silent(&self) -> bool {
        self.state != LinkState::Up || self.silent
    }
}
