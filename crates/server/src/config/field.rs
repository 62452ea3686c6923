//! What fields are made of: values that know their places, text that knows where it came from,
//! lists that may be written short. Knows nothing of rules.

use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::deserialize::{self, AT, ONE_OR_MANY, SECRET, TEXT, URL};
use super::diagnostic::quoted;
use super::source::Span;

/// A value and its place. No value: it is wrong, and that has been said.
#[derive(Clone, Debug)]
pub(super) struct At<T> {
    pub(super) span: Span,
    pub(super) value: Option<T>,
}

/// A text, and the names of the environment variables whose values are in it.
#[derive(Clone, Debug)]
pub(super) struct Text {
    pub(super) text: String,
    variables: String,
}

/// A text that must not be shown, such as an API key.
#[derive(Clone)]
pub(super) struct Secret(pub(super) Text);

/// A URL, which must not be shown if there is an account in it.
#[derive(Clone)]
pub(super) struct Url(pub(super) Text);

/// A whole number, written in digits or by an environment variable.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whole(pub(super) u64);

/// Yes or no, written out or by an environment variable.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flag(pub(super) bool);

/// A list, which may be written as its only item.
#[derive(Clone, Debug)]
pub(super) struct OneOrMany<T>(pub(super) Vec<At<T>>);

/// A mapping whose names are the file's own.
#[derive(Clone, Debug)]
pub(super) struct Table<T>(pub(super) Vec<(At<Text>, At<T>)>);

impl<T> At<T> {
    /// The value, if it is not wrong.
    pub(super) fn get(&self) -> Option<&T> {
        self.value.as_ref()
    }
}

impl Text {
    /// It as an error may show it.
    pub(super) fn shown(&self) -> String {
        match self.is_public() {
            true => quoted(&self.text),
            false => deserialize::shown_variables(self.variables.split(' ')),
        }
    }

    /// Whether nothing of it came from the environment.
    pub(super) fn is_public(&self) -> bool {
        self.variables.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Url")
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for At<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AtVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for AtVisitor<T> {
            type Value = At<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value and its place")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<At<T>, A::Error> {
                let mut number = || -> Result<u32, A::Error> {
                    let number = seq.next_element()?;
                    Ok(number.expect("a place is three numbers"))
                };
                let span = Span {
                    file: u16::try_from(number()?).expect("a file's number is 16 bits"),
                    start: number()?,
                    end: number()?,
                };
                // What is wrong has been noted by whoever gave the value.
                let value = seq.next_element().unwrap_or_default();
                Ok(At { span, value })
            }
        }
        deserializer.deserialize_newtype_struct(AT, AtVisitor(PhantomData))
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Text, A::Error> {
                Ok(Text {
                    text: seq.next_element()?.unwrap_or_default(),
                    variables: seq.next_element()?.unwrap_or_default(),
                })
            }
        }
        deserializer.deserialize_tuple_struct(TEXT, 2, TextVisitor)
    }
}

/// Reads what is inside of a thing that asks by name.
struct Inside<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Inside<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inside: D) -> Result<T, D::Error> {
        T::deserialize(inside)
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let inside = Inside(PhantomData);
        let text = deserializer.deserialize_newtype_struct(SECRET, inside)?;
        Ok(Secret(text))
    }
}

impl<'de> Deserialize<'de> for Url {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let inside = Inside(PhantomData);
        let text = deserializer.deserialize_newtype_struct(URL, inside)?;
        Ok(Url(text))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let inside = Inside(PhantomData);
        let items = deserializer.deserialize_newtype_struct(ONE_OR_MANY, inside)?;
        Ok(OneOrMany(items))
    }
}

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        u64::deserialize(deserializer).map(Whole)
    }
}

impl<'de> Deserialize<'de> for Flag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        bool::deserialize(deserializer).map(Flag)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Table<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TableVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for TableVisitor<T> {
            type Value = Table<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Table<T>, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Table(entries))
            }
        }
        deserializer.deserialize_map(TableVisitor(PhantomData))
    }
}

/// The schema of what is inside, under its own name.
macro_rules! schema_of_inside {
    ($outer:ty) => {
        impl<T: JsonSchema> JsonSchema for $outer {
            fn inline_schema() -> bool {
                T::inline_schema()
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                T::schema_name()
            }

            fn schema_id() -> std::borrow::Cow<'static, str> {
                T::schema_id()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                T::json_schema(generator)
            }
        }
    };
}
schema_of_inside!(At<T>);

/// The schema of one of our own scalars, told in place.
macro_rules! schema_in_place {
    ($name:ty, [$($generic:ident)?], |$generator:ident| $schema:expr) => {
        impl$(<$generic: JsonSchema>)? JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema($generator: &mut SchemaGenerator) -> Schema {
                $schema
            }
        }
    };
}
schema_in_place!(Text, [], |_generator| {
    // YAML's own types do not matter where text is asked for.
    json_schema!({ "type": ["string", "number", "boolean"] })
});
schema_in_place!(Secret, [], |generator| Text::json_schema(generator));
schema_in_place!(Url, [], |_generator| json_schema!({ "type": "string" }));
schema_in_place!(Whole, [], |_generator| json_schema!({
    "anyOf": [{ "type": "integer", "minimum": 0 }, { "type": "string", "pattern": r"\$\{" }]
}));
schema_in_place!(Flag, [], |_generator| json_schema!({
    "anyOf": [{ "type": "boolean" }, { "type": "string", "pattern": r"\$\{" }]
}));
schema_in_place!(OneOrMany<T>, [T], |generator| {
    let item = generator.subschema_for::<T>();
    json_schema!({ "anyOf": [item, { "type": "array", "items": item }] })
});
schema_in_place!(Table<T>, [T], |generator| {
    let value = generator.subschema_for::<T>();
    json_schema!({ "type": "object", "additionalProperties": value })
});
