//! A question as it is written: three forms in one body, read strictly. Knows field names; knows
//! nothing of what they come to. Never prints: keys are in it.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// One question.
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
    #[serde(default, deserialize_with = "given")]
    pub(super) cost: Option<u32>,
    #[serde(default, deserialize_with = "given")]
    pub(super) verb: Option<String>,
}

/// One of several limits.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OneLimit {
    pub(super) key: String,
    pub(super) quota: String,
    #[serde(default, deserialize_with = "given")]
    pub(super) name: Option<String>,
}

/// A request that somebody else got, as far as they tell.
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

/// An object of JSON. Serde alone would also take an array, its values in the order of the fields.
pub(crate) struct Object<T>(pub(crate) T);

/// Names and values in their order, also where a name is there twice.
#[derive(Default)]
pub(super) struct Pairs(pub(super) Vec<(String, Values)>);

/// The value of a header, or several.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Values {
    One(String),
    Several(Vec<String>),
}

/// A field that is there has a value: `null` is none.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
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
    use super::super::super::problem::Code;
    use super::super::super::reply::parse;
    use super::Object;

    type Body = Object<super::Body>;

    #[test]
    fn what_is_not_a_body_is_said_to_be_none() {
        for (json, code) in [
            ("", Code::MalformedJson),
            ("{", Code::MalformedJson),
            ("{}x", Code::MalformedJson),
            ("nul", Code::MalformedJson),
            ("[]", Code::BadField),
            ("null", Code::BadField),
            ("\"\"", Code::BadField),
            (r#"{"key":1}"#, Code::BadField),
            (r#"{"key":null}"#, Code::BadField),
            (r#"{"key":"a","key":"a"}"#, Code::BadField),
            (r#"{"kye":"a"}"#, Code::BadField),
            (r#"{"cost":-1}"#, Code::BadField),
            (r#"{"cost":1.0}"#, Code::BadField),
            (r#"{"cost":1e0}"#, Code::BadField),
            (r#"{"cost":"1"}"#, Code::BadField),
            (r#"{"cost":4294967296}"#, Code::BadField),
            (r#"{"limits":{}}"#, Code::BadField),
            (r#"{"limits":[{"key":"a"}]}"#, Code::BadField),
            (
                r#"{"limits":[{"key":"a","quota":"1/s","cost":1}]}"#,
                Code::BadField,
            ),
            (r#"{"attributes":{"ip":1}}"#, Code::BadField),
            (r#"{"attributes":{"port":"1"}}"#, Code::BadField),
            (r#"{"attributes":{"headers":{"a":1}}}"#, Code::BadField),
            ("\"\u{1}\"", Code::MalformedJson),
        ] {
            let problem = parse::<Body>(json.as_bytes()).err();
            assert_eq!(problem.map(|problem| problem.code), Some(code), "{json}");
        }
        assert!(parse::<Body>(b"{\"key\":\"\xff\"}").is_err());
        assert!(parse::<Body>(&b"[".repeat(10_000)).is_err());
    }

    #[test]
    fn an_array_is_no_body_either() {
        // Serde would take a list of values in the order of the fields.
        assert!(parse::<Body>(br#"["a","1/s"]"#).is_err());
    }
}
