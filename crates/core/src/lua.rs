//! The Lua twins of the algorithms, and the binary format of their arguments and results.
//!
//! A script decides any number of requests in one atomic step and returns the states it found;
//! [`evaluate_found`](crate::evaluate_found) derives the decisions from those. Both compute the same
//! function, so the states are enough.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem;

use crate::MAX_TIME_US;
use crate::algorithm::{
    Bucket, Counter, Epoch, FairShare, FormerHold, Holds, HoldsSummary, InFlight, Log, LogSummary,
    Member, Own, ShareView, State, Tally, View, Window,
};
use crate::caller::{Reservation, Weight};
use crate::evaluate::touches;
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
    Share = 6,
    Holds = 7,
}

/// The kind of a returned log that does not fit the request.
const LOG_FULL: u8 = 5;

const TWINS: [Twin; 6] = [
    Twin::Window,
    Twin::Counter,
    Twin::Bucket,
    Twin::Log,
    Twin::Share,
    Twin::Holds,
];

const RESERVATION: &str = include_str!("reservation.lua");

impl Twin {
    fn text(self) -> &'static str {
        match self {
            Twin::Window => include_str!("algorithm/fixed_window.lua"),
            Twin::Counter => include_str!("algorithm/sliding_window_counter.lua"),
            Twin::Bucket => include_str!("algorithm/bucket.lua"),
            Twin::Log => include_str!("algorithm/sliding_window_log.lua"),
            Twin::Share => include_str!("algorithm/fair_share.lua"),
            Twin::Holds => include_str!("algorithm/concurrency.lua"),
        }
    }

    /// Whether it uses `mul_div`.
    fn divides(self) -> bool {
        match self {
            Twin::Window | Twin::Log | Twin::Holds => false,
            Twin::Counter | Twin::Bucket | Twin::Share => true,
        }
    }

    /// What follows the key of a counter in its further keys.
    fn key_suffixes(self) -> &'static [&'static str] {
        match self {
            Twin::Window | Twin::Counter | Twin::Bucket | Twin::Log => &[],
            Twin::Share => &["|0", "|1"],
            Twin::Holds => &["|u"],
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
            // And that of the member's entry, if there is one.
            Twin::Share => Some(SHARE_ROOT + 1),
            Twin::Holds => Some(30),
        }
    }
}

/// What the keys of a counter have in addition to its own, in the order in which a script takes them:
/// append each of these to the counter's key. After them comes the key of the reservation, if the
/// operation [has one](Operation::has_reservation).
pub fn key_suffixes(quota: &Quota) -> &'static [&'static str] {
    quota.algorithm().twin().key_suffixes()
}

/// The algorithms that a script supports, and whether it knows reservations: a script for fewer is
/// faster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Kinds(u8);

impl Kinds {
    /// The number of different values; the [index](Kinds::index) is below it.
    pub const COUNT: usize = 2 << TWINS.len();

    const RESERVATIONS: Self = Kinds(1 << TWINS.len());

