//! The text form of a quota: a lenient parser and one canonical form.

use alloc::format;
use core::fmt;
use core::ops::Range;
use core::str::FromStr;

use super::Quota;
use super::error::{QuotaError, quote};
use crate::algorithm::Algorithm;

/// Units, largest first: the canonical name, all accepted names, the microseconds.
const UNITS: [(&str, &[&str], u64); 5] = [
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

const MAX_TEXT_BYTES: usize = 256;

impl FromStr for Quota {
    type Err = QuotaError;

    /// Reads `[algorithm] limit/period [burst N | queue N]`, for example `100/min` or
    /// `token-bucket 10/s burst 50`.
    fn from_str(text: &str) -> Result<Self, QuotaError> {
        if text.len() > MAX_TEXT_BYTES {
            let problem = format!(
                "{} bytes are above {MAX_TEXT_BYTES}, too long for a quota",
                text.len()
            );
            return Err(QuotaError::new(problem));
        }
        Reader { text }.quota()
    }
}

/// A word of the text and its span.
#[derive(Clone)]
struct Word<'a> {
    word: &'a str,
    span: Range<usize>,
}

impl<'a> Word<'a> {
    fn part(&self, from: usize, to: usize) -> Word<'a> {
        Word {
            word: &self.word[from..to],
            span: self.span.start + from..self.span.start + to,
        }
    }
}

struct Reader<'a> {
    text: &'a str,
}

impl<'a> Reader<'a> {
    fn quota(&self) -> Result<Quota, QuotaError> {
        if self.text.is_empty() {
            return Err(self.error(0..0, "the quota is empty".into()));
        }
        self.characters()?;
        let mut words = self.words()?.into_iter();
        let first = words.next().expect("a text has a first word");
        let is_rate = first.word.contains('/') || first.word.as_bytes()[0].is_ascii_digit();
        let (name, rate) = if is_rate {
            (Algorithm::default().name(), first)
        } else {
            let name = self.known(&first)?;
            let end = first.span.end;
            let missing = || self.error(end..end, "a limit and a period are missing".into());
            (name, words.next().ok_or_else(missing)?)
        };
        let (limit, period_us) = self.rate(&rate)?;
        let extra = match words.next() {
            None => None,
            Some(word) => Some(self.extra(word, words.next())?),
        };
        if let Some(word) = words.next() {
            let problem = match word.word {
                "burst" | "queue" => "a bucket has a burst or a queue, not both".into(),
                other => format!("`{}` is one word too many", quote(other)),
            };
            let error = self.error(word.span, problem);
            return Err(error.example("token-bucket 10/s burst 50"));
        }

        let algorithm = self.algorithm(name, extra.as_ref())?;
        let capacity = extra.as_ref().map_or(limit.0, |extra| extra.amount.0);
        Quota::validated(algorithm, limit.0, period_us.0, capacity).map_err(|error| {
            // The range checks know what is wrong; here is where it stands.
            let problem = error.problem();
            let span = if problem.starts_with("limit") {
                limit.1
            } else if problem.starts_with("the period") {
                period_us.1
            } else {
                extra.map_or(rate.span, |extra| extra.amount.1)
            };
            error.at(self.text, span)
        })
    }

    fn error(&self, span: Range<usize>, problem: alloc::string::String) -> QuotaError {
        QuotaError::new(problem).at(self.text, span)
    }

    /// Only lower-case ASCII is valid: reports that instead of an unknown word.
    fn characters(&self) -> Result<(), QuotaError> {
        for (at, c) in self.text.char_indices() {
            let problem = match c {
                'a'..='z' | '0'..='9' | ' ' | '/' | '-' => continue,
                'A'..='Z' => format!("`{c}` is upper case: a quota is all lower case"),
                '\t' | '\n' | '\r' => "words are separated by single spaces".into(),
                other => format!("`{}` has no place in a quota", other.escape_debug()),
            };
            return Err(self.error(at..at + c.len_utf8(), problem));
        }
        Ok(())
    }

