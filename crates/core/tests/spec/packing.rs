//! States as three numbers: nothing lost, every number within its bits, forgotten in time.

use std::cell::Cell;
use std::fmt;

use tallygate_core::{
    Change, Log, MAX_TIME_US, Packed, Quota, State, Verb, Verdict, WholeBucket, apply_log,
    apply_whole, check_log, evaluate, evaluate_packed,
};

use crate::long_traces::{AWKWARD, Last, VERBS, any_quota, next_cost, next_time};
use tallygate_testkit::{any, with_each_seed};

/// Shows the state and the verdict's reset after every request that wrote something down.
fn for_every_write(test: impl Fn(&Quota, &State, u64, u64)) {
    with_each_seed(|rng| {
        let awkward = AWKWARD.map(|text| text.parse().unwrap());
        let random: [Quota; 100] = std::array::from_fn(|_| any_quota(rng));
        for quota in awkward.iter().chain(&random) {
            let mut state = State::New;
            let mut last = Last::begin(rng);
            for _ in 0..100 {
                let t = next_time(rng, quota, &last).min(MAX_TIME_US);
                let (verb, cost) = (any(rng, &VERBS), next_cost(rng, quota));
                let cost = cost.min(quota.capacity().saturating_mul(3));
                let before = state.clone();
                let verdict = evaluate(quota, &mut state, verb, cost, t);
                last.answered(t, &verdict);
                if state != before && state != State::New {
                    test(quota, &state, t, verdict.reset_after_us);
                }
            }
        }
    });
}

#[test]
fn a_packed_state_unpacks_to_itself() {
    for_every_write(|quota, state, _, _| {
        let packed = state.pack(quota);
        assert_eq!(packed.is_none(), quota.algorithm().is_log());
        if let Some(packed) = packed {
            assert_eq!(&State::unpack(quota, packed), state, "{quota}");
        }
    });
}

#[test]
fn packed_numbers_stay_within_their_bits() {
    for_every_write(|quota, state, _, _| {
        if let Some(packed) = state.pack(quota) {
            assert!(packed.expires_at_us < 1 << 54, "{quota} {packed:?}");
            assert!(packed.a < 1 << 53, "{quota} {packed:?}");
            assert!(packed.b < 1 << 60, "{quota} {packed:?}");
        }
    });
}

#[test]
fn a_new_state_has_nothing_to_pack() {
    for text in AWKWARD {
        assert_eq!(State::New.pack(&text.parse().unwrap()), None);
    }
}

#[test]
fn the_deepest_debt_at_the_end_of_time_packs_too() {
    for text in AWKWARD {
        let quota: Quota = text.parse().unwrap();
        let mut state = State::New;
        evaluate(&quota, &mut state, Verb::Charge, u32::MAX, u64::MAX);
        if let Some(packed) = state.pack(&quota) {
            assert_eq!(State::unpack(&quota, packed), state, "{quota}");
            assert!(packed.expires_at_us < 1 << 54);
        }
    }
}

fn forget_at(quota: &Quota, state: &State) -> u64 {
    match state {
        State::Log(log) => log.expires_at_us(),
        other => other.pack(quota).unwrap().expires_at_us,
    }
}

#[test]
fn a_written_key_lives_until_it_is_as_new() {
    for_every_write(|quota, state, t, reset| {
        assert!(
            forget_at(quota, state) >= t + reset,
            "{quota} {state:?} at {t}"
        );
    });
}

#[test]
fn a_written_key_lives_at_most_one_span_longer_than_it_must() {
    for_every_write(|quota, state, t, reset| {
        let most = t + reset + quota.span_us();
        let until = forget_at(quota, state);
        assert!(
            until <= most,
            "{quota} {state:?} written at {t}: kept until {until}, as new at {} + a span of {}",
            t + reset,
            quota.span_us()
        );
    });
}

/// One request to a counter that is packed, and what came of it unpacked.
struct Asked<'a> {
    quota: &'a Quota,
    before: Packed,
    verb: Verb,
    cost: u32,
    t: u64,
    moment: u64,
    verdict: Verdict,
    after: Option<Packed>,
}

impl fmt::Display for Asked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Asked { quota, verb, .. } = self;
        write!(f, "{quota}: {verb} {} at {}", self.cost, self.t)
    }
}

