//! Runs a scenario: processes, servers and the network between them, on one queue of events.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use fastrand::Rng;
use foldhash::fast::FixedState;

use super::event::EventQueue;
use super::exact::{Admission, ExactLimiter, worst_cases};
use super::network;
use super::results::{Collector, Results, ShardLoad};
use super::scenario::{CountedBy, Defect, Fault, FaultKind, Scenario};
use super::traffic::Arrival;
use crate::engine::simulated::FailurePolicy;
use crate::key::Key;
use crate::limit::LeaseSettings;
use crate::request::Request;
use crate::store::simulated::{
    Answer, DecidedBy, Defects, Effect, Message, Process, ProcessSettings, Reply, RequestId,
    Server, Timer,
};

/// Time 0 by the clocks of the servers.
const START_US: u64 = 1_700_000_000_000_000;
/// Processes have counted each other before the first request, which takes 5 s and a `hold`.
const WARM_UP_US: u64 = 10_000_000;
/// How long answers are waited for after the last request.
const DRAIN_US: u64 = 3_000_000;
/// A process that is asked to end returns its leases meanwhile.
const SHUTDOWN_US: u64 = 1_000_000;
/// The time that a server works for a command that is no script.
const COMMAND_NS: u64 = 1_000;

/// Runs a scenario. `progress` is told the share that is done, about a hundred times.
pub fn simulate(scenario: &Scenario, mut progress: impl FnMut(f64)) -> Results {
    Fleet::new(scenario).run(&mut progress)
}

enum Event {
    AtServer(Letter),
    /// A server has worked for a message since some time.
    Executed {
        letter: Letter,
        lives: u32,
        since_us: u64,
    },
    AtProcess {
        to: Address,
        server: usize,
        reply: Reply,
    },
    /// A process learns that a server refuses connections.
    Broken {
        to: Address,
        server: usize,
    },
    Timer {
        to: Address,
        timer: Timer,
    },
    Start(usize),
    Gone(Address),
    Fault(usize),
    /// What a server has now is what its replica will have.
    Replicate(usize),
    /// A server replies again.
    Recovered(usize),
}

/// A message on its way.
struct Letter {
    from: Address,
    server: usize,
    message: Message,
}

/// A process, in one of the lives of its node.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Address {
    node: usize,
    life: u32,
}

struct Node<'s> {
    process: Option<Process<'s>>,
    life: u32,
    /// Asked to end: it gets no more requests.
    closing: bool,
    /// Its clock at time 0, and how much faster it is in millionths.
    offset_us: u64,
    drift_ppm: i64,
    /// When the last message of each connection arrives, to the server and from it: none overtakes
    /// another.
    last: Vec<(u64, u64)>,
}

struct ServerNode {
    server: Server,
    /// What a replica of it has.
    replica: Option<Server>,
    up: bool,
    /// Counts restarts: work for an earlier life is lost.
    lives: u32,
    busy_until_ns: u64,
    stopped_until_us: u64,
    busy_ns: u64,
    calls: u64,
}

/// A request without an answer.
struct PendingRequest {
    arrived_us: u64,
    key: u64,
    cost: u32,
    to: Address,
    /// Servers are lost, but none that holds its counters.
    healthy: bool,
}

struct Fleet<'s> {
    scenario: &'s Scenario,
    settings: Rc<ProcessSettings>,
    start_us: u64,
    /// When the first request may arrive.
    warm_us: u64,
    now: u64,
    events: EventQueue<Event>,
    nodes: Vec<Node<'s>>,
    servers: Vec<ServerNode>,
    /// In the order of the requests: all have the same deadline.
    deadlines: VecDeque<(u64, Address, RequestId)>,
    asked: HashMap<RequestId, PendingRequest, FixedState>,
    requests: RequestId,
    processes: u64,
    rng: Rng,
    exact: ExactLimiter<'s>,
    admissions: Vec<Admission>,
    collector: Collector,
    /// Requests while other servers were lost, and those of them that servers decided.
    healthy: (u64, u64),
}

