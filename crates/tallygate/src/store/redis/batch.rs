//! The queue of a connection, and the batches that are taken from it. Equal checks of a batch are
//! coalesced: the server decides them in one step, and their callers get the replies that single
//! calls would have got, in the order they were queued.

mod in_flight;

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use smallvec::{SmallVec, smallvec};
use tokio::sync::oneshot;

use super::cache::{CacheClock, CounterCache};
use super::command::{RepeatedCall, ScriptCall, ScriptReply};
use super::error::StoreFailure;
use in_flight::{InFlightLimit, MIN_IN_FLIGHT};

/// Counters in one batch, unless one request alone has more: bounds the time that one script
/// blocks the server.
const MAX_BATCH_COUNTERS: usize = 128;
/// Requests that may be queued for a server; the next one fails as overloaded.
pub(super) const MAX_QUEUED: usize = 16_384;

pub(super) type CallResult = Result<ScriptReply, StoreFailure>;
pub(super) type ReplySender = oneshot::Sender<CallResult>;

/// Who waits for the reply to a call.
pub(super) trait Caller {
    /// Whether it has stopped waiting.
    fn has_left(&self) -> bool;
}

impl Caller for ReplySender {
    fn has_left(&self) -> bool {
        self.is_closed()
    }
}

/// Performs no I/O and reads no clock.
pub(super) struct CallQueue<C> {
    /// Batches in flight, each with a task that sends the next one after it.
    in_flight: usize,
    limit: InFlightLimit,
    /// Requests in these batches.
    in_flight_requests: usize,
    waiting: VecDeque<QueuedCall<C>>,
    max_waiting: usize,
    /// Whether the connection has been replaced.
    closed: bool,
    coalescer: Coalescer,
}

struct QueuedCall<C> {
    call: Arc<ScriptCall>,
    caller: C,
}

/// Equal calls that are sent as one.
pub(super) struct BatchEntry<C> {
    pub(super) call: Arc<ScriptCall>,
    /// In the order they asked.
    pub(super) callers: SmallVec<[C; 1]>,
}

/// What is taken from a queue.
pub(super) struct Batch<C> {
    pub(super) entries: Vec<BatchEntry<C>>,
    /// Whether it had no room for the next request.
    pub(super) is_full: bool,
    /// Requests that the cache refuses by now. They are not sent.
    pub(super) refused: Vec<(C, ScriptReply)>,
}

impl<C> BatchEntry<C> {
    pub(super) fn repeated(&self) -> RepeatedCall {
        RepeatedCall {
            call: Arc::clone(&self.call),
            times: u16::try_from(self.callers.len()).expect("the queue is shorter"),
        }
    }

    /// Each caller with its reply. The cache has learnt from them before any is answered: what a
    /// caller sends next may be refused by it.
    pub(super) fn replies(
        self,
        reply: CallResult,
        cache: Option<(&CounterCache, CacheClock)>,
    ) -> impl Iterator<Item = (C, CallResult)> + use<C> {
        let call = self.repeated();
        let each = call.replies(reply);
        if let (Some((cache, clock)), Some(Ok(last))) = (cache, each.last()) {
            cache.on_reply(&call.call, call.times, last, clock);
        }
        self.callers.into_iter().zip(each)
    }
}

const _: () = assert!(MAX_QUEUED <= u16::MAX as usize);

impl<C> Default for CallQueue<C> {
    fn default() -> Self {
        CallQueue::new(MAX_QUEUED)
    }
}

impl<C> CallQueue<C> {
    /// A queue for so many requests.
    pub(super) fn new(max_waiting: usize) -> Self {
        CallQueue {
            in_flight: 0,
            limit: InFlightLimit::default(),
            in_flight_requests: 0,
            waiting: VecDeque::new(),
            max_waiting,
            closed: false,
            coalescer: Coalescer::default(),
        }
    }
}

impl<C: Caller> CallQueue<C> {
    pub(super) fn push(&mut self, call: Arc<ScriptCall>, caller: C) -> Result<(), StoreFailure> {
        if self.waiting.len() >= self.max_waiting {
            return Err(StoreFailure::Overloaded);
        }
        self.waiting.push_back(QueuedCall { call, caller });
        Ok(())
    }

    /// How many calls wait to be sent.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether another batch may be in flight; if so, it is counted.
    pub(super) fn begin_batch(&mut self) -> bool {
        let begins = self.in_flight < MIN_IN_FLIGHT;
        self.in_flight += usize::from(begins);
        begins || self.begin_full_batch()
    }

