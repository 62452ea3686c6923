//! Fair shares, concurrency limits and reservations: after every call the same decisions and the same
//! stored states in Lua and in Rust, in random traces over several limits of any algorithm.

mod bounds;
mod corrupted;
mod expiry;
mod golden;

use std::collections::HashMap;
use std::fmt;

use tallygate_core::lua::{NamedCaller, Operation, read_holds, read_share};
use tallygate_core::{
    Caller, Decision, Entry, FormerHold, FoundState, Quota, Reservation, Room, State, Verb, Weight,
    evaluate_all, evaluate_found, former_hold, restore_hold, undo_by,
};
use tallygate_testkit::resp::Reply;
use tallygate_testkit::{any, with_each_seed};

use super::{Limit, Scripts, stored_state, unique_key};

/// The texts of the members, owners and ids of a trace.
const NAMES: [&[u8]; 5] = [b"", b"a", b"b", b"c", b"\0\xff long enough to be no number"];

/// An id of a name.
fn id(name: &[u8]) -> u64 {
    name.iter().fold(7, |id: u64, byte| {
        id.wrapping_mul(0x0100_0000_01b3) ^ u64::from(*byte)
    })
}

/// A counter in Rust and on the server.
pub(super) struct Counter {
    key: Vec<u8>,
    quota: Quota,
    state: State,
    reserved: HashMap<Vec<u8>, Reservation>,
    /// What was taken: the time, the cost, the caller, what its owner held before.
    taken: Vec<(u64, u32, Who, Option<FormerHold>)>,
}

impl Counter {
    fn new(quota: Quota) -> Self {
        Counter {
            key: unique_key(),
            quota,
            state: State::New,
            reserved: HashMap::new(),
            taken: Vec::new(),
        }
    }

    /// The key of a reservation.
    fn id_key(&self, id: &[u8]) -> Vec<u8> {
        [&self.key, &b"|r"[..], id].concat()
    }
}

/// Who asks, by name.
#[derive(Clone, Copy)]
struct Who {
    member: &'static [u8],
    weight: u32,
    has_place: bool,
    owner: &'static [u8],
    id: &'static [u8],
}

impl fmt::Debug for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [member, owner, id] = [self.member, self.owner, self.id]
            .map(|name| String::from_utf8_lossy(&name[..name.len().min(3)]));
        let place = if self.has_place { "!" } else { "" };
        write!(f, "{member:?}*{}{place} {owner:?} {id:?}", self.weight)
    }
}

impl Who {
    fn any(rng: &mut fastrand::Rng) -> Self {
        Who {
            member: any(rng, &NAMES),
            weight: any(rng, &[1, 1, 1, 2, 7, 1_000]),
            has_place: rng.bool(),
            owner: any(rng, &NAMES[1..]),
            id: any(rng, &NAMES[..3]),
        }
    }

    fn named(&self) -> NamedCaller<'static> {
        NamedCaller {
            member: self.member,
            weight: Weight::new(self.weight).unwrap(),
            has_place: self.has_place,
            owner: self.owner,
        }
    }

    fn caller(&self) -> Caller {
        Caller {
            member: id(self.member),
            weight: Weight::new(self.weight).unwrap(),
            owner: id(self.owner),
            room: if self.has_place {
                Room::Always
            } else {
                Room::Bounded
            },
        }
    }
}

/// One request, over some of the counters, each with a cost.
#[derive(Clone)]
struct Request {
    operation: Operation,
    limits: Vec<(usize, u32)>,
    who: Who,
}

/// Requests that one script decides at one time.
struct Call {
    t: u64,
    requests: Vec<Request>,
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.t)?;
        for Request {
            operation,
            limits,
            who,
        } in &self.requests
        {
            write!(f, " {operation:?} {limits:?} {who:?};")?;
        }
        Ok(())
    }
}

/// Counters in Rust and on the server.
struct RustAndLua {
    scripts: Scripts,
    counters: Vec<Counter>,
    path: Vec<String>,
}

impl RustAndLua {
    fn new(quotas: impl IntoIterator<Item = Quota>) -> Self {
        RustAndLua {
            scripts: Scripts::connect(),
            counters: quotas.into_iter().map(Counter::new).collect(),
            path: Vec::new(),
        }
    }

    /// Runs a call and compares the decisions and the states. Returns the decisions.
    #[track_caller]
    fn run(&mut self, call: &Call) -> Vec<Option<Decision>> {
        if self.path.len() == 40 {
            self.path.remove(0);
        }
        self.path.push(format!("{call:?}"));
        self.send(call);
        let mut limits = Vec::new();
        for request in &call.requests {
            let each = request.limits.iter();
            limits.extend(each.map(|(at, _)| (self.counters[*at].quota, request.operation)));
        }
        let (t, found) = self.scripts.receive_found(limits);
        assert_eq!(t, call.t);
        let mut found = found.into_iter();
        let decisions = call.requests.iter().map(|request| {
            let found = found.by_ref().take(request.limits.len()).collect();
            self.apply(request, found, t)
        });
        let decisions = decisions.collect();
        let mut changed: Vec<usize> = call
            .requests
            .iter()
            .flat_map(|r| &r.limits)
            .map(|l| l.0)
            .collect();
        changed.sort_unstable();
        changed.dedup();
        for at in changed {
            self.compare_stored(at, call);
        }
        decisions
    }

