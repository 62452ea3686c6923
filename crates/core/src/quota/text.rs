//! The text form of a quota: a lenient parser, which constants use too, and one canonical form.

use alloc::format;
use core::fmt;
use core::str::FromStr;

use super::error::QuotaError;
use super::fault::{Fault, OutOfRange, Problem, Span};
use super::{DEFAULT_SHARED_UNITS, Quota};
use crate::algorithm::Algorithm;

/// Units, largest first: the canonical name, all accepted names, the microseconds.
pub(super) const UNITS: [(&str, &[&str], u64); 5] = [
    ("d", &["d", "day", "days"], 86_400_000_000),
    ("h", &["h", "hour", "hours"], 3_600_000_000),
    (
        "min",
        &["m", "min", "mins", "minute", "minutes"],
        60_000_000,
    ),
    ("s", &["s", "sec", "secs", "second", "seconds"], 1_000_000),
    ("ms", &["ms"], 1_000),
];

pub(super) const MAX_TEXT_BYTES: usize = 256;

/// The keyword of a bucket that members share.
const SHARED: &str = "shared";

impl FromStr for Quota {
    type Err = QuotaError;

    /// Reads `[algorithm] limit/period [burst N | queue N] [shared [N]]` or `concurrent N for period`,
    /// for example `100/min`, `token-bucket 10/s burst 50` or `concurrent 10 for 30s`.
    fn from_str(text: &str) -> Result<Self, QuotaError> {
        parse(text).map_err(|fault| fault.explain(text))
    }
}

/// `?` in constant functions.
macro_rules! attempt {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(fault) => return Err(fault),
        }
    };
}

/// Parses a quota.
pub(super) const fn parse(text: &str) -> Result<Quota, Fault> {
    let reader = Reader {
        bytes: text.as_bytes(),
    };
    let none = Span { start: 0, end: 0 };
    if text.len() > MAX_TEXT_BYTES {
        return Err(Fault::new(Problem::TooLong, none));
    }
    if text.is_empty() {
        return Err(Fault::new(Problem::Empty, none));
    }
    attempt!(reader.check_characters());
    attempt!(reader.check_spaces());
    reader.quota()
}

/// The first algorithm with a name and, if there is one, this keyword of its capacity.
pub(super) const fn algorithm(name: &[u8], keyword: Option<&[u8]>) -> Option<Algorithm> {
    let mut at = 0;
    while at < Algorithm::ALL.len() {
        let algorithm = Algorithm::ALL[at];
        let fits = match (keyword, algorithm.capacity_keyword()) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(keyword), Some(own)) => is_equal(keyword, own.as_bytes()),
        };
        if fits && is_equal(name, algorithm.name().as_bytes()) {
            return Some(algorithm);
        }
        at += 1;
    }
    None
}

const fn is_equal(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

struct Reader<'a> {
    bytes: &'a [u8],
}

/// A number and its span.
#[derive(Clone, Copy)]
struct Number {
    value: u64,
    span: Span,
}

/// `burst N` or `queue N`.
#[derive(Clone, Copy)]
struct Capacity {
    keyword: &'static str,
    word: Span,
    units: Number,
}

