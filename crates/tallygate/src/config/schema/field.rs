//! The value types of fields: values with spans, text that may hold environment variables, lists
//! with a short form. `deserialize` recognises them by their serde names.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{Deserializer, EnumAccess, VariantAccess, Visitor};

use crate::config::diagnostic::quoted;
use crate::config::source::Span;

pub(crate) const SPANNED: &str = "$spanned";
pub(crate) const TEXT: &str = "$text";
pub(crate) const SECRET: &str = "$secret";
pub(crate) const URL: &str = "$url";
pub(crate) const ONE_OR_MANY: &str = "$one-or-many";
pub(crate) const TABLE: &str = "$table";
pub(crate) const SHORTHAND: &str = "$shorthand";

/// A value and its span. The value is `None` if it is invalid and has been reported.
#[derive(Clone, Debug)]
pub(crate) struct Spanned<T> {
    pub(crate) span: Span,
    pub(crate) value: Option<T>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename = "$text")]
pub(crate) struct Text {
    pub(crate) text: String,
    /// The names of the environment variables in it, separated by spaces.
    variables: String,
}

/// Text that is never shown, such as an API key.
#[derive(Clone, Deserialize)]
#[serde(rename = "$secret")]
pub(crate) struct Secret(pub(crate) Text);

/// A URL, which is never shown if it has a user.
#[derive(Clone, Deserialize)]
#[serde(rename = "$url")]
pub(crate) struct Url(pub(crate) Text);

/// An integer in decimal digits.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Integer(pub(crate) u64);

#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Bool(pub(crate) bool);

/// A list, which may be written as its only item.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename = "$one-or-many")]
pub(crate) struct OneOrMany<T>(pub(crate) Vec<Spanned<T>>);

// A mapping, or a value that is short for one. Not a doc comment: schemars would add it everywhere.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename = "$shorthand", rename_all = "lowercase")]
#[schemars(inline, untagged)]
pub(crate) enum Shorthand<V, M> {
    Value(V),
    Map(M),
}

/// A mapping with arbitrary names.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename = "$table")]
pub(crate) struct Table<T>(pub(crate) Vec<(Spanned<Text>, Spanned<T>)>);

impl<T> Spanned<T> {
    pub(crate) fn get(&self) -> Option<&T> {
        self.value.as_ref()
    }
}

pub(crate) trait OptionalField<T> {
    /// The value, if the field is given and valid.
    fn value(&self) -> Option<&T>;
    fn span(&self) -> Option<Span>;
}

impl<T> OptionalField<T> for Option<Spanned<T>> {
    fn value(&self) -> Option<&T> {
        self.as_ref().and_then(Spanned::get)
    }

    fn span(&self) -> Option<Span> {
        self.as_ref().map(|field| field.span)
    }
}

pub(crate) trait OptionalList<T> {
    /// The items, none if the field is not given or invalid.
    fn items(&self) -> &[Spanned<T>];
}

impl<T> OptionalList<T> for Option<Spanned<OneOrMany<T>>> {
    fn items(&self) -> &[Spanned<T>] {
        self.value().map_or(&[], |list| &list.0)
    }
}

impl<T> OptionalList<T> for Option<Spanned<Vec<Spanned<T>>>> {
    fn items(&self) -> &[Spanned<T>] {
        self.value().map_or(&[], Vec::as_slice)
    }
}

impl Text {
    /// The text for a message: values from the environment are replaced by variable names.
    pub(crate) fn quoted(&self) -> String {
        match self.is_literal() {
            true => quoted(&self.text),
            false => quoted_variables(self.variables.split(' ')),
        }
    }

    /// Returns whether nothing of it comes from the environment.
    pub(crate) fn is_literal(&self) -> bool {
        self.variables.is_empty()
    }
}

pub(crate) fn quoted_variables<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.map(|name| format!("${{{name}}}")).collect();
    format!("the value of {}", names.join(" and "))
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

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Spanned<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SpannedVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for SpannedVisitor<T> {
            type Value = Spanned<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a span and a value")
            }

            fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<Spanned<T>, A::Error> {
                let ((file, start, end), variant) = data.variant::<(u32, u32, u32)>()?;
                let file = u16::try_from(file).expect("a file's index has 16 bits");
                // The deserializer has reported the error.
                let value = variant.newtype_variant().ok();
                let span = Span { file, start, end };
                Ok(Spanned { span, value })
            }
        }
        deserializer.deserialize_enum(SPANNED, &[], SpannedVisitor(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for Spanned<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

macro_rules! inline_schema {
    ($name:ty, [$($generic:ident)?], |$generator:ident| $schema:expr) => {
        impl$(<$generic: JsonSchema>)? JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema($generator: &mut SchemaGenerator) -> Schema {
                $schema
            }
        }
    };
}
// Text may be written as any YAML scalar.
inline_schema!(
    Text,
    [],
    |_generator| json_schema!({ "type": ["string", "number", "boolean"] })
);
inline_schema!(Secret, [], |generator| Text::json_schema(generator));
inline_schema!(Url, [], |_generator| json_schema!({ "type": "string" }));
inline_schema!(Integer, [], |_generator| json_schema!({
    "anyOf": [{ "type": "integer", "minimum": 0 }, { "type": "string", "pattern": r"\$\{" }]
}));
inline_schema!(Bool, [], |_generator| json_schema!({
    "anyOf": [{ "type": "boolean" }, { "type": "string", "pattern": r"\$\{" }]
}));
inline_schema!(OneOrMany<T>, [T], |generator| {
    let item = generator.subschema_for::<T>();
    json_schema!({ "anyOf": [item, { "type": "array", "items": item }] })
});
inline_schema!(Table<T>, [T], |generator| {
    let value = generator.subschema_for::<T>();
    json_schema!({ "type": "object", "additionalProperties": value })
});