    fn send(&mut self, call: &Call) {
        let id_keys: Vec<Vec<u8>> = call
            .requests
            .iter()
            .flat_map(|request| {
                let counters = request.limits.iter().map(|(at, _)| &self.counters[*at]);
                counters.map(|counter| counter.id_key(request.who.id))
            })
            .collect();
        let mut id_keys = id_keys.iter();
        let mut limits = Vec::new();
        for request in &call.requests {
            for (n, &(at, cost)) in request.limits.iter().enumerate() {
                let Counter { key, quota, .. } = &self.counters[at];
                limits.push(Limit {
                    more: n + 1 < request.limits.len(),
                    caller: request.who.named(),
                    id: id_keys.next().unwrap(),
                    ..Limit::new(key, quota, request.operation, cost)
                });
            }
        }
        self.scripts.send(&limits, Some(call.t));
    }

    /// Applies a request in Rust, and compares the decision with that from what the script found.
    #[track_caller]
    fn apply(
        &mut self,
        request: &Request,
        found: Vec<(State, Option<Reservation>)>,
        t: u64,
    ) -> Option<Decision> {
        let Request {
            operation,
            limits,
            who,
        } = request;
        let caller = who.caller();
        let verb = match *operation {
            Operation::Verb(verb) => verb,
            Operation::Undo { taken_us } => {
                let (at, cost) = limits[0];
                let Counter { quota, state, .. } = &mut self.counters[at];
                undo_by(quota, state, &caller, taken_us, cost, t);
                return None;
            }
            Operation::Restore { former } => {
                restore_hold(&mut self.counters[limits[0].0].state, &caller, former);
                return None;
            }
            _ => unreachable!(),
        };
        let quotas: Vec<Quota> = limits
            .iter()
            .map(|(at, _)| self.counters[*at].quota)
            .collect();
        let each = found.into_iter().zip(&quotas).zip(limits);
        let mut found: Vec<FoundState<'_>> = each
            .map(|(((state, reservation), quota), &(_, cost))| FoundState {
                caller,
                reservation,
                ..FoundState::new(quota, state, cost, t)
            })
            .collect();
        let shown = format!("{found:?}");
        let times: Vec<u64> = found.iter().map(FoundState::effective_time_us).collect();
        let formers: Vec<Option<FormerHold>> = found
            .iter()
            .map(|found| former_hold(found.quota, &found.state, &caller, t))
            .collect();
        let actual = evaluate_found(&mut found, verb);
        let mut states: Vec<State> = limits
            .iter()
            .map(|(at, _)| std::mem::take(&mut self.counters[*at].state))
            .collect();
        let each = quotas.iter().zip(&mut states).zip(limits);
        let mut entries: Vec<Entry<'_>> = each
            .map(|((quota, state), &(at, cost))| Entry {
                caller,
                reservation: self.counters[at].reserved.get(who.id).copied(),
                ..Entry::new(quota, state, cost)
            })
            .collect();
        let entry_times: Vec<u64> = entries
            .iter()
            .map(|entry| entry.state.effective_time_us(entry.quota, t))
            .collect();
        let entry_formers: Vec<Option<FormerHold>> = entries
            .iter()
            .map(|entry| former_hold(entry.quota, entry.state, &caller, t))
            .collect();
        let before = format!("{entries:?}");
        let expected = evaluate_all(&mut entries, verb, t);
        assert!(
            actual == expected,
            "decided {actual:#?}\nnot {expected:#?}\nfrom {shown}\nnot {before}\nafter {:#?}",
            self.path
        );
        let takes = matches!(
            verb,
            Verb::Check | Verb::Take | Verb::Charge | Verb::Reserve
        );
        if takes {
            let shown = format!("{shown}\nnot {before}\nafter {:#?}", self.path);
            assert_eq!(
                (&times, &formers),
                (&entry_times, &entry_formers),
                "{shown}"
            );
        }
        let reservations: Vec<Option<Reservation>> =
            entries.iter().map(|entry| entry.reservation).collect();
        let after = limits.iter().zip(states).zip(reservations);
        for (n, ((&(at, _), state), reservation)) in after.enumerate() {
            let counter = &mut self.counters[at];
            counter.state = state;
            match reservation {
                Some(reservation) => counter.reserved.insert(who.id.to_vec(), reservation),
                None => counter.reserved.remove(who.id),
            };
            let units = expected.verdicts()[n].granted();
            if expected.verdict().allowed() && units > 0 && takes {
                counter.taken.push((times[n], units, *who, formers[n]));
            }
        }
        Some(expected)
    }

