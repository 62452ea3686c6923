//! The Lua scripts on a real server compared with Rust: after every call the same decisions and the
//! same stored state.

mod callers;
mod corrupted;
mod expiry;
mod lease;
mod logs;
mod long_traces;
mod multi_limit;
mod repeated;
mod short_histories;
mod stored_state;
mod tail;
mod undo;
mod undo_traces;

use std::collections::VecDeque;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tallygate_core::lua::{
    Kinds, NamedCaller, Operation, join_arguments, key_suffixes, read_found, script, write_argument,
};
use tallygate_core::{
    Decision, Entry, FoundState, Quota, Reservation, State, Verb, evaluate_all, evaluate_found,
    next_check,
};
use tallygate_testkit::redis::Server;
use tallygate_testkit::resp::{Connection, Reply};

/// Shared by all tests, which use unique keys.
static SERVER: LazyLock<Server> = LazyLock::new(Server::start);

/// A unique key.
fn unique_key() -> Vec<u8> {
    static KEYS: AtomicU64 = AtomicU64::new(0);
    format!("counter:{}", KEYS.fetch_add(1, Ordering::Relaxed)).into_bytes()
}

/// A connection, and the hashes of the scripts that are loaded.
struct Scripts {
    connection: Connection,
    hashes: Vec<Option<Vec<u8>>>,
}

/// The reply of a script: the time of the decision and the states before it.
#[derive(Debug)]
struct ScriptReply {
    t: u64,
    states: Vec<State>,
}

/// One limit of a script call.
struct Limit<'a> {
    key: &'a [u8],
    quota: &'a Quota,
    operation: Operation,
    cost: u32,
    /// Whether more limits of the same request follow.
    more: bool,
    caller: NamedCaller<'a>,
    /// The key of the reservation.
    id: &'a [u8],
}

impl<'a> Limit<'a> {
    fn new(key: &'a [u8], quota: &'a Quota, operation: Operation, cost: u32) -> Self {
        Limit {
            key,
            quota,
            operation,
            cost,
            more: false,
            caller: NamedCaller::default(),
            id: b"",
        }
    }

    fn kinds(&self) -> Kinds {
        Kinds::new(self.quota, self.operation)
    }

    fn argument(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let Limit { quota, cost, .. } = self;
        write_argument(
            &mut out,
            quota,
            self.operation,
            &self.caller,
            *cost,
            self.more,
        );
        out
    }

    fn further_keys(&self) -> impl Iterator<Item = Vec<u8>> {
        let suffixes = key_suffixes(self.quota).iter();
        let own = suffixes.map(|suffix| [self.key, suffix.as_bytes()].concat());
        let id = self
            .operation
            .has_reservation(self.quota)
            .then(|| self.id.to_vec());
        own.chain(id)
    }
}

impl Scripts {
    fn connect() -> Self {
        Scripts {
            connection: SERVER.connect().unwrap(),
            hashes: vec![None; Kinds::COUNT],
        }
    }

    fn command<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Reply {
        self.connection.send(args).unwrap();
        self.receive()
    }

    #[track_caller]
    fn receive(&mut self) -> Reply {
        let reply = self.connection.receive().unwrap();
        assert_eq!(reply.error(), None);
        reply
    }

    fn hash(&mut self, kinds: Kinds) -> Vec<u8> {
        if self.hashes[kinds.index()].is_none() {
            // On another connection: replies may be pending on this one.
            let hash = SERVER.command(&["SCRIPT", "LOAD", &script(kinds)]);
            self.hashes[kinds.index()] = Some(hash.text().into());
        }
        self.hashes[kinds.index()].clone().unwrap()
    }

