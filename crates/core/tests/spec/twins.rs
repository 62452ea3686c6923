//! The Lua twins on a real server against Rust: after every call the same decisions and the same
//! stored state.

mod corrupted;
mod expiry;
mod histories;
mod logs;
mod several;
mod stored;
mod traces;
mod undo;
mod undone;

use std::collections::VecDeque;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tallygate_core::lua::{Kinds, Operation, join_arguments, read_state, script, write_argument};
use tallygate_core::{Decision, FoundState, Quota, State, Verb, evaluate_all, evaluate_found};
use tallygate_testkit::redis::Server;
use tallygate_testkit::resp::{Connection, Reply};

/// One for all tests: they use keys of their own.
static SERVER: LazyLock<Server> = LazyLock::new(Server::start);

/// A key that nobody else has.
fn any_key() -> Vec<u8> {
    static KEYS: AtomicU64 = AtomicU64::new(0);
    format!("twin:{}", KEYS.fetch_add(1, Ordering::Relaxed)).into_bytes()
}

/// A connection, and the names of the scripts that the server has.
struct Scripts {
    connection: Connection,
    names: Vec<Option<Vec<u8>>>,
}

/// What a script answered: when it decided, and what it found.
#[derive(Debug)]
struct Answer {
    t: u64,
    states: Vec<State>,
}

/// One limit of a script's call.
struct Limit<'a> {
    key: &'a [u8],
    quota: &'a Quota,
    ask: Operation,
    cost: u32,
    more: bool,
}

impl Scripts {
    fn connect() -> Self {
        Scripts {
            connection: SERVER.connect().unwrap(),
            names: vec![None; Kinds::COUNT],
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

    fn name(&mut self, kinds: Kinds) -> Vec<u8> {
        if self.names[kinds.index()].is_none() {
            // On a connection of its own: there may be replies to come on this one.
            let name = SERVER.command(&["SCRIPT", "LOAD", &script(kinds)]);
            self.names[kinds.index()] = Some(name.text().into());
        }
        self.names[kinds.index()].clone().unwrap()
    }

    /// Sends a call at a time, or at the server's own.
    fn send(&mut self, limits: &[Limit<'_>], t: Option<u64>) {
        let kinds = limits.iter().map(|limit| Kinds::from_quota(limit.quota));
        let name = self.name(kinds.fold(Kinds::default(), Kinds::union));
        let mut args = vec![b"EVALSHA".to_vec(), name, limits.len().to_string().into()];
        args.extend(limits.iter().map(|limit| limit.key.to_vec()));
        let arguments = limits.iter().map(|limit| {
            let mut argument = Vec::new();
            write_argument(
                &mut argument,
                limit.quota,
                limit.ask,
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

    fn answer(&mut self, quotas: impl IntoIterator<Item = Quota>) -> Answer {
        let Reply::Bulk(answer) = self.receive() else {
            panic!("not a string");
        };
        let mut parts = answer.splitn(3, |&byte| byte == b' ');
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
        Answer { t, states }
    }

    /// Asks about one limit alone.
    fn ask(
        &mut self,
        key: &[u8],
        quota: &Quota,
        ask: Operation,
        cost: u32,
        t: Option<u64>,
    ) -> Answer {
        let limit = Limit {
            key,
            quota,
            ask,
            cost,
            more: false,
        };
        self.send(&[limit], t);
        self.answer([*quota])
    }

    /// Decides about one limit alone.
    fn decide(&mut self, key: &[u8], quota: &Quota, step: (Verb, u32), t: Option<u64>) -> Decision {
        let (verb, cost) = step;
        let mut answer = self.ask(key, quota, Operation::Verb(verb), cost, t);
        let found = FoundState {
            quota,
            state: answer.states.remove(0),
            cost,
            now_us: answer.t,
        };
        evaluate_found(&mut [found], verb)
    }
}

/// A counter twice: in Rust, and on the server.
struct Counter {
    key: Vec<u8>,
    quota: Quota,
    state: State,
    /// What happened to it last.
    path: VecDeque<(u64, Verb, u32, Quota)>,
}

impl Counter {
    fn new(quota: Quota) -> Self {
        Counter {
            key: any_key(),
            quota,
            state: State::New,
            path: VecDeque::new(),
        }
    }

    fn under(text: &str) -> Self {
        Counter::new(text.parse().unwrap())
    }
}

/// One request before some of the counters.
#[derive(Clone, Debug)]
struct Request {
    counters: Vec<usize>,
    verb: Verb,
    /// Each counter's own.
    costs: Vec<u32>,
}

/// Requests that one call of a script decides, in order.
#[derive(Clone, Debug)]
struct Call {
    t: u64,
    requests: Vec<Request>,
}

impl Call {
    /// About one counter alone.
    fn one(counter: usize, t: u64, verb: Verb, cost: u32) -> Self {
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

/// Counters and the server that has them too.
struct Both {
    scripts: Scripts,
    counters: Vec<Counter>,
}

impl Both {
    fn new(counters: impl IntoIterator<Item = Counter>) -> Self {
        Both {
            scripts: Scripts::connect(),
            counters: counters.into_iter().collect(),
        }
    }

    /// Makes calls and compares every decision, and what is stored after each call.
    #[track_caller]
    fn make(&mut self, calls: &[Call]) -> Vec<Vec<Decision>> {
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
                    ask: Operation::Verb(request.verb),
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
        let answer = self.scripts.answer(quotas.collect::<Vec<_>>());
        assert_eq!(answer.t, call.t);
        let mut states = answer.states.into_iter();
        let decisions = call.requests.iter().map(|request| {
            let found: Vec<State> = states.by_ref().take(request.counters.len()).collect();
            self.decide(request, found, call.t)
        });
        let decisions = decisions.collect();
        for i in call.counters() {
            let Counter { quota, state, .. } = &self.counters[i];
            let value = self.scripts.receive();
            assert!(
                stored::is(&value, quota, state),
                "{quota}: stored {}\nnot {state:?}\nafter {:#?}",
                stored::shown(&value, quota),
                self.counters[i].path
            );
        }
        decisions
    }

    /// Decides as the script did and as the Rust does.
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
        let given = evaluate_found(&mut found, verb);
        let mut states: Vec<State> = request
            .counters
            .iter()
            .map(|&i| std::mem::take(&mut self.counters[i].state))
            .collect();
        let each = quotas.iter().zip(&mut states).zip(&request.costs);
        let mut limits: Vec<_> = each
            .map(|((quota, state), &cost)| (quota, state, cost))
            .collect();
        let right = evaluate_all(&mut limits, verb, t);
        for (&i, state) in request.counters.iter().zip(states) {
            self.counters[i].state = state;
        }
        assert!(
            given == right,
            "decided {given:?}\nnot {right:?}\nfrom {found:?}\nafter {:#?}",
            self.counters[request.counters[0]].path
        );
        right
    }
}
