//! What is wrong with a quota, without allocation, so that constants can be checked; and its text.

use alloc::format;
use alloc::string::{String, ToString as _};
use core::fmt;
use core::time::Duration;

use super::error::{QuotaError, quote};
use super::hint;
use super::text::{Hold, MAX_TEXT_BYTES, Period};
use super::{MAX_CAPACITY, MAX_PERIOD_US, MIN_HOLD_US, MIN_PERIOD_US};
use crate::MAX_TIME_US;
use crate::algorithm::Algorithm;

const WINDOW_EXAMPLE: &str = "100/min";
const LONG_EXAMPLE: &str = "sliding-window-log 10/10s";
const PARTS_EXAMPLE: &str = "fixed-window 5/1h30min";
const BURST_EXAMPLE: &str = "token-bucket 10/s burst 50";
const QUEUE_EXAMPLE: &str = "leaky-bucket 10/s queue 20";
const SHARED_EXAMPLE: &str = "token-bucket 100/s burst 100 shared 4";
const CONCURRENT_EXAMPLE: &str = "concurrent 10 for 30s";

/// A problem with a text and its place.
#[derive(Clone, Copy)]
pub(super) struct Fault {
    pub(super) problem: Problem,
    /// The part that the message quotes.
    pub(super) quoted: Span,
    /// The part that is invalid.
    pub(super) marked: Span,
}

/// A range of bytes of a text.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) end: usize,
}

