//! A process of a simulated fleet: decides requests as [`Engine`](crate::Engine) does over this store.
//! Its times are microseconds of its own clock.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use foldhash::SharedSeed;
use foldhash::fast::FixedState;
use foldhash::quality::SeedableRandomState;
use tallygate_core::{Entry, State, evaluate_all};

use super::super::RESPONSE_TIMEOUT;
use super::super::batch::CallResult;
use super::super::cache::{CacheClock, CounterCache, CounterIds, counter_ids};
use super::super::command::{ScriptCall, counter_id};
use super::super::connector::CONNECT_TIMEOUT;
use super::super::cross_slot::{SplitBy, SplitDecision, SplitRequest, undo_late};
use super::super::error::StoreFailure;
use super::super::keys::{self, Keyspace};
use super::super::leases::{
    LeaseKeeper, SpentUnits, TICK as LEASE_TICK, Target, lease_call, may_lease, may_spend_all,
    on_granted, return_call,
};
use super::super::link::TICK as SILENCE_TICK;
use super::super::reconnect::PROBE_TIMEOUT;
use super::super::replicas::{HEARTBEAT_INTERVAL, ReplicaCounts};
use super::super::shards;
use super::super::undo::undo_calls;
use super::link::{EndedBatch, Link, LinkState, NextBatch, Purpose, Waiting};
use super::{
    Answer, Body, DecidedBy, Defects, Effect, Instant, Probing, Reply, ReplyBody, RequestId, Timer,
};
use crate::decision::Decision;
use crate::engine::simulated::{
    Answered, Cause, FailurePolicy, answer_without_store, decide_without_store, surplus,
};
use crate::request::{Request, RequestEntry};
use crate::store::breaker::{Circuit, RANDOM};
use crate::store::lease::{LeaseReturn, LeaseStats, LeasedCounter};
use crate::store::refusal_cache::RefusalCacheSettings;
use crate::store::{PartialDecision, StoreErrorKind};

/// The settings of all processes of a fleet.
#[derive(Clone, Debug)]
pub(crate) struct ProcessSettings {
    pub(crate) servers: usize,
    pub(crate) failure: FailurePolicy,
    pub(crate) refusal_cache: Option<RefusalCacheSettings>,
    /// Whether requests that wait together travel together.
    pub(crate) batching: bool,
    pub(crate) defects: Defects,
}

pub(crate) struct Process<'s> {
    settings: Rc<ProcessSettings>,
    /// Identifies it in heartbeats.
    number: u64,
    rng: Rng,
    keyspace: Keyspace,
    /// The shards, as hashes of their names.
    shards: Vec<u64>,
    cache: Option<CounterCache>,
    keeper: LeaseKeeper,
    counts: ReplicaCounts,
    links: Vec<Link>,
    probes: Vec<ProbeRound>,
    pending: HashMap<RequestId, Pending<'s>, FixedState>,
    /// The counters that replace those of servers which failed.
    local: HashMap<Box<[u8]>, State, FixedState>,
    batches: u64,
    lease_ticking: bool,
    /// When the heartbeat was sent that has no reply yet.
    heartbeat_us: Option<u64>,
}

/// A request that the servers decide.
struct Pending<'s> {
    request: Request<'s>,
    /// What it spent from leases, and the positions of its other limits.
    spent: Option<(SpentUnits<'s>, Vec<usize>)>,
    /// The limits that the servers decide.
    asked: Request<'s>,
    call: Arc<ScriptCall>,
    split: Option<Split>,
    left: Rc<Cell<bool>>,
}

struct Split {
    /// `None` after the answer.
    request: Option<SplitRequest>,
    /// Parts without a reply.
    waiting: usize,
    /// What is kept out of the cache.
    provisional: CounterIds,
}

#[derive(Clone, Copy, Default)]
struct ProbeRound {
    number: u32,
    replies: usize,
}

type Effects = Vec<Effect>;

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The name of a shard in its score.
fn shard_name(server: usize) -> String {
    format!("shard{}:6379", server + 1)
}

impl<'s> Process<'s> {
    pub(crate) fn new(settings: &Rc<ProcessSettings>, number: u64, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let circuit = || Rc::new(Circuit::default());
        let shared = circuit();
        let links = (0..settings.servers).map(|_| {
            Link::new(match settings.defects.one_breaker {
                true => Rc::clone(&shared),
                false => circuit(),
            })
        });
        let mut hasher = || SeedableRandomState::with_seed(rng.u64(..), SharedSeed::global_fixed());
        let cache = settings.refusal_cache;
        let cache = cache.map(|settings| CounterCache::new(settings, hasher()));
        let keeper = LeaseKeeper::new(hasher());
        let names = (0..settings.servers).map(shard_name);
        Process {
            settings: Rc::clone(settings),
            number,
            keyspace: Keyspace::default(),
            shards: names.map(|name| keys::hash(name.as_bytes())).collect(),
            cache,
            keeper,
            counts: ReplicaCounts::default(),
            links: links.collect(),
            probes: vec![ProbeRound::default(); settings.servers],
            pending: HashMap::default(),
            local: HashMap::default(),
            batches: 0,
            lease_ticking: false,
            heartbeat_us: None,
            rng,
        }
    }

