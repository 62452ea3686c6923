//! Replay lines as another JSON reader sees them. Knows the rules for a line; shares no code with
//! the reader under test.

use serde::Deserialize;
use tallygate_core::{MAX_TIME_US, Verb};
use tallygate_server::replay_request::Line;

/// Serde refuses unknown and repeated fields, and for a `u64` everything but digits.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    t_us: u64,
    key: String,
    #[serde(default = "one")]
    cost: u32,
    #[serde(default = "check")]
    verb: String,
}

fn one() -> u32 {
    1
}

fn check() -> String {
    "check".into()
}

/// Reads a line by the same rules; none when it breaks one.
pub fn read(line: &[u8]) -> Option<Line<'static>> {
    // Serde takes an array for a struct too.
    let opening = line.iter().find(|byte| !b" \t\r\n".contains(byte));
    if opening != Some(&b'{') {
        return None;
    }
    let fields: Fields = serde_json::from_slice(line).ok()?;
    let verb = match fields.verb.as_str() {
        "check" => Verb::Check,
        "peek" => Verb::Peek,
        "take" => Verb::Take,
        "charge" => Verb::Charge,
        "refund" => Verb::Refund,
        "reset" => Verb::Reset,
        _ => return None,
    };
    (fields.t_us <= MAX_TIME_US).then(|| Line {
        t_us: fields.t_us,
        key: fields.key.into(),
        cost: fields.cost,
        verb,
    })
}

/// A mark that stands for a secret.
pub const SECRET: &str = "Hunter2Hunter2";

/// The same line with every key beginning with [`SECRET`]; none when it has no key, or the mark
/// stands elsewhere in it already.
pub fn with_secret_keys(line: &[u8]) -> Option<Vec<u8>> {
    const NAME: &[u8] = b"\"key\"";
    if line.windows(SECRET.len()).any(|w| w == SECRET.as_bytes()) {
        return None;
    }
    let mut marked = Vec::with_capacity(line.len() + SECRET.len());
    let mut rest = line;
    while let Some(at) = rest.windows(NAME.len()).position(|w| w == NAME) {
        let (before, after) = rest.split_at(at + NAME.len());
        marked.extend_from_slice(before);
        let value = after.iter().position(|byte| !b" \t\r\n:".contains(byte));
        rest = after;
        if let Some(value) = value.filter(|&value| after[value] == b'"') {
            let (opening, text) = after.split_at(value + 1);
            marked.extend_from_slice(opening);
            marked.extend_from_slice(SECRET.as_bytes());
            rest = text;
        }
    }
    marked.extend_from_slice(rest);
    (marked.len() > line.len()).then_some(marked)
}
