//! Script calls: a request, or a part of one, as the command that is sent, and the reply to it.

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::iter;
use std::sync::{Arc, LazyLock, OnceLock};

use redis::{Cmd, Script};
use smallvec::{SmallVec, smallvec};
use tallygate_core::lua::{self, Kinds, NamedCaller, Operation};
use tallygate_core::{
    Caller, FoundState, Quota, Reservation, Room, State, Verb, Weight, evaluate_found, next_check,
};

use super::cache::CounterCache;
use super::error::StoreFailure;
use super::keys::{self, Keyspace};
use crate::decision::{Decision, TakenAt};
use crate::request::{Member, Request, RequestEntry};
use crate::store::refusal_cache::RefusalCache;

/// One atomic operation on some counters.
#[derive(Debug)]
pub(super) struct ScriptCall {
    pub(super) counters: SmallVec<[Counter; 1]>,
    pub(super) kinds: Kinds,
    pub(super) operation: Operation,
    /// The time to decide at, instead of the server's.
    pub(super) at_us: Option<u64>,
    /// The verb, if the refusal cache may answer the call.
    pub(super) cached_verb: Option<Verb>,
    slot: OnceLock<u16>,
}

#[derive(Clone, Debug)]
pub(super) struct Counter {
    pub(super) key: Vec<u8>,
    pub(super) quota: Quota,
    pub(super) cost: u32,
    /// Identifies it in the refusal cache; 0 without one.
    pub(super) id: u64,
    /// Most limits need none.
    caller: Option<Box<StoredCaller>>,
    argument: Vec<u8>,
}

/// Who asks, as it is stored.
#[derive(Clone, Debug)]
struct StoredCaller {
    member: Box<[u8]>,
    weight: Weight,
    has_place: bool,
    owner: Box<[u8]>,
    /// The key of the reservation.
    reservation: Option<Box<[u8]>>,
}

impl StoredCaller {
    /// `None` if the limit does not tell callers apart and remembers nothing.
    fn from_entry<'r>(
        keyspace: &Keyspace,
        request: &Request<'r>,
        entry: &RequestEntry<'r>,
        counter: &[u8],
    ) -> Option<Box<Self>> {
        let algorithm = entry.limit.quota().algorithm();
        let remembers = request.requested_verb().needs_id();
        let id = request.requested_id().filter(|_| remembers);
        if !algorithm.is_shared() && !algorithm.is_concurrent() && id.is_none() {
            return None;
        }
        let member = request.member_of(entry);
        Some(Box::new(StoredCaller {
            member: keyspace.name(member.map(Member::name)),
            weight: member.map_or(Weight::ONE, Member::own_weight),
            has_place: member.is_some_and(Member::is_pinned),
            owner: keyspace.name(request.requested_owner()),
            reservation: id.map(|id| keyspace.reservation_key(counter, id)),
        }))
    }

    fn named(&self) -> NamedCaller<'_> {
        NamedCaller {
            member: &self.member,
            weight: self.weight,
            has_place: self.has_place,
            owner: &self.owner,
        }
    }

    /// For the core, to which a script's result shows only this caller.
    fn nameless(&self) -> Caller {
        let room = match self.has_place {
            true => Room::Always,
            false => Room::Bounded,
        };
        Caller {
            weight: self.weight,
            room,
            ..Caller::NONE
        }
    }
}

impl Counter {
    pub(super) fn new(key: Vec<u8>, quota: Quota, cost: u32, id: u64) -> Self {
        Counter {
            key,
            quota,
            cost,
            id,
            caller: None,
            argument: Vec::new(),
        }
    }

