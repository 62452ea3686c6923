//! The Lua scripts on a real server compared with Rust: after every call the same decisions and the
//! same stored state.

mod corrupted;
mod expiry;
mod logs;
mod long_traces;
mod multi_limit;
mod short_histories;
mod stored_state;
mod undo;
mod undo_traces;

use std::collections::VecDeque;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tallygate_core::lua::{Kinds, Operation, join_arguments, read_state, script, write_argument};
use tallygate_core::{Decision, FoundState, Quota, State, Verb, evaluate_all, evaluate_found};
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
        let kinds = limits.iter().map(|limit| Kinds::from_quota(limit.quota));
        let hash = self.hash(kinds.fold(Kinds::default(), Kinds::union));
        let mut args = vec![b"EVALSHA".to_vec(), hash, limits.len().to_string().into()];
        args.extend(limits.iter().map(|limit| limit.key.to_vec()));
        let arguments = limits.iter().map(|limit| {
            let mut argument = Vec::new();
            write_argument(
                &mut argument,
                limit.quota,
                limit.operation,
                limit.cost,
                limit.more,
            );
            argument
        });
        let arguments: Vec<Vec<u8>> = arguments.collect();
        let each = arguments.iter().map(Vec::as_slice);
        args.push(join_arguments(each));
        if let Some(t) = t {
            args.push((t / 1_000_000).to_string().into());
            args.push((t % 1_000_000).to_string().into());
        }
        self.connection.send(&args).unwrap();
    }

    fn receive_reply(&mut self, quotas: impl IntoIterator<Item = Quota>) -> ScriptReply {
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
        let read = |quota| read_state(&quota, &mut rest).unwrap();
        let states = quotas.into_iter().map(read).collect();
        assert_eq!(rest, b"");
        ScriptReply { t, states }
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
        let limit = Limit {
            key,
            quota,
            operation,
            cost,
            more: false,
        };
        self.send(&[limit], t);
        self.receive_reply([*quota])
    }

    /// Decides a request with one limit.
    fn decide(&mut self, key: &[u8], quota: &Quota, step: (Verb, u32), t: Option<u64>) -> Decision {
        let (verb, cost) = step;
        let mut reply = self.call(key, quota, Operation::Verb(verb), cost, t);
        let found = FoundState {
            quota,
            state: reply.states.remove(0),
            cost,
            now_us: reply.t,
        };
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
                limits.push(Limit {
                    key: &self.counters[i].key,
                    quota: &self.counters[i].quota,
                    operation: Operation::Verb(request.verb),
                    cost: request.costs[n],
                    more: n + 1 < request.counters.len(),
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

    /// Decides from the states that the script found and from those in Rust.
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
        let found = found.map(|((state, quota), &cost)| FoundState {
            quota,
            state,
            cost,
            now_us: t,
        });
        let mut found: Vec<FoundState<'_>> = found.collect();
        let actual = evaluate_found(&mut found, verb);
        let mut states: Vec<State> = request
            .counters
            .iter()
            .map(|&i| std::mem::take(&mut self.counters[i].state))
            .collect();
        let each = quotas.iter().zip(&mut states).zip(&request.costs);
        let mut limits: Vec<_> = each
            .map(|((quota, state), &cost)| (quota, state, cost))
            .collect();
        let expected = evaluate_all(&mut limits, verb, t);
        for (&i, state) in request.counters.iter().zip(states) {
            self.counters[i].state = state;
        }
        assert!(
            actual == expected,
            "decided {actual:?}\nnot {expected:?}\nfrom {found:?}\nafter {:#?}",
            self.counters[request.counters[0]].path
        );
        expected
    }
}
