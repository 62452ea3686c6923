//! Random traces with undos, Lua against Rust: after every step the same verdict and stored state,
//! also after refunds, resets and clock steps.

use fastrand::Rng;
use tallygate_core::lua::Operation;
use tallygate_core::{Algorithm, MAX_TIME_US, Quota, Verb, undo};
use tallygate_testkit::{any, with_each_seed};

use super::{Call, Counter, Limit, RustAndLua, stored_state};
use crate::changed_quota::change_quota;
use crate::long_traces::{LastRequest, UNUSUAL_QUOTAS, VERBS, any_quota, next_cost, next_time};

const COUNTERS: usize = 32;

/// The requests of one counter.
struct History {
    last: LastRequest,
    /// The effective time and the units of each take.
    taken: Vec<(u64, u32)>,
}

/// An undo at time `t` of units taken at `taken_us`.
#[derive(Clone, Copy, Debug)]
struct Undo {
    taken_us: u64,
    cost: u32,
    t: u64,
}

/// Decides a random request on every counter.
fn step(rng: &mut Rng, both: &mut RustAndLua, histories: &mut [History]) {
    let each = both.counters.iter().zip(histories.iter()).enumerate();
    let call = |(i, (counter, history)): (usize, (&Counter, &History))| {
        let t = next_time(rng, &counter.quota, &history.last);
        Call::single(i, t, any(rng, &VERBS), next_cost(rng, &counter.quota))
    };
    let calls: Vec<Call> = each.map(call).collect();
    let effective_times = calls.iter().zip(&both.counters);
    let effective_times = effective_times
        .map(|(call, counter)| counter.state.effective_time_us(&counter.quota, call.t));
    let effective_times: Vec<u64> = effective_times.collect();
    let decisions = both.run(&calls);
    for (((call, decisions), history), effective_time) in calls
        .iter()
        .zip(decisions)
        .zip(histories)
        .zip(effective_times)
    {
        let verdict = decisions[0].verdict();
        history.last.update(call.t, verdict);
        if verdict.granted() > 0 {
            history.taken.push((effective_time, verdict.granted()));
        }
    }
}

/// Usually of units that were taken, sometimes of others.
fn any_undo(rng: &mut Rng, quota: &Quota, history: &mut History) -> Undo {
    let t = next_time(rng, quota, &history.last).min(MAX_TIME_US);
    let (taken_us, cost) = match history.taken.len() {
        1.. if rng.u8(..5) > 0 => {
            let recent = history.taken.len().min(4);
            history
                .taken
                .remove(history.taken.len() - 1 - rng.usize(..recent))
        }
        _ => (next_time(rng, quota, &history.last), next_cost(rng, quota)),
    };
    let immediately = rng.u8(..4) == 0;
    let t = if immediately { taken_us } else { t };
    Undo {
        taken_us,
        cost,
        t: t.min(MAX_TIME_US),
    }
}

/// Undoes a take on every counter.
fn undo_step(rng: &mut Rng, both: &mut RustAndLua, histories: &mut [History]) {
    let each = both.counters.iter().zip(&mut *histories);
    let undos: Vec<Undo> = each
        .map(|(counter, history)| any_undo(rng, &counter.quota, history))
        .collect();
    for (counter, undo) in both.counters.iter().zip(&undos) {
        let operation = Operation::Undo {
            taken_us: undo.taken_us,
        };
        let limit = Limit::new(&counter.key, &counter.quota, operation, undo.cost);
        both.scripts.send(&[limit], Some(undo.t));
        let get = [&b"GET"[..], &counter.key];
        both.scripts.connection.send(&get).unwrap();
    }
    for ((counter, history), Undo { taken_us, cost, t }) in
        both.counters.iter_mut().zip(histories).zip(undos)
    {
        let quota = counter.quota;
        let mut reply = both.scripts.receive_reply([quota]);
        let actual = undo(&quota, &mut reply.states[0], taken_us, cost, t);
        let before = counter.state.clone();
        let expected = undo(&quota, &mut counter.state, taken_us, cost, t);
        let context = || format!("{quota}: {cost} of {taken_us} undone at {t} in {before:?}");
        assert_eq!(actual, expected, "{}", context());
        let value = both.scripts.receive();
        assert!(
            stored_state::equals(&value, &quota, &counter.state),
            "{}\nstored {}\nnot {:?}",
            context(),
            stored_state::format(&value, &quota),
            counter.state
        );
        history.last.update(t, &expected);
    }
}

