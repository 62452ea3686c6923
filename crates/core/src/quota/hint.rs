//! What an invalid text probably means: "did you mean …", with the text's own numbers.
//!
//! The words are read in any order, with other spellings of algorithms and units. A suggestion is
//! made only if every word has a meaning and the result is a valid quota.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem::swap;

use super::Quota;
use super::text::{Hold, Period, UNITS};

/// Names without hyphens, and the quota's word.
const NAMES: [(&str, &str); 14] = [
    ("bucket", "token-bucket"),
    ("fixed", "fixed-window"),
    ("fixedwindow", "fixed-window"),
    ("gcra", "gcra"),
    ("leaky", "leaky-bucket"),
    ("leakybucket", "leaky-bucket"),
    ("slidingcounter", "sliding-window-counter"),
    ("slidinglog", "sliding-window-log"),
    ("sliding", "sliding-window-counter"),
    ("slidingwindow", "sliding-window-counter"),
    ("slidingwindowcounter", "sliding-window-counter"),
    ("slidingwindowlog", "sliding-window-log"),
    ("token", "token-bucket"),
    ("tokenbucket", "token-bucket"),
];
/// Shorter names are other words too often.
const MIN_MISSPELT: usize = 5;
const MAX_EDITS: usize = 2;

/// Words that add nothing.
const FILLERS: [&str; 19] = [
    "a", "allow", "an", "and", "at", "calls", "for", "hits", "limit", "max", "of", "r", "rate",
    "req", "reqs", "request", "requests", "times", "with",
];
/// Words for a limit of units in flight.
const CONCURRENT: [&str; 6] = [
    "concurrency",
    "concurrent",
    "in-flight",
    "inflight",
    "parallel",
    "simultaneous",
];
/// Words before a period.
const PER: [&str; 6] = ["/", "each", "every", "in", "p", "per"];
/// Rates in one word, after `r` for requests, `q` for queries or `t` for transactions.
const PER_UNIT: [(&str, u64); 4] = [
    ("ps", 1_000_000),
    ("pm", 60_000_000),
    ("ph", 3_600_000_000),
    ("pd", 86_400_000_000),
];
const OTHER_UNITS: [(&str, u64); 8] = [
    ("hr", 3_600_000_000),
    ("hrs", 3_600_000_000),
    ("millisecond", 1_000),
    ("milliseconds", 1_000),
    ("minuts", 60_000_000),
    ("mn", 60_000_000),
    ("week", 7 * 86_400_000_000),
    ("weeks", 7 * 86_400_000_000),
];

/// A valid quota that a text probably means.
pub(super) fn suggestion(text: &str) -> Option<String> {
    let found = Reading::from_tokens(&tokens(text)?)?;
    let meant = found.quota()?;
    (meant != text && meant.parse::<Quota>().is_ok()).then_some(meant)
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    /// A number, and whether it starts a word.
    Number(u64, bool),
    /// Lower-case letters and hyphens, or a slash.
    Word(String),
}

/// Splits a text; `None` if it has characters without a meaning.
fn tokens(text: &str) -> Option<Vec<Token>> {
    let mut found = Vec::new();
    let mut rest = text.chars().peekable();
    let mut starts = true;
    while let Some(c) = rest.next() {
        match c {
            ' ' | '\t' | '\n' | '\r' | ',' | ';' | '=' | ':' => {
                starts = true;
                continue;
            }
            '/' => {
                found.push(Token::Word("/".into()));
            }
            '0'..='9' => {
                let mut digits = String::from(c);
                while let Some(&next) = rest.peek() {
                    match next {
                        '0'..='9' => digits.push(next),
                        '_' => {}
                        _ => break,
                    }
                    rest.next();
                }
                found.push(Token::Number(digits.parse().ok()?, starts));
            }
            'a'..='z' | 'A'..='Z' => {
                let mut word = String::from(c.to_ascii_lowercase());
                while let Some(&next) = rest.peek() {
                    match next {
                        'a'..='z' | 'A'..='Z' => word.push(next.to_ascii_lowercase()),
                        '-' | '_' => word.push('-'),
                        _ => break,
                    }
                    rest.next();
                }
                found.push(Token::Word(word));
            }
            _ => return None,
        }
        starts = false;
    }
    Some(found)
}

/// The parts of a quota, as far as they are found.
#[derive(Default)]
struct Reading {
    /// Letters of words without another meaning.
    name: String,
    limit: Option<u64>,
    period_us: u64,
    units: Vec<u64>,
    keyword: Option<&'static str>,
    capacity: Option<u64>,
    is_concurrent: bool,
    is_shared: bool,
    shared_units: Option<u64>,
}