    /// The server of a key.
    pub(crate) fn server_of(&self, request: &Request<'_>, position: usize) -> usize {
        let entry = &request.entries()[position];
        self.route(&self.keyspace.counter_key(&entry.key, entry.limit))
    }

    pub(crate) fn lease_stats(&self) -> LeaseStats {
        self.keeper.leases.stats()
    }

    /// Whether a connection exists that a server can break.
    pub(crate) fn is_connected(&self, server: usize) -> bool {
        self.links[server].state == LinkState::Up
    }

    pub(crate) fn on_request(
        &mut self,
        id: RequestId,
        request: Request<'s>,
        now_us: u64,
        out: &mut Effects,
    ) {
        if let Some((decision, by)) = self.try_decide(&request, now_us, out) {
            return answer(id, decision, by, None, out);
        }
        if !may_lease(&request) || request.entries().len() == 1 {
            return self.ask(id, request.clone(), request, None, now_us, out);
        }
        let spent = self.spend(&request, false, now_us);
        let rest = spent.rest(&request);
        if rest.is_empty() {
            let (_, decision) = spent.combine(&request, &[], None, |entry| self.hash(entry));
            self.keep(&spent, now_us, out);
            return answer(id, decision, DecidedBy::Leases, None, out);
        }
        let asked = request.subset(&rest);
        let spent = (!spent.is_empty()).then_some((spent, rest));
        self.ask(id, request, asked, spent, now_us, out);
    }

    /// The deadline of a request has passed.
    pub(crate) fn on_deadline(&mut self, id: RequestId, now_us: u64, out: &mut Effects) {
        let Some(pending) = self.pending.get_mut(&id) else {
            return;
        };
        if pending.left.replace(true) {
            return;
        }
        if self.settings.defects.overload_is_failure {
            let keys = pending.call.keys();
            let mut servers: Vec<usize> = keys
                .map(|key| shards::highest(self.shards.iter().copied(), key))
                .collect();
            servers.sort_unstable();
            servers.dedup();
            for server in servers {
                self.on_server_failure(server, out);
            }
        }
        let Some(pending) = self.pending.get_mut(&id) else {
            return;
        };
        let Some(split) = pending
            .split
            .as_mut()
            .and_then(|split| split.request.take())
        else {
            return self.on_failed(id, Err(StoreErrorKind::Timeout), now_us, out);
        };
        self.finish_split(id, split, None, now_us, out);
    }

    pub(crate) fn on_reply(&mut self, server: usize, reply: Reply, now_us: u64, out: &mut Effects) {
        let link = &mut self.links[server];
        let is_current = link.connection == reply.connection;
        match reply.body {
            ReplyBody::Batch { number, results } => {
                let Some(ended) = link.end_batch(number, Some(now_us)) else {
                    return;
                };
                if is_current {
                    link.on_received();
                }
                if ended.is_current {
                    let connection = reply.connection;
                    out.push(after(0, Timer::Batch { server, connection }));
                }
                self.deliver(server, ended, results, Some(reply.at), now_us, out);
            }
            ReplyBody::Connected if is_current && link.state == LinkState::Connecting => {
                for (call, waiting) in link.on_connected(now_us) {
                    self.submit(server, &call, waiting, now_us, out);
                }
            }
            ReplyBody::Probed(Probing::Silence) if is_current && link.silent => {
                link.silent = false;
                self.tick_silence(server, out);
            }
            ReplyBody::Probed(Probing::Breaker) => self.on_probed(server),
            ReplyBody::Counted { sent_us, processes } if self.heartbeat_us == Some(sent_us) => {
                self.heartbeat_us = None;
                self.counts.on_heartbeat(sent_us, now_us, processes);
                out.push(after(micros(HEARTBEAT_INTERVAL), Timer::Heartbeat));
            }
            ReplyBody::Connected | ReplyBody::Probed(_) | ReplyBody::Counted { .. } => {}
        }
    }

    /// A server refuses connections: what was sent to it is lost.
    pub(crate) fn on_broken(&mut self, server: usize, now_us: u64, out: &mut Effects) {
        let link = &mut self.links[server];
        match link.state {
            LinkState::Up => {
                let stable = link.is_stable(now_us);
                let broken = link.broken_batches();
                let state = match stable {
                    true => LinkState::Connecting,
                    false => LinkState::Down,
                };
                self.disconnect(server, state, now_us, out);
                for ended in broken {
                    let lost = vec![Err(StoreFailure::ConnectionLost); ended.entries.len()];
                    self.deliver(server, ended, lost, None, now_us, out);
                }
            }
            LinkState::Connecting => self.disconnect(server, LinkState::Down, now_us, out),
            LinkState::Down => {}
        }
    }