    /// Sends a call with a supplied time, or for the server's clock.
    fn send(&mut self, limits: &[Limit<'_>], t: Option<u64>) {
        let kinds = limits.iter().map(Limit::kinds);
        let kinds = kinds.fold(Kinds::default(), Kinds::union);
        let mut keys: Vec<Vec<u8>> = limits.iter().map(|limit| limit.key.to_vec()).collect();
        keys.extend(limits.iter().flat_map(Limit::further_keys));
        let mut args = vec![
            b"EVALSHA".to_vec(),
            self.hash(kinds),
            keys.len().to_string().into(),
        ];
        args.extend(keys);
        let arguments: Vec<Vec<u8>> = limits.iter().map(Limit::argument).collect();
        args.push(join_arguments(kinds, arguments.iter().map(Vec::as_slice)));
        if let Some(t) = t {
            args.push((t / 1_000_000).to_string().into());
            args.push((t % 1_000_000).to_string().into());
        }
        self.connection.send(&args).unwrap();
    }

    fn receive_reply(&mut self, quotas: impl IntoIterator<Item = Quota>) -> ScriptReply {
        let check = Operation::Verb(Verb::Check);
        let limits = quotas.into_iter().map(|quota| (quota, check));
        let (t, found) = self.receive_found(limits);
        let states = found.into_iter().map(|(state, _)| state).collect();
        ScriptReply { t, states }
    }

    /// Receives a reply with reservations.
    fn receive_found(
        &mut self,
        limits: impl IntoIterator<Item = (Quota, Operation)>,
    ) -> (u64, Vec<(State, Option<Reservation>)>) {
        let Reply::Bulk(reply) = self.receive() else {
            panic!("not a string");
        };
        let mut parts = reply.splitn(3, |&byte| byte == b' ');
        let mut number = || {
            str::from_utf8(parts.next().unwrap())
                .unwrap()
                .parse::<u64>()
        };
        let t = number().unwrap() * 1_000_000 + number().unwrap();
        let mut rest = parts.next().unwrap();
        let read = |(quota, operation)| read_found(&quota, operation, &mut rest).unwrap();
        let found = limits.into_iter().map(read).collect();
        assert_eq!(rest, b"");
        (t, found)
    }

    /// Calls the script for one limit.
    fn call(
        &mut self,
        key: &[u8],
        quota: &Quota,
        operation: Operation,
        cost: u32,
        t: Option<u64>,
    ) -> ScriptReply {
        self.send(&[Limit::new(key, quota, operation, cost)], t);
        self.receive_reply([*quota])
    }

    /// Decides a request with one limit.
    fn decide(&mut self, key: &[u8], quota: &Quota, step: (Verb, u32), t: Option<u64>) -> Decision {
        let (verb, cost) = step;
        let mut reply = self.call(key, quota, Operation::Verb(verb), cost, t);
        let found = FoundState::new(quota, reply.states.remove(0), cost, reply.t);
        evaluate_found(&mut [found], verb)
    }
}

/// A counter in Rust and on the server.
struct Counter {
    key: Vec<u8>,
    quota: Quota,
    state: State,
    /// The last requests.
    path: VecDeque<(u64, Verb, u32, Quota)>,
}

impl Counter {
    fn new(quota: Quota) -> Self {
        Counter {
            key: unique_key(),
            quota,
            state: State::New,
            path: VecDeque::new(),
        }
    }

    fn parse(text: &str) -> Self {
        Counter::new(text.parse().unwrap())
    }
}

/// A request over some of the counters.
#[derive(Clone, Debug)]
struct Request {
    counters: Vec<usize>,
    verb: Verb,
    /// One per counter.
    costs: Vec<u32>,
    /// The number of equal requests in one step, if it is a check.
    times: u16,
}

impl Request {
    fn operation(&self) -> Operation {
        match self.times {
            1 => Operation::Verb(self.verb),
            times => Operation::RepeatedCheck { times },
        }
    }
}

/// Requests that one script call decides in order.
#[derive(Clone, Debug)]
struct Call {
    t: u64,
    requests: Vec<Request>,
}

impl Call {
    /// A request over one counter.
    fn single(counter: usize, t: u64, verb: Verb, cost: u32) -> Self {
        let request = Request {
            counters: vec![counter],
            verb,
            costs: vec![cost],
            times: 1,
        };
        Call {
            t: t.min(1 << 52),
            requests: vec![request],
        }
    }

    fn counters(&self) -> impl Iterator<Item = usize> + '_ {
        let requests = self.requests.iter();
        requests.flat_map(|request| request.counters.iter().copied())
    }
}

