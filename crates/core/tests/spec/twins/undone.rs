//! Undo in Lua against undo in Rust: after every step the same decision and the same stored state,
//! also after refunds, resets, undos and clock steps.

use fastrand::Rng;
use tallygate_core::lua::Operation;
use tallygate_core::{Algorithm, MAX_TIME_US, Quota, undo};
use tallygate_testkit::{any, with_each_seed};

use super::{Both, Call, Counter, Limit, stored};
use crate::changed_quota::changed;
use crate::long_traces::{AWKWARD, Last, VERBS, any_quota, next_cost, next_time};

const LANES: usize = 32;

/// One counter's story.
struct Lane {
    last: Last,
    /// When units were taken, and how many.
    taken: Vec<(u64, u32)>,
}

/// What is undone: units as of a moment, at a time.
#[derive(Clone, Copy, Debug)]
struct Undo {
    taken_us: u64,
    cost: u32,
    t: u64,
}

/// Any verb on every counter.
fn walk(rng: &mut Rng, both: &mut Both, lanes: &mut [Lane]) {
    let each = both.counters.iter().zip(lanes.iter()).enumerate();
    let call = |(i, (counter, lane)): (usize, (&Counter, &Lane))| {
        let t = next_time(rng, &counter.quota, &lane.last);
        Call::one(i, t, any(rng, &VERBS), next_cost(rng, &counter.quota))
    };
    let calls: Vec<Call> = each.map(call).collect();
    let moments = calls.iter().zip(&both.counters);
    let moments =
        moments.map(|(call, counter)| counter.state.effective_time_us(&counter.quota, call.t));
    let moments: Vec<u64> = moments.collect();
    let answers = both.make(&calls);
    for (((call, answer), lane), moment) in calls.iter().zip(answers).zip(lanes).zip(moments) {
        let verdict = answer[0].verdict();
        lane.last.answered(call.t, verdict);
        if verdict.granted() > 0 {
            lane.taken.push((moment, verdict.granted()));
        }
    }
}

/// Mostly what was taken, now and then something that never was.
fn any_undo(rng: &mut Rng, quota: &Quota, lane: &mut Lane) -> Undo {
    let t = next_time(rng, quota, &lane.last).min(MAX_TIME_US);
    let (taken_us, cost) = match lane.taken.len() {
        1.. if rng.u8(..5) > 0 => {
            let recent = lane.taken.len().min(4);
            lane.taken
                .remove(lane.taken.len() - 1 - rng.usize(..recent))
        }
        _ => (next_time(rng, quota, &lane.last), next_cost(rng, quota)),
    };
    let at_once = rng.u8(..4) == 0;
    let t = if at_once { taken_us } else { t };
    Undo {
        taken_us,
        cost,
        t: t.min(MAX_TIME_US),
    }
}

/// Undoes something of every counter.
fn take_back(rng: &mut Rng, both: &mut Both, lanes: &mut [Lane]) {
    let each = both.counters.iter().zip(&mut *lanes);
    let undos: Vec<Undo> = each
        .map(|(counter, lane)| any_undo(rng, &counter.quota, lane))
        .collect();
    for (counter, undo) in both.counters.iter().zip(&undos) {
        let limit = Limit {
            key: &counter.key,
            quota: &counter.quota,
            ask: Operation::Undo {
                taken_us: undo.taken_us,
            },
            cost: undo.cost,
            more: false,
        };
        both.scripts.send(&[limit], Some(undo.t));
        let get = [&b"GET"[..], &counter.key];
        both.scripts.connection.send(&get).unwrap();
    }
    for ((counter, lane), Undo { taken_us, cost, t }) in
        both.counters.iter_mut().zip(lanes).zip(undos)
    {
        let quota = counter.quota;
        let mut answer = both.scripts.answer([quota]);
        let given = undo(&quota, &mut answer.states[0], taken_us, cost, t);
        let before = counter.state.clone();
        let right = undo(&quota, &mut counter.state, taken_us, cost, t);
        let what = || format!("{quota}: {cost} of {taken_us} undone at {t} in {before:?}");
        assert_eq!(given, right, "{}", what());
        let value = both.scripts.receive();
        assert!(
            stored::is(&value, &quota, &counter.state),
            "{}\nstored {}\nnot {:?}",
            what(),
            stored::shown(&value, &quota),
            counter.state
        );
        lane.last.answered(t, &right);
    }
}

fn trace(rng: &mut Rng, quotas: Vec<Quota>, steps: usize, changing: bool) {
    let mut lanes: Vec<Lane> = quotas
        .iter()
        .map(|_| Lane {
            last: Last::begin(rng),
            taken: Vec::new(),
        })
        .collect();
    let mut both = Both::new(quotas.into_iter().map(Counter::new));
    for _ in 0..steps {
        for _ in 0..rng.u8(1..4) {
            walk(rng, &mut both, &mut lanes);
        }
        take_back(rng, &mut both, &mut lanes);
        for counter in &mut both.counters {
            if changing && rng.u8(..6) == 0 {
                counter.quota = changed(rng, &counter.quota);
            }
        }
    }
}

#[test]
fn twins_undo_alike_under_every_behaviour() {
    with_each_seed(|rng| {
        for algorithm in Algorithm::ALL {
            let awkward = AWKWARD.iter().map(|text| text.parse::<Quota>().unwrap());
            let any = std::iter::repeat_with(|| any_quota(&mut *rng));
            let quotas = awkward
                .chain(any)
                .filter(|quota| quota.algorithm() == algorithm)
                .take(LANES)
                .collect();
            trace(rng, quotas, 150, false);
        }
    });
}

#[test]
fn twins_undo_alike_under_changing_quotas() {
    with_each_seed(|rng| {
        for _ in 0..4 {
            let quotas = (0..LANES).map(|_| any_quota(rng)).collect();
            trace(rng, quotas, 60, true);
        }
    });
}

/// Logs long enough for a ring: entries go out of its middle, its ends and its margin.
#[test]
fn twins_undo_alike_in_long_logs() {
    with_each_seed(|rng| {
        let quota: Quota = "sliding-window-log 60/s".parse().unwrap();
        let mut both = Both::new([Counter::new(quota)]);
        let (mut t, mut taken) = (1_700_000_000_000_000, Vec::new());
        for _ in 0..300 {
            t += rng.u64(..30_000);
            let moment = both.counters[0].state.effective_time_us(&quota, t);
            let verb = any(rng, &VERBS[4..8]);
            let cost = any(rng, &[1, 1, 2, 70_000]);
            let answer = both.make(&[Call::one(0, t, verb, cost)]);
            let granted = answer[0][0].verdict().granted();
            if granted > 0 {
                taken.push((moment, granted));
            }
            if rng.u8(..3) == 0 && !taken.is_empty() {
                let (taken_us, granted) = taken.remove(rng.usize(..taken.len()));
                let cost = rng.u32(1..=granted);
                let ask = Operation::Undo { taken_us };
                let key = both.counters[0].key.clone();
                let mut answer = both.scripts.ask(&key, &quota, ask, cost, Some(t));
                let given = undo(&quota, &mut answer.states[0], taken_us, cost, t);
                let right = undo(&quota, &mut both.counters[0].state, taken_us, cost, t);
                assert_eq!(given, right);
                let value = both.scripts.command(&[&b"GET"[..], &key]);
                let state = &both.counters[0].state;
                assert!(
                    stored::is(&value, &quota, state),
                    "stored {}\nnot {state:?}",
                    stored::shown(&value, &quota)
                );
            }
        }
    });
}