    /// The kind of an operation on a quota.
    pub fn new(quota: &Quota, operation: Operation) -> Self {
        let twin = quota.algorithm().twin();
        let at = TWINS.iter().take_while(|other| **other != twin).count();
        match operation.has_reservation(quota) {
            true => Kinds(1 << at).union(Self::RESERVATIONS),
            false => Kinds(1 << at),
        }
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

    /// Whether a script of these kinds reads the values of all its keys by one command, which is
    /// cheaper. A log is read in part only.
    pub fn reads_values(self) -> bool {
        self.twins().all(|twin| twin != Twin::Log)
    }

    fn twins(self) -> impl Iterator<Item = Twin> {
        let has = move |(at, _): &(usize, Twin)| self.0 & 1 << at != 0;
        TWINS
            .into_iter()
            .enumerate()
            .filter(has)
            .map(|(_, twin)| twin)
    }

    fn has_reservations(self) -> bool {
        self.0 & Self::RESERVATIONS.0 != 0
    }

    /// Whether a limit may have more keys than its counter: with callers or reservations.
    pub fn has_further_keys(self) -> bool {
        self.has_reservations() || self.twins().any(|twin| !twin.key_suffixes().is_empty())
    }
}

/// Builds the script that decides requests whose limits are of these kinds.
///
/// Its keys are those of the counters, then the further keys of each counter, in order: those with
/// its [suffixes](key_suffixes), and that of its reservation. Its arguments are the result of
/// [`join_arguments`], and optionally seconds and microseconds to use instead of the server's clock. It
/// returns the seconds and microseconds it used, each followed by a space, and what it
/// [found](read_found) for each limit.
pub fn script(kinds: Kinds) -> String {
    let mut script = String::new();
    for line in include_str!("evaluate.lua").lines() {
        match line.trim_start().strip_prefix("--@") {
            Some("prelude") => {
                let divides = kinds.twins().any(Twin::divides);
                if divides {
                    script.push_str(include_str!("math.lua"));
                }
                kinds
                    .twins()
                    .for_each(|twin| part(&mut script, kinds, twin.text(), "prelude"));
                if kinds.has_reservations() {
                    part(&mut script, kinds, RESERVATION, "prelude");
                    if divides {
                        part(&mut script, kinds, RESERVATION, "drained");
                    }
                }
            }
            Some("values") if !kinds.reads_values() => {}
            Some("values") => script.push_str(include_str!("values.lua")),
            Some("extra") if !kinds.has_further_keys() => {}
            Some("extra") => script.push_str(include_str!("extra_keys.lua")),
            Some(name) => parts(&mut script, kinds, name),
            None => {
                script.push_str(line);
                script.push('\n');
            }
        }
    }
    uncommented(&script)
}

/// Appends one part of each algorithm's source that has it, selected by kind, and that of reservations.
fn parts(script: &mut String, kinds: Kinds, name: &str) {
    let is_single = kinds.twins().count() == 1;
    let mut word = "if";
    for twin in kinds.twins().filter(|twin| has_part(twin.text(), name)) {
        if is_single {
            part(script, kinds, twin.text(), name);
            continue;
        }
        script.push_str(word);
        script.push_str(" kind == ");
        script.push(char::from(b'0' + twin as u8));
        script.push_str(" then\n");
        part(script, kinds, twin.text(), name);
        word = "elseif";
    }
    if word == "elseif" {
        script.push_str("end\n");
    }
    if kinds.has_reservations() {
        part(script, kinds, RESERVATION, name);
    }
}

fn has_part(text: &str, name: &str) -> bool {
    find_part(text, name).is_some()
}

fn find_part<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let mut parts = text.split("\n--@").skip(1);
    parts.find_map(|part| part.strip_prefix(name)?.strip_prefix('\n'))
}