    /// The same if it is a full one. Beyond the least number there are only full ones: small batches
    /// cost the server more.
    pub(super) fn begin_full_batch(&mut self) -> bool {
        let begins = self.has_full_batch() && self.in_flight < self.limit.batches();
        self.in_flight += usize::from(begins);
        begins
    }

    fn has_full_batch(&self) -> bool {
        self.waiting.len() >= MAX_BATCH_COUNTERS
    }

    /// The requests of a batch are no longer in flight; the next batch may follow.
    pub(super) fn batch_delivered(&mut self, requests: usize) {
        self.in_flight_requests -= requests;
    }

    /// The server has replied to a batch after so long.
    pub(super) fn on_round_trip(&mut self, is_full: bool, round_trip: Duration) {
        self.limit.on_reply(is_full, round_trip);
    }

    /// No batch follows the last one of its task.
    pub(super) fn end_batches(&mut self) {
        self.in_flight -= 1;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Sends nothing more. Returns the callers of what was not sent.
    pub(super) fn close(&mut self) -> impl Iterator<Item = C> + use<C> {
        self.closed = true;
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_iter().map(|queued| queued.caller)
    }

    /// Drops what is queued if no task is left to send it.
    pub(super) fn drop_unsent(&mut self) {
        if self.in_flight == 0 {
            self.waiting.clear();
        }
    }

    /// Removes the next batch, without callers that have stopped waiting. While another batch is
    /// in flight, it holds half of all requests: the server works on one half while this process
    /// handles the other. Empty if there is nothing to send, or fewer batches suffice.
    ///
    /// The cache is asked at a time of its clock.
    pub(super) fn next_batch(
        &mut self,
        cache: Option<(&CounterCache, u64)>,
        coalesce: bool,
    ) -> Batch<C> {
        let is_wanted = self.in_flight <= MIN_IN_FLIGHT
            || self.has_full_batch() && self.in_flight <= self.limit.batches();
        let waiting = if is_wanted { self.waiting.len() } else { 0 };
        let share = match self.in_flight {
            _ if !is_wanted => 0,
            MIN_IN_FLIGHT.. => (self.in_flight_requests + waiting).div_ceil(MIN_IN_FLIGHT),
            _ => waiting,
        };
        // A single request has nothing to join.
        let coalesce = coalesce && share.min(waiting) > 1;
        self.coalescer.clear();
        let mut batch = Vec::with_capacity(share.min(waiting).min(MAX_BATCH_COUNTERS));
        let mut refused = Vec::new();
        let (mut counters, mut requests, mut is_full) = (0, 0, false);
        while requests < share
            && let Some(next) = self.waiting.front()
        {
            let joined = match coalesce {
                true => self.coalescer.find(&batch, &next.call),
                false => None,
            };
            let more = if joined.is_some() { 0 } else { next.call.len() };
            if !batch.is_empty() && counters + more > MAX_BATCH_COUNTERS {
                is_full = true;
                break;
            }
            let Some(QueuedCall { call, caller }) = self.waiting.pop_front() else {
                break;
            };
            if caller.has_left() {
                continue;
            }
            let refusal = cache.and_then(|(cache, now_us)| cache.try_reply(&call, now_us));
            if let Some(refusal) = refusal {
                refused.push((caller, refusal));
                continue;
            }
            requests += 1;
            counters += more;
            match joined {
                Some(at) => batch[at].callers.push(caller),
                None => {
                    if coalesce {
                        self.coalescer.insert(&call, batch.len());
                    }
                    let callers = smallvec![caller];
                    batch.push(BatchEntry { call, callers });
                }
            }
        }
        self.in_flight_requests += requests;
        Batch {
            entries: batch,
            is_full,
            refused,
        }
    }
}

/// Finds the last call of a batch for a key.
#[derive(Default)]
struct Coalescer {
    /// Positions in the batch, by the hash of the first key.
    last: HashMap<u64, usize, RandomState>,
}

impl Coalescer {
    fn clear(&mut self) {
        self.last.clear();
    }

    /// The call that an equal one may join: no other call for the same key is between them.
    fn find<C>(&self, batch: &[BatchEntry<C>], call: &ScriptCall) -> Option<usize> {
        let at = *self.last.get(&self.hash(call))?;
        call.equals_check(&batch[at].call).then_some(at)
    }

    fn insert(&mut self, call: &ScriptCall, at: usize) {
        self.last.insert(self.hash(call), at);
    }

    fn hash(&self, call: &ScriptCall) -> u64 {
        let key = call.keys().next().unwrap_or_default();
        self.last.hasher().hash_one(key)
    }
}
