//! The JSON of a check: three forms in one body, parsed strictly. Not `Debug`: it contains keys.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Body {
    #[serde(default, deserialize_with = "given")]
    pub(super) key: Option<String>,
    #[serde(default, deserialize_with = "given")]
    pub(super) quota: Option<String>,
    #[serde(default, deserialize_with = "given")]
    pub(super) name: Option<String>,
    #[serde(default, deserialize_with = "given")]
    pub(super) limits: Option<Vec<Object<OneLimit>>>,
    #[serde(default, deserialize_with = "given")]
    pub(super) rule: Option<String>,
    #[serde(default, deserialize_with = "given")]
    pub(super) attributes: Option<Object<Attributes>>,
    #[serde(default, deserialize_with = "whole")]
    pub(super) cost: Option<u32>,
    #[serde(default, deserialize_with = "given")]
    pub(super) verb: Option<String>,
    #[serde(default, deserialize_with = "given")]
    pub(super) member: Option<String>,
    #[serde(default, deserialize_with = "whole")]
    pub(super) weight: Option<u32>,
    #[serde(default, deserialize_with = "given")]
    pub(super) owner: Option<String>,
    #[serde(default, deserialize_with = "given")]
    pub(super) id: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OneLimit {
    pub(super) key: String,
    pub(super) quota: String,
    #[serde(default, deserialize_with = "given")]
    pub(super) name: Option<String>,
    /// Instead of the cost of the check.
    #[serde(default, deserialize_with = "whole")]
    pub(super) cost: Option<u32>,
}

/// What is known of the request that is checked.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Attributes {
    #[serde(default, deserialize_with = "given")]
    pub(super) ip: Option<String>,
    #[serde(default, deserialize_with = "given")]
    pub(super) method: Option<String>,
    #[serde(default, deserialize_with = "given")]
    pub(super) path: Option<String>,
    #[serde(default, deserialize_with = "given")]
    pub(super) query: Option<String>,
    #[serde(default, deserialize_with = "given")]
    pub(super) host: Option<String>,
    #[serde(default)]
    pub(super) headers: Pairs,
}

/// A JSON object. Serde alone would also accept an array of the values in the order of the fields.
pub(crate) struct Object<T>(pub(crate) T);

/// Names and values in their order. A name may occur twice.
#[derive(Default)]
pub(super) struct Pairs(pub(super) Vec<(String, OneOrMany)>);

#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    pub(crate) fn into_vec(self) -> Vec<String> {
        match self {
            OneOrMany::One(one) => vec![one],
            OneOrMany::Many(many) => many,
        }
    }
}

/// Rejects `null`: a field that is present has a value.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

/// A whole number in decimal digits; `5.0` too, because some languages write all numbers so. Not `1e1`
/// or `-0`, which readers of JSON understand differently.
fn whole<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let number = <Box<RawValue>>::deserialize(from)?;
    let (digits, zeros) = number.get().split_once('.').unwrap_or((number.get(), ""));
    let is_whole =
        digits.bytes().all(|byte| byte.is_ascii_digit()) && zeros.bytes().all(|byte| byte == b'0');
    let number = digits.parse().ok().filter(|_| is_whole);
    let expected = "a whole number from 0 to 4294967295, in decimal digits";
    let wrong = || D::Error::invalid_value(Unexpected::Other("another value"), &expected);
    number.ok_or_else(wrong).map(Some)
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Only<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Only<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<Object<T>, M::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }

        from.deserialize_map(Only(PhantomData))
    }
}

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct All;

        impl<'de> Visitor<'de> for All {
            type Value = Pairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of texts")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Pairs, M::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }

        from.deserialize_map(All)
    }
}

#[cfg(test)]
mod tests {
    use super::Object;
    use crate::problem::Code;
    use crate::response::parse_json;

    type Body = Object<super::Body>;

    #[test]
    fn invalid_bodies_are_rejected() {
        for (json, code) in [
            ("{}x", Code::MalformedJson),
            ("nul", Code::MalformedJson),
            ("\"\"", Code::BadField),
            // Serde would accept the values in the order of the fields.
            (r#"["a","1/s"]"#, Code::BadField),
            (r#"{"kye":"a"}"#, Code::BadField),
            (r#"{"cost":-1.0}"#, Code::BadField),
            (r#"{"cost":4294967296.0}"#, Code::BadField),
            (r#"{"cost":1e1}"#, Code::BadField),
            (r#"{"cost":1E1}"#, Code::BadField),
            (r#"{"cost":10e-1}"#, Code::BadField),
            (r#"{"cost":1.0e0}"#, Code::BadField),
            (r#"{"cost":1e300}"#, Code::BadField),
            (r#"{"cost":1.5}"#, Code::BadField),
            (r#"{"cost":-0}"#, Code::BadField),
            (r#"{"cost":01}"#, Code::MalformedJson),
            (r#"{"cost":1.}"#, Code::MalformedJson),
            (r#"{"cost":4294967296}"#, Code::BadField),
            (r#"{"cost":[]}"#, Code::BadField),
            (r#"{"cost":true}"#, Code::BadField),
            (r#"{"cost":null}"#, Code::BadField),
            (r#"{"cost":"1"}"#, Code::BadField),
            (r#"{"limits":{}}"#, Code::BadField),
            (r#"{"limits":[{"key":"a"}]}"#, Code::BadField),
            (
                r#"{"limits":[{"key":"a","quota":"1/s","cost":-1}]}"#,
                Code::BadField,
            ),
            (
                r#"{"limits":[{"key":"a","quota":"1/s","owner":"a"}]}"#,
                Code::BadField,
            ),
            (r#"{"member":1}"#, Code::BadField),
            (r#"{"weight":"4"}"#, Code::BadField),
            (r#"{"owner":null}"#, Code::BadField),
            (r#"{"id":["a"]}"#, Code::BadField),
            (r#"{"attributes":{"ip":1}}"#, Code::BadField),
            (r#"{"attributes":{"port":"1"}}"#, Code::BadField),
            (r#"{"attributes":{"headers":{"a":1}}}"#, Code::BadField),
            ("\"\u{1}\"", Code::MalformedJson),
        ] {
            let problem = parse_json::<Body>(json.as_bytes()).err();
            assert_eq!(problem.map(|problem| problem.code), Some(code), "{json}");
        }
        assert!(parse_json::<Body>(b"{\"key\":\"\xff\"}").is_err());
        assert!(parse_json::<Body>(&b"[".repeat(10_000)).is_err());
    }

    #[test]
    fn a_whole_number_may_be_written_as_a_fraction() {
        for (json, cost) in [
            (r#"{"cost":7}"#, 7),
            (r#"{"cost":7.0}"#, 7),
            (r#"{"cost": 7.000 }"#, 7),
            (r#"{"cost":0}"#, 0),
            (r#"{"cost":4294967295}"#, u32::MAX),
            (r#"{"cost":4294967295.0}"#, u32::MAX),
        ] {
            let body = parse_json::<Body>(json.as_bytes());
            assert_eq!(body.ok().and_then(|body| body.0.cost), Some(cost), "{json}");
        }
    }
}