fn trace(rng: &mut Rng, quotas: Vec<Quota>, steps: usize, changing: bool) {
    let mut histories: Vec<History> = quotas
        .iter()
        .map(|_| History {
            last: LastRequest::new(rng),
            taken: Vec::new(),
        })
        .collect();
    let mut both = RustAndLua::new(quotas.into_iter().map(Counter::new));
    for _ in 0..steps {
        for _ in 0..rng.u8(1..4) {
            step(rng, &mut both, &mut histories);
        }
        undo_step(rng, &mut both, &mut histories);
        for counter in &mut both.counters {
            if changing && rng.u8(..6) == 0 {
                counter.quota = change_quota(rng, &counter.quota);
            }
        }
    }
}

#[test]
fn lua_and_rust_undo_alike_with_every_algorithm() {
    with_each_seed(|rng| {
        for algorithm in Algorithm::BASIC {
            let unusual = UNUSUAL_QUOTAS
                .iter()
                .map(|text| text.parse::<Quota>().unwrap());
            let any = std::iter::repeat_with(|| any_quota(&mut *rng));
            let quotas = unusual
                .chain(any)
                .filter(|quota| quota.algorithm() == algorithm)
                .take(COUNTERS)
                .collect();
            trace(rng, quotas, 150, false);
        }
    });
}

#[test]
fn lua_and_rust_undo_alike_under_changing_quotas() {
    with_each_seed(|rng| {
        for _ in 0..4 {
            let quotas = (0..COUNTERS).map(|_| any_quota(rng)).collect();
            trace(rng, quotas, 60, true);
        }
    });
}

/// Logs that are stored as a ring: entries are removed from its middle and its ends.
#[test]
fn lua_and_rust_undo_alike_in_long_logs() {
    with_each_seed(|rng| {
        let quota: Quota = "sliding-window-log 60/s".parse().unwrap();
        let mut both = RustAndLua::new([Counter::new(quota)]);
        let (mut t, mut taken) = (1_700_000_000_000_000, Vec::new());
        for _ in 0..300 {
            t += rng.u64(..30_000);
            let effective_time = both.counters[0].state.effective_time_us(&quota, t);
            let verb = any(rng, &VERBS[4..8]);
            let cost = any(rng, &[1, 1, 2, 70_000]);
            let decisions = both.run(&[Call::single(0, t, verb, cost)]);
            let granted = decisions[0][0].verdict().granted();
            if granted > 0 {
                taken.push((effective_time, granted));
            }
            if rng.u8(..3) == 0 && !taken.is_empty() {
                let (taken_us, granted) = taken.remove(rng.usize(..taken.len()));
                let cost = rng.u32(1..=granted);
                undo_once(&mut both, Undo { taken_us, cost, t });
            }
        }
    });
}

/// Undoes units of the first counter in both and compares.
#[track_caller]
fn undo_once(both: &mut RustAndLua, undone: Undo) {
    let Undo { taken_us, cost, t } = undone;
    let (key, quota) = (both.counters[0].key.clone(), both.counters[0].quota);
    let operation = Operation::Undo { taken_us };
    let mut reply = both.scripts.call(&key, &quota, operation, cost, Some(t));
    let before = both.counters[0].state.clone();
    let actual = undo(&quota, &mut reply.states[0], taken_us, cost, t);
    let expected = undo(&quota, &mut both.counters[0].state, taken_us, cost, t);
    assert_eq!(actual, expected, "{quota}: {undone:?} in {before:?}");
    let value = both.scripts.command(&[&b"GET"[..], &key]);
    let state = &both.counters[0].state;
    assert!(
        stored_state::equals(&value, &quota, state),
        "{quota}: {undone:?} in {before:?}\nstored {}\nnot {state:?}",
        stored_state::format(&value, &quota)
    );
}