    pub(crate) fn on_timer(&mut self, timer: Timer, now_us: u64, out: &mut Effects) {
        match timer {
            Timer::Batch { server, connection } => self.send_batch(server, connection, now_us, out),
            Timer::ResponseTimeout { server, batch } => {
                if let Some(ended) = self.links[server].end_batch(batch, None) {
                    let connection = self.links[server].connection;
                    if ended.is_current {
                        out.push(after(0, Timer::Batch { server, connection }));
                    }
                    let late = vec![Err(StoreFailure::TimedOut); ended.entries.len()];
                    self.deliver(server, ended, late, None, now_us, out);
                }
            }
            Timer::Silence { server, connection } => self.on_silence_tick(server, connection, out),
            Timer::SilenceTimeout { server, connection } => {
                let link = &self.links[server];
                if link.connection == connection && link.silent {
                    self.disconnect(server, LinkState::Down, now_us, out);
                }
            }
            Timer::Probe { server } => self.probe(server, out),
            Timer::ProbeTimeout { server, round } => {
                if self.probes[server].number == round && self.links[server].circuit.is_open() {
                    if !self.settings.defects.one_breaker
                        && self.links[server].state == LinkState::Up
                    {
                        self.disconnect(server, LinkState::Connecting, now_us, out);
                    }
                    self.schedule_probe(server, out);
                }
            }
            Timer::Connect { server } => {
                let link = &mut self.links[server];
                if link.state == LinkState::Up {
                    return;
                }
                link.state = LinkState::Connecting;
                let connection = link.connection;
                let message = link.message(Body::Connect);
                out.push(Effect::Send { server, message });
                let timer = Timer::ConnectTimeout { server, connection };
                out.push(after(micros(CONNECT_TIMEOUT), timer));
            }
            Timer::ConnectTimeout { server, connection } => {
                let link = &self.links[server];
                if link.connection == connection && link.state == LinkState::Connecting {
                    self.disconnect(server, LinkState::Down, now_us, out);
                }
            }
            Timer::Heartbeat => self.send_heartbeat(now_us, out),
            Timer::HeartbeatTimeout { sent_us } => {
                if self.heartbeat_us == Some(sent_us) {
                    self.heartbeat_us = None;
                    out.push(after(micros(HEARTBEAT_INTERVAL), Timer::Heartbeat));
                }
            }
            Timer::LeaseTick => {
                let returns = self.keeper.leases.tick(now_us);
                self.return_units(returns, now_us, out);
                self.lease_ticking = false;
                self.tick_leases(out);
            }
        }
    }

    /// The process is asked to end: returns what is left of its leases.
    pub(crate) fn close(&mut self, now_us: u64, out: &mut Effects) {
        let returns = self.keeper.leases.close();
        self.return_units(returns, now_us, out);
    }

    fn route(&self, key: &[u8]) -> usize {
        shards::highest(self.shards.iter().copied(), key)
    }

    fn part_of(&self, key: &[u8]) -> u16 {
        u16::try_from(self.route(key)).unwrap_or(u16::MAX)
    }

    fn hash(&self, entry: &RequestEntry<'_>) -> u64 {
        counter_id(&self.keyspace.counter_key(&entry.key, entry.limit))
    }

    fn target(&self, entry: &RequestEntry<'_>) -> Target {
        Target {
            key: self.keyspace.counter_key(&entry.key, entry.limit).into(),
            cache_id: self.cache.as_ref().map_or(0, |cache| cache.id(entry)),
        }
    }

    /// Decides from what this process has: leases, or a refusal that it knows.
    fn try_decide(
        &mut self,
        request: &Request<'s>,
        now_us: u64,
        out: &mut Effects,
    ) -> Option<(Decision, DecidedBy)> {
        if may_spend_all(request) {
            let spent = self.spend(request, true, now_us);
            if spent.is_for_all(request) {
                let entries = request.entries();
                let decision = spent.decision(|at| self.hash(&entries[at]));
                self.keep(&spent, now_us, out);
                return Some((decision, DecidedBy::Leases));
            }
            self.put_back(request, spent, now_us, out);
        }
        let refusal = self.cache.as_ref()?.try_refuse(request, now_us)?;
        Some((refusal, DecidedBy::RefusalCache))
    }