/// A problem with a text.
#[derive(Clone, Copy)]
pub(super) enum Problem {
    TooLong,
    Empty,
    UpperCase,
    Separator,
    Character,
    Spaces,
    MissingRate,
    UnknownAlgorithm,
    NotARate,
    MissingNumber(&'static str),
    NotANumber(&'static str),
    MissingPeriod,
    MissingCount,
    MissingUnit,
    UnknownUnit,
    UnitOrder,
    ZeroCount,
    NotACapacity,
    BurstAndQueue,
    TooManyWords,
    MissingHold,
    NotFor,
    NotShared {
        algorithm: &'static str,
        keyword: Option<&'static str>,
    },
    NoSuchCapacity {
        algorithm: &'static str,
        keyword: &'static str,
    },
    OutOfRange(OutOfRange),
}

/// A number beyond its bounds, or a combination that no algorithm has.
#[derive(Clone, Copy)]
pub(super) enum OutOfRange {
    Limit {
        limit: u64,
        max: u32,
    },
    Capacity {
        keyword: Option<&'static str>,
        capacity: u64,
    },
    NoCapacity {
        algorithm: Algorithm,
    },
    Period {
        period_us: u64,
    },
    /// Not a whole number of milliseconds.
    Fraction {
        period: Duration,
    },
    Drain {
        limit: u32,
        period_us: u64,
        capacity: u32,
    },
    Hold {
        hold_us: u64,
    },
    Share {
        share: u64,
    },
    /// The burst is below four times the units of a member.
    SharedBurst {
        share: u64,
        capacity: u64,
    },
    SharedDrain {
        drain_us: u64,
    },
}

impl Span {
    pub(super) const fn len(self) -> usize {
        self.end - self.start
    }

    pub(super) const fn from(self, start: usize) -> Span {
        Span {
            start,
            end: self.end,
        }
    }

    pub(super) const fn to(self, end: usize) -> Span {
        Span {
            start: self.start,
            end,
        }
    }
}

impl Fault {
    /// A problem whose message quotes the invalid part.
    pub(super) const fn new(problem: Problem, marked: Span) -> Self {
        Fault {
            problem,
            quoted: marked,
            marked,
        }
    }

    /// Explains the fault, with what was probably meant.
    pub(super) fn explain(self, text: &str) -> QuotaError {
        if let Problem::TooLong = self.problem {
            let bytes = text.len();
            let problem = format!("{bytes} bytes are above {MAX_TEXT_BYTES}, too long for a quota");
            return QuotaError::new(problem, WINDOW_EXAMPLE);
        }
        let mut marked = self.marked;
        // The parser counts bytes.
        while !text.is_char_boundary(marked.end) {
            marked.end += 1;
        }
        let quoted = match self.problem {
            Problem::Character => &text[marked.start..marked.end],
            _ => &text[self.quoted.start..self.quoted.end],
        };
        let problem = self.problem.message(quoted);
        let example = match text.split(' ').next() {
            Some("concurrent") => CONCURRENT_EXAMPLE,
            _ => self.problem.example(),
        };
        QuotaError::new(problem, example)
            .at(text, marked.start..marked.end)
            .suggest(hint::suggestion(text))
    }
}

impl Problem {
    fn message(self, quoted: &str) -> String {
        let quoted = || match self {
            Problem::Character => quoted.escape_debug().to_string(),
            _ => quote(quoted),
        };
        match self {
            Problem::UpperCase => {
                format!("`{}` is upper case: a quota is all lower case", quoted())
            }
            Problem::Character => format!("`{}` is not allowed in a quota", quoted()),
            Problem::UnknownAlgorithm => format!(
                "unknown algorithm `{}`: expected fixed-window, sliding-window-log, \
                 sliding-window-counter, token-bucket (or gcra), leaky-bucket or concurrent",
                quoted()
            ),
            Problem::NotARate => {
                format!(
                    "`{}` is not a rate: expected a limit, `/` and a period",
                    quoted()
                )
            }
            Problem::MissingNumber(what) => match what {
                "limit" => "the limit is missing".into(),
                what => format!("the {what} has no number"),
            },
            Problem::NotANumber(what) => format!("{what} `{}` is not a whole number", quoted()),
            Problem::MissingCount => format!("`{}` in the period has no count", quoted()),
            Problem::MissingUnit => format!(
                "`{}` in the period has no unit: d, h, min, s or ms",
                quoted()
            ),
            Problem::UnknownUnit => {
                format!("unknown unit `{}`: expected d, h, min, s or ms", quoted())
            }
            Problem::UnitOrder => format!(
                "`{}` is out of order: the largest unit first, each once",
                quoted()
            ),
            Problem::ZeroCount => format!("the period's count 0 is below 1 in `{}`", quoted()),
            Problem::NotACapacity => format!("`{}` is not `burst`, `queue` or `shared`", quoted()),
            Problem::TooManyWords => format!("`{}` is one word too many", quoted()),
            Problem::NoSuchCapacity { algorithm, keyword } => {
                format!("{algorithm} takes no {keyword}")
            }
            Problem::NotFor => format!("`{}` is not `for`, which the hold time follows", quoted()),
            Problem::NotShared { algorithm, keyword } => match keyword {
                Some(keyword) => format!("a {algorithm} with a {keyword} cannot be shared"),
                None => format!("{algorithm} cannot be shared"),
            },
            Problem::OutOfRange(error) => error.to_string(),
            Problem::TooLong
            | Problem::Empty
            | Problem::Separator
            | Problem::Spaces
            | Problem::MissingRate
            | Problem::MissingPeriod
            | Problem::MissingHold
            | Problem::BurstAndQueue => self.summary().into(),
        }
    }

    /// The problem without the part that is invalid.
    pub(super) const fn summary(self) -> &'static str {
        match self {
            Problem::TooLong => "the quota is too long",
            Problem::Empty => "the quota is empty",
            Problem::UpperCase => "a quota is all lower case",
            Problem::Separator => "words are separated by single spaces",
            Problem::Character => "a character is not allowed in a quota",
            Problem::Spaces => "words are separated by single spaces, with none at either end",
            Problem::MissingRate => "a limit and a period are missing",
            Problem::UnknownAlgorithm => {
                "unknown algorithm: expected fixed-window, sliding-window-log, \
                 sliding-window-counter, token-bucket (or gcra), leaky-bucket or concurrent"
            }
            Problem::NotARate => "not a rate: expected a limit, `/` and a period",
            Problem::MissingNumber(_) => "the limit, burst or queue has no number",
            Problem::NotANumber(_) => "the limit, burst, queue or share is not a whole number",
            Problem::MissingPeriod => {
                "the period is missing: a count and a unit of d, h, min, s or ms"
            }
            Problem::MissingCount => "a unit in the period has no count",
            Problem::MissingUnit => "a count in the period has no unit: d, h, min, s or ms",
            Problem::UnknownUnit => "unknown unit: expected d, h, min, s or ms",
            Problem::UnitOrder => "the period starts with the largest unit and has each once",
            Problem::ZeroCount => "a count in the period is 0",
            Problem::NotACapacity => "only a burst or a queue, and shared, follow the period",
            Problem::BurstAndQueue => "a bucket has a burst or a queue, not both",
            Problem::TooManyWords => {
                "a quota ends after its burst or queue, its share or its hold time"
            }
            Problem::MissingHold => "the hold time is missing: `for` and a period",
            Problem::NotFor => "the hold time follows `for`",
            Problem::NotShared { .. } => {
                "only token buckets and leaky buckets with a burst can be shared"
            }
            Problem::NoSuchCapacity { .. } => {
                "only buckets have a burst, and only leaky buckets a queue"
            }
            Problem::OutOfRange(error) => error.summary(),
        }
    }

    fn example(self) -> &'static str {
        match self {
            Problem::MissingUnit => LONG_EXAMPLE,
            Problem::MissingCount | Problem::UnitOrder => PARTS_EXAMPLE,
            Problem::NoSuchCapacity {
                keyword: "queue", ..
            }
            | Problem::MissingNumber("queue")
            | Problem::NotANumber("queue") => QUEUE_EXAMPLE,
            Problem::NotShared { .. }
            | Problem::NotANumber("shared")
            | Problem::OutOfRange(
                OutOfRange::Share { .. }
                | OutOfRange::SharedBurst { .. }
                | OutOfRange::SharedDrain { .. },
            ) => SHARED_EXAMPLE,
            Problem::MissingHold
            | Problem::NotFor
            | Problem::OutOfRange(OutOfRange::Hold { .. }) => CONCURRENT_EXAMPLE,
            Problem::NoSuchCapacity { .. }
            | Problem::MissingNumber("burst")
            | Problem::NotANumber("burst")
            | Problem::NotACapacity
            | Problem::BurstAndQueue
            | Problem::TooManyWords => BURST_EXAMPLE,
            Problem::TooLong
            | Problem::Empty
            | Problem::UpperCase
            | Problem::Separator
            | Problem::Character
            | Problem::Spaces
            | Problem::MissingRate
            | Problem::UnknownAlgorithm
            | Problem::NotARate
            | Problem::MissingNumber(_)
            | Problem::NotANumber(_)
            | Problem::MissingPeriod
            | Problem::UnknownUnit
            | Problem::ZeroCount
            | Problem::OutOfRange(_) => WINDOW_EXAMPLE,
        }
    }
}

