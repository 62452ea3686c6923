//! Any bytes as replay lines: read as another JSON reader does, explained without a key, and
//! decided alike by the core and by the memory store.
#![no_main]

use std::collections::HashMap;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tallygate::{Limit, MemoryStore, Request};
use tallygate_core::{Decision, Quota, State, Verb, Verdict, evaluate_all};
use tallygate_fuzz::counter::{Ask, Counter};
use tallygate_fuzz::replay_reference::{self, SECRET};
use tallygate_server::replay_request::{self, Line};

/// The most lines that are replayed of one input.
const MOST_LINES: usize = 32;
/// The most characters an error may have, however long the line: a quoted word of 40, each
/// escaped, and our own.
const LONGEST_ERROR: usize = 560;

/// One of each behaviour, small enough to be exhausted by a line or two.
static LIMITS: LazyLock<Vec<Limit>> = LazyLock::new(|| {
    [
        "fixed-window 5/s",
        "sliding-window-log 4/10s",
        "sliding-window-counter 7/min",
        "token-bucket 3/s burst 6",
        "leaky-bucket 1000003/d burst 9",
        "leaky-bucket 7/min queue 8",
    ]
    .map(|text| Limit::from(text.parse::<Quota>().expect("a quota of our own")))
    .into()
});

fuzz_target!(|bytes: &[u8]| {
    // Line ends within a line are white space.
    let _ = read(bytes);
    let read: Vec<Line<'_>> = bytes
        .split(|&byte| byte == b'\n')
        .filter_map(read)
        .take(MOST_LINES)
        .collect();
    if !read.is_empty() {
        each_alone(&read);
        all_together(&read);
    }
});

/// Reads a line with both readers, which must agree.
fn read(line: &[u8]) -> Option<Line<'_>> {
    let expected = replay_reference::read(line);
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
        let said = format!("{error} {error:?}");
        assert!(!said.contains(SECRET), "a key in an error: {said}");
    }
    got.ok()
}

fn check_error(line: &[u8], error: &replay_request::LineError) {
    let message = error.to_string();
    assert!(message.chars().count() <= LONGEST_ERROR, "{message}");
    assert!(!message.chars().any(char::is_control), "{message:?}");
    if line.len() >= 16 && line.starts_with(b"{") {
        let whole = String::from_utf8_lossy(line);
        assert!(!message.contains(&*whole), "a line in an error: {message}");
    }
    let column = message
        .strip_suffix(')')
        .and_then(|said| said.rsplit_once("(column "))
        .and_then(|(_, column)| column.parse::<usize>().ok())
        .expect("an error names its column");
    assert!((1..=line.len() + 1).contains(&column), "{message}");
}

/// Each behaviour by itself, every promise checked.
fn each_alone(lines: &[Line<'_>]) {
    for limit in LIMITS.iter() {
        let mut counters: HashMap<&str, Counter> = HashMap::new();
        for line in lines {
            let counter = counters
                .entry(&line.key)
                .or_insert_with(|| Counter::new(*limit.quota()));
            counter.ask(Ask {
                verb: line.verb,
                cost: line.cost,
                t_us: line.t_us,
            });
        }
    }
}

/// All behaviours at once, all or nothing, in a plain map as replay keeps them and in the memory
/// store. The store forgets what is as new, so the two must agree until time steps back.
fn all_together(lines: &[Line<'_>]) {
    let store = MemoryStore::builder()
        .capacity(LIMITS.len() * MOST_LINES)
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
            .map(|(quota, state)| (quota, state, line.cost))
            .collect();
        let decision = evaluate_all(&mut limits, line.verb, line.t_us);
        check_decision(line, &decision, *states == before);

        let request = Request::of(&*line.key, LIMITS.iter())
            .expect("our limits have different names")
            .verb(line.verb)
            .cost(line.cost);
        let stored = store.decide_at(&request, line.t_us);
        assert!(!stored.shared(), "shared with room to spare, {line:?}");
        if !stepped_back {
            assert_eq!(stored.verdicts(), decision.verdicts(), "{line:?}");
            assert_eq!(stored.binding(), decision.binding(), "{line:?}");
        }
    }
}

/// The rules for several limits, worked out from their verdicts.
fn check_decision(line: &Line<'_>, decision: &Decision, unchanged: bool) {
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
        // Never is longest.
        let wait = |v: &Verdict| v.retry_after_us().unwrap_or(u64::MAX);
        let longest = verdicts.iter().filter(|v| !v.allowed()).map(wait).max();
        assert!(!binding.allowed(), "{line:?}");
        assert_eq!(Some(wait(binding)), longest, "{line:?}");
        return;
    }
    let least = verdicts.iter().map(|v| v.remaining).min();
    assert_eq!(Some(binding.remaining), least, "{line:?}");
    let delay = verdicts.iter().map(|v| v.delay_us()).max();
    assert_eq!(Some(verdict.delay_us()), delay, "{line:?}");
    let granted = verdict.granted();
    assert!(granted <= line.cost, "{line:?}");
    assert!(verdicts.iter().all(|v| v.granted() == granted), "{line:?}");
    if line.verb == Verb::Check {
        assert_eq!(granted, line.cost, "{line:?}");
    }
}