    #[track_caller]
    fn compare_stored(&mut self, at: usize, call: &Call) {
        let stored = self.stored(at);
        let Counter { quota, state, .. } = &self.counters[at];
        assert!(
            stored.as_ref() == Some(state),
            "{quota}: stored {stored:#?}\nnot {state:#?}\nafter {:#?}",
            self.path
        );
        for request in &call.requests {
            let name = request.who.id;
            let counter = &self.counters[at];
            let value = self.scripts.command(&[b"GET", &*counter.id_key(name)]);
            let expected = counter.reserved.get(name);
            let stored = match &value {
                Reply::Bulk(stored) => Some(stored),
                _ => None,
            };
            assert_eq!(
                stored.is_some(),
                expected.is_some(),
                "after {:#?}",
                self.path
            );
            if let (Some(stored), Some(expected), true) =
                (stored, expected, counter.quota.algorithm().is_shared())
            {
                assert_eq!(id(&stored[13..]), expected.member);
            }
        }
    }

    /// The state on the server; `None` if it is not that of an ordinary counter.
    fn stored(&mut self, at: usize) -> Option<State> {
        let Counter {
            key, quota, state, ..
        } = &self.counters[at];
        let algorithm = quota.algorithm();
        if algorithm.is_concurrent() {
            let held = fields(&mut self.scripts, key);
            let ends = self
                .scripts
                .command(&[b"ZCARD", &*[&key[..], b"|u"].concat()]);
            let owners = i64::try_from(held.len()).unwrap() - 1;
            assert_eq!(ends.integer(), owners.max(0), "after {:#?}", self.path);
            return Some(read_holds(&held, id));
        }
        let value = self.scripts.command(&[b"GET", &key[..]]);
        if !algorithm.is_shared() {
            return stored_state::equals(&value, quota, state).then(|| state.clone());
        }
        let members = [b"|0", b"|1"].map(|suffix| {
            let key = [&key[..], suffix].concat();
            fields(&mut self.scripts, &key)
        });
        match value {
            Reply::Bulk(root) => read_share(&root, [&members[0], &members[1]], id),
            _ => {
                assert_eq!(members, [vec![], vec![]], "after {:#?}", self.path);
                Some(State::New)
            }
        }
    }
}

/// What is stored in a hash.
fn fields(scripts: &mut Scripts, key: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let reply = scripts.command(&[b"HGETALL", key]);
    let texts: Vec<Vec<u8>> = reply
        .array()
        .iter()
        .map(|text| match text {
            Reply::Bulk(text) => text.clone(),
            other => panic!("{other:?}"),
        })
        .collect();
    texts
        .chunks(2)
        .map(|pair| (pair[0].clone(), pair[1].clone()))
        .collect()
}

const SHARED: [&str; 9] = [
    "token-bucket 10/s burst 16 shared 4",
    "token-bucket 100/s burst 100 shared",
    "leaky-bucket 7/min burst 9 shared 2",
    "token-bucket 1000000000/s burst 1000 shared 250",
    "token-bucket 1/d burst 366 shared 91",
    "token-bucket 1000000000/ms burst 4 shared 1",
    "token-bucket 3/7ms burst 1000 shared 1",
    "token-bucket 1000000/30d burst 1000000 shared 3",
    "token-bucket 999999937/366d burst 999999937 shared 200000000",
];
const CONCURRENT: [&str; 4] = [
    "concurrent 3 for 1s",
    "concurrent 10 for 30s",
    "concurrent 1 for 24h",
    "concurrent 10000 for 1min",
];
const ORDINARY: [&str; 8] = [
    "fixed-window 5/min",
    "sliding-window-log 12/min",
    "sliding-window-log 3/s",
    "sliding-window-counter 10/min",
    "token-bucket 10/s burst 50",
    "leaky-bucket 3/7s burst 4",
    "leaky-bucket 10/s queue 20",
    "token-bucket 999999937/366d burst 999999937",
];

fn any_cost(rng: &mut fastrand::Rng, quota: &Quota) -> u32 {
    let capacity = quota.capacity();
    match rng.u8(..10) {
        0 => 0,
        1 => capacity,
        2 => capacity.saturating_add(1),
        3 => any(rng, &[u32::MAX, 4 * capacity.min(1 << 29), 65_536]),
        4 => rng.u32(..=capacity),
        _ => rng.u32(1..=capacity.div_ceil(4)),
    }
}

