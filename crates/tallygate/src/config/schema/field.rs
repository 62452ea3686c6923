//! The value types of fields: values with spans, text that may hold environment variables, lists
//! with a short form.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::config::deserialize::{BOOL, Context, Field, FromNode, INTEGER};
use crate::config::source::Span;
use crate::config::yaml::Kind;
pub(crate) use crate::config::yaml::Scalar as Text;
use crate::store::MAX_HASH_TAGS;

// Doc comments of types that derive `JsonSchema` would become descriptions of every field.

// A value and its span. The value is `None` if it is invalid and has been reported.
#[derive(Clone, JsonSchema)]
#[schemars(with = "T")]
pub(crate) struct Spanned<T> {
    pub(crate) span: Span,
    pub(crate) value: Option<T>,
}

// Text that is never shown, such as an API key.
#[derive(Clone, JsonSchema)]
#[schemars(with = "Text")]
pub(crate) struct Secret(pub(crate) Text);

/// A URL, which is never shown if it has a user.
#[derive(Clone)]
pub(crate) struct Url(pub(crate) Text);

/// An integer in decimal digits.
#[derive(Clone, Copy)]
pub(crate) struct Integer(pub(crate) u64);

#[derive(Clone, Copy)]
pub(crate) struct Bool(pub(crate) bool);

/// Written as in YAML 1.1, or as a boolean.
#[derive(Clone, Copy)]
pub(crate) struct Switch(pub(crate) bool);

/// Whether `X-RateLimit-*` is sent, and with which reset.
#[derive(Clone, Copy)]
pub(crate) enum XRateLimit {
    On,
    Off,
    Epoch,
}

/// Whether keys are leased.
#[derive(Clone, Copy)]
pub(crate) enum LeaseMode {
    On,
    Off,
    /// Those that are hot.
    Auto,
}

/// How many hash tags a cluster has.
#[derive(Clone, Copy)]
pub(crate) enum HashTags {
    Off,
    Default,
    Count(u64),
}

/// A list, which may be written as its only item.
#[derive(Clone)]
pub(crate) struct OneOrMany<T>(pub(crate) Vec<Spanned<T>>);

// A mapping, or a value that is short for one.
#[derive(Clone, JsonSchema)]
#[schemars(inline, untagged)]
pub(crate) enum Shorthand<V, M> {
    Value(V),
    Map(M),
}

/// A mapping with arbitrary names, which may be secret.
#[derive(Clone)]
pub(crate) struct Table<T, N = Text>(pub(crate) Vec<(Spanned<N>, Spanned<T>)>);

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

impl<T: FromNode> FromNode for Option<Spanned<T>> {
    fn from_node(field: Field<'_>, context: &mut Context) -> Option<Self> {
        Spanned::from_node(field, context).map(Some)
    }

    fn absent() -> Option<Self> {
        Some(None)
    }
}

impl<T: FromNode> FromNode for Spanned<T> {
    fn from_node(field: Field<'_>, context: &mut Context) -> Option<Self> {
        Some(Spanned {
            span: field.node.span,
            value: T::from_node(field, context),
        })
    }
}

impl<T: FromNode> FromNode for Box<T> {
    fn from_node(field: Field<'_>, context: &mut Context) -> Option<Self> {
        T::from_node(field, context).map(Box::new)
    }
}

impl FromNode for Text {
    fn from_node(field: Field<'_>, context: &mut Context) -> Option<Self> {
        field.scalar("text", context).cloned()
    }
}

impl FromNode for Secret {
    fn from_node(field: Field<'_>, context: &mut Context) -> Option<Self> {
        context.redact(field.node);
        Text::from_node(field, context).map(Secret)
    }
}

impl FromNode for Url {
    fn from_node(field: Field<'_>, context: &mut Context) -> Option<Self> {
        let url = Text::from_node(field, context)?;
        // Without a user there is no password.
        if url.text.contains('@') {
            context.redact(field.node);
        }
        Some(Url(url))
    }
}

impl FromNode for Integer {
    fn from_node(field: Field<'_>, context: &mut Context) -> Option<Self> {
        let text = &field.scalar(INTEGER, context)?.text;
        let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse() {
            Ok(number) if is_digits => Some(Integer(number)),
            Ok(_) | Err(_) => field.expected(INTEGER, context),
        }
    }
}

impl FromNode for Bool {
    fn from_node(field: Field<'_>, context: &mut Context) -> Option<Self> {
        match field.scalar(BOOL, context)?.text.parse() {
            Ok(value) => Some(Bool(value)),
            Err(_) => field.expected(BOOL, context),
        }
    }
}

impl FromNode for Switch {
    fn from_node(field: Field<'_>, context: &mut Context) -> Option<Self> {
        let words = [
            ("true", Switch(true)),
            ("false", Switch(false)),
            ("on", Switch(true)),
            ("off", Switch(false)),
        ];
        field.word(&words, context)
    }
}