/// Around the 256th newest entry, at the ends of the ring and beyond, with narrow and wide entries.
#[test]
fn lua_and_rust_undo_alike_at_any_depth() {
    let depths = [
        1, 1, 1, 2, 3, 9, 10, 11, 12, 100, 254, 255, 256, 257, 258, 400,
    ];
    with_each_seed(|rng| {
        for (text, pace, max_cost) in [
            ("sliding-window-log 1000/s", 3_000, 2),
            ("sliding-window-log 300/20d", 4_000_000_000, 2),
            ("sliding-window-log 1000/s", 3_000, 200_000),
        ] {
            let quota: Quota = text.parse().unwrap();
            let mut both = RustAndLua::new([Counter::new(quota)]);
            let (mut t, mut taken) = (1_700_000_000_000_000, Vec::new());
            for _ in 0..rng.usize(260..500) {
                t += rng.u64(1..pace);
                let cost = rng.u32(1..=max_cost);
                both.run(&[Call::single(0, t, Verb::Charge, cost)]);
                taken.push((t, cost));
            }
            for _ in 0..200 {
                for _ in 0..rng.u8(..3) {
                    t += rng.u64(1..pace);
                    let cost = rng.u32(1..=max_cost);
                    both.run(&[Call::single(0, t, Verb::Charge, cost)]);
                    taken.push((t, cost));
                }
                let depth = any(rng, &depths).min(taken.len());
                let at = taken.len() - depth;
                let (taken_us, units) = taken[at];
                let cost = any(rng, &[1, units, units, u32::MAX]);
                undo_once(&mut both, Undo { taken_us, cost, t });
                // Older ones stay charged.
                if depth <= 256 && cost >= units {
                    taken.remove(at);
                } else if depth <= 256 {
                    taken[at].1 -= cost;
                }
            }
        }
    });
}

#[test]
fn an_undo_in_lua_reaches_the_newest_256_entries() {
    let quota: Quota = "sliding-window-log 2000/h".parse().unwrap();
    for (depth, reached) in [(1, true), (255, true), (256, true), (257, false)] {
        let mut both = RustAndLua::new([Counter::new(quota)]);
        let start = 1_700_000_000_000_000;
        let calls: Vec<Call> = (0..600)
            .map(|i| Call::single(0, start + i, Verb::Check, 2))
            .collect();
        both.run(&calls);
        let before = both.counters[0].state.clone();
        let taken_us = start + 600 - depth;
        let t = start + 600;
        undo_once(
            &mut both,
            Undo {
                taken_us,
                cost: 2,
                t,
            },
        );
        assert_eq!(both.counters[0].state != before, reached, "depth {depth}");
    }
}

/// The clock steps between every two operations, and each is repeated.
#[test]
fn lua_and_rust_agree_over_every_pair_of_operations_with_a_step_back_between() {
    let mut rng = Rng::with_seed(7);
    for text in [
        "fixed-window 3/7ms",
        "sliding-window-log 3/7ms",
        "3/7ms",
        "token-bucket 3/7ms burst 4",
        "leaky-bucket 3/7ms burst 2",
        "leaky-bucket 3/7ms queue 4",
    ] {
        let quota: Quota = text.parse().unwrap();
        let span = i64::try_from(quota.span_us()).unwrap();
        let steps = [
            0,
            1,
            -1,
            -span / 2,
            1 - span,
            -span,
            -span - 1,
            1 - 2 * span,
            span,
        ];
        // `None` is an undo.
        let operations = || Verb::BASIC.map(Some).into_iter().chain([None]);
        for (first, second) in operations().flat_map(|a| operations().map(move |b| (a, b))) {
            for step in steps {
                let mut both = RustAndLua::new([Counter::new(quota)]);
                let mut t: u64 = 1_700_000_000_000_000 / 7_000 * 7_000;
                let taken_us = t;
                both.run(&[Call::single(0, t, Verb::Charge, rng.u32(1..4))]);
                for operation in [first, second, Some(Verb::Charge)] {
                    t = t
                        .checked_add_signed(any(&mut rng, &[step, step, 0]))
                        .unwrap();
                    for _ in 0..rng.u8(1..3) {
                        let cost = rng.u32(1..3);
                        match operation {
                            Some(verb) => drop(both.run(&[Call::single(0, t, verb, cost)])),
                            None => undo_once(&mut both, Undo { taken_us, cost, t }),
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_refund_of_nothing_in_lua_does_not_forget_the_key() {
    let mut both = RustAndLua::new([Counter::parse("fixed-window 3/7ms")]);
    let t = 1_700_000_000_000_000 / 7_000 * 7_000;
    let decisions = both.run(&[
        Call::single(0, t, Verb::Check, 1),
        Call::single(0, t - 13_999, Verb::Refund, 1),
        Call::single(0, t - 6_999, Verb::Charge, 1),
    ]);
    assert_eq!(decisions[2][0].verdict().remaining, 1);
}