/// Appends one part of a source, and the parts that it includes: its own, those of the bucket, and in
/// that of reservations those of the algorithms.
fn part(script: &mut String, kinds: Kinds, text: &str, name: &str) {
    for line in find_part(text, name).unwrap_or_default().lines() {
        match line.trim_start().strip_prefix("--@") {
            Some("stored") => script.push_str(include_str!("stored.lua")),
            Some(name) => match name.strip_prefix("bucket ") {
                Some(name) => part(script, kinds, Twin::Bucket.text(), name),
                None if has_part(text, name) => part(script, kinds, text, name),
                None => parts(script, kinds, name),
            },
            None => {
                script.push_str(line);
                script.push('\n');
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
    /// [`undo`](crate::undo_by). What the owner holds of a concurrency limit ends.
    Undo {
        /// The [effective time](crate::FoundState::effective_time_us) of the decision.
        taken_us: u64,
    },
    /// Restores what the owner held of a concurrency limit before a check or a take. See
    /// [`restore_hold`](crate::restore_hold).
    Restore {
        /// What it held; `None` if nothing.
        former: Option<FormerHold>,
    },
    /// Returns the last units of a shaping queue if its schedule ends as expected. If one limit of a
    /// request does not, none is changed. See [`refund_tail`](crate::refund_tail).
    RefundTail {
        /// The expected end.
        end_us: u64,
    },
    /// The same check several times: the first that fit are admitted. The state found is that before
    /// the first; [`next_check`](crate::next_check) derives those before the others.
    RepeatedCheck {
        /// How many; at least 1.
        times: u16,
    },
    /// Takes a part of the available units, at most the cost and at least 2, or nothing. For one
    /// limit. See [`evaluate_lease`](crate::evaluate_lease).
    Lease {
        /// One in this many of the available units; at least 1.
        divisor: u32,
    },
}

impl Operation {
    /// Whether a limit has a reservation for it: a reserve or a settle of anything but a concurrency
    /// limit.
    pub fn has_reservation(self, quota: &Quota) -> bool {
        let needs_id = matches!(self, Operation::Verb(verb) if verb.needs_id());
        needs_id && !quota.algorithm().is_concurrent()
    }

    /// The verb's number in the scripts, and the cost.
    fn number(self, quota: &Quota, cost: u32) -> (u8, u32) {
        let algorithm = quota.algorithm();
        let verb = match self {
            Operation::Verb(verb) if !touches(verb, algorithm) => return (0, 0),
            Operation::Verb(Verb::Reset) => 5,
            Operation::Verb(Verb::Renew) => 10,
            Operation::Verb(Verb::Release) => return (4, u32::MAX),
            Operation::Undo { .. } if algorithm.is_concurrent() => return (4, u32::MAX),
            Operation::Restore { former } => return (6, former.map_or(0, |hold| hold.units)),
            Operation::Verb(Verb::Reserve) if self.has_reservation(quota) => 11,
            Operation::Verb(Verb::Settle) => 12,
            _ if cost == 0 => 0,
            Operation::Verb(Verb::Peek) => 0,
            Operation::Verb(Verb::Check | Verb::Reserve) => 1,
            Operation::Verb(Verb::Take) => 2,
            Operation::Verb(Verb::Charge) => 3,
            Operation::Verb(Verb::Refund) => 4,
            Operation::Undo { .. } => 6,
            Operation::RefundTail { .. } => 7,
            Operation::RepeatedCheck { .. } => 8,
            Operation::Lease { .. } => 9,
        };
        (verb, cost)
    }

    /// The number after the fields of the algorithm.
    fn extra(self) -> u64 {
        match self {
            Operation::Verb(_) => 0,
            Operation::Undo { taken_us } => taken_us.min(MAX_TIME_US),
            Operation::Restore { former } => former.map_or(0, |hold| hold.until_us),
            // The latest time and the longest level.
            Operation::RefundTail { end_us } => end_us.min(2 * MAX_TIME_US),
            Operation::RepeatedCheck { times } => times.into(),
            Operation::Lease { divisor } => divisor.into(),
        }
    }
}

/// The numbers of the verbs from this one on have one more field.
const UNDO: u8 = 6;
/// The numbers of the verbs from this one on have a reservation, which changes the argument.
const RESERVE: u8 = 11;

/// Who asks, as scripts know callers: by name. Names have at most 255 bytes; further ones are ignored.
#[derive(Clone, Copy, Debug, Default)]
pub struct NamedCaller<'a> {
    /// The member of a shared bucket.
    pub member: &'a [u8],
    /// The weight of the member.
    pub weight: Weight,
    /// Whether the member always has a place: [`Room::Always`](crate::Room::Always).
    pub has_place: bool,
    /// The owner of units of a concurrency limit; not empty.
    pub owner: &'a [u8],
}

/// Appends the argument of one limit; `more` if the next one belongs to the same request.
pub fn write_argument(
    out: &mut Vec<u8>,
    quota: &Quota,
    operation: Operation,
    caller: &NamedCaller<'_>,
    cost: u32,
    more: bool,
) {
    let (verb, cost) = operation.number(quota, cost);
    let twin = quota.algorithm().twin();
    out.extend_from_slice(&1_u16.to_be_bytes());
    out.extend_from_slice(&[twin as u8, verb, more.into()]);
    out.extend_from_slice(&cost.to_be_bytes());
    out.extend_from_slice(&quota.limit().to_be_bytes());
    write_seven(out, quota.period_us());
    if let Twin::Bucket | Twin::Share = twin {
        let drain = match operation {
            // A take saturates too.
            Operation::Undo { .. } => quota.drain(cost).min(Drain::MAX),
            _ => quota.drain(cost),
        };
        write_drain(out, quota.full());
        write_drain(out, drain);
    }
    match twin {
        Twin::Share => {
            let units = u64::from(quota.member_units()) * u64::from(caller.weight.get());
            let least = quota.drain(narrow(units).min(quota.capacity()));
            out.extend_from_slice(&quota.capacity().to_be_bytes());
            out.extend_from_slice(&quota.member_units().to_be_bytes());
            write_drain(out, least);
            out.extend_from_slice(&caller.weight.get().to_be_bytes());
            out.push(caller.has_place.into());
            write_name(out, caller.member);
        }
        Twin::Holds => write_name(out, caller.owner),
        Twin::Window | Twin::Counter | Twin::Bucket | Twin::Log => {}
    }
    if verb >= UNDO {
        write_seven(out, operation.extra());
    }
}

fn write_drain(out: &mut Vec<u8>, drain: Drain) {
    // Longer drains never fit, or saturate.
    write_seven(out, drain.us.min(MAX_TIME_US + 1));
    out.extend_from_slice(&drain.part.to_be_bytes());
}

/// Writes a name after its length.
fn write_name(out: &mut Vec<u8>, name: &[u8]) {
    let len = u8::try_from(name.len()).unwrap_or(u8::MAX);
    out.push(len);
    out.extend_from_slice(&name[..len.into()]);
}

/// Positions in an argument: the number of requests, the verb, and whether the next limit belongs to
/// the same request.
const REPEATS: core::ops::Range<usize> = 0..2;
const VERB: usize = 3;
const MORE: usize = 4;

/// Joins the arguments of a script for these kinds. Consecutive single-limit requests with equal
/// arguments share one.
pub fn join_arguments<'a>(
    kinds: Kinds,
    arguments: impl ExactSizeIterator<Item = &'a [u8]>,
) -> Vec<u8> {
    let mut joined = Vec::new();
    if kinds.has_further_keys() {
        let limits = u16::try_from(arguments.len()).unwrap_or(u16::MAX);
        joined.extend_from_slice(&limits.to_be_bytes());
    }
    // The last argument, its start, its number of requests, and whether it can be shared.
    let (mut last, mut start, mut repeats): (&[u8], usize, u16) = (&[], 0, 0);
    let (mut ended, mut is_single) = (true, false);
    for argument in arguments {
        let ends = argument.get(MORE) == Some(&0);
        let is_fixed = argument.get(VERB).is_some_and(|verb| *verb < RESERVE);
        let was_single = mem::replace(&mut is_single, ended && ends && is_fixed);
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

/// Reads what a script found for one limit from the start of its result: the state and, if the operation
/// [has one](Operation::has_reservation), the reservation. `None` if it is malformed.
///
/// The member of a reservation is not known: 0.
pub fn read_found(
    quota: &Quota,
    operation: Operation,
    result: &mut &[u8],
) -> Option<(State, Option<Reservation>)> {
    let reservation = match operation.has_reservation(quota) {
        true => read_reservation(result)?,
        false => None,
    };
    Some((read_state(quota, result)?, reservation))
}

fn read_reservation(result: &mut &[u8]) -> Option<Option<Reservation>> {
    if take(result, 1)? == [0] {
        return Some(None);
    }
    let found = take(result, 13)?;
    Some(Some(Reservation {
        taken_us: number(&found[..7]),
        estimate: narrow(number(&found[7..11])),
        member: 0,
        weight: read_weight(&found[11..]),
    }))
}

fn read_weight(bytes: &[u8]) -> Weight {
    // Only a corrupted one is out of range.
    Weight::new(narrow(number(bytes))).unwrap_or_default()
}

fn take<'a>(from: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, rest) = from.split_at_checked(len)?;
    *from = rest;
    Some(taken)
}

/// Reads the state of one limit from the start of a script's result; `None` if it is malformed.
pub fn read_state(quota: &Quota, result: &mut &[u8]) -> Option<State> {
    let twin = quota.algorithm().twin();
    let kind = *result.first()?;
    if kind == 0 {
        *result = &result[1..];
        return Some(State::New);
    }
    let state = take(result, twin.result_len(kind)?)?;
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
        Twin::Bucket => State::Bucket(read_bucket(state)),
        Twin::Share => {
            let (root, place) = state.split_at(SHARE_ROOT);
            let own = match place {
                [0] => Own::None,
                [1] => Own::Current(read_member(take(result, SHARE_MEMBER)?)),
                _ => Own::Previous(read_member(take(result, SHARE_MEMBER)?)),
            };
            State::ShareView(Box::new(ShareView(read_root(root, own))))
        }
        Twin::Holds => State::HoldsSummary(HoldsSummary {
            newest: seven(0),
            units: InFlight {
                live: narrow(number(&state[8..12])),
                own: narrow(number(&state[12..16])),
            },
            own_until: number(&state[16..23]),
            next: number(&state[23..30]),
        }),
        Twin::Log => State::LogSummary(LogSummary {
            newest: seven(0),
            used: seven(1),
            frees: if kind == LOG_FULL { seven(2) } else { 0 },
        }),
    })
}

