//! Parses one line of a replay.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use tallygate_core::{MAX_TIME_US, Verb, Weight};

const MAX_QUOTED_CHARS: usize = 40;

/// One recorded request.
#[derive(Clone, PartialEq, Eq)]
pub struct ReplayRequest<'a> {
    /// The time in microseconds, at most 2^52.
    pub t_us: u64,
    /// Who is limited.
    pub key: Cow<'a, str>,
    /// How many units it takes; 1 by default.
    pub cost: u32,
    /// What to do; check by default.
    pub verb: Verb,
    /// The member of a shared limit; empty by default.
    pub member: Cow<'a, str>,
    /// The weight of the member; 1 by default.
    pub weight: Weight,
    /// The owner of what a concurrency limit holds; empty by default.
    pub owner: Cow<'a, str>,
    /// The id of the reservation: always with reserve and settle, and with them only.
    pub id: Option<Cow<'a, str>>,
}

impl fmt::Debug for ReplayRequest<'_> {
    /// Shows neither the key nor the other texts, which are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplayRequest")
            .field("t_us", &self.t_us)
            .field("key_bytes", &self.key.len())
            .field("cost", &self.cost)
            .field("verb", &self.verb)
            .field("weight", &self.weight)
            .finish_non_exhaustive()
    }
}

/// Why a line is not a request. Never repeats the key or another text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The offending byte, from 1.
    column: usize,
    problem: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (column {})", self.problem, self.column)
    }
}

impl std::error::Error for ParseError {}

impl ParseError {
    /// Takes over an error of text that starts at byte `offset` of the line.
    fn from_json(error: &serde_json::Error, offset: usize) -> Self {
        let text = error.to_string();
        let problem = match text.rsplit_once(" at line ") {
            // "key" is also a field.
            Some(("key must be a string", _)) => "a field name must be a string",
            Some((problem, _)) => problem,
            None => &text,
        };
        ParseError {
            column: offset + error.column().max(1),
            problem: shorten(problem),
        }
    }
}

/// The fields as they are written; numbers and strings are checked afterwards, so that an error
/// names the field and its bound.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields<'a> {
    #[serde(borrow)]
    t_us: &'a RawValue,
    #[serde(borrow)]
    key: &'a RawValue,
    #[serde(borrow, default, deserialize_with = "present")]
    cost: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    verb: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    member: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    weight: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    owner: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
}

/// Unlike `Option`'s own, keeps a `null`: it is an error, not the default.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<&'de RawValue>, D::Error> {
    Deserialize::deserialize(from).map(Some)
}

/// Parses one line: an object of `t_us`, `key`, `cost`, `verb`, `member`, `weight`, `owner` and `id`,
/// each at most once, the first two required, and the last with reserve and settle.
///
/// # Errors
/// If it is anything else.
pub fn parse(line: &[u8]) -> Result<ReplayRequest<'_>, ParseError> {
    let text = line.trim_ascii_start();
    // Serde would also read the fields from an array.
    if text.first() != Some(&b'{') {
        return Err(ParseError {
            column: line.len() - text.len() + 1,
            problem: format!("expected an object, found {}", kind(text.trim_ascii_end())),
        });
    }
    let fields: Fields<'_> =
        serde_json::from_slice(line).map_err(|error| ParseError::from_json(&error, 0))?;
    let field = |name, raw| Field::new(line, name, raw);
    let verb = match fields.verb {
        Some(raw) => field("verb", raw).verb()?,
        None => Verb::default(),
    };
    match (fields.verb, fields.id) {
        (Some(raw), None) if verb.needs_id() => {
            return Err(field("verb", raw).error(format!("a {verb} without an id")));
        }
        (_, Some(raw)) if !verb.needs_id() => {
            let problem = format!("a {verb} with an id: only reserve and settle have one");
            return Err(field("id", raw).error(problem));
        }
        _ => {}
    }
    let text = |name, raw| match raw {
        Some(raw) => field(name, raw).string(),
        None => Ok(Cow::Borrowed("")),
    };
    Ok(ReplayRequest {
        t_us: field("t_us", fields.t_us).whole_number(MAX_TIME_US)?,
        key: field("key", fields.key).string()?,
        cost: match fields.cost {
            Some(raw) => field("cost", raw).whole_number(u32::MAX)?,
            None => 1,
        },
        verb,
        member: text("member", fields.member)?,
        weight: match fields.weight {
            Some(raw) => field("weight", raw).weight()?,
            None => Weight::ONE,
        },
        owner: text("owner", fields.owner)?,
        id: match fields.id {
            Some(raw) => Some(field("id", raw).string()?),
            None => None,
        },
    })
}

struct Field<'a> {
    name: &'static str,
    text: &'a str,
    /// Where `text` starts in its line.
    offset: usize,
}

impl<'a> Field<'a> {
    fn new(line: &[u8], name: &'static str, raw: &'a RawValue) -> Self {
        let text = raw.get();
        let offset = text.as_ptr().addr() - line.as_ptr().addr();
        Field { name, text, offset }
    }