    /// The counter of an entry, with who asks.
    pub(super) fn from_entry<'r>(
        keyspace: &Keyspace,
        request: &Request<'r>,
        entry: &RequestEntry<'r>,
        cost: u32,
        cache: Option<&CounterCache>,
    ) -> Self {
        let key = keyspace.counter_key(&entry.key, entry.limit);
        let id = cache.map_or(0, |cache| cache.id(entry));
        let caller = StoredCaller::from_entry(keyspace, request, entry, &key);
        Counter {
            caller,
            ..Counter::new(key, *entry.limit.quota(), cost, id)
        }
    }

    pub(super) fn with_cost(&self, cost: u32) -> Self {
        Counter {
            caller: self.caller.clone(),
            ..Counter::new(self.key.clone(), self.quota, cost, self.id)
        }
    }

    fn write_argument(&self, out: &mut Vec<u8>, operation: Operation, more: bool) {
        let caller = self.caller.as_deref().map(StoredCaller::named);
        let caller = caller.unwrap_or_default();
        lua::write_argument(out, &self.quota, operation, &caller, self.cost, more);
    }

    /// The keys that a script needs besides the counter's own.
    fn further_keys(&self, operation: Operation) -> impl Iterator<Item = Vec<u8>> + use<'_> {
        let suffixes = lua::key_suffixes(&self.quota).iter();
        let own = suffixes.map(|suffix| [&self.key, suffix.as_bytes()].concat());
        let reservation = self.caller.as_deref().and_then(|caller| {
            let has_one = operation.has_reservation(&self.quota);
            caller.reservation.as_deref().filter(|_| has_one)
        });
        own.chain(reservation.map(<[u8]>::to_vec))
    }
}

/// The states before the decision, in the call's order, each with the time of the decision by the
/// server's clock.
#[derive(Clone, Debug)]
pub(super) struct ScriptReply {
    states: SmallVec<[(State, u64); 1]>,
    /// Of each counter; empty if there are none.
    reservations: Vec<Option<Reservation>>,
}

impl ScriptReply {
    pub(super) fn new(states: SmallVec<[(State, u64); 1]>) -> Self {
        ScriptReply {
            states,
            reservations: Vec::new(),
        }
    }

    pub(super) fn states(&self) -> &[(State, u64)] {
        &self.states
    }
}

impl ScriptCall {
    pub(super) fn from_request(
        keyspace: &Keyspace,
        request: &Request<'_>,
        at_us: Option<u64>,
        cache: Option<&CounterCache>,
    ) -> Self {
        let verb = request.requested_verb();
        let counters = request.entries().iter();
        let counters = counters
            .map(|entry| Counter::from_entry(keyspace, request, entry, entry.cost(), cache));
        // Without an id nothing is remembered, and nothing found.
        let operation = match (verb, request.requested_id()) {
            (Verb::Reserve, None) => Verb::Check,
            (Verb::Settle, None) => Verb::Peek,
            (verb, _) => verb,
        };
        let mut call = Self::new(counters, Operation::Verb(operation), at_us);
        if cache.is_some() && at_us.is_none() && !call.has_callers() {
            call.cached_verb = Some(verb).filter(|verb| RefusalCache::applies_to(*verb));
        }
        call
    }

    pub(super) fn new(
        counters: impl ExactSizeIterator<Item = Counter>,
        operation: Operation,
        at_us: Option<u64>,
    ) -> Self {
        let last = counters.len().saturating_sub(1);
        let mut kinds = Kinds::default();
        let counters = counters.enumerate().map(|(i, mut counter)| {
            let mut argument = Vec::with_capacity(48);
            counter.write_argument(&mut argument, operation, i < last);
            counter.argument = argument;
            kinds = kinds.union(Kinds::new(&counter.quota, operation));
            counter
        });
        ScriptCall {
            counters: counters.collect(),
            kinds,
            operation,
            at_us,
            cached_verb: None,
            slot: OnceLock::new(),
        }
    }

    /// The same operation on one of the counters, with another cost.
    pub(super) fn single(
        counter: &Counter,
        cost: u32,
        operation: Operation,
        at: Option<u64>,
    ) -> Self {
        let counter = counter.with_cost(cost);
        Self::new(std::iter::once(counter), operation, at)
    }

    /// Whether a limit tells callers apart, or remembers reservations. Nothing decides such a call but
    /// the script, for this call alone.
    fn has_callers(&self) -> bool {
        self.kinds.has_further_keys()
    }

    /// Whether both are the same check, which may be decided in one step.
    pub(super) fn equals_check(&self, other: &Self) -> bool {
        let is_check = |call: &Self| {
            let is_check = call.operation == Operation::Verb(Verb::Check);
            is_check && call.at_us.is_none() && !call.has_callers()
        };
        let same = |(a, b): (&Counter, &Counter)| a.key == b.key && a.argument == b.argument;
        is_check(self)
            && is_check(other)
            && self.len() == other.len()
            && self.counters.iter().zip(&other.counters).all(same)
    }