fn for_every_packed(test: impl Fn(Asked<'_>)) {
    with_each_seed(|rng| {
        let awkward = AWKWARD.map(|text| text.parse().unwrap());
        let random: [Quota; 200] = std::array::from_fn(|_| any_quota(rng));
        let flat = |quota: &&Quota| !quota.algorithm().is_log();
        for quota in awkward.iter().chain(&random).filter(flat) {
            let mut state = State::New;
            let mut last = Last::begin(rng);
            for _ in 0..100 {
                let t = next_time(rng, quota, &last);
                let (verb, cost) = (any(rng, &VERBS), next_cost(rng, quota));
                let before = state.pack(quota);
                let moment = state.effective_time_us(quota, t);
                let verdict = evaluate(quota, &mut state, verb, cost, t);
                last.answered(t, &verdict);
                if let Some(before) = before {
                    test(Asked {
                        quota,
                        before,
                        verb,
                        cost,
                        t,
                        moment,
                        verdict,
                        after: state.pack(quota),
                    });
                }
            }
        }
    });
}

#[test]
fn a_packed_counter_is_answered_and_written_as_an_unpacked_one() {
    for_every_packed(|asked| {
        let Asked { before, verb, .. } = asked;
        let decided = evaluate_packed(asked.quota, before, verb, asked.cost, asked.t).unwrap();
        let after = match decided.change {
            Change::Nothing => Some(before),
            Change::Keep(packed) => Some(packed),
            Change::Forget => None,
        };
        assert_eq!(decided.verdict, asked.verdict, "{asked}");
        assert_eq!(decided.effective_time_us, asked.moment, "{asked}");
        assert_eq!(after, asked.after, "{asked}");
    });
}

#[test]
fn a_whole_bucket_is_answered_and_written_as_any_other() {
    let decided = Cell::new(0);
    for_every_packed(|asked| {
        let Asked { before, verb, .. } = asked;
        let Some(whole) = asked.quota.whole() else {
            return;
        };
        assert_eq!(before.b, u64::from(whole.quota().limit()), "{asked}");
        let bucket = WholeBucket {
            changed_us: before.a,
            drained_us: before.expires_at_us,
        };
        let Some((verdict, change)) = apply_whole(whole, bucket, verb, asked.cost, asked.t) else {
            assert!(asked.t < before.a, "{asked}");
            return;
        };
        decided.set(decided.get() + 1);
        let after = match change {
            Change::Nothing => Some(before),
            Change::Keep(next) => Some(Packed {
                expires_at_us: next.drained_us,
                a: next.changed_us,
                ..before
            }),
            Change::Forget => None,
        };
        assert_eq!(verdict, asked.verdict, "{asked}");
        assert_eq!(after, asked.after, "{asked}");
    });
    assert!(decided.get() > 100, "{}", decided.get());
}

#[test]
fn a_log_by_itself_is_answered_and_changed_as_in_a_state() {
    with_each_seed(|rng| {
        let awkward = AWKWARD.map(|text| text.parse().unwrap());
        let random: [Quota; 200] = std::array::from_fn(|_| any_quota(rng));
        let logs = |quota: &&Quota| quota.algorithm().is_log();
        for quota in awkward.iter().chain(&random).filter(logs) {
            let (mut state, mut log) = (State::New, Log::default());
            let mut last = Last::begin(rng);
            for _ in 0..100 {
                let t = next_time(rng, quota, &last);
                let (verb, cost) = (any(rng, &VERBS), next_cost(rng, quota));
                let verdict = evaluate(quota, &mut state, verb, cost, t);
                let asked = format!("{quota}: {verb} {cost} at {t}");
                let at_once = match verb {
                    Verb::Check => checked_at_once(quota, &mut log, cost, t, &asked),
                    _ => None,
                };
                let same = at_once.unwrap_or_else(|| apply_log(quota, &mut log, verb, cost, t));
                assert_eq!(same, verdict, "{asked}");
                let stored = match &state {
                    State::Log(log) => log.clone(),
                    _ => Log::default(),
                };
                assert_eq!(log, stored, "{asked}");
                last.answered(t, &verdict);
            }
        }
    });
}

#[test]
fn a_check_that_is_simple_is_what_any_other_comes_to() {
    let (simple, all) = (Cell::new(0), Cell::new(0));
    with_each_seed(|rng| {
        let periods = ["10ms", "1s", "1h", "30d"];
        let limits = [1, 2, 7, 40, 1_000];
        for (period, limit) in periods.iter().flat_map(|p| limits.map(|limit| (p, limit))) {
            let text = format!("sliding-window-log {limit}/{period}");
            let quota: Quota = text.parse().unwrap();
            let (mut log, mut twin) = (Log::default(), Log::default());
            let mut t = any(rng, &[0, 1_700_000_000_000_000, MAX_TIME_US - 1]);
            // Up to twice the limit in a period, at times: entries come and go one by one, some
            // share an instant, some are refused.
            let pace = 2 * quota.period_us() / u64::from(limit) / rng.u64(1..=4);
            for _ in 0..1_000 {
                t += rng.u64(..=pace);
                let (verb, cost) = match rng.u8(..100) {
                    0 => (Verb::Refund, rng.u32(..3)),
                    1 => (Verb::Charge, rng.u32(..=limit)),
                    2 => (Verb::Check, rng.u32(..=limit + 1)),
                    3.. => (Verb::Check, 1),
                };
                let asked = format!("{quota}: {verb} {cost} at {t}");
                let at_once = match verb {
                    Verb::Check => checked_at_once(&quota, &mut log, cost, t, &asked),
                    _ => None,
                };
                all.set(all.get() + 1);
                simple.set(simple.get() + u32::from(at_once.is_some()));
                let verdict = at_once.unwrap_or_else(|| apply_log(&quota, &mut log, verb, cost, t));
                let same = apply_log(&quota, &mut twin, verb, cost, t);
                assert_eq!(verdict, same, "{asked}");
                assert_eq!(log, twin, "{asked}");
            }
        }
    });
    let (simple, all) = (simple.get(), all.get());
    assert!(simple > all / 10, "{simple} of {all}");
}

/// What a check comes to where it is simple; where it is not, the log must stay as it is.
fn checked_at_once(
    quota: &Quota,
    log: &mut Log,
    cost: u32,
    t: u64,
    asked: &str,
) -> Option<Verdict> {
    let before = log.clone();
    let verdict = check_log(quota, log, cost, t);
    match verdict {
        Some(_) => assert_eq!(log.expires_at_us(), t + quota.period_us(), "{asked}"),
        None => assert_eq!(*log, before, "{asked}"),
    }
    verdict
}