/// A time near those at which something changes.
fn next_time(rng: &mut fastrand::Rng, t: u64, quota: &Quota) -> u64 {
    let span = quota.span_us();
    let hour = 3_600_000_000;
    let step = match rng.u8(..16) {
        0..=4 => 0,
        5 => 1,
        6..=10 => rng.u64(..=span / 4 + 1),
        11 => any(rng, &[span - 1, span, span + 1, 2 * span]),
        12 => any(rng, &[hour - 1, hour, hour / 3]),
        13 => rng.u64(..=8 * span),
        _ => {
            let back = any(rng, &[1, span, span + 1, span / 3, 3 * span]);
            return t.saturating_sub(back);
        }
    };
    (t + step).min(1 << 52)
}

fn any_request(rng: &mut fastrand::Rng, counters: &[Counter]) -> Request {
    let who = Who::any(rng);
    if rng.u8(..8) == 0 {
        let at = rng.usize(..counters.len());
        let counter = &counters[at];
        if let Some(&(taken_us, cost, who, former)) = counter.taken.last() {
            let restores = counter.quota.algorithm().is_concurrent() && rng.bool();
            let operation = match restores {
                true => Operation::Restore { former },
                false => Operation::Undo { taken_us },
            };
            let limits = vec![(at, cost)];
            return Request {
                operation,
                limits,
                who,
            };
        }
    }
    let verb = match rng.u8(..3) {
        0 => Verb::Check,
        1 => any(
            rng,
            &[Verb::Reserve, Verb::Settle, Verb::Release, Verb::Take],
        ),
        _ => any(rng, &Verb::ALL),
    };
    let mut at: Vec<usize> = (0..counters.len()).collect();
    rng.shuffle(&mut at);
    at.truncate(rng.usize(1..=counters.len()));
    let limits = at
        .into_iter()
        .map(|at| (at, any_cost(rng, &counters[at].quota)));
    Request {
        operation: Operation::Verb(verb),
        limits: limits.collect(),
        who,
    }
}

/// Traces over a counter of each of these lists of quotas.
fn compare_traces(rng: &mut fastrand::Rng, lists: &[&[&str]], calls: usize) {
    let quotas = lists.iter().map(|list| any(rng, list).parse().unwrap());
    let mut both = RustAndLua::new(quotas.collect::<Vec<_>>());
    let mut t = any(rng, &[0, 1_700_000_000_000_000, (1 << 52) - 1_000_000_000]);
    for _ in 0..calls {
        let quota = both.counters[rng.usize(..lists.len())].quota;
        t = next_time(rng, t, &quota);
        let requests = (0..any(rng, &[1, 1, 1, 2, 5]))
            .map(|_| any_request(rng, &both.counters))
            .collect();
        both.run(&Call { t, requests });
    }
}

#[test]
fn random_traces_of_a_shared_bucket_agree() {
    with_each_seed(|rng| (0..6).for_each(|_| compare_traces(rng, &[&SHARED], 300)));
}

#[test]
fn random_traces_of_a_concurrency_limit_agree() {
    with_each_seed(|rng| (0..6).for_each(|_| compare_traces(rng, &[&CONCURRENT], 300)));
}

#[test]
fn random_traces_of_reservations_agree() {
    with_each_seed(|rng| (0..6).for_each(|_| compare_traces(rng, &[&ORDINARY], 300)));
}

#[test]
fn random_traces_of_several_limits_agree() {
    with_each_seed(|rng| {
        for _ in 0..4 {
            compare_traces(rng, &[&SHARED, &CONCURRENT, &ORDINARY], 200);
            compare_traces(rng, &[&ORDINARY, &ORDINARY, &CONCURRENT, &CONCURRENT], 200);
            compare_traces(rng, &[&SHARED, &SHARED], 200);
        }
    });
}

/// The limit, the burst and the least units of a member change; the counter keeps its units.
#[test]
fn a_changed_limit_agrees() {
    with_each_seed(|rng| {
        let mut both =
            RustAndLua::new([SHARED[0].parse().unwrap(), CONCURRENT[1].parse().unwrap()]);
        let mut t = 1_700_000_000_000_000;
        for _ in 0..300 {
            if rng.u8(..10) == 0 {
                let shared = any(
                    rng,
                    &[
                        "token-bucket 10/s burst 16 shared 4",
                        "token-bucket 7/s burst 16 shared 4",
                        "token-bucket 10/s burst 40 shared 2",
                        "token-bucket 1000000000/s burst 1000000000 shared",
                    ],
                );
                both.counters[0].quota = shared.parse().unwrap();
                let concurrent = any(rng, &["concurrent 10 for 30s", "concurrent 2 for 30s"]);
                both.counters[1].quota = concurrent.parse().unwrap();
            }
            let quota = both.counters[rng.usize(..2)].quota;
            t = next_time(rng, t, &quota);
            let requests = vec![any_request(rng, &both.counters)];
            both.run(&Call { t, requests });
        }
    });
}