impl OutOfRange {
    /// The problem without its numbers.
    pub(super) const fn summary(self) -> &'static str {
        match self {
            OutOfRange::Limit { .. } => {
                "the limit is out of range: 1 to 1000000000, of a log 100000, at once 10000"
            }
            OutOfRange::Capacity { .. } => "the burst or queue is out of range: 1 to 1000000000",
            OutOfRange::NoCapacity { .. } => "a window takes no burst or queue",
            OutOfRange::Period { .. } => "the period is out of range: 1ms to 366d",
            OutOfRange::Fraction { .. } => "the period is not a whole number of milliseconds",
            OutOfRange::Drain { .. } => {
                "a full drain (capacity x period / limit) is above 4503599627370496 microseconds"
            }
            OutOfRange::Hold { .. } => "the hold time is out of range: 1s to 24h",
            OutOfRange::Share { .. } => "the units of a member are below 1",
            OutOfRange::SharedBurst { .. } => "the burst is below four times the units of a member",
            OutOfRange::SharedDrain { .. } => {
                "a full drain (burst x period / limit) of a shared bucket is above 366d"
            }
        }
    }
}

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            OutOfRange::Limit { limit, max } => out_of_bounds(f, "limit", limit, max),
            OutOfRange::Capacity { keyword, capacity } => {
                out_of_bounds(f, keyword.unwrap_or("limit"), capacity, MAX_CAPACITY)
            }
            OutOfRange::NoCapacity { algorithm } => {
                write!(f, "{} takes no burst or queue", algorithm.name())
            }
            OutOfRange::Period { period_us } => match period_us {
                ..MIN_PERIOD_US => write!(f, "the period {period_us}us is below 1ms"),
                u64::MAX => f.write_str("the period is above 366d"),
                MIN_PERIOD_US.. => write!(
                    f,
                    "the period {} is above {}",
                    Period(period_us),
                    Period(MAX_PERIOD_US)
                ),
            },
            OutOfRange::Fraction { period } => write!(
                f,
                "the period {period:?} is not a whole number of milliseconds"
            ),
            OutOfRange::Drain {
                limit,
                period_us,
                capacity,
            } => write!(
                f,
                "a full drain (capacity x period / limit) of {} microseconds is above {MAX_TIME_US}",
                u128::from(capacity) * u128::from(period_us) / u128::from(limit)
            ),
            OutOfRange::Hold { hold_us } => match hold_us {
                ..MIN_HOLD_US => write!(f, "the hold time {} is below 1s", Hold(hold_us)),
                u64::MAX => f.write_str("the hold time is above 24h"),
                MIN_HOLD_US.. => write!(f, "the hold time {} is above 24h", Hold(hold_us)),
            },
            OutOfRange::Share { share } => write!(f, "shared {share} is below 1"),
            OutOfRange::SharedBurst { share, capacity } => write!(
                f,
                "burst {capacity} is below {}, four times the {share} of shared",
                share.saturating_mul(4)
            ),
            OutOfRange::SharedDrain { drain_us } => write!(
                f,
                "a full drain (burst x period / limit) of {drain_us} microseconds is above 366d for \
                 a shared bucket"
            ),
        }
    }
}

fn out_of_bounds(f: &mut fmt::Formatter<'_>, what: &str, value: u64, max: u32) -> fmt::Result {
    match value {
        0 => write!(f, "{what} 0 is below 1"),
        u64::MAX => write!(f, "{what} 2^64 or more is above {max}"),
        value => write!(f, "{what} {value} is above {max}"),
    }
}

impl From<OutOfRange> for QuotaError {
    fn from(error: OutOfRange) -> Self {
        QuotaError::new(error.to_string(), WINDOW_EXAMPLE)
    }
}