/// A stored hash: names and values.
pub type Fields = [(Vec<u8>, Vec<u8>)];

/// Reads a stored share with all its members: what is stored under the counter's key and under those
/// with its [suffixes](key_suffixes). `id` makes an id of a name. `None` if it is malformed.
pub fn read_share(
    root: &[u8],
    [even, odd]: [&Fields; 2],
    id: impl Fn(&[u8]) -> u64,
) -> Option<State> {
    let (&kind, &parity) = (root.first()?, root.get(SHARE_ROOT - 1)?);
    if kind != Twin::Share as u8 || root.len() != SHARE_ROOT {
        return None;
    }
    let view = read_root(root, Own::None);
    let (current, previous) = if parity == 0 {
        (even, odd)
    } else {
        (odd, even)
    };
    let members = |fields: &Fields, tally: Tally| {
        // A table without members may not have been deleted yet.
        let fields = if tally.members > 0 { fields } else { &[] };
        let entries = fields
            .iter()
            .filter(|(_, entry)| entry.len() == SHARE_MEMBER);
        let member = |(name, entry): &(Vec<u8>, Vec<u8>)| (id(name), read_member(entry));
        entries.map(member).collect::<Vec<_>>().into_iter()
    };
    let current = members(current, view.current);
    let previous = members(previous, view.previous);
    let share = FairShare::from_members(&view, current, previous);
    Some(State::Shared(Box::new(share)))
}

