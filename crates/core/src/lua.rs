//! The algorithms' twins in Lua, and the few bytes that go to a script and come back. Knows the
//! texts and their formats; knows nothing of who runs them.
//!
//! A script decides any number of requests in one atomic step and answers the states it decided
//! on; [`decide_found`](crate::decide_found) derives the decision from those with the arithmetic
//! of this crate. Both compute the same function, so nothing else has to come back.

use alloc::string::String;
use alloc::vec::Vec;

use crate::MAX_TIME_US;
use crate::algorithm::{Bucket, Counter, Glimpse, State, Window, saturated};
use crate::math::narrow;
use crate::quota::Quota;
use crate::verb::Verb;

/// The arithmetic that a script is written in; the buckets share theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Twin {
    Window = 1,
    Counter = 2,
    Bucket = 3,
    Log = 4,
}

const TWINS: [Twin; 4] = [Twin::Window, Twin::Counter, Twin::Bucket, Twin::Log];

impl Twin {
    fn text(self) -> &'static str {
        match self {
            Twin::Window => include_str!("algorithm/fixed_window.lua"),
            Twin::Counter => include_str!("algorithm/sliding_window_counter.lua"),
            Twin::Bucket => include_str!("algorithm/bucket.lua"),
            Twin::Log => include_str!("algorithm/sliding_window_log.lua"),
        }
    }

    /// Whether it multiplies and divides in parts.
    fn divides(self) -> bool {
        match self {
            Twin::Window | Twin::Log => false,
            Twin::Counter | Twin::Bucket => true,
        }
    }

    /// The bytes of a state that a script answers.
    fn found_len(self) -> usize {
        match self {
            Twin::Window => 15,
            Twin::Counter | Twin::Log => 22,
            Twin::Bucket => 29,
        }
    }
}

/// Which algorithms a script can decide: a script for fewer is faster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Kinds(u8);

impl Kinds {
    /// How many different ones there are, [index](Kinds::index) 0 to that.
    pub const COUNT: usize = 1 << TWINS.len();

    /// The kind of a quota.
    pub fn of(quota: &Quota) -> Self {
        Kinds(1 << (quota.algorithm().twin() as u8 - 1))
    }

    /// These and those.
    #[must_use]
    pub fn and(self, more: Kinds) -> Self {
        Kinds(self.0 | more.0)
    }

    /// A number below [`COUNT`](Kinds::COUNT), different for each.
    pub fn index(self) -> usize {
        self.0.into()
    }

    fn twins(self) -> impl Iterator<Item = Twin> {
        let has = move |twin: &Twin| self.0 & 1 << (*twin as u8 - 1) != 0;
        TWINS.into_iter().filter(has)
    }
}

/// The script that decides requests whose limits are of these kinds.
///
/// Its keys are the counters' names. Its arguments are the seconds and microseconds to decide at,
/// both empty for the server's own clock, and an [argument](write_argument) for each key. It
/// answers the seconds and microseconds it decided at, each with a space after it, and a
/// [state](read_state) for each key.
pub fn script(kinds: Kinds) -> String {
    let mut script = String::new();
    for line in include_str!("verb.lua").lines() {
        match line.trim_start().strip_prefix("--@") {
            Some("prelude") => {
                if kinds.twins().any(Twin::divides) {
                    script.push_str(include_str!("math.lua"));
                }
                kinds
                    .twins()
                    .for_each(|twin| part(&mut script, twin, "prelude"));
            }
            Some(name) => {
                for (i, twin) in kinds.twins().enumerate() {
                    let word = if i == 0 { "if" } else { "elseif" };
                    script.push_str(word);
                    script.push_str(" kind == ");
                    script.push(char::from(b'0' + twin as u8));
                    script.push_str(" then\n");
                    part(&mut script, twin, name);
                }
                script.push_str("end\n");
            }
            None => {
                script.push_str(line);
                script.push('\n');
            }
        }
    }
    uncommented(&script)
}