impl Reader<'_> {
    const fn quota(&self) -> Result<Quota, Fault> {
        let first = self.word(0);
        if self.is(first, Algorithm::Concurrent.name()) {
            return self.concurrent(first);
        }
        let is_rate = self.bytes[0].is_ascii_digit() || self.find(first, b'/').is_some();
        let (name, rate) = if is_rate {
            (Algorithm::SlidingWindowCounter, first)
        } else {
            let name = attempt!(self.name(first));
            match self.next(first) {
                Some(rate) => (name, rate),
                None => {
                    let end = first.from(first.end);
                    return Err(Fault::new(Problem::MissingRate, end));
                }
            }
        };
        let (limit, period) = attempt!(self.rate(rate));
        let mut last = rate;
        let mut capacity = None;
        if let Some(word) = self.next(rate)
            && !self.is(word, SHARED)
        {
            let found = attempt!(self.capacity(word));
            last = found.units.span;
            capacity = Some(found);
        }
        let mut algorithm = attempt!(self.with_capacity(name, capacity));
        // The units of a member, and where they are, or the keyword.
        let mut share = (0, last);
        if let Some(word) = self.next(last)
            && self.is(word, SHARED)
        {
            let Some(shared) = algorithm.shared() else {
                let keyword = algorithm.capacity_keyword();
                let algorithm = algorithm.name();
                return Err(Fault::new(Problem::NotShared { algorithm, keyword }, word));
            };
            algorithm = shared;
            share = (DEFAULT_SHARED_UNITS as u64, word);
            last = word;
            if let Some(units) = self.next(word) {
                let units = attempt!(self.number(SHARED, units));
                share = (units.value, units.span);
                last = units.span;
            }
        }
        if let Some(word) = self.next(last) {
            let problem = match self.keyword(word) {
                Some(_) => Problem::BurstAndQueue,
                None => Problem::TooManyWords,
            };
            return Err(Fault::new(problem, word));
        }

        let units = match capacity {
            Some(capacity) => capacity.units.value,
            None => limit.value,
        };
        match Quota::validated_share(algorithm, limit.value, period.value, units, share.0) {
            Ok(quota) => Ok(quota),
            Err(error) => {
                let span = match error {
                    OutOfRange::Limit { .. } => limit.span,
                    OutOfRange::Period { .. }
                    | OutOfRange::Fraction { .. }
                    | OutOfRange::Hold { .. } => period.span,
                    OutOfRange::Share { .. } | OutOfRange::SharedBurst { .. } => share.1,
                    OutOfRange::Capacity { .. }
                    | OutOfRange::NoCapacity { .. }
                    | OutOfRange::Drain { .. }
                    | OutOfRange::SharedDrain { .. } => match capacity {
                        Some(capacity) => capacity.units.span,
                        None => rate,
                    },
                };
                Err(Fault::new(Problem::OutOfRange(error), span))
            }
        }
    }

    /// Parses `concurrent N for period`, of which the first word is read.
    const fn concurrent(&self, first: Span) -> Result<Quota, Fault> {
        let Some(units) = self.next(first) else {
            let end = first.from(first.end);
            return Err(Fault::new(Problem::MissingNumber("limit"), end));
        };
        let limit = attempt!(self.number("limit", units));
        let Some(word) = self.next(units) else {
            let end = units.from(units.end);
            return Err(Fault::new(Problem::MissingHold, end));
        };
        if !self.is(word, "for") {
            return Err(Fault::new(Problem::NotFor, word));
        }
        let Some(hold) = self.next(word) else {
            let end = word.from(word.end);
            return Err(Fault::new(Problem::MissingHold, end));
        };
        let hold = attempt!(self.period(hold));
        if let Some(word) = self.next(hold.span) {
            return Err(Fault::new(Problem::TooManyWords, word));
        }
        match Quota::validated(Algorithm::Concurrent, limit.value, hold.value, limit.value) {
            Ok(quota) => Ok(quota),
            Err(error) => {
                let span = match error {
                    OutOfRange::Hold { .. } => hold.span,
                    _ => limit.span,
                };
                Err(Fault::new(Problem::OutOfRange(error), span))
            }
        }
    }

    /// Only lower-case ASCII is valid: reports that instead of an unknown word.
    const fn check_characters(&self) -> Result<(), Fault> {
        let mut at = 0;
        while at < self.bytes.len() {
            let problem = match self.bytes[at] {
                b'a'..=b'z' | b'0'..=b'9' | b' ' | b'/' | b'-' => {
                    at += 1;
                    continue;
                }
                b'A'..=b'Z' => Problem::UpperCase,
                b'\t' | b'\n' | b'\r' => Problem::Separator,
                _ => Problem::Character,
            };
            let span = Span {
                start: at,
                end: at + 1,
            };
            return Err(Fault::new(problem, span));
        }
        Ok(())
    }

    const fn check_spaces(&self) -> Result<(), Fault> {
        let mut start = 0;
        loop {
            let word = self.word(start);
            if word.len() == 0 {
                let at = start.saturating_sub(1);
                let end = if at < self.bytes.len() { at + 1 } else { at };
                let span = Span { start: at, end };
                return Err(Fault::new(Problem::Spaces, span));
            }
            if word.end == self.bytes.len() {
                return Ok(());
            }
            start = word.end + 1;
        }
    }

    /// The word that starts there.
    const fn word(&self, start: usize) -> Span {
        let end = self.bytes.len();
        let rest = Span { start, end };
        match self.find(rest, b' ') {
            Some(end) => rest.to(end),
            None => rest,
        }
    }

    /// The word after another.
    const fn next(&self, word: Span) -> Option<Span> {
        if word.end == self.bytes.len() {
            return None;
        }
        Some(self.word(word.end + 1))
    }

    const fn find(&self, span: Span, byte: u8) -> Option<usize> {
        let mut at = span.start;
        while at < span.end {
            if self.bytes[at] == byte {
                return Some(at);
            }
            at += 1;
        }
        None
    }

    /// The end of the digits, or of the letters, at the start of a span.
    const fn end_of(&self, span: Span, digits: bool) -> usize {
        let mut at = span.start;
        while at < span.end {
            let byte = self.bytes[at];
            let fits = if digits {
                byte.is_ascii_digit()
            } else {
                byte.is_ascii_lowercase()
            };
            if !fits {
                break;
            }
            at += 1;
        }
        at
    }

    const fn slice(&self, span: Span) -> &[u8] {
        let (before, _) = self.bytes.split_at(span.end);
        before.split_at(span.start).1
    }

    const fn is(&self, span: Span, text: &str) -> bool {
        is_equal(self.slice(span), text.as_bytes())
    }

    /// An algorithm with that name.
    const fn name(&self, word: Span) -> Result<Algorithm, Fault> {
        if self.is(word, "gcra") {
            return Ok(Algorithm::TokenBucket);
        }
        match algorithm(self.slice(word), None) {
            Some(algorithm) => Ok(algorithm),
            None => Err(Fault::new(Problem::UnknownAlgorithm, word)),
        }
    }

    /// Parses `limit/period`.
    const fn rate(&self, rate: Span) -> Result<(Number, Number), Fault> {
        let Some(slash) = self.find(rate, b'/') else {
            return Err(Fault::new(Problem::NotARate, rate));
        };
        let limit = attempt!(self.number("limit", rate.to(slash)));
        let period = attempt!(self.period(rate.from(slash + 1)));
        Ok((limit, period))
    }

    const fn number(&self, what: &'static str, word: Span) -> Result<Number, Fault> {
        if word.len() == 0 {
            return Err(Fault::new(Problem::MissingNumber(what), word));
        }
        let end = self.end_of(word, true);
        if end < word.end {
            return Err(Fault {
                problem: Problem::NotANumber(what),
                quoted: word,
                marked: word.from(end),
            });
        }
        Ok(Number {
            value: self.value(word),
            span: word,
        })
    }

    /// The value of digits; it saturates, and `u64::MAX` is above every bound.
    const fn value(&self, digits: Span) -> u64 {
        let mut value: u64 = 0;
        let mut at = digits.start;
        while at < digits.end {
            let digit = self.bytes[at] - b'0';
            value = value.saturating_mul(10).saturating_add(digit as u64);
            at += 1;
        }
        value
    }

    /// Parses one or more counts with units, largest first, each once; the default count is 1.
    const fn period(&self, period: Span) -> Result<Number, Fault> {
        if period.len() == 0 {
            return Err(Fault::new(Problem::MissingPeriod, period));
        }
        let mut total: u64 = 0;
        // The rank that the next unit must have at least.
        let mut least = 0;
        let mut rest = period;
        while rest.len() > 0 {
            let count = rest.to(self.end_of(rest, true));
            let unit = rest.from(count.end);
            let unit = unit.to(self.end_of(unit, false));
            let is_lone = unit.start == period.start && unit.end == period.end;
            if count.len() == 0 && !is_lone {
                return Err(Fault::new(Problem::MissingCount, rest));
            }
            if unit.len() == 0 {
                return Err(Fault::new(Problem::MissingUnit, count));
            }
            let Some(rank) = self.unit(unit) else {
                return Err(Fault::new(Problem::UnknownUnit, unit));
            };
            if rank < least {
                return Err(Fault::new(Problem::UnitOrder, unit));
            }
            least = rank + 1;
            let amount = if is_lone { 1 } else { self.value(count) };
            if amount == 0 {
                return Err(Fault {
                    problem: Problem::ZeroCount,
                    quoted: period,
                    marked: count,
                });
            }
            total = total.saturating_add(amount.saturating_mul(UNITS[rank].2));
            rest = rest.from(unit.end);
        }
        Ok(Number {
            value: total,
            span: period,
        })
    }

    /// The rank of a unit: 0 is the largest.
    const fn unit(&self, word: Span) -> Option<usize> {
        let mut rank = 0;
        while rank < UNITS.len() {
            let names = UNITS[rank].1;
            let mut at = 0;
            while at < names.len() {
                if self.is(word, names[at]) {
                    return Some(rank);
                }
                at += 1;
            }
            rank += 1;
        }
        None
    }

    const fn keyword(&self, word: Span) -> Option<&'static str> {
        if self.is(word, "burst") {
            Some("burst")
        } else if self.is(word, "queue") {
            Some("queue")
        } else {
            None
        }
    }

    /// Parses `burst N` or `queue N`.
    const fn capacity(&self, word: Span) -> Result<Capacity, Fault> {
        let Some(keyword) = self.keyword(word) else {
            return Err(Fault::new(Problem::NotACapacity, word));
        };
        let Some(units) = self.next(word) else {
            let end = word.from(word.end);
            return Err(Fault::new(Problem::MissingNumber(keyword), end));
        };
        Ok(Capacity {
            keyword,
            word,
            units: attempt!(self.number(keyword, units)),
        })
    }

    /// The algorithm of the same name that has the burst or queue.
    const fn with_capacity(
        &self,
        named: Algorithm,
        capacity: Option<Capacity>,
    ) -> Result<Algorithm, Fault> {
        let Some(Capacity { keyword, word, .. }) = capacity else {
            return Ok(named);
        };
        match algorithm(named.name().as_bytes(), Some(keyword.as_bytes())) {
            Some(algorithm) => Ok(algorithm),
            None => {
                let algorithm = named.name();
                let problem = Problem::NoSuchCapacity { algorithm, keyword };
                Err(Fault::new(problem, word))
            }
        }
    }
}

