//! A second parser of replay lines, for comparison: serde into typed fields.

use serde::{Deserialize, Deserializer};
use tallygate_core::{MAX_TIME_US, Verb, Weight};
use tallygate_server::replay_request::ReplayRequest;

// Serde refuses unknown and duplicate fields, and for a `u64` everything but digits.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    t_us: u64,
    key: String,
    #[serde(default = "one")]
    cost: u32,
    #[serde(default = "check")]
    verb: String,
    #[serde(default)]
    member: String,
    #[serde(default = "one")]
    weight: u32,
    #[serde(default)]
    owner: String,
    // Not an option: a `null` is an error.
    #[serde(default = "no_id")]
    id: Id,
}

#[derive(Deserialize)]
#[serde(transparent)]
struct Id(#[serde(deserialize_with = "some")] Option<String>);

fn some<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    String::deserialize(from).map(Some)
}

fn no_id() -> Id {
    Id(None)
}

fn one() -> u32 {
    1
}

fn check() -> String {
    "check".into()
}

/// Parses a line, or returns `None` if it is malformed.
pub fn parse(line: &[u8]) -> Option<ReplayRequest<'static>> {
    // Serde would also read the fields from an array.
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
        "reserve" => Verb::Reserve,
        "settle" => Verb::Settle,
        "renew" => Verb::Renew,
        "release" => Verb::Release,
        _ => return None,
    };
    let weight = Weight::new(fields.weight).ok()?;
    let has_id = matches!(verb, Verb::Reserve | Verb::Settle);
    let is_valid = fields.t_us <= MAX_TIME_US && has_id == fields.id.0.is_some();
    is_valid.then(|| ReplayRequest {
        t_us: fields.t_us,
        key: fields.key.into(),
        cost: fields.cost,
        verb,
        member: fields.member.into(),
        weight,
        owner: fields.owner.into(),
        id: fields.id.0.map(Into::into),
    })
}

/// A text that stands for a secret.
pub const SECRET: &str = "Hunter2Hunter2";

/// Prefixes every key of a line with [`SECRET`]. Returns `None` if there is no key, or if the line
/// contains the secret already.
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
