//! The Lua twins of the algorithms, and the binary format of their arguments and results.
//!
//! A script decides any number of requests in one atomic step and returns the states it found;
//! [`evaluate_found`](crate::evaluate_found) derives the decisions from those. Both compute the same
//! function, so the states are enough.

use alloc::string::String;
use alloc::vec::Vec;
use core::mem;

use crate::MAX_TIME_US;
use crate::algorithm::{Bucket, Counter, Log, LogSummary, State, Window};
use crate::math::narrow;
use crate::quota::{Drain, Quota};
use crate::verb::Verb;

/// The Lua source of an algorithm; the buckets share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Twin {
    Window = 1,
    Counter = 2,
    Bucket = 3,
    Log = 4,
}

/// The kind of a returned log that does not fit the request.
const LOG_FULL: u8 = 5;

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

    /// Whether it uses `mul_div`.
    fn divides(self) -> bool {
        match self {
            Twin::Window | Twin::Log => false,
            Twin::Counter | Twin::Bucket => true,
        }
    }

    /// The length of a returned state by its first byte; `None` if that is of another algorithm.
    fn result_len(self, kind: u8) -> Option<usize> {
        match self {
            Twin::Log if kind == LOG_FULL => Some(22),
            _ if kind != self as u8 => None,
            Twin::Window | Twin::Log => Some(15),
            Twin::Counter => Some(22),
            Twin::Bucket => Some(29),
        }
    }
}

/// The algorithms that a script supports: a script for fewer is faster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Kinds(u8);

impl Kinds {
    /// The number of different values; the [index](Kinds::index) is below it.
    pub const COUNT: usize = 1 << TWINS.len();

    /// The kind of a quota.
    pub fn from_quota(quota: &Quota) -> Self {
        Kinds(1 << (quota.algorithm().twin() as u8 - 1))
    }

    /// The kinds of both.
    #[must_use]
    pub fn union(self, more: Kinds) -> Self {
        Kinds(self.0 | more.0)
    }

    /// A unique number below [`COUNT`](Kinds::COUNT).
    pub fn index(self) -> usize {
        self.0.into()
    }

    fn twins(self) -> impl Iterator<Item = Twin> {
        let has = move |twin: &Twin| self.0 & 1 << (*twin as u8 - 1) != 0;
        TWINS.into_iter().filter(has)
    }
}

/// Builds the script that decides requests whose limits are of these kinds.
///
/// Its keys are those of the counters. Its arguments are the result of [`join_arguments`], and
/// optionally seconds and microseconds to use instead of the server's clock. It returns the seconds
/// and microseconds it used, each followed by a space, and a [state](read_state) for each key.
pub fn script(kinds: Kinds) -> String {
    let mut script = String::new();
    for line in include_str!("evaluate.lua").lines() {
        match line.trim_start().strip_prefix("--@") {
            Some("prelude") => {
                if kinds.twins().any(Twin::divides) {
                    script.push_str(include_str!("math.lua"));
                }
                kinds
                    .twins()
                    .for_each(|twin| part(&mut script, twin, "prelude"));
            }
            // A log is read in part only.
            Some("values") if kinds.twins().any(|twin| twin == Twin::Log) => {}
            Some("values") => script.push_str(include_str!("values.lua")),
            Some(name) => parts(&mut script, kinds, name),
            None => {
                script.push_str(line);
                script.push('\n');
            }
        }
    }
    uncommented(&script)
}

/// Appends one part of each algorithm's source, selected by kind.
fn parts(script: &mut String, kinds: Kinds, name: &str) {
    if kinds.twins().count() == 1 {
        kinds.twins().for_each(|twin| part(script, twin, name));
        return;
    }
    for (i, twin) in kinds.twins().enumerate() {
        let word = if i == 0 { "if" } else { "elseif" };
        script.push_str(word);
        script.push_str(" kind == ");
        script.push(char::from(b'0' + twin as u8));
        script.push_str(" then\n");
        part(script, twin, name);
    }
    script.push_str("end\n");
}