    fn spend(&self, request: &Request<'s>, all: bool, now_us: u64) -> SpentUnits<'s> {
        let replicas = |hold_us| self.counts.lease.get(now_us, hold_us);
        self.keeper.spend(request, all, replicas, now_us)
    }

    /// The request takes what it spent.
    fn keep(&mut self, spent: &SpentUnits<'_>, now_us: u64, out: &mut Effects) {
        for counter in self.keeper.keep(spent) {
            self.request_lease(&counter, now_us, out);
        }
    }

    fn put_back(
        &mut self,
        request: &Request<'_>,
        spent: SpentUnits<'_>,
        now_us: u64,
        out: &mut Effects,
    ) {
        if !spent.is_empty() {
            let target = |entry: &RequestEntry<'_>| self.target(entry);
            let returns = self.keeper.put_back(request, spent, target);
            self.return_units(returns, now_us, out);
        }
    }

    /// Sends the limits of a request that the servers decide.
    fn ask(
        &mut self,
        id: RequestId,
        request: Request<'s>,
        asked: Request<'s>,
        spent: Option<(SpentUnits<'s>, Vec<usize>)>,
        now_us: u64,
        out: &mut Effects,
    ) {
        let cache = self.cache.as_ref();
        let call = ScriptCall::from_request(&self.keyspace, &asked, None, cache);
        let call = Arc::new(call);
        let left = Rc::new(Cell::new(false));
        let mut pending = Pending {
            request,
            spent,
            asked,
            call: Arc::clone(&call),
            split: None,
            left: Rc::clone(&left),
        };
        let waiting = |purpose: Purpose| Waiting {
            purpose: Rc::new(purpose),
            left: Rc::clone(&left),
            again: false,
        };
        let servers: Vec<usize> = call.keys().map(|key| self.route(key)).collect();
        if servers.iter().all(|server| *server == servers[0]) {
            self.pending.insert(id, pending);
            return self.submit(
                servers[0],
                &call,
                waiting(Purpose::Request(id)),
                now_us,
                out,
            );
        }
        let split = SplitRequest::new(&call, pending.asked.requested_verb());
        let parts = split.parts(SplitBy::Part, |key| self.part_of(key));
        let provisional = counter_ids(&call);
        if let Some(cache) = &self.cache {
            cache.begin_provisional_at(&provisional, now_us);
        }
        pending.split = Some(Split {
            request: Some(split),
            waiting: parts.len(),
            provisional,
        });
        self.pending.insert(id, pending);
        for part in parts {
            let (server, call) = (self.route(part.call.first_key()), Arc::clone(&part.call));
            self.submit(server, &call, waiting(Purpose::Part(id, part)), now_us, out);
        }
    }

    fn submit(
        &mut self,
        server: usize,
        call: &Arc<ScriptCall>,
        waiting: Waiting,
        now_us: u64,
        out: &mut Effects,
    ) {
        let link = &mut self.links[server];
        match link.submit(call, &waiting) {
            Ok(true) => {
                let connection = link.connection;
                out.push(after(0, Timer::Batch { server, connection }));
            }
            Ok(false) => {}
            Err(failure) => self.on_result(server, waiting, Err(failure), None, now_us, out),
        }
    }

    fn send_batch(&mut self, server: usize, connection: u32, now_us: u64, out: &mut Effects) {
        let link = &mut self.links[server];
        if link.connection != connection || link.state != LinkState::Up {
            return;
        }
        self.batches += 1;
        let cache = self.cache.as_ref().map(|cache| (cache, now_us));
        let batching = self.settings.batching;
        let NextBatch {
            message,
            refused,
            more,
        } = link.next_batch(cache, batching, self.batches, now_us);
        if more {
            out.push(after(0, Timer::Batch { server, connection }));
        }
        for (waiting, refusal) in refused {
            self.on_result(server, waiting, Ok(refusal), None, now_us, out);
        }
        let Some(message) = message else {
            return;
        };
        out.push(Effect::Send { server, message });
        let batch = self.batches;
        let timer = Timer::ResponseTimeout { server, batch };
        out.push(after(micros(RESPONSE_TIMEOUT), timer));
        self.tick_silence(server, out);
    }

    /// Answers the callers of a batch.
    fn deliver(
        &mut self,
        server: usize,
        ended: EndedBatch,
        results: Vec<CallResult>,
        at: Option<Instant>,
        now_us: u64,
        out: &mut Effects,
    ) {
        let clock = CacheClock {
            sent_us: ended.sent_us,
            received_us: now_us,
        };
        let cache = self.cache.as_ref().map(|cache| (cache, clock));
        let mut callers = Vec::with_capacity(results.len());
        for (entry, result) in ended.entries.into_iter().zip(results) {
            callers.extend(entry.replies(result, cache));
        }
        for (waiting, result) in callers {
            self.on_result(server, waiting, result, at, now_us, out);
        }
    }

    fn on_result(
        &mut self,
        server: usize,
        waiting: Waiting,
        result: CallResult,
        at: Option<Instant>,
        now_us: u64,
        out: &mut Effects,
    ) {
        let has_left = waiting.left.get();
        if !has_left {
            self.count_result(server, &result, out);
        }
        if matches!(result, Err(StoreFailure::NotConnected(_))) && !waiting.again && !has_left {
            // Not sent: the connection was just replaced.
            let call = match &*waiting.purpose {
                Purpose::Request(id) => {
                    let pending = self.pending.get(id);
                    pending.map(|pending| Arc::clone(&pending.call))
                }
                Purpose::Part(_, part) => Some(Arc::clone(&part.call)),
                Purpose::Lease { call, .. } | Purpose::Return(_, call) | Purpose::Undo(call) => {
                    Some(Arc::clone(call))
                }
            };
            if let Some(call) = call {
                let again = Waiting {
                    again: true,
                    ..waiting
                };
                return self.submit(server, &call, again, now_us, out);
            }
        }
        match &*waiting.purpose {
            Purpose::Request(id) => self.on_request_result(*id, result, at, now_us, out),
            Purpose::Part(id, part) => {
                let Some(pending) = self.pending.get_mut(id) else {
                    return;
                };
                let (call, verb) = (Arc::clone(&pending.call), pending.asked.requested_verb());
                let Some(split) = &mut pending.split else {
                    return;
                };
                split.waiting -= 1;
                let is_last = split.waiting == 0;
                match &mut split.request {
                    Some(request) => {
                        // Nothing moves between simulated shards, so that no part is split again.
                        request.on_reply(part.clone(), result);
                        if is_last && let Some(request) = split.request.take() {
                            pending.left.set(true);
                            self.finish_split(*id, request, at, now_us, out);
                        }
                    }
                    None => {
                        let late = undo_late(&call, verb, part.clone(), result);
                        self.undo(late, now_us, out);
                        if is_last {
                            self.end_split(*id, now_us);
                        }
                    }
                }
            }
            Purpose::Lease {
                request,
                call,
                sent_us,
            } => {
                let leases = &self.keeper.leases;
                match result {
                    Ok(reply) => on_granted(leases, request, call, reply, (*sent_us, now_us)),
                    Err(failure) => leases.on_failed(request, !failure.did_not_run()),
                }
                self.tick_leases(out);
            }
            Purpose::Return(one, call) => {
                self.keeper.leases.on_returned(one, result.is_ok());
                self.invalidate(call, now_us);
            }
            Purpose::Undo(call) => self.invalidate(call, now_us),
        }
    }

    /// Counts a result for the breaker of its server.
    fn count_result(&mut self, server: usize, result: &CallResult, out: &mut Effects) {
        let link = &self.links[server];
        match result {
            Err(StoreFailure::BreakerOpen) => {}
            Err(failure) if failure.is_of_server(|| link.is_silent()) => {
                self.on_server_failure(server, out);
            }
            Ok(_) | Err(_) => {
                link.circuit.on_success();
            }
        }
    }

    fn on_server_failure(&mut self, server: usize, out: &mut Effects) {
        if self.links[server].circuit.on_failure() {
            self.open_breaker(server, out);
        }
    }

    fn open_breaker(&mut self, server: usize, out: &mut Effects) {
        if self.links[server].circuit.open() {
            let server = self.prober_of(server);
            self.schedule_probe(server, out);
        }
    }

    /// Whose place in `probes` a breaker has.
    fn prober_of(&self, server: usize) -> usize {
        match self.settings.defects.one_breaker {
            true => 0,
            false => server,
        }
    }

    fn schedule_probe(&mut self, server: usize, out: &mut Effects) {
        let delay = Circuit::probe_delay(self.rng.u32(..RANDOM));
        out.push(after(micros(delay), Timer::Probe { server }));
    }

    fn probe(&mut self, server: usize, out: &mut Effects) {
        if !self.links[server].circuit.is_open() {
            return;
        }
        let round = &mut self.probes[server];
        *round = ProbeRound {
            number: round.number + 1,
            replies: 0,
        };
        let round = round.number;
        let probed = match self.settings.defects.one_breaker {
            true => 0..self.links.len(),
            false => server..server + 1,
        };
        let mut sent = false;
        for server in probed {
            let link = &self.links[server];
            if link.state == LinkState::Up {
                let message = link.message(Body::Probe(Probing::Breaker));
                out.push(Effect::Send { server, message });
                sent = true;
            }
        }
        match sent {
            true => {
                let timer = Timer::ProbeTimeout { server, round };
                out.push(after(micros(PROBE_TIMEOUT), timer));
            }
            false => self.schedule_probe(server, out),
        }
    }

    fn on_probed(&mut self, server: usize) {
        // One breaker for all is content if most servers are well.
        let required = match self.settings.defects.one_breaker {
            true => self.links.len() / 2 + 1,
            false => 1,
        };
        let at = self.prober_of(server);
        let round = &mut self.probes[at];
        round.replies += 1;
        if round.replies >= required && self.links[at].circuit.is_open() {
            self.links[at].circuit.on_probed();
        }
    }

    /// Starts to look whether the server is silent, unless that is done already.
    fn tick_silence(&mut self, server: usize, out: &mut Effects) {
        let link = &mut self.links[server];
        if !link.ticking && !link.silent {
            link.ticking = true;
            let connection = link.connection;
            let timer = Timer::Silence { server, connection };
            out.push(after(micros(SILENCE_TICK), timer));
        }
    }

    fn on_silence_tick(&mut self, server: usize, connection: u32, out: &mut Effects) {
        let link = &mut self.links[server];
        if link.connection != connection || link.state != LinkState::Up {
            return;
        }
        link.ticking = false;
        if !link.has_in_flight() {
            return;
        }
        if !link.on_silence_tick() {
            return self.tick_silence(server, out);
        }
        link.silent = true;
        let message = link.message(Body::Probe(Probing::Silence));
        out.push(Effect::Send { server, message });
        let timer = Timer::SilenceTimeout { server, connection };
        out.push(after(micros(RESPONSE_TIMEOUT), timer));
        self.open_breaker(server, out);
    }

    fn disconnect(&mut self, server: usize, state: LinkState, now_us: u64, out: &mut Effects) {
        let link = &mut self.links[server];
        let unsent = link.disconnect(state);
        let delay = match state {
            LinkState::Down => micros(link.backoff.next(self.rng.u32(..RANDOM))),
            LinkState::Connecting | LinkState::Up => 0,
        };
        out.push(after(delay, Timer::Connect { server }));
        for waiting in unsent {
            let failure = StoreFailure::NotConnected("the previous connection was replaced");
            self.on_result(server, waiting, Err(failure), None, now_us, out);
        }
    }

    fn send_heartbeat(&mut self, now_us: u64, out: &mut Effects) {
        let server = self.route(&self.keyspace.replicas_key());
        let link = &self.links[server];
        if link.state != LinkState::Up {
            return out.push(after(micros(HEARTBEAT_INTERVAL), Timer::Heartbeat));
        }
        self.heartbeat_us = Some(now_us);
        let message = link.message(Body::Heartbeat {
            process: self.number,
            sent_us: now_us,
        });
        out.push(Effect::Send { server, message });
        let timer = Timer::HeartbeatTimeout { sent_us: now_us };
        out.push(after(micros(RESPONSE_TIMEOUT), timer));
    }

    fn on_request_result(
        &mut self,
        id: RequestId,
        result: CallResult,
        at: Option<Instant>,
        now_us: u64,
        out: &mut Effects,
    ) {
        let Some(pending) = self.pending.get(&id) else {
            return;
        };
        if pending.left.get() {
            return;
        }
        match result {
            Ok(reply) => {
                let verb = pending.asked.requested_verb();
                let decision = pending.call.decision(verb, reply);
                self.on_decided(id, &decision, at, now_us, out);
            }
            Err(failure) => {
                self.on_failed(id, Err(failure.kind()), now_us, out);
            }
        }
    }

    /// Answers a request over several servers.
    fn finish_split(
        &mut self,
        id: RequestId,
        split: SplitRequest,
        at: Option<Instant>,
        now_us: u64,
        out: &mut Effects,
    ) {
        let Some(pending) = self.pending.get(&id) else {
            return;
        };
        let call = Arc::clone(&pending.call);
        let is_forgotten = self.settings.defects.forgotten_refusals && split.is_incomplete();
        let (mut decided, charges) = split.finish();
        if is_forgotten {
            decided = SplitDecision::Failed(StoreFailure::ConnectionLost);
        }
        let kept = match &decided {
            SplitDecision::Decided(_) => Some(charges.undo_calls(&call, true)),
            // The policies of the failed limits decide what is kept of the others.
            SplitDecision::Partial(..) => None,
            SplitDecision::Failed(_) => Some(charges.undo_calls(&call, false)),
        };
        match decided {
            SplitDecision::Decided(decision) => self.on_decided(id, &decision, at, now_us, out),
            SplitDecision::Partial(partial, _) => self.on_failed(id, Ok(partial), now_us, out),
            SplitDecision::Failed(failure) => {
                self.on_failed(id, Err(failure.kind()), now_us, out);
            }
        }
        self.undo(kept.unwrap_or_default(), now_us, out);
        self.end_split(id, now_us);
    }

    /// Forgets a split request when all of its parts have replied.
    fn end_split(&mut self, id: RequestId, now_us: u64) {
        let Some(pending) = self.pending.get(&id) else {
            return;
        };
        if pending
            .split
            .as_ref()
            .is_some_and(|split| split.waiting > 0)
        {
            return;
        }
        let pending = self.pending.remove(&id);
        if let (Some(cache), Some(split)) = (&self.cache, pending.and_then(|one| one.split)) {
            cache.end_provisional_at(&split.provisional, now_us);
        }
    }

    /// Takes a request that is answered out of those that wait, unless parts of it are on their way.
    fn take_pending(&mut self, id: RequestId) -> Option<Answering<'s>> {
        let pending = self.pending.get_mut(&id)?;
        pending.left.set(true);
        if pending.split.is_some() {
            return Some(Answering {
                request: pending.request.clone(),
                asked: pending.asked.clone(),
                spent: pending.spent.take(),
            });
        }
        let pending = self.pending.remove(&id)?;
        Some(Answering {
            request: pending.request,
            asked: pending.asked,
            spent: pending.spent,
        })
    }

    /// The servers decided what they were asked.
    fn on_decided(
        &mut self,
        id: RequestId,
        decided: &Decision,
        at: Option<Instant>,
        now_us: u64,
        out: &mut Effects,
    ) {
        let Some(answering) = self.take_pending(id) else {
            return;
        };
        let Answering {
            request,
            asked,
            spent,
        } = answering;
        self.learn(&asked, decided, now_us, out);
        let decision = match spent {
            None => decided.clone(),
            Some((spent, rest)) => {
                let hash = |entry: &RequestEntry<'_>| self.hash(entry);
                let (_, decision) = spent.combine(&request, &rest, Some(decided), hash);
                match decided.allowed() {
                    true => self.keep(&spent, now_us, out),
                    false => self.put_back(&request, spent, now_us, out),
                }
                decision
            }
        };
        answer(id, decision, DecidedBy::Servers, at, out);
    }

    /// The servers failed to decide some of what they were asked, or all of it in one way.
    fn on_failed(
        &mut self,
        id: RequestId,
        partial: Result<PartialDecision, StoreErrorKind>,
        now_us: u64,
        out: &mut Effects,
    ) {
        let Some(answering) = self.take_pending(id) else {
            return;
        };
        let Answering {
            request,
            asked,
            spent,
        } = answering;
        let limits = asked.entries().len();
        let undecided = |kind| PartialDecision::undecided(limits, kind);
        let mut partial = partial.unwrap_or_else(undecided);
        if let Some((spent, rest)) = spent {
            let hash = |entry: &RequestEntry<'_>| self.hash(entry);
            partial = spent.combine_partial(&request, &rest, &partial, hash);
            self.keep(&spent, now_us, out);
        }
        let failed = partial.failed.iter();
        let (positions, kinds): (Vec<usize>, Vec<StoreErrorKind>) =
            failed.map(|failed| (failed.at, failed.kind)).unzip();
        let (fallback, by) = self.fall_back(&request.subset(&positions), &kinds, now_us, out);
        let Some(decided) = &partial.decision else {
            return answer(id, fallback, by, None, out);
        };
        if let Some(surplus) = surplus(&request, &partial.decided, decided, &fallback) {
            self.undo_decision(&surplus, decided, now_us, out);
        }
        answer(
            id,
            fallback.with_decided(&positions, decided),
            by,
            None,
            out,
        );
    }

    fn fall_back(
        &mut self,
        request: &Request<'s>,
        kinds: &[StoreErrorKind],
        now_us: u64,
        out: &mut Effects,
    ) -> (Decision, DecidedBy) {
        let cause = |(at, kind): (usize, &StoreErrorKind)| {
            if self.settings.defects.overload_is_failure {
                return Cause::Failure;
            }
            let is_silent = || self.links[self.server_of(request, at)].is_silent();
            Cause::new(*kind, is_silent)
        };
        let causes: Vec<Cause> = kinds.iter().enumerate().map(cause).collect();
        let known = match causes.contains(&Cause::Overload) {
            true => self.try_decide(request, now_us, out),
            false => None,
        };
        let (failure, replicas) = (self.settings.failure, self.counts.count());
        let (keyspace, local) = (&self.keyspace, &mut self.local);
        let by_policy = || {
            decide_without_store(request, failure, &causes, replicas, |part| {
                decide_locally(keyspace, local, part, now_us)
            })
        };
        let try_decide = || known.map(|(decision, _)| decision);
        let (decision, answered) =
            answer_without_store(request, kinds, &causes, try_decide, by_policy);
        let by = match answered {
            Answered::Failure => DecidedBy::Failure,
            Answered::Cached | Answered::Shed | Answered::Closed | Answered::Local => {
                DecidedBy::Overload
            }
        };
        (decision, by)
    }

    /// Learns from a decision of the servers which counters are worth a lease.
    fn learn(
        &mut self,
        request: &Request<'s>,
        decision: &Decision,
        now_us: u64,
        out: &mut Effects,
    ) {
        if !may_lease(request) {
            return;
        }
        let replicas = |hold_us| self.counts.lease.get(now_us, hold_us);
        let target = |entry: &RequestEntry<'_>| self.target(entry);
        let keeper = &self.keeper;
        for counter in keeper.on_decision(request, decision, replicas, target, now_us) {
            self.request_lease(&counter, now_us, out);
        }
    }

    fn request_lease(&mut self, counter: &LeasedCounter<'_>, now_us: u64, out: &mut Effects) {
        let hold_us = counter.settings.hold_us();
        let Some(replicas) = self.counts.lease.get(now_us, hold_us) else {
            return;
        };
        let Some(request) = self.keeper.leases.request(counter.id, replicas) else {
            return;
        };
        let call = Arc::new(lease_call(&request));
        let purpose = Purpose::Lease {
            call: Arc::clone(&call),
            request,
            sent_us: now_us,
        };
        self.submit_own(&call, purpose, now_us, out);
    }

    fn return_units(&mut self, returns: Vec<LeaseReturn<Target>>, now_us: u64, out: &mut Effects) {
        for one in returns {
            let call = Arc::new(return_call(&one));
            self.invalidate(&call, now_us);
            let purpose = Purpose::Return(one, Arc::clone(&call));
            self.submit_own(&call, purpose, now_us, out);
        }
    }

    fn undo_decision(
        &mut self,
        request: &Request<'_>,
        decision: &Decision,
        now_us: u64,
        out: &mut Effects,
    ) {
        let hash = |entry: &RequestEntry<'_>| self.hash(entry);
        let rest = match decision.leased() {
            true => request.subset(&self.keeper.put_back_decided(request, decision, hash)),
            false => request.clone(),
        };
        let part_of = |key: &[u8]| self.part_of(key);
        let cache = self.cache.as_ref();
        let calls = undo_calls(&self.keyspace, part_of, cache, &rest, decision, None);
        self.undo(calls, now_us, out);
    }

    fn undo(&mut self, calls: Vec<Arc<ScriptCall>>, now_us: u64, out: &mut Effects) {
        for call in calls {
            self.invalidate(&call, now_us);
            let purpose = Purpose::Undo(Arc::clone(&call));
            self.submit_own(&call, purpose, now_us, out);
        }
    }

    /// Sends a call that no request waits for.
    fn submit_own(
        &mut self,
        call: &Arc<ScriptCall>,
        purpose: Purpose,
        now_us: u64,
        out: &mut Effects,
    ) {
        let waiting = Waiting {
            purpose: Rc::new(purpose),
            left: Rc::new(Cell::new(false)),
            again: false,
        };
        self.submit(self.route(call.first_key()), call, waiting, now_us, out);
    }

    /// Forgets what the cache knows of counters to which units are returned.
    fn invalidate(&self, call: &ScriptCall, now_us: u64) {
        if let Some(cache) = &self.cache {
            cache.invalidate_at(&counter_ids(call), now_us);
        }
    }

    fn tick_leases(&mut self, out: &mut Effects) {
        if self.keeper.leases.is_active() && !self.lease_ticking {
            self.lease_ticking = true;
            out.push(after(micros(LEASE_TICK), Timer::LeaseTick));
        }
    }
}

/// What is needed of a request to answer it.
struct Answering<'s> {
    request: Request<'s>,
    asked: Request<'s>,
    spent: Option<(SpentUnits<'s>, Vec<usize>)>,
}

fn after(us: u64, timer: Timer) -> Effect {
    Effect::After { us, timer }
}

fn answer(
    id: RequestId,
    decision: Decision,
    by: DecidedBy,
    counted_at: Option<Instant>,
    out: &mut Effects,
) {
    out.push(Effect::Answer(Answer {
        id,
        decision,
        by,
        counted_at,
    }));
}

/// Decides with counters of this process.
fn decide_locally(
    keyspace: &Keyspace,
    local: &mut HashMap<Box<[u8]>, State, FixedState>,
    request: &Request<'_>,
    now_us: u64,
) -> Decision {
    let entries = request.entries();
    let name = |entry: &RequestEntry<'_>| keyspace.counter_key(&entry.key, entry.limit);
    let names: Vec<Vec<u8>> = entries.iter().map(name).collect();
    let state = |name: &Vec<u8>| local.get(name.as_slice()).cloned().unwrap_or_default();
    let mut states: Vec<State> = names.iter().map(state).collect();
    let limits = entries.iter().zip(&mut states);
    let mut limits: Vec<Entry<'_>> = limits
        .map(|(entry, state)| Entry::new(entry.limit.quota(), state, entry.cost()))
        .collect();
    let verdicts = evaluate_all(&mut limits, request.requested_verb(), now_us);
    for (name, state) in names.into_iter().zip(states) {
        local.insert(name.into(), state);
    }
    Decision::from(verdicts.verdicts().to_vec())
}