impl<'s> Fleet<'s> {
    fn new(scenario: &'s Scenario) -> Self {
        let settings = ProcessSettings {
            servers: scenario.shards as usize,
            failure: FailurePolicy {
                policy: scenario.on_failure,
                deadline: scenario.deadline,
            },
            refusal_cache: scenario.refusal_cache,
            batching: scenario.batching,
            defects: Defects {
                overload_is_failure: scenario.has(Defect::OverloadIsFailure),
                one_breaker: scenario.has(Defect::OneBreaker),
                forgotten_refusals: scenario.has(Defect::ForgottenRefusals),
            },
        };
        let mut rng = Rng::with_seed(scenario.seed ^ 0x5eed_f1ee_7000_0000);
        let servers = (0..scenario.shards).map(|_| ServerNode::new());
        let leases = scenario.limits.iter();
        let leases = leases.filter_map(|limit| limit.limit.own_lease());
        let hold_us = leases.map(|lease: LeaseSettings| lease.hold_us()).max();
        let mut fleet = Fleet {
            scenario,
            settings: Rc::new(settings),
            // Windows may end at any time.
            start_us: START_US + rng.u64(..86_400_000_000),
            warm_us: WARM_UP_US + hold_us.unwrap_or(0),
            now: 0,
            events: EventQueue::new(),
            nodes: Vec::new(),
            servers: servers.collect(),
            deadlines: VecDeque::new(),
            asked: HashMap::default(),
            requests: 0,
            processes: 0,
            exact: ExactLimiter::new(scenario),
            admissions: Vec::new(),
            collector: Collector::new(scenario),
            healthy: (0, 0),
            rng,
        };
        for node in 0..scenario.nodes as usize {
            let drift = i64::from(scenario.clocks.drift_ppm);
            fleet.nodes.push(Node {
                process: None,
                life: 0,
                closing: false,
                offset_us: fleet.rng.u64(..3_600_000_000),
                drift_ppm: fleet.rng.i64(-drift..=drift),
                last: vec![(0, 0); scenario.shards as usize],
            });
            let at = fleet.rng.u64(..2_000_000);
            fleet.events.push(at, Event::Start(node));
        }
        for (number, fault) in scenario.faults.iter().enumerate() {
            let at = fleet.warm_us + fault.at_us;
            fleet.events.push(at, Event::Fault(number));
            if let FaultKind::FailOver(server) = fault.kind {
                let server = server as usize;
                fleet
                    .events
                    .push(at - fault.for_us, Event::Replicate(server));
            }
        }
        fleet
    }

    fn run(mut self, progress: &mut impl FnMut(f64)) -> Results {
        let mut traffic = self.scenario.traffic().peekable();
        let end = self.warm_us + self.scenario.duration_us;
        let mut reported = 0;
        loop {
            let arrival = traffic.peek().map(|next| self.warm_us + next.at_us);
            let deadline = self.deadlines.front().map(|(at, ..)| *at);
            let event = self.events.next_at();
            let times = [event, deadline, arrival];
            let Some(next) = times.into_iter().flatten().min() else {
                break;
            };
            if next > end && (self.asked.is_empty() || next > end + DRAIN_US) {
                break;
            }
            self.now = next;
            if event == Some(next) {
                if let Some(event) = self.events.pop() {
                    self.on_event(event);
                }
            } else if deadline == Some(next) {
                if let Some((_, to, id)) = self.deadlines.pop_front()
                    && self.asked.contains_key(&id)
                {
                    self.with_process(to, |process, now, out| process.on_deadline(id, now, out));
                }
            } else if let Some(arrival) = traffic.next() {
                self.on_arrival(arrival);
                let percent = arrival.at_us * 100 / self.scenario.duration_us.max(1);
                if percent > reported {
                    reported = percent;
                    progress(percent as f64 / 100.0);
                }
            }
        }
        self.finish()
    }

    fn finish(mut self) -> Results {
        self.collector.results.unanswered += self.asked.len() as u64;
        for node in 0..self.nodes.len() {
            self.count_leases(node, false);
        }
        let elapsed_ns = self.scenario.duration_us as f64 * 1_000.0;
        let load = |server: &ServerNode| ShardLoad {
            busy: server.busy_ns as f64 / elapsed_ns,
            calls: server.calls,
        };
        let mut results = self.collector.finish();
        results.shards = self.servers.iter().map(load).collect();
        results.worst = worst_cases(self.scenario, self.admissions);
        if self.healthy.0 > 0 {
            results.healthy = self.healthy.1 as f64 / self.healthy.0 as f64;
        }
        let bounds = self.scenario.bounds.iter();
        results.bounds = bounds.map(|bound| bound.check(&results)).collect();
        results
    }