/// Reads the stored holds of a concurrency limit: what is stored under the counter's key. `id` makes an
/// id of a name.
pub fn read_holds(fields: &Fields, id: impl Fn(&[u8]) -> u64) -> State {
    let mut holds: Vec<(u64, FormerHold)> = Vec::new();
    for (name, hold) in fields {
        if !name.is_empty() && hold.len() == HOLD {
            let (units, until_us) = (narrow(number(&hold[..4])), number(&hold[4..]));
            holds.push((id(name), FormerHold { units, until_us }));
        }
    }
    holds.sort_unstable_by_key(|(_, hold)| hold.until_us);
    match holds.is_empty() {
        true => State::New,
        false => State::Holds(Box::new(Holds::from_each(holds.into_iter()))),
    }
}

/// The bytes of a stored hold.
const HOLD: usize = 11;
/// The bytes of a stored share without its members, and of one member.
const SHARE_ROOT: usize = 60;
const SHARE_MEMBER: usize = 20;

fn read_root(root: &[u8], own: Own) -> View {
    let field = |from: usize, len: usize| number(&root[from..from + len]);
    let tally = |from: usize| Tally {
        members: narrow(field(from, 4)),
        weight: field(from + 4, 4),
    };
    let epoch = Epoch {
        start: field(29, 7),
        length: field(36, 7),
    };
    View {
        root: Some(read_bucket(root)),
        epoch: (epoch.length > 0).then_some(epoch),
        current: tally(43),
        previous: tally(51),
        own,
    }
}

fn read_member(entry: &[u8]) -> Member {
    Member {
        level: Drain {
            us: number(&entry[..7]),
            part: narrow(number(&entry[7..11])),
        },
        as_of: number(&entry[11..18]),
        weight: read_weight(&entry[18..20]),
    }
}

fn read_bucket(state: &[u8]) -> Bucket {
    Bucket {
        changed: number(&state[1..8]),
        level: Drain {
            us: number(&state[8..15]),
            part: narrow(number(&state[15..19])),
        },
        limit: narrow(number(&state[19..23])),
    }
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
        let (check, caller) = (Operation::Verb(Verb::Check), NamedCaller::default());
        write_argument(&mut argument, &quota, check, &caller, cost, more);
        argument
    }

    /// The number of requests of each joined argument.
    fn repeats(arguments: &[Vec<u8>]) -> Vec<u64> {
        let joined = join_arguments(Kinds::default(), arguments.iter().map(Vec::as_slice));
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