/// Appends one part of an algorithm's text.
fn part(script: &mut String, twin: Twin, name: &str) {
    let parts = twin.text().split("\n--@").skip(1);
    for text in parts.filter_map(|part| part.strip_prefix(name)) {
        if text.starts_with('\n') {
            script.push_str(text);
            script.push('\n');
        }
    }
}

fn uncommented(text: &str) -> String {
    let mut script = String::with_capacity(text.len());
    let code = |line: &&str| !line.is_empty() && !line.starts_with("--");
    for line in text.lines().map(str::trim).filter(code) {
        script.push_str(line);
        script.push('\n');
    }
    script
}

/// What a script is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// A verb.
    Verb(Verb),
    /// Takes back what a check or take took at that time, as far as it still weighs: never more,
    /// so that a refund that comes late admits nobody above the limit.
    Undo {
        /// When it was taken, as the decision [says](crate::Found::moment_us).
        taken_us: u64,
    },
}

/// Appends one limit's argument; `more` says that the next one belongs to the same request.
pub fn write_argument(out: &mut Vec<u8>, quota: &Quota, ask: Ask, cost: u32, more: bool) {
    let verb: u8 = match ask {
        Ask::Verb(Verb::Reset) => 5,
        Ask::Verb(Verb::Peek) => 0,
        Ask::Verb(_) if cost == 0 => 0,
        Ask::Verb(Verb::Check) => 1,
        Ask::Verb(Verb::Take) => 2,
        Ask::Verb(Verb::Charge) => 3,
        Ask::Verb(Verb::Refund) => 4,
        Ask::Undo { .. } if cost == 0 => 0,
        Ask::Undo { .. } => 6,
    };
    let twin = quota.algorithm().twin();
    out.extend_from_slice(&[twin as u8, verb, more.into()]);
    out.extend_from_slice(&cost.to_be_bytes());
    out.extend_from_slice(&quota.limit().to_be_bytes());
    write_seven(out, quota.period_us());
    if twin == Twin::Bucket {
        let drains = match ask {
            Ask::Verb(_) => quota.drain(cost),
            // No more was taken.
            Ask::Undo { .. } => saturated(quota.drain(cost)),
        };
        for drain in [quota.full(), drains] {
            // Nothing takes longer: what would never fits, or saturates.
            write_seven(out, drain.us.min(MAX_TIME_US + 1));
            out.extend_from_slice(&drain.part.to_be_bytes());
        }
    }
    if let Ask::Undo { taken_us } = ask {
        write_seven(out, taken_us.min(MAX_TIME_US));
    }
}

fn write_seven(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_be_bytes()[1..]);
}

/// Reads the state of one limit off the front of a script's answer; none if that is no state.
pub fn read_state(quota: &Quota, answer: &mut &[u8]) -> Option<State> {
    let twin = quota.algorithm().twin();
    let kind = *answer.first()?;
    if kind == 0 {
        *answer = &answer[1..];
        return Some(State::New);
    }
    if kind != twin as u8 || answer.len() < twin.found_len() {
        return None;
    }
    let (state, rest) = answer.split_at(twin.found_len());
    *answer = rest;
    let seven = |i: usize| number(&state[1 + 7 * i..8 + 7 * i]);
    Some(match twin {
        Twin::Window => State::Window(Window::found(seven(0), seven(1))),
        Twin::Counter => State::Counter(Counter::found(seven(0), seven(1), seven(2))),
        Twin::Bucket => State::Bucket(Bucket::found(
            seven(0),
            seven(1),
            narrow(number(&state[15..19])),
            narrow(number(&state[19..23])),
        )),
        Twin::Log => State::Glimpse(Glimpse {
            newest: seven(0),
            used: seven(1),
            frees: seven(2),
        }),
    })
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |n, &byte| n << 8 | u64::from(byte))
}