impl fmt::Display for Quota {
    /// Writes the canonical form: always with the algorithm, the period in `d h min s ms`, the burst
    /// or queue of a bucket, and the units of a member of a shared one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.algorithm.name();
        if self.algorithm.is_concurrent() {
            return write!(f, "{name} {} for {}", self.limit, Hold(self.period_us));
        }
        write!(f, "{name} {}/{}", self.limit, Period(self.period_us))?;
        if let Some(word) = self.algorithm.capacity_keyword() {
            write!(f, " {word} {}", self.capacity)?;
        }
        match self.shared_units() {
            Some(units) => write!(f, " {SHARED} {units}"),
            None => Ok(()),
        }
    }
}

/// A period as text.
pub(super) struct Period(pub(super) u64);

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((name, _, _)) = UNITS.iter().find(|(_, _, us)| *us == self.0) {
            return f.write_str(name);
        }
        fmt::Display::fmt(&Hold(self.0), f)
    }
}

/// A hold time as text: a period whose lone count of 1 is written.
pub(super) struct Hold(pub(super) u64);

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        for (name, _, us) in UNITS {
            if rest >= us {
                write!(f, "{}{name}", rest / us)?;
                rest %= us;
            }
        }
        Ok(())
    }
}

impl Quota {
    /// The period in the text form: `min`, `1h30min`.
    pub fn period_text(&self) -> alloc::string::String {
        format!("{}", Period(self.period_us))
    }

    /// The default name of a limit: the behaviour and the period, so that a changed limit or burst
    /// keeps its count.
    pub fn default_name(&self) -> alloc::string::String {
        format!("{}/{}", self.algorithm.behaviour(), Period(self.period_us))
    }
}