impl FromNode for XRateLimit {
    fn from_node(field: Field<'_>, context: &mut Context) -> Option<Self> {
        let words = [
            ("true", XRateLimit::On),
            ("false", XRateLimit::Off),
            ("epoch", XRateLimit::Epoch),
        ];
        field.word(&words, context)
    }
}

impl FromNode for LeaseMode {
    fn from_node(field: Field<'_>, context: &mut Context) -> Option<Self> {
        let words = [
            ("true", LeaseMode::On),
            ("false", LeaseMode::Off),
            ("auto", LeaseMode::Auto),
        ];
        field.word(&words, context)
    }
}

impl FromNode for HashTags {
    fn from_node(field: Field<'_>, context: &mut Context) -> Option<Self> {
        const EXPECTED: &str = "`true`, `false` or an integer";
        match &*field.scalar(EXPECTED, context)?.text {
            "true" => Some(HashTags::Default),
            "false" => Some(HashTags::Off),
            text => match text.parse() {
                Ok(count) if !text.starts_with('+') => Some(HashTags::Count(count)),
                Ok(_) | Err(_) => field.expected(EXPECTED, context),
            },
        }
    }
}

impl<T: FromNode> FromNode for Vec<Spanned<T>> {
    fn from_node(field: Field<'_>, context: &mut Context) -> Option<Self> {
        let Kind::List(items) = &field.node.kind else {
            return field.expected("a list", context);
        };
        let items = items.iter().map(|node| field.item(node));
        items
            .map(|item| Spanned::from_node(item, context))
            .collect()
    }
}

impl<T: FromNode> FromNode for OneOrMany<T> {
    fn from_node(field: Field<'_>, context: &mut Context) -> Option<Self> {
        match field.node.kind {
            Kind::Scalar(_) | Kind::Map(_) => {
                let only = Spanned::from_node(field.with_shorthand(false), context)?;
                Some(OneOrMany(vec![only]))
            }
            Kind::List(_) | Kind::Null | Kind::Invalid => {
                Vec::from_node(field, context).map(OneOrMany)
            }
        }
    }
}

impl<T: FromNode, N: FromNode> FromNode for Table<T, N> {
    fn from_node(field: Field<'_>, context: &mut Context) -> Option<Self> {
        let entries = field.entries(context)?.iter().map(|entry| {
            let name = Spanned::from_node(Field::new(&entry.key), context)?;
            Some((name, Spanned::from_node(Field::from_entry(entry), context)?))
        });
        entries.collect::<Option<_>>().map(Table)
    }
}

impl<V: FromNode, M: FromNode> FromNode for Shorthand<V, M> {
    fn from_node(field: Field<'_>, context: &mut Context) -> Option<Self> {
        match field.node.kind {
            Kind::Map(_) => M::from_node(field, context).map(Shorthand::Map),
            _ => V::from_node(field.with_shorthand(true), context).map(Shorthand::Value),
        }
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
inline_schema!(Url, [], |_generator| json_schema!({ "type": "string" }));
inline_schema!(Integer, [], |_generator| json_schema!({
    "anyOf": [{ "type": "integer", "minimum": 0 }, { "type": "string", "pattern": r"\$\{" }]
}));
inline_schema!(Bool, [], |_generator| json_schema!({
    "anyOf": [{ "type": "boolean" }, { "type": "string", "pattern": r"\$\{" }]
}));
inline_schema!(Switch, [], |_generator| json_schema!({
    "anyOf": [
        { "type": "boolean" },
        { "type": "string", "enum": ["on", "off"] },
        { "type": "string", "pattern": r"\$\{" }
    ]
}));
inline_schema!(XRateLimit, [], |_generator| json_schema!({
    "anyOf": [
        { "type": "boolean" },
        { "type": "string", "enum": ["epoch"] },
        { "type": "string", "pattern": r"\$\{" }
    ]
}));
inline_schema!(LeaseMode, [], |_generator| json_schema!({
    "anyOf": [
        { "type": "boolean" },
        { "type": "string", "enum": ["auto"] },
        { "type": "string", "pattern": r"\$\{" }
    ]
}));
inline_schema!(HashTags, [], |_generator| json_schema!({
    "anyOf": [
        { "type": "boolean" },
        { "type": "integer", "minimum": 1, "maximum": MAX_HASH_TAGS },
        { "type": "string", "pattern": r"\$\{" }
    ]
}));
inline_schema!(OneOrMany<T>, [T], |generator| {
    let item = generator.subschema_for::<T>();
    json_schema!({ "anyOf": [item, { "type": "array", "items": item }] })
});
inline_schema!(Table<T>, [T], |generator| {
    let value = generator.subschema_for::<T>();
    json_schema!({ "type": "object", "additionalProperties": value })
});
inline_schema!(Table<T, Secret>, [T], |generator| {
    let value = generator.subschema_for::<T>();
    json_schema!({ "type": "object", "additionalProperties": value })
});