/// Counters in Rust and on the server.
struct RustAndLua {
    scripts: Scripts,
    counters: Vec<Counter>,
}

impl RustAndLua {
    fn new(counters: impl IntoIterator<Item = Counter>) -> Self {
        RustAndLua {
            scripts: Scripts::connect(),
            counters: counters.into_iter().collect(),
        }
    }

    /// Runs calls and compares every decision and every stored state.
    #[track_caller]
    fn run(&mut self, calls: &[Call]) -> Vec<Vec<Decision>> {
        for call in calls {
            self.send(call);
            for i in call.counters() {
                let get = [&b"GET"[..], &self.counters[i].key];
                self.scripts.connection.send(&get).unwrap();
            }
        }
        calls.iter().map(|call| self.compare(call)).collect()
    }

    fn send(&mut self, call: &Call) {
        let mut limits = Vec::new();
        for request in &call.requests {
            for (n, &i) in request.counters.iter().enumerate() {
                let Counter { key, quota, .. } = &self.counters[i];
                limits.push(Limit {
                    more: n + 1 < request.counters.len(),
                    ..Limit::new(key, quota, request.operation(), request.costs[n])
                });
            }
        }
        self.scripts.send(&limits, Some(call.t));
    }

    #[track_caller]
    fn compare(&mut self, call: &Call) -> Vec<Decision> {
        let quotas = call.counters().map(|i| self.counters[i].quota);
        let reply = self.scripts.receive_reply(quotas.collect::<Vec<_>>());
        assert_eq!(reply.t, call.t);
        let mut states = reply.states.into_iter();
        let decisions = call.requests.iter().map(|request| {
            let found: Vec<State> = states.by_ref().take(request.counters.len()).collect();
            self.decide(request, found, call.t)
        });
        let decisions = decisions.collect();
        for i in call.counters() {
            let Counter { quota, state, .. } = &self.counters[i];
            let value = self.scripts.receive();
            assert!(
                stored_state::equals(&value, quota, state),
                "{quota}: stored {}\nnot {state:?}\nafter {:#?}",
                stored_state::format(&value, quota),
                self.counters[i].path
            );
        }
        decisions
    }

    /// Decides from the states that the script found and from those in Rust. Returns the last of
    /// equal decisions.
    #[track_caller]
    fn decide(&mut self, request: &Request, found: Vec<State>, t: u64) -> Decision {
        let verb = request.verb;
        for (&i, &cost) in request.counters.iter().zip(&request.costs) {
            let Counter { quota, path, .. } = &mut self.counters[i];
            if path.len() == 12 {
                path.pop_front();
            }
            path.push_back((t, verb, cost, *quota));
        }
        let quotas: Vec<Quota> = request
            .counters
            .iter()
            .map(|&i| self.counters[i].quota)
            .collect();
        let found = found.into_iter().zip(&quotas).zip(&request.costs);
        let found = found.map(|((state, quota), &cost)| FoundState::new(quota, state, cost, t));
        let mut found: Vec<FoundState<'_>> = found.collect();
        let mut states: Vec<State> = request
            .counters
            .iter()
            .map(|&i| std::mem::take(&mut self.counters[i].state))
            .collect();
        let mut last = None;
        for time in 1..=request.times {
            let actual = evaluate_found(&mut found.clone(), verb);
            let each = quotas.iter().zip(&mut states).zip(&request.costs);
            let mut limits: Vec<_> = each
                .map(|((quota, state), &cost)| Entry::new(quota, state, cost))
                .collect();
            let expected = evaluate_all(&mut limits, verb, t);
            assert!(
                actual == expected,
                "decided {actual:?}\nnot {expected:?}\nfrom {found:?}, {time} of {}\nafter {:#?}",
                request.times,
                self.counters[request.counters[0]].path
            );
            if request.times > 1 {
                assert_eq!(next_check(&mut found), expected.verdict().allowed());
            }
            last = Some(expected);
        }
        for (&i, state) in request.counters.iter().zip(states) {
            self.counters[i].state = state;
        }
        last.expect("at least one")
    }
}
