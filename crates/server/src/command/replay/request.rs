//! One line to replay, read strictly: every wrong line is an error that names the field and the
//! column, and never repeats a key. Knows nothing of quotas, stores or answers.

use std::borrow::Cow;
use std::fmt;

use tallygate_core::{MAX_TIME_US, Verb};

use super::json::{Fault, Reader};

/// The most of a caller's word that an error repeats.
const LONGEST_QUOTE: usize = 40;

/// One request.
#[derive(Clone, PartialEq, Eq)]
pub struct Line<'a> {
    /// When, in microseconds; at most 2^52.
    pub t_us: u64,
    /// Who is limited.
    pub key: Cow<'a, str>,
    /// How many units; 1 unless given.
    pub cost: u32,
    /// What is asked; check unless given.
    pub verb: Verb,
}

impl fmt::Debug for Line<'_> {
    /// Shows everything but the key, which is a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line")
            .field("t_us", &self.t_us)
            .field("key_bytes", &self.key.len())
            .field("cost", &self.cost)
            .field("verb", &self.verb)
            .finish()
    }
}

/// Why a line cannot be replayed, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineError {
    /// The offending byte, from 1.
    column: usize,
    problem: String,
}

impl LineError {
    fn new(at: usize, problem: impl Into<String>) -> Self {
        LineError {
            column: at + 1,
            problem: problem.into(),
        }
    }
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (column {})", self.problem, self.column)
    }
}

impl std::error::Error for LineError {}

impl From<Fault> for LineError {
    fn from(fault: Fault) -> Self {
        LineError::new(fault.at, fault.problem)
    }
}

/// Reads one line: an object of `t_us`, `key`, `cost` and `verb`, each at most once, the first
/// two always.
///
/// # Errors
/// When it is anything else. The error never repeats the key.
pub fn parse(line: &[u8]) -> Result<Line<'_>, LineError> {
    let mut reader = Reader::new(line);
    let mut t_us = None;
    let mut key = None;
    let mut cost = None;
    let mut verb = None;

    reader.skip_space();
    if !reader.mark(b'{') {
        let problem = format!("expected an object, found {}", reader.kind());
        return Err(LineError::new(reader.at, problem));
    }
    reader.skip_space();
    let mut closed = reader.mark(b'}');
    while !closed {
        let at = reader.at;
        if reader.look() != Some(b'"') {
            return Err(reader.fault("expected a field name in quotes").into());
        }
        let name = reader.string()?;
        reader.skip_space();
        if !reader.mark(b':') {
            return Err(reader.fault("expected `:` after a field name").into());
        }
        reader.skip_space();
        match name.as_ref() {
            "t_us" => once(&mut t_us, "t_us", at, || {
                whole_number(&mut reader, "t_us", MAX_TIME_US)
            })?,
            "key" => once(&mut key, "key", at, || string(&mut reader, "key"))?,
            "cost" => once(&mut cost, "cost", at, || {
                whole_number(&mut reader, "cost", u32::MAX.into())
            })?,
            "verb" => once(&mut verb, "verb", at, || known_verb(&mut reader))?,
            other => {
                let problem = format!(
                    "unknown field `{}`: expected t_us, key, cost or verb",
                    quote(other)
                );
                return Err(LineError::new(at, problem));
            }
        }
        reader.skip_space();
        closed = reader.mark(b'}');
        if !closed {
            if !reader.mark(b',') {
                return Err(reader.fault("expected `,` or `}` after a value").into());
            }
            reader.skip_space();
        }
    }
    let end = reader.at;
    reader.skip_space();
    if reader.look().is_some() {
        return Err(reader.fault("something follows the object").into());
    }

    let missing = |field| LineError::new(end - 1, format!("{field} is missing"));
    Ok(Line {
        t_us: t_us.ok_or_else(|| missing("t_us"))?,
        key: key.ok_or_else(|| missing("key"))?,
        cost: match cost {
            Some(cost) => u32::try_from(cost).expect("checked against u32::MAX when read"),
            None => 1,
        },
        verb: verb.unwrap_or_default(),
    })
}

/// Reads a field's value into its slot; a field given twice has no one meaning.
fn once<T>(
    slot: &mut Option<T>,
    name: &str,
    at: usize,
    read: impl FnOnce() -> Result<T, LineError>,
) -> Result<(), LineError> {
    if slot.is_some() {
        return Err(LineError::new(at, format!("{name} is given twice")));
    }
    *slot = Some(read()?);
    Ok(())
}

fn string<'a>(reader: &mut Reader<'a>, name: &str) -> Result<Cow<'a, str>, LineError> {
    if reader.look() != Some(b'"') {
        let problem = format!("{name} is {}, expected a string", reader.kind());
        return Err(LineError::new(reader.at, problem));
    }
    Ok(reader.string()?)
}

fn known_verb(reader: &mut Reader<'_>) -> Result<Verb, LineError> {
    let at = reader.at;
    let word = string(reader, "verb")?;
    word.parse().map_err(|_| {
        let problem = format!(
            "unknown verb `{}`: expected check, peek, take, charge, refund or reset",
            quote(&word)
        );
        LineError::new(at, problem)
    })
}

/// A number written as digits only: `1.0` and `1e3` are whole too, but no two readers agree on
/// how far to follow that road.
fn whole_number(reader: &mut Reader<'_>, name: &str, most: u64) -> Result<u64, LineError> {
    let at = reader.at;
    if !matches!(reader.look(), Some(b'-' | b'0'..=b'9')) {
        let problem = format!("{name} is {}, expected a whole number", reader.kind());
        return Err(LineError::new(at, problem));
    }
    let written = reader.number()?;
    let problem = if written.bytes().all(|byte| byte.is_ascii_digit()) {
        match written.parse() {
            Ok(number) if number <= most => return Ok(number),
            // Digits only, so the one thing that can go wrong is their number.
            Ok(_) | Err(_) => format!("{name} {} is above {most}", quote(written)),
        }
    } else {
        let digits = written.strip_prefix('-').unwrap_or(written);
        let negative = written != digits && digits.bytes().all(|byte| byte.is_ascii_digit());
        if negative && digits != "0" {
            format!("{name} {} is below 0", quote(written))
        } else {
            format!(
                "{name} {} is not a whole number written in digits only",
                quote(written)
            )
        }
    };
    Err(LineError::new(at, problem))
}

/// The beginning of a word, made printable.
fn quote(word: &str) -> String {
    let cut = word.chars().count() > LONGEST_QUOTE;
    let shown: String = word
        .chars()
        .take(LONGEST_QUOTE)
        .flat_map(char::escape_debug)
        .collect();
    if cut { shown + "…" } else { shown }
}

#[cfg(test)]
mod tests;