    /// The present time since the first request may arrive; `None` before.
    fn since_warm(&self) -> Option<u64> {
        self.now.checked_sub(self.warm_us)
    }

    fn on_arrival(&mut self, arrival: Arrival) {
        let Arrival { key, cost, .. } = arrival;
        let admits = self.exact.admits(key, cost, self.start_us + self.now);
        self.collector.on_arrival(arrival.at_us, admits);
        let nodes = self.nodes.len();
        let asked = arrival.node as usize;
        let mut alive = (asked..nodes).chain(0..asked);
        let open = |node: &usize| {
            let node = &self.nodes[*node];
            node.process.is_some() && !node.closing
        };
        let Some(node) = alive.find(open) else {
            self.collector.results.unanswered += 1;
            return;
        };
        let to = self.address(node);
        let request = self.request(key, cost);
        let healthy = self.is_healthy(node, &request);
        self.healthy.0 += u64::from(healthy);
        self.requests += 1;
        let id = self.requests;
        let asked = PendingRequest {
            arrived_us: self.now,
            key,
            cost,
            to,
            healthy,
        };
        self.asked.insert(id, asked);
        self.with_process(to, |process, now, out| {
            process.on_request(id, request, now, out);
        });
        if self.asked.contains_key(&id) {
            let deadline = u64::try_from(self.scenario.deadline.as_micros()).unwrap_or(u64::MAX);
            self.deadlines.push_back((self.now + deadline, to, id));
        }
    }

