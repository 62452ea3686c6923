//! Any bytes as replay lines: a second parser must agree, errors must not contain a key, and the
//! core and the memory store must decide alike.
#![no_main]

use std::collections::HashMap;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tallygate::{Limit, MemoryStore, Request};
use tallygate_core::{Decision, Entry, Quota, State, Verb, Verdict, evaluate_all};
use tallygate_fuzz::counter::{Counter, Step};
use tallygate_fuzz::replay_reference::{self, SECRET};
use tallygate_server::replay_request::{self, ReplayRequest};

/// How many lines of one input are replayed.
const MAX_LINES: usize = 32;
/// An error quotes at most 40 characters of the line, each possibly escaped.
const MAX_ERROR_CHARS: usize = 560;

/// One quota of each algorithm, small enough that a line or two exhaust it.
static LIMITS: LazyLock<Vec<Limit>> = LazyLock::new(|| {
    [
        "fixed-window 5/s",
        "sliding-window-log 4/10s",
        "sliding-window-counter 7/min",
        "token-bucket 3/s burst 6",
        "leaky-bucket 1000003/d burst 9",
        "leaky-bucket 7/min queue 8",
    ]
    .map(|text| Limit::from(text.parse::<Quota>().expect("the quota is valid")))
    .into()
});

fuzz_target!(|bytes: &[u8]| {
    // Line feeds are also white space inside JSON.
    let _ = read(bytes);
    let read: Vec<ReplayRequest<'_>> = bytes
        .split(|&byte| byte == b'\n')
        .filter_map(read)
        .take(MAX_LINES)
        .collect();
    if !read.is_empty() {
        check_each_quota(&read);
        check_all_quotas(&read);
    }
});

/// Parses a line with both parsers, which must agree.
fn read(line: &[u8]) -> Option<ReplayRequest<'_>> {
    let expected = replay_reference::parse(line);
    let got = replay_request::parse(line);
    match &got {
        Ok(read) => assert!(
            expected.as_ref() == Some(read),
            "{expected:?}, not {read:?}"
        ),
        Err(error) => {
            assert!(expected.is_none(), "{error}, but it is {expected:?}");
            check_error(line, error);
        }
    }
    if let Some(marked) = replay_reference::with_secret_keys(line)
        && let Err(error) = replay_request::parse(&marked)
    {
        let text = format!("{error} {error:?}");
        assert!(!text.contains(SECRET), "a key in an error: {text}");
    }
    got.ok()
}

fn check_error(line: &[u8], error: &replay_request::ParseError) {
    let message = error.to_string();
    assert!(message.chars().count() <= MAX_ERROR_CHARS, "{message}");
    assert!(!message.chars().any(char::is_control), "{message:?}");
    if line.len() >= 16 && line.starts_with(b"{") {
        let whole = String::from_utf8_lossy(line);
        assert!(!message.contains(&*whole), "a line in an error: {message}");
    }
    let column = message
        .strip_suffix(')')
        .and_then(|text| text.rsplit_once("(column "))
        .and_then(|(_, column)| column.parse::<usize>().ok())
        .expect("an error names its column");
    assert!((1..=line.len() + 1).contains(&column), "{message}");
}

/// Decides each quota on its own, with all of its guarantees checked.
fn check_each_quota(lines: &[ReplayRequest<'_>]) {
    for limit in LIMITS.iter() {
        let mut counters: HashMap<&str, Counter> = HashMap::new();
        for line in lines {
            let counter = counters
                .entry(&line.key)
                .or_insert_with(|| Counter::new(*limit.quota()));
            counter.decide(Step {
                verb: line.verb,
                cost: line.cost,
                t_us: line.t_us,
            });
        }
    }
}

/// Decides all quotas together, in a plain map as replay does and in the memory store. The store
/// drops states that are as new, so the two agree only until time steps back.
fn check_all_quotas(lines: &[ReplayRequest<'_>]) {
    let store = MemoryStore::builder()
        .capacity(LIMITS.len() * MAX_LINES)
        .build();
    let mut counters: HashMap<&str, Vec<State>> = HashMap::new();
    let mut latest = 0;
    let mut stepped_back = false;
    for line in lines {
        stepped_back |= line.t_us < latest;
        latest = latest.max(line.t_us);

        let states = counters
            .entry(&line.key)
            .or_insert_with(|| vec![State::New; LIMITS.len()]);
        let before = states.clone();
        let mut limits: Vec<_> = LIMITS
            .iter()
            .map(Limit::quota)
            .zip(states.iter_mut())
            .map(|(quota, state)| Entry::new(quota, state, line.cost))
            .collect();
        let decision = evaluate_all(&mut limits, line.verb, line.t_us);
        check_decision(line, &decision, *states == before);

        let request = Request::with_limits(&*line.key, LIMITS.iter())
            .expect("the limits have distinct names")
            .verb(line.verb)
            .cost(line.cost);
        let stored = store.decide_at(&request, line.t_us);
        assert!(!stored.shared(), "shared although there is room, {line:?}");
        if !stepped_back {
            assert_eq!(stored.verdicts(), decision.verdicts(), "{line:?}");
            assert_eq!(stored.binding(), decision.binding(), "{line:?}");
        }
    }
}

/// Checks the decision against the verdicts of its limits.
fn check_decision(line: &ReplayRequest<'_>, decision: &Decision, unchanged: bool) {
    let verdicts = decision.verdicts();
    let verdict = decision.verdict();
    let binding = &verdicts[decision.binding()];
    assert!(verdicts.iter().all(|v| v.remaining <= v.limit), "{line:?}");
    assert_eq!(binding.remaining, verdict.remaining, "{line:?}");
    let refused = verdicts.iter().any(|v| !v.allowed());
    assert_eq!(verdict.allowed(), !refused, "{line:?}");
    if refused {
        assert!(unchanged, "refused and charged, {line:?}");
        assert!(verdicts.iter().all(|v| v.granted() == 0), "{line:?}");
        // `None` is never: the longest wait.
        let wait = |v: &Verdict| v.retry_after_us().unwrap_or(u64::MAX);
        let max_wait = verdicts.iter().filter(|v| !v.allowed()).map(wait).max();
        assert!(!binding.allowed(), "{line:?}");
        assert_eq!(Some(wait(binding)), max_wait, "{line:?}");
        return;
    }
    let min_remaining = verdicts.iter().map(|v| v.remaining).min();
    assert_eq!(Some(binding.remaining), min_remaining, "{line:?}");
    let delay = verdicts.iter().map(|v| v.delay_us()).max();
    assert_eq!(Some(verdict.delay_us()), delay, "{line:?}");
    let granted = verdict.granted();
    assert!(granted <= line.cost, "{line:?}");
    assert!(verdicts.iter().all(|v| v.granted() == granted), "{line:?}");
    if line.verb == Verb::Check {
        assert_eq!(granted, line.cost, "{line:?}");
    }
}