    fn words(&self) -> Result<alloc::vec::Vec<Word<'a>>, QuotaError> {
        let mut words = alloc::vec::Vec::new();
        let mut start = 0;
        for word in self.text.split(' ') {
            let span = start..start + word.len();
            if word.is_empty() {
                let at = if start == 0 { 0 } else { start - 1 };
                let problem = "words are separated by single spaces, with none at either end";
                return Err(self.error(at..(at + 1).min(self.text.len()), problem.into()));
            }
            start = span.end + 1;
            words.push(Word { word, span });
        }
        Ok(words)
    }

    /// The name of an algorithm, without its alias.
    fn known(&self, name: &Word<'_>) -> Result<&'static str, QuotaError> {
        let mut names = Algorithm::ALL.iter().map(|algorithm| algorithm.name());
        match name.word {
            "gcra" => Ok(Algorithm::TokenBucket.name()),
            word => names.find(|name| *name == word).ok_or_else(|| {
                let problem = format!(
                    "`{}` is no algorithm: there are fixed-window, sliding-window-log, \
                     sliding-window-counter, token-bucket (or gcra) and leaky-bucket",
                    quote(word)
                );
                self.error(name.span.clone(), problem)
            }),
        }
    }

    /// Parses `limit/period`.
    fn rate(&self, rate: &Word<'_>) -> Result<(Placed, Placed), QuotaError> {
        let Some(slash) = rate.word.find('/') else {
            let problem = format!(
                "`{}` is no rate: a limit, `/` and a period",
                quote(rate.word)
            );
            return Err(self.error(rate.span.clone(), problem));
        };
        let limit = rate.part(0, slash);
        let period = rate.part(slash + 1, rate.word.len());
        let amount = self.number("limit", &limit)?;
        let period_us = self.period(&period)?;
        Ok((Placed(amount, limit.span), Placed(period_us, period.span)))
    }

    fn number(&self, what: &str, word: &Word<'_>) -> Result<u64, QuotaError> {
        if word.word.is_empty() {
            return Err(self.error(word.span.clone(), format!("the {what} is missing")));
        }
        if let Some(at) = word.word.find(|c: char| !c.is_ascii_digit()) {
            let wrong = word.part(at, word.word.len());
            let problem = format!("{what} `{}` is not a whole number", quote(word.word));
            return Err(self.error(wrong.span, problem));
        }
        // Digits only: the only error is overflow, and `u64::MAX` is above every bound.
        Ok(word.word.parse().unwrap_or(u64::MAX))
    }

    /// Parses one or more counts with units, largest first, each once; the default count is 1.
    fn period(&self, period: &Word<'_>) -> Result<u64, QuotaError> {
        if period.word.is_empty() {
            let problem = "the period is missing: a count and a unit of d, h, min, s or ms";
            return Err(self.error(period.span.clone(), problem.into()));
        }
        let mut total: u64 = 0;
        let mut smallest: Option<usize> = None;
        let mut at = 0;
        while at < period.word.len() {
            let rest = &period.word[at..];
            let digits = rest
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(rest.len());
            let letters = rest[digits..]
                .find(|c: char| !c.is_ascii_lowercase())
                .unwrap_or(rest.len() - digits);
            let count = period.part(at, at + digits);
            let unit = period.part(at + digits, at + digits + letters);
            let lone = at == 0 && digits == 0 && letters == rest.len();
            if digits == 0 && !lone {
                let problem = format!("`{}` in the period has no count", quote(rest));
                let error = self.error(period.part(at, period.word.len()).span, problem);
                return Err(error.example("fixed-window 5/1h30min"));
            }
            if letters == 0 {
                let problem = format!(
                    "`{}` in the period has no unit: d, h, min, s or ms",
                    quote(count.word)
                );
                let error = self.error(period.part(at, at + digits.max(1)).span, problem);
                return Err(error.example("sliding-window-log 10/10s"));
            }
            let Some(rank) = UNITS
                .iter()
                .position(|(_, names, _)| names.contains(&unit.word))
            else {
                let problem = format!("`{}` is no unit: d, h, min, s or ms", quote(unit.word));
                return Err(self.error(unit.span, problem));
            };
            if smallest.is_some_and(|before| before >= rank) {
                let problem = format!(
                    "`{}` is out of order: the largest unit first, each once",
                    unit.word
                );
                let error = self.error(unit.span, problem);
                return Err(error.example("fixed-window 5/1h30min"));
            }
            smallest = Some(rank);
            let amount = if lone {
                1
            } else {
                self.number("the period's count", &count)?
            };
            if amount == 0 {
                let problem = format!(
                    "the period's count 0 is below 1 in `{}`",
                    quote(period.word)
                );
                return Err(self.error(count.span, problem));
            }
            total = total.saturating_add(amount.saturating_mul(UNITS[rank].2));
            at += digits + letters;
        }
        Ok(total)
    }

    fn extra(&self, word: Word<'a>, amount: Option<Word<'_>>) -> Result<Extra<'a>, QuotaError> {
        let error = |span, problem| {
            let error = self.error(span, problem);
            Err(error.example("token-bucket 10/s burst 50"))
        };
        if !matches!(word.word, "burst" | "queue") {
            let problem = format!("`{}` is neither burst nor queue", quote(word.word));
            return error(word.span, problem);
        }
        let Some(amount) = amount else {
            let end = word.span.end;
            return error(end..end, format!("the {} has no number", word.word));
        };
        let number = self.number(word.word, &amount)?;
        let amount = Placed(number, amount.span);
        Ok(Extra { word, amount })
    }

    /// The algorithm with this name that has the burst or queue.
    fn algorithm(&self, name: &str, extra: Option<&Extra<'_>>) -> Result<Algorithm, QuotaError> {
        let mut named = Algorithm::ALL.into_iter().filter(|a| a.name() == name);
        let fits = |algorithm: &Algorithm| {
            extra.is_none_or(|extra| algorithm.capacity_keyword() == Some(extra.word.word))
        };
        named.find(fits).ok_or_else(|| {
            // Every algorithm fits without a burst or queue.
            let (word, span) = extra.map_or(("", 0..0), |extra| {
                (extra.word.word, extra.word.span.clone())
            });
            let example = match word {
                "queue" => "leaky-bucket 10/s queue 20",
                _ => "token-bucket 10/s burst 50",
            };
            let error = self.error(span, format!("{name} takes no {word}"));
            error.example(example)
        })
    }
}

/// A number and its span.
struct Placed(u64, Range<usize>);

/// `burst N` or `queue N`.
struct Extra<'a> {
    word: Word<'a>,
    amount: Placed,
}

impl fmt::Display for Quota {
    /// Writes the canonical form: always with the algorithm, the period in `d h min s ms`, and the
    /// burst or queue of a bucket.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}/{}",
            self.algorithm.name(),
            self.limit,
            Period(self.period_us)
        )?;
        match self.algorithm.capacity_keyword() {
            Some(word) => write!(f, " {word} {}", self.capacity),
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