    fn error(&self, problem: String) -> ParseError {
        let column = self.offset + 1;
        ParseError { column, problem }
    }

    fn expected(&self, what: &str) -> ParseError {
        let kind = kind(self.text.as_bytes());
        self.error(format!("{} is {kind}, expected {what}", self.name))
    }

    /// Accepts digits only: not `1.0` or `1e3`, on which JSON readers disagree.
    fn whole_number<T>(&self, max: T) -> Result<T, ParseError>
    where
        T: std::str::FromStr + PartialOrd + fmt::Display,
    {
        let text = self.text;
        let is_whole = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
        let problem = match text.parse() {
            _ if kind(text.as_bytes()) != "a number" => return Err(self.expected("a whole number")),
            Ok(number) if is_whole(text) && number <= max => return Ok(number),
            _ if is_whole(text) => format!("is above {max}"),
            _ if text != "-0" && is_whole(&text[1..]) => "is below 0".to_owned(),
            _ => "is not a whole number written in digits only".to_owned(),
        };
        Err(self.error(format!("{} {} {problem}", self.name, quote(text))))
    }

    fn string(&self) -> Result<Cow<'a, str>, ParseError> {
        let Some(inner) = self.text.strip_prefix('"') else {
            return Err(self.expected("a string"));
        };
        match inner.strip_suffix('"') {
            Some(plain) if !plain.contains('\\') => Ok(Cow::Borrowed(plain)),
            _ => serde_json::from_str(self.text)
                .map(Cow::Owned)
                .map_err(|error| ParseError::from_json(&error, self.offset)),
        }
    }

    fn verb(&self) -> Result<Verb, ParseError> {
        let word = self.string()?;
        word.parse().map_err(|_| {
            self.error(format!(
                "unknown verb `{}`: expected check, peek, take, charge, refund, reset, reserve, \
                 settle, renew or release",
                quote(&word)
            ))
        })
    }

    fn weight(&self) -> Result<Weight, ParseError> {
        let weight = self.whole_number(u32::from(Weight::MAX.get()))?;
        Weight::new(weight).map_err(|error| self.error(error.to_string()))
    }
}

fn kind(text: &[u8]) -> &'static str {
    match text {
        [b'"', ..] => "a string",
        [b'-' | b'0'..=b'9', ..] => "a number",
        [b'{', ..] => "an object",
        [b'[', ..] => "an array",
        b"true" => "true",
        b"false" => "false",
        b"null" => "null",
        _ => "no JSON value",
    }
}

/// The first characters of a value, made printable.
fn quote(value: &str) -> String {
    let mut rest = value.chars();
    let start: String = rest
        .by_ref()
        .take(MAX_QUOTED_CHARS)
        .flat_map(char::escape_debug)
        .collect();
    if rest.next().is_some() {
        start + "…"
    } else {
        start
    }
}

/// Quotes the unknown field that serde may name in a message.
fn shorten(problem: &str) -> String {
    match (problem.split_once('`'), problem.rsplit_once("`, expected")) {
        (Some((before, name)), Some((_, after))) => {
            let name = &name[..name.len() - after.len() - "`, expected".len()];
            format!("{before}`{}`, expected{after}", quote(name))
        }
        _ => problem.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(line: &str) -> String {
        parse(line.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn cost_defaults_to_one_and_verb_to_check() {
        let request = parse(br#"{"t_us": 1500000, "key": "a"}"#).unwrap();
        assert_eq!((request.t_us, &*request.key), (1_500_000, "a"));
        assert_eq!((request.cost, request.verb), (1, Verb::Check));
    }

    #[test]
    fn fields_come_in_any_order_with_any_white_space_and_escapes() {
        let line = b"\t{ \"verb\" :\"refund\",\"\\u0063ost\": 4294967295 ,\r\
            \"key\":\"\\ud83d\\ude00\\/\\n\" , \"t_us\":4503599627370496 } ";
        let request = parse(line).unwrap();
        assert_eq!(request.key, "\u{1f600}/\n");
        assert_eq!((request.cost, request.verb), (u32::MAX, Verb::Refund));
        assert_eq!(request.t_us, MAX_TIME_US);
    }

    #[test]
    fn debug_does_not_show_the_key() {
        let request = parse(br#"{"t_us":1,"key":"SECRET"}"#).unwrap();
        assert!(!format!("{request:?}").contains("SECRET"));
    }

    // `tests/cli/malformed.rs` has all other malformed lines.

    #[test]
    fn quoted_values_are_printable_and_short() {
        let long = error(&format!(
            r#"{{"t_us":{},"key":"a"}}"#,
            "9".repeat(1_000_000)
        ));
        assert!(long.len() < 200, "{long}");
        let long = error(&format!(r#"{{"{}":1}}"#, "\\u0007".repeat(1_000_000)));
        assert!(
            long.len() < 560 && long.contains("\\u{7}…`, expected one of"),
            "{long}"
        );
    }
}