    /// Derives the script's decision from the states it found.
    pub(super) fn decision(&self, verb: Verb, reply: ScriptReply) -> Decision {
        let mut found: SmallVec<[FoundState<'_>; 1]> = self.found(reply).collect();
        let times: SmallVec<[u64; 1]> = found.iter().map(|found| found.taken_us(verb)).collect();
        Decision::new(evaluate_found(&mut found, verb), self.taken_at(&times))
    }

    pub(super) fn taken_at(&self, times_us: &[u64]) -> TakenAt {
        TakenAt::new(times_us, |i| counter_id(&self.counters[i].key))
    }

    /// The same for the counters at some positions.
    pub(super) fn taken_at_positions(&self, positions: &[usize], times_us: &[u64]) -> TakenAt {
        TakenAt::new(times_us, |i| counter_id(&self.counters[positions[i]].key))
    }

    /// The counters as the script found them.
    pub(super) fn found(&self, reply: ScriptReply) -> impl Iterator<Item = FoundState<'_>> {
        let reservations = reply.reservations.into_iter().chain(iter::repeat(None));
        let counters = self.counters.iter().zip(reply.states).zip(reservations);
        counters.map(|((counter, (state, now_us)), reservation)| {
            let caller = counter.caller.as_deref().map(StoredCaller::nameless);
            FoundState {
                caller: caller.unwrap_or_default(),
                reservation,
                ..FoundState::new(&counter.quota, state, counter.cost, now_us)
            }
        })
    }

    pub(super) fn len(&self) -> usize {
        self.counters.len()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.counters.iter().map(|counter| &*counter.key)
    }

    pub(super) fn first_key(&self) -> &[u8] {
        self.keys().next().unwrap_or_default()
    }

    /// The slot of its first counter; all counters of a call share it. Computed once: batches are
    /// sorted by it.
    pub(super) fn slot(&self) -> u16 {
        *self.slot.get_or_init(|| keys::slot(self.first_key()))
    }

    /// Parses this call's states from the front of a script's reply.
    fn parse(&self, now_us: u64, text: &mut &[u8]) -> Option<ScriptReply> {
        let mut reply = ScriptReply::new(SmallVec::with_capacity(self.len()));
        let remembers = matches!(self.operation, Operation::Verb(verb) if verb.needs_id());
        for counter in &self.counters {
            let (state, found) = lua::read_found(&counter.quota, self.operation, text)?;
            reply.states.push((state, now_us));
            if remembers {
                reply.reservations.push(found);
            }
        }
        Some(reply)
    }
}

/// The same check by several callers, or any call by one.
#[derive(Clone, Debug)]
pub(super) struct RepeatedCall {
    pub(super) call: Arc<ScriptCall>,
    /// At least 1.
    pub(super) times: u16,
}

impl RepeatedCall {
    pub(super) fn once(call: &Arc<ScriptCall>) -> Self {
        RepeatedCall {
            call: Arc::clone(call),
            times: 1,
        }
    }

    /// The replies to its callers, as if each call had been sent alone.
    pub(super) fn replies(
        &self,
        reply: Result<ScriptReply, StoreFailure>,
    ) -> SmallVec<[Result<ScriptReply, StoreFailure>; 1]> {
        let times = usize::from(self.times);
        let mut next = match reply {
            Ok(next) if times > 1 => next,
            other => return smallvec![other; times],
        };
        let mut found: SmallVec<[FoundState<'_>; 1]> = self.call.found(next.clone()).collect();
        let mut replies = SmallVec::with_capacity(times);
        let mut admitted = true;
        while replies.len() + 1 < times {
            replies.push(Ok(next.clone()));
            if admitted {
                admitted = next_check(&mut found);
                let states = found
                    .iter()
                    .map(|found| (found.state.clone(), found.now_us));
                next = ScriptReply::new(states.collect());
            }
        }
        replies.push(Ok(next));
        replies
    }

    /// The arguments of its limits.
    fn arguments(&self) -> impl Iterator<Item = Cow<'_, [u8]>> {
        let last = self.call.len().saturating_sub(1);
        let counters = self.call.counters.iter().enumerate();
        counters.map(move |(i, counter)| match self.times {
            1 => Cow::Borrowed(&*counter.argument),
            times => {
                let operation = Operation::RepeatedCheck { times };
                let mut argument = Vec::with_capacity(64);
                counter.write_argument(&mut argument, operation, i < last);
                Cow::Owned(argument)
            }
        })
    }
}