impl Reading {
    fn from_tokens(tokens: &[Token]) -> Option<Self> {
        let mut reading = Reading::default();
        // Whether the next number or unit is of the period.
        let mut in_period = false;
        let mut at = 0;
        while at < tokens.len() {
            let next = tokens.get(at + 1);
            at += 1;
            match &tokens[at - 1] {
                Token::Number(number, starts) => {
                    let unit = match next {
                        Some(Token::Word(word)) => unit_us(word),
                        _ => None,
                    };
                    if let Some(us) = unit.filter(|_| in_period || reading.limit.is_some()) {
                        reading.add_period(*number, us)?;
                        at += 1;
                    } else if next
                        .is_some_and(|next| matches!(next, Token::Word(word) if word == "k"))
                    {
                        reading.add_number(number.checked_mul(1_000)?, *starts)?;
                        at += 1;
                    } else {
                        reading.add_number(*number, *starts)?;
                    }
                }
                Token::Word(word) => match word.as_str() {
                    // A second period.
                    word if PER.contains(&word) && in_period && reading.period_us > 0 => {
                        return None;
                    }
                    word if PER.contains(&word) => in_period = true,
                    word if FILLERS.contains(&word) => {}
                    "burst" | "bursts" | "bursting" => reading.set_keyword("burst")?,
                    "queue" | "queued" => reading.set_keyword("queue")?,
                    "share" | "shared" => reading.is_shared = true,
                    word if CONCURRENT.contains(&word) => reading.is_concurrent = true,
                    word => {
                        if let Some(us) = unit_us(word).or_else(|| per_unit_us(word)) {
                            reading.add_period(1, us)?;
                        } else {
                            reading.name.extend(word.chars().filter(|c| *c != '-'));
                        }
                    }
                },
            }
        }
        Some(reading)
    }

    fn add_period(&mut self, count: u64, unit_us: u64) -> Option<()> {
        if self.units.contains(&unit_us) {
            return None;
        }
        self.units.push(unit_us);
        self.period_us = self.period_us.checked_add(count.checked_mul(unit_us)?)?;
        Some(())
    }

    /// The first number is the limit, unless it follows `burst` or `queue`; another one that is a
    /// word is the burst.
    fn add_number(&mut self, number: u64, starts: bool) -> Option<()> {
        let place = match (self.keyword, self.limit) {
            _ if self.is_shared && self.shared_units.is_none() => &mut self.shared_units,
            (Some(_), _) if self.capacity.is_none() => &mut self.capacity,
            (_, None) => &mut self.limit,
            (None, Some(_)) if starts && self.period_us > 0 => {
                self.keyword = Some("burst");
                &mut self.capacity
            }
            (_, Some(_)) => return None,
        };
        *place = Some(number);
        Some(())
    }

    fn set_keyword(&mut self, keyword: &'static str) -> Option<()> {
        self.keyword.replace(keyword).is_none().then_some(())
    }

    /// The text of a quota with these parts.
    fn quota(&self) -> Option<String> {
        if self.is_concurrent {
            let is_plain = self.name.is_empty() && self.keyword.is_none() && !self.is_shared;
            let limit = self.limit.filter(|_| is_plain && self.period_us > 0)?;
            return Some(format!("concurrent {limit} for {}", Hold(self.period_us)));
        }
        let mut name = match &*self.name {
            "" => None,
            name => Some(known(name)?),
        };
        // Only some algorithms have a burst or a queue.
        match (self.keyword, name) {
            (Some("burst"), Some("token-bucket" | "gcra" | "leaky-bucket"))
            | (Some("queue"), Some("leaky-bucket"))
            | (None, _) => {}
            (Some("queue"), _) => name = Some("leaky-bucket"),
            (Some(_), _) => name = Some("token-bucket"),
        }
        if self.is_shared && self.keyword.is_none() && name.is_none() {
            name = Some("token-bucket");
        }
        let mut text = match name {
            None => String::new(),
            Some(name) => format!("{name} "),
        };
        if self.period_us == 0 {
            return None;
        }
        text += &format!("{}/{}", self.limit?, Period(self.period_us));
        match (self.keyword, self.capacity) {
            (None, None) => {}
            (Some(keyword), Some(capacity)) => text += &format!(" {keyword} {capacity}"),
            (Some(_), None) | (None, Some(_)) => return None,
        }
        if self.is_shared {
            text += " shared";
        }
        if let Some(units) = self.shared_units {
            text += &format!(" {units}");
        }
        Some(text)
    }
}

/// The unit with a name, in microseconds.
fn unit_us(word: &str) -> Option<u64> {
    let known = UNITS.iter().find(|(_, names, _)| names.contains(&word));
    let other = OTHER_UNITS.iter().find(|(name, _)| *name == word);
    known.map(|(_, _, us)| *us).or(other.map(|(_, us)| *us))
}

/// The period of `rps` or `rpm`.
fn per_unit_us(word: &str) -> Option<u64> {
    let rest = word.strip_prefix(['r', 'q', 't'])?;
    let found = PER_UNIT.iter().find(|(name, _)| *name == rest);
    found.map(|(_, us)| *us)
}

/// The algorithm with a name, which may be misspelt.
fn known(name: &str) -> Option<&'static str> {
    let exact = NAMES.iter().find(|(known, _)| *known == name);
    let near = || {
        let distance = |(known, _): &&(&str, &str)| edits(known, name);
        let nearest = NAMES.iter().min_by_key(distance)?;
        let is_near = name.len() >= MIN_MISSPELT && edits(nearest.0, name) <= MAX_EDITS;
        is_near.then_some(nearest)
    };
    exact.or_else(near).map(|(_, word)| *word)
}

/// How many letters must be added, removed or changed (Levenshtein).
fn edits(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut above: Vec<usize> = (0..=b.len()).collect();
    let mut row = above.clone();
    for (i, x) in a.iter().enumerate() {
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = above[j] + usize::from(x != y);
            row[j + 1] = changed.min(above[j + 1] + 1).min(row[j] + 1);
        }
        swap(&mut above, &mut row);
    }
    above[b.len()]
}
