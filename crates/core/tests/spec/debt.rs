//! Debt: its maximum, and that a log in debt stays bounded and never admits early.

use tallygate_core::{MAX_TIME_US, MAX_UNITS, Quota, Retry, State, Verb, Verdict, evaluate};

use crate::compare_with_model::{Pair, Step};
use crate::model::{ModelState, WideQuota, decide};

#[test]
fn a_charge_on_top_of_a_used_bucket_saturates() {
    for text in [
        "token-bucket 1/366d burst 1",
        "leaky-bucket 1/366d burst 1",
        "leaky-bucket 1/366d queue 142",
        "token-bucket 3/366d burst 400",
    ] {
        let quota: Quota = text.parse().unwrap();
        let mut state = State::New;
        evaluate(&quota, &mut state, Verb::Check, 1, 5);
        for _ in 0..3 {
            let charged = evaluate(&quota, &mut state, Verb::Charge, u32::MAX, 5);
            assert_eq!(charged.granted(), u32::MAX);
            assert_eq!(charged.reset_after_us, MAX_TIME_US, "{quota}");
        }
    }
}

#[test]
fn a_saturated_bucket_drains_from_its_maximum() {
    let quota: Quota = "token-bucket 7/d burst 7".parse().unwrap();
    let mut state = State::New;
    let mut largest = 0;
    for _ in 0..200 {
        let charged = evaluate(&quota, &mut state, Verb::Charge, 400_000_000, 5);
        assert!(charged.reset_after_us >= largest);
        largest = charged.reset_after_us;
    }
    assert_eq!(largest, MAX_TIME_US);
    let later = evaluate(&quota, &mut state, Verb::Peek, 1, 1_000_005);
    assert_eq!(later.reset_after_us, MAX_TIME_US - 1_000_000);
    evaluate(&quota, &mut state, Verb::Refund, 7, 1_000_005);
    let day = 86_400_000_000;
    let refunded = evaluate(&quota, &mut state, Verb::Peek, 1, 1_000_005);
    assert_eq!(refunded.reset_after_us, MAX_TIME_US - 1_000_000 - day);
}

#[test]
fn windows_and_logs_saturate_at_2_to_the_52_units() {
    for text in [
        "fixed-window 5/d",
        "sliding-window-counter 5/d",
        "sliding-window-log 5/d",
    ] {
        let quota: Quota = text.parse().unwrap();
        let mut state = State::New;
        let t = 86_400_000_000 * 1_000;
        let max = u64::from(u32::MAX);
        for _ in 0..=MAX_UNITS / max + 1 {
            evaluate(&quota, &mut state, Verb::Charge, u32::MAX, t);
        }
        let mut units = MAX_UNITS;
        while units > 1 {
            let refunded = u32::try_from(max.min(units - 1)).unwrap();
            let refund = evaluate(&quota, &mut state, Verb::Refund, refunded, t);
            units -= u64::from(refunded);
            let remaining = 5_u64.saturating_sub(units);
            assert_eq!(
                u64::from(refund.remaining),
                remaining,
                "{quota} with {units} used"
            );
        }
        let last = evaluate(&quota, &mut state, Verb::Refund, 1, t);
        assert_eq!((last.remaining, last.reset_after_us), (5, 0), "{quota}");
        assert_eq!(state, State::New);
    }
}

const LOG: &str = "sliding-window-log 3/h";
const MAX_DEBT_ENTRIES: usize = 1_000;

fn entries(state: &State) -> usize {
    format!("{state:?}").matches(": ").count()
}

#[test]
fn a_log_in_debt_stays_bounded() {
    let quota: Quota = LOG.parse().unwrap();
    let mut state = State::New;
    let max = quota.limit() as usize + MAX_DEBT_ENTRIES;
    for t in 0..5_000 {
        evaluate(&quota, &mut state, Verb::Charge, 2, 1_000_000 + t);
        if t % 500 == 0 {
            assert!(entries(&state) <= max);
        }
    }
    assert_eq!(entries(&state), max);
    // No unit is lost.
    evaluate(&quota, &mut state, Verb::Refund, 9_999, 1_005_000);
    assert_eq!(
        evaluate(&quota, &mut state, Verb::Peek, 1, 1_005_000).remaining,
        2
    );
    evaluate(&quota, &mut state, Verb::Refund, 1, 1_005_000);
    assert_eq!(state, State::New);
}

#[test]
fn a_log_in_debt_never_admits_early() {
    let quota: Quota = LOG.parse().unwrap();
    let wide_quota = WideQuota::from(&quota);
    let begin = 3_600_000_000;
    let times = (0..2_500).map(|i| begin + i * 10);
    let mut model_state = ModelState::Log(times.clone().map(|t| (t.into(), 1)).collect());
    let mut state = State::New;
    for t in times {
        evaluate(&quota, &mut state, Verb::Charge, 1, t);
    }
    let last = begin + 24_990;
    for i in 0..60 {
        let t = begin + 3_600_000_000 + i * 420;
        let peek: Verdict = evaluate(&quota, &mut state, Verb::Peek, 2, t);
        let exact = decide(&mut [(wide_quota, &mut model_state, 2)], Verb::Peek, t)[0];
        assert!(
            !peek.allowed() || exact.retry.is_none(),
            "admitted early at {t}"
        );
        assert!(u128::from(peek.remaining) <= exact.remaining);
        assert_eq!(u128::from(peek.reset_after_us), exact.reset_after);
        if let (Some(Retry::After(wait)), Some(Retry::After(exact))) = (peek.retry(), exact.retry) {
            assert!(wait >= exact);
            assert!(t + wait.get() <= last + 3_600_000_000);
        }
    }
}

#[test]
fn a_log_with_a_debt_above_2_to_the_48_keeps_every_entry() {
    let quota: Quota = "sliding-window-log 9/h".parse().unwrap();
    let begin = 3_600_000_000;
    let times = (0..20).map(|i| begin + i * 60_000_000);
    let units = 4_000 * u128::from(u32::MAX);
    let mut pair = Pair {
        state: State::New,
        model_state: ModelState::Log(times.clone().map(|t| (t.into(), units)).collect()),
    };
    for t in times {
        for _ in 0..4_000 {
            evaluate(&quota, &mut pair.state, Verb::Charge, u32::MAX, t);
        }
    }
    let mut t = begin + 20 * 60_000_000;
    let reset_after =
        |state: &State, t| evaluate(&quota, &mut state.clone(), Verb::Peek, 0, t).reset_after_us;
    while reset_after(&pair.state, t) > 0 {
        for (verb, cost) in [
            (Verb::Peek, 1),
            (Verb::Refund, u32::MAX),
            (Verb::Take, 9),
            (Verb::Charge, 1),
            (Verb::Check, 9),
            (Verb::Refund, 7),
        ] {
            let step = Step { t, verb, cost };
            if let Err(difference) = pair.step(&quota, step) {
                panic!("{difference}\nat {step:?}");
            }
        }
        // Refunds do not end the debt; only time does.
        t += 600_000_001;
        if t > begin + 4 * 3_600_000_000 {
            t += 3_600_000_000;
            pair.step(
                &quota,
                Step {
                    t,
                    verb: Verb::Refund,
                    cost: 1,
                },
            )
            .unwrap();
        }
    }
}