/// Identifies a counter in a decision, without revealing its key.
pub(super) fn counter_id(key: &[u8]) -> u64 {
    static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    HASHER.hash_one(key)
}

/// Parses the reply to calls that one script decided.
pub(super) fn parse_replies(calls: &[RepeatedCall], text: &[u8]) -> Option<Vec<ScriptReply>> {
    let mut parts = text.splitn(3, |&byte| byte == b' ');
    let mut number = || str::from_utf8(parts.next()?).ok()?.parse::<u64>().ok();
    let (seconds, micros) = (number()?, number()?);
    let now_us = seconds.checked_mul(1_000_000)?.checked_add(micros)?;
    let mut rest = parts.next()?;
    let replies = calls
        .iter()
        .map(|repeated| repeated.call.parse(now_us, &mut rest));
    let replies = replies.collect::<Option<Vec<_>>>()?;
    rest.is_empty().then_some(replies)
}

/// The scripts: one for each combination of algorithms, built when first used.
pub(super) struct Scripts {
    built: [OnceLock<BuiltScript>; Kinds::COUNT],
}

impl Default for Scripts {
    fn default() -> Self {
        Scripts {
            built: [const { OnceLock::new() }; Kinds::COUNT],
        }
    }
}

struct BuiltScript {
    text: String,
    hash: String,
}

impl Scripts {
    fn get(&self, kinds: Kinds) -> &BuiltScript {
        self.built[kinds.index()].get_or_init(|| {
            let text = lua::script(kinds);
            let hash = Script::new(&text).get_hash().to_owned();
            BuiltScript { text, hash }
        })
    }

    /// Builds the commands that load the scripts of some groups of calls.
    ///
    /// `SCRIPT LOAD` and not `EVAL`: Redis 7.4 and later evict scripts that came by `EVAL`.
    pub(super) fn load_commands<G: AsRef<[RepeatedCall]>>(&self, groups: &[G]) -> Vec<Cmd> {
        let kinds = groups.iter().map(|group| all_kinds(group.as_ref()));
        let mut kinds: Vec<Kinds> = kinds.collect();
        kinds.sort_unstable_by_key(|kinds| kinds.index());
        kinds.dedup();
        let load = |kinds| {
            redis::cmd("SCRIPT")
                .arg("LOAD")
                .arg(&self.get(kinds).text)
                .take()
        };
        kinds.into_iter().map(load).collect()
    }

    /// Builds the command that decides these calls, all at the time of the first.
    pub(super) fn command(&self, calls: &[RepeatedCall]) -> Cmd {
        let kinds = all_kinds(calls);
        let built = self.get(kinds);
        let further = match kinds.has_further_keys() {
            true => further_keys(calls),
            false => Vec::new(),
        };
        let counters: usize = calls.iter().map(|repeated| repeated.call.len()).sum();
        let keys = counters + further.len();
        let mut command = Cmd::with_capacity(keys + 6, 128 * keys + 128);
        command.arg("EVALSHA").arg(&built.hash).arg(keys);
        for key in calls.iter().flat_map(|repeated| repeated.call.keys()) {
            command.arg(key);
        }
        command.arg(further);
        let arguments: Vec<Cow<'_, [u8]>> =
            calls.iter().flat_map(RepeatedCall::arguments).collect();
        let each = arguments.iter().map(|argument| &**argument);
        command.arg(lua::join_arguments(kinds, each));
        if let Some(at) = calls.first().and_then(|repeated| repeated.call.at_us) {
            command.arg(at / 1_000_000).arg(at % 1_000_000);
        }
        command
    }
}

/// The keys after those of the counters.
fn further_keys(calls: &[RepeatedCall]) -> Vec<Vec<u8>> {
    let of_call = |call: &ScriptCall| -> Vec<Vec<u8>> {
        let counters = call.counters.iter();
        counters
            .flat_map(|counter| counter.further_keys(call.operation))
            .collect()
    };
    let calls = calls.iter().map(|repeated| &*repeated.call);
    calls.flat_map(of_call).collect()
}

/// The kinds of the script that decides these calls.
fn all_kinds(calls: &[RepeatedCall]) -> Kinds {
    let kinds = calls.iter().map(|repeated| repeated.call.kinds);
    kinds.fold(Kinds::default(), Kinds::union)
}