/// Appends one part of an algorithm's source, and the parts that it includes.
fn part(script: &mut String, twin: Twin, name: &str) {
    let parts = twin.text().split("\n--@").skip(1);
    for text in parts.filter_map(|part| part.strip_prefix(name)) {
        if !text.starts_with('\n') {
            continue;
        }
        for line in text.lines() {
            match line.trim_start().strip_prefix("--@") {
                Some("stored") => script.push_str(include_str!("stored.lua")),
                Some(name) => part(script, twin, name),
                None => {
                    script.push_str(line);
                    script.push('\n');
                }
            }
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

/// What a script does to a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A verb.
    Verb(Verb),
    /// Returns units taken at an earlier time, as far as they still count. See
    /// [`undo`](crate::undo).
    Undo {
        /// The [effective time](crate::FoundState::effective_time_us) of the decision.
        taken_us: u64,
    },
}

/// Appends the argument of one limit; `more` if the next one belongs to the same request.
pub fn write_argument(out: &mut Vec<u8>, quota: &Quota, ask: Operation, cost: u32, more: bool) {
    let verb: u8 = match ask {
        Operation::Verb(Verb::Reset) => 5,
        Operation::Verb(Verb::Peek) => 0,
        Operation::Verb(_) if cost == 0 => 0,
        Operation::Verb(Verb::Check) => 1,
        Operation::Verb(Verb::Take) => 2,
        Operation::Verb(Verb::Charge) => 3,
        Operation::Verb(Verb::Refund) => 4,
        Operation::Undo { .. } if cost == 0 => 0,
        Operation::Undo { .. } => 6,
    };
    let twin = quota.algorithm().twin();
    out.extend_from_slice(&1_u16.to_be_bytes());
    out.extend_from_slice(&[twin as u8, verb, more.into()]);
    out.extend_from_slice(&cost.to_be_bytes());
    out.extend_from_slice(&quota.limit().to_be_bytes());
    write_seven(out, quota.period_us());
    if twin == Twin::Bucket {
        let drains = match ask {
            Operation::Verb(_) => quota.drain(cost),
            // A take saturates too.
            Operation::Undo { .. } => quota.drain(cost).min(Drain::MAX),
        };
        for drain in [quota.full(), drains] {
            // Longer drains never fit, or saturate.
            write_seven(out, drain.us.min(MAX_TIME_US + 1));
            out.extend_from_slice(&drain.part.to_be_bytes());
        }
    }
    if let Operation::Undo { taken_us } = ask {
        write_seven(out, taken_us.min(MAX_TIME_US));
    }
}

/// Positions in an argument: the number of requests, and whether the next limit belongs to the same.
const REPEATS: core::ops::Range<usize> = 0..2;
const MORE: usize = 4;

/// Joins the arguments of a script's keys. Consecutive single-limit requests with equal arguments
/// share one.
pub fn join_arguments<'a>(arguments: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut joined = Vec::new();
    // The last argument, its start, its number of requests, and whether it can be shared.
    let (mut last, mut start, mut repeats): (&[u8], usize, u16) = (&[], 0, 0);
    let (mut ended, mut is_single) = (true, false);
    for argument in arguments {
        let ends = argument.get(MORE) == Some(&0);
        let was_single = mem::replace(&mut is_single, ended && ends);
        ended = ends;
        if was_single && is_single && argument == last && repeats < u16::MAX {
            repeats += 1;
            joined[start..][REPEATS].copy_from_slice(&repeats.to_be_bytes());
        } else {
            start = joined.len();
            joined.extend_from_slice(argument);
            (last, repeats) = (argument, 1);
        }
    }
    joined
}

fn write_seven(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_be_bytes()[1..]);
}

/// Reads the state of one limit from the start of a script's result; `None` if it is malformed.
pub fn read_state(quota: &Quota, result: &mut &[u8]) -> Option<State> {
    let twin = quota.algorithm().twin();
    let kind = *result.first()?;
    if kind == 0 {
        *result = &result[1..];
        return Some(State::New);
    }
    let (state, rest) = result.split_at_checked(twin.result_len(kind)?)?;
    *result = rest;
    let seven = |i: usize| number(&state[1 + 7 * i..8 + 7 * i]);
    Some(match twin {
        Twin::Window => State::Window(Window {
            start: seven(0),
            count: seven(1),
        }),
        Twin::Counter => State::Counter(Counter {
            start: seven(0),
            previous: seven(1),
            current: seven(2),
        }),
        Twin::Bucket => State::Bucket(Bucket {
            changed: seven(0),
            level: Drain {
                us: seven(1),
                part: narrow(number(&state[15..19])),
            },
            limit: narrow(number(&state[19..23])),
        }),
        Twin::Log => State::LogSummary(LogSummary {
            newest: seven(0),
            used: seven(1),
            frees: if kind == LOG_FULL { seven(2) } else { 0 },
        }),
    })
}