    fn request(&self, key: u64, cost: u32) -> Request<'s> {
        let limits: &'s Scenario = self.scenario;
        let mut limits = limits.limits.iter().map(|limit| {
            let key = match limit.by {
                CountedBy::Key => Key::from(format!("k{key}")),
                CountedBy::All => Key::from("all"),
            };
            (key, &limit.limit)
        });
        let (key, limit) = limits.next().expect("a scenario has a limit");
        let first = Request::new(key, limit).cost(cost);
        let all = limits.try_fold(first, |request, (key, limit)| request.and(key, limit));
        all.expect("the limits have distinct names")
    }

    /// Whether servers are lost, but none that holds the counters of a request.
    fn is_healthy(&self, node: usize, request: &Request<'_>) -> bool {
        if self.servers.iter().all(|server| !server.is_lost(self.now)) {
            return false;
        }
        let Some(process) = &self.nodes[node].process else {
            return false;
        };
        let mut positions = 0..request.entries().len();
        positions.all(|at| {
            let server = process.server_of(request, at);
            !self.servers[server].is_lost(self.now)
        })
    }

    fn address(&self, node: usize) -> Address {
        let life = self.nodes[node].life;
        Address { node, life }
    }

    /// Lets a process do something, at its own time, and what it asks for.
    fn with_process(
        &mut self,
        to: Address,
        act: impl FnOnce(&mut Process<'s>, u64, &mut Vec<Effect>),
    ) {
        let node = &mut self.nodes[to.node];
        let local_us = node.local_us(self.now);
        let Some(process) = node.process.as_mut().filter(|_| node.life == to.life) else {
            return;
        };
        let mut effects = Vec::new();
        act(process, local_us, &mut effects);
        for effect in effects {
            match effect {
                Effect::Send { server, message } => self.send(to, server, message),
                Effect::After { us, timer } => {
                    let at = self.now + us;
                    self.events.push(at, Event::Timer { to, timer });
                }
                Effect::Answer(answer) => self.on_answer(answer),
            }
        }
    }

    fn on_answer(&mut self, answer: Answer) {
        let Some(asked) = self.asked.remove(&answer.id) else {
            return;
        };
        let (decision, by) = (&answer.decision, answer.by);
        let warm_us = self.warm_us;
        let since = |at: u64| at.saturating_sub(warm_us);
        self.collector.on_answer(
            since(asked.arrived_us),
            since(self.now),
            decision.allowed(),
            matches!(by, DecidedBy::Failure | DecidedBy::Overload),
        );
        let answers = &mut self.collector.results.answers;
        let by_servers = match by {
            DecidedBy::Servers => {
                answers.servers += 1;
                true
            }
            DecidedBy::Leases => {
                answers.leases += 1;
                true
            }
            DecidedBy::RefusalCache => {
                answers.refusal_cache += 1;
                true
            }
            DecidedBy::Failure => {
                answers.failure += 1;
                false
            }
            DecidedBy::Overload => {
                answers.overload += 1;
                false
            }
        };
        self.healthy.1 += u64::from(asked.healthy && by_servers);
        if decision.allowed() {
            self.admissions.push(Admission {
                at_us: answer.counted_at.unwrap_or(self.now),
                key: asked.key,
                cost: asked.cost,
            });
        }
    }

    fn delay_us(&mut self) -> Option<u64> {
        network::delay_us(&self.scenario.network, &mut self.rng)
    }

    fn send(&mut self, from: Address, server: usize, message: Message) {
        let Some(delay_us) = self.delay_us() else {
            return;
        };
        let last = &mut self.nodes[from.node].last[server].0;
        let at = (self.now + delay_us).max(*last);
        *last = at;
        let letter = Letter {
            from,
            server,
            message,
        };
        self.events.push(at, Event::AtServer(letter));
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::AtServer(letter) => self.on_letter(letter),
            Event::Executed {
                letter,
                lives,
                since_us,
            } => self.execute(letter, lives, since_us),
            Event::AtProcess { to, server, reply } => {
                self.with_process(to, |process, now, out| {
                    process.on_reply(server, reply, now, out);
                });
            }
            Event::Broken { to, server } => {
                self.with_process(to, |process, now, out| process.on_broken(server, now, out));
            }
            Event::Timer { to, timer } => {
                self.with_process(to, |process, now, out| process.on_timer(timer, now, out));
            }
            Event::Start(node) => self.start(node),
            Event::Gone(address) => {
                if self.nodes[address.node].life == address.life {
                    self.end(address.node, false);
                }
            }
            Event::Fault(number) => self.on_fault(self.scenario.faults[number]),
            Event::Replicate(server) => {
                let server = &mut self.servers[server];
                server.replica = Some(server.server.clone());
            }
            Event::Recovered(server) => self.servers[server].up = true,
        }
    }

    fn on_letter(&mut self, letter: Letter) {
        let Letter { from, server, .. } = letter;
        if !self.servers[server].up {
            return self.refuse(from, server);
        }
        let (counters, is_script) = Server::work(&letter.message);
        let service = self.scenario.service;
        let work_ns = match is_script {
            true => ((service.call_us + service.counter_us * counters as f64) * 1e3) as u64,
            false => COMMAND_NS,
        };
        if is_script && let Some(at_us) = self.since_warm() {
            self.collector.on_call(at_us, counters);
        }
        let is_warm = self.since_warm().is_some();
        let node = &mut self.servers[server];
        let free_ns = node.busy_until_ns.max(node.stopped_until_us * 1_000);
        let since_ns = free_ns.max(self.now * 1_000);
        node.busy_until_ns = since_ns + work_ns;
        if is_warm {
            node.busy_ns += work_ns;
            node.calls += u64::from(is_script);
        }
        let done = node.busy_until_ns.div_ceil(1_000);
        let executed = Event::Executed {
            letter,
            lives: node.lives,
            since_us: since_ns / 1_000,
        };
        self.events.push(done, executed);
    }

    fn execute(&mut self, letter: Letter, lives: u32, since_us: u64) {
        let Letter { from, server, .. } = letter;
        let node = &mut self.servers[server];
        if node.lives != lives {
            return;
        }
        if node.stopped_until_us > self.now {
            // It was stopped meanwhile.
            let since_us = node.stopped_until_us;
            let executed = Event::Executed {
                letter,
                lives,
                since_us,
            };
            return self.events.push(since_us, executed);
        }
        let clock_us = self.start_us + since_us;
        let reply = node.server.execute(&letter.message, clock_us, since_us);
        if let Some(delay_us) = self.delay_us() {
            let last = &mut self.nodes[from.node].last[server].1;
            let at = (self.now + delay_us).max(*last);
            *last = at;
            let event = Event::AtProcess {
                to: from,
                server,
                reply,
            };
            self.events.push(at, event);
        }
    }

    /// Tells a process that a server refuses connections.
    fn refuse(&mut self, to: Address, server: usize) {
        // A refusal is not lost for ever.
        let delay_us = self.delay_us().unwrap_or(self.scenario.network.delay_us);
        let event = Event::Broken { to, server };
        self.events.push(self.now + delay_us, event);
    }

    fn start(&mut self, node: usize) {
        self.processes += 1;
        let seed = self.rng.u64(..);
        let process = Process::new(&self.settings, self.processes, seed);
        let started = &mut self.nodes[node];
        started.process = Some(process);
        started.closing = false;
        let to = self.address(node);
        let timer = Timer::Heartbeat;
        self.events.push(self.now, Event::Timer { to, timer });
    }

    /// Ends a process, as a kill does or after it was asked to.
    fn end(&mut self, node: usize, killed: bool) {
        self.count_leases(node, killed);
        let ended = self.address(node);
        let node = &mut self.nodes[node];
        node.process = None;
        node.life += 1;
        let before = self.asked.len();
        self.asked.retain(|_, asked| asked.to != ended);
        let lost = before - self.asked.len();
        self.collector.results.unanswered += lost as u64;
    }

    fn count_leases(&mut self, node: usize, killed: bool) {
        let Some(process) = &self.nodes[node].process else {
            return;
        };
        let stats = process.lease_stats();
        let units = &mut self.collector.results.leases;
        units.taken += stats.taken;
        units.returned += stats.returned;
        units.stranded += stats.stranded;
        if killed {
            units.stranded += stats.outstanding;
        }
    }

    fn on_fault(&mut self, fault: Fault) {
        match fault.kind {
            FaultKind::Kill(count) => {
                for node in self.draw_nodes(count) {
                    self.end(node, true);
                    let at = self.now + fault.for_us;
                    self.events.push(at, Event::Start(node));
                }
            }
            FaultKind::Stop(count) => {
                for node in self.draw_nodes(count) {
                    self.nodes[node].closing = true;
                    let address = self.address(node);
                    self.with_process(address, |process, now, out| process.close(now, out));
                    let gone = self.now + SHUTDOWN_US;
                    self.events.push(gone, Event::Gone(address));
                    self.events.push(gone + fault.for_us, Event::Start(node));
                }
            }
            FaultKind::Dead(server) => {
                let server = server as usize;
                self.servers[server].up = false;
                self.break_connections(server);
                let at = self.now + fault.for_us;
                self.events.push(at, Event::Recovered(server));
            }
            FaultKind::Silent(server) => {
                let server = &mut self.servers[server as usize];
                server.stopped_until_us = server.stopped_until_us.max(self.now + fault.for_us);
            }
            FaultKind::FailOver(server) => {
                let server = server as usize;
                if let Some(replica) = self.servers[server].replica.take() {
                    self.servers[server].server = replica;
                }
                self.break_connections(server);
            }
        }
    }

    /// Whatever a server has not replied yet is lost.
    fn break_connections(&mut self, server: usize) {
        let node = &mut self.servers[server];
        node.lives += 1;
        node.busy_until_ns = 0;
        for node in 0..self.nodes.len() {
            let process = self.nodes[node].process.as_ref();
            if process.is_some_and(|process| process.is_connected(server)) {
                self.refuse(self.address(node), server);
            }
        }
    }

    /// Some processes at random, of those that are there.
    fn draw_nodes(&mut self, count: u32) -> Vec<usize> {
        let alive = (0..self.nodes.len()).filter(|node| {
            let node = &self.nodes[*node];
            node.process.is_some() && !node.closing
        });
        let mut alive: Vec<usize> = alive.collect();
        self.rng.shuffle(&mut alive);
        alive.truncate(count as usize);
        alive
    }
}

impl Node<'_> {
    fn local_us(&self, now: u64) -> u64 {
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let drift = now / 1_000_000 * self.drift_ppm + now % 1_000_000 * self.drift_ppm / 1_000_000;
        self.offset_us + u64::try_from(now + drift).unwrap_or(0)
    }
}

impl ServerNode {
    fn new() -> Self {
        ServerNode {
            server: Server::default(),
            replica: None,
            up: true,
            lives: 0,
            busy_until_ns: 0,
            stopped_until_us: 0,
            busy_ns: 0,
            calls: 0,
        }
    }

    fn is_lost(&self, now: u64) -> bool {
        !self.up || self.stopped_until_us > now
    }
}