/// Reads a stored log with its entries, which a script's result omits. `None` if it is malformed.
pub fn read_log(quota: &Quota, stored: &[u8]) -> Option<Log> {
    let shape = *stored.first()?;
    if shape & 15 != Twin::Log as u8 || stored.len() <= LOG_LATEST {
        return None;
    }
    let at = |from: usize, bytes: usize| number(&stored[from..from + bytes]);
    let size = |from: usize, bytes: usize| usize::try_from(at(from, bytes)).ok();
    let time_bytes = 4 + usize::from(shape >> 4 & 3);
    let sum_bytes = *[2, 3, 7].get(usize::from(shape >> 6))?;
    let (fronts, gone, latest) = (size(1, 1)?, size(8, 1)?, size(9, 1)?);
    let (newest, total) = (at(10, 7), at(17, 7));
    let (oldest, ends) = match fronts {
        0 => (LOG_LATEST, latest),
        _ => (LOG_OLDEST, fronts),
    };
    if time_bytes > 6 || gone == 0 || gone > ends {
        return None;
    }
    let width = time_bytes + sum_bytes;
    // Missing bytes read as zeros.
    let byte = |i: usize| u64::from(stored.get(i).copied().unwrap_or(0));
    let read = |from: usize, bytes| (from..from + bytes).fold(0, |n, i| n << 8 | byte(i));
    // Both are truncated to their lowest bytes: the rest follows from the newest time, and from the
    // sum before the oldest.
    let truncate =
        |number: u64, bytes: usize| number & ((1 << (8 * bytes).min(LUA_INTEGER_BITS)) - 1);
    let before = read(oldest + gone * width - sum_bytes, sum_bytes);
    let time = |stored: u64| newest.checked_sub(truncate(newest.wrapping_sub(stored), time_bytes));
    let sum = |stored: u64| truncate(stored.wrapping_sub(before), sum_bytes);
    let entry = |from: usize| {
        let (stored_time, stored_sum) =
            (read(from, time_bytes), read(from + time_bytes, sum_bytes));
        Some((time(stored_time)?, sum(stored_sum)))
    };
    let mut offsets: Vec<usize> = (gone..ends).map(|i| oldest + i * width).collect();
    if fronts > 0 {
        let ring = |i: usize| usize::try_from(read(LOG_RING_HEADER + 3 * i, 3)).ok();
        let (room, head, count) = (ring(0)?, ring(1)?, ring(2)?);
        if count > room {
            return None;
        }
        offsets.extend((0..count).map(|i| LOG_RING + (head + i) % room * width));
        offsets.extend((0..latest).map(|i| LOG_LATEST + i * width));
    }
    let older: Option<Vec<(u64, u64)>> = offsets.into_iter().map(entry).collect();
    let last = (newest, sum(total));
    Some(Log::from_entries(quota, older?.into_iter().chain([last])))
}

/// Offsets in a stored log: the latest entries, the ring's header, the oldest entries, the ring.
const LOG_LATEST: usize = 24;
const LOG_RING_HEADER: usize = 84;
const LOG_OLDEST: usize = 93;
const LOG_RING: usize = 153;
/// The bits of an integer in Lua: sums are not truncated further.
const LUA_INTEGER_BITS: usize = 53;

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |n, &byte| n << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn argument(cost: u32, more: bool) -> Vec<u8> {
        let mut argument = Vec::new();
        let quota = Quota::per_minute(10);
        write_argument(
            &mut argument,
            &quota,
            Operation::Verb(Verb::Check),
            cost,
            more,
        );
        argument
    }

    /// The number of requests of each joined argument.
    fn repeats(arguments: &[Vec<u8>]) -> Vec<u64> {
        let joined = join_arguments(arguments.iter().map(Vec::as_slice));
        let len = argument(1, false).len();
        joined
            .chunks(len)
            .map(|argument| number(&argument[REPEATS]))
            .collect()
    }

    #[test]
    fn consecutive_equal_requests_share_an_argument() {
        let (one, two) = (argument(1, false), argument(2, false));
        assert_eq!(repeats(&[]), []);
        assert_eq!(repeats(&[one.clone(), one.clone(), one.clone()]), [3]);
        assert_eq!(repeats(&[one.clone(), two.clone(), two, one]), [1, 2, 1]);
    }

    #[test]
    fn a_request_with_several_limits_shares_no_argument() {
        let (one, more) = (argument(1, false), argument(1, true));
        let limits = [&one, &more, &more, &one, &one, &one].map(Clone::clone);
        assert_eq!(repeats(&limits), [1, 1, 1, 1, 2]);
    }

    #[test]
    fn an_argument_is_shared_by_at_most_65535_requests() {
        let many = vec![argument(1, false); 65_537];
        assert_eq!(repeats(&many), [65_535, 2]);
    }
}
