//! Deserializes a YAML tree into the types of `schema`. Continues after an error, so that one run
//! reports all of them.

mod hint;

use std::cell::RefCell;
use std::fmt;

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{self, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer};
use serde::de::{VariantAccess, Visitor};

use super::diagnostic::{Diagnostics, code, did_you_mean, either, quoted};
use super::schema::{ONE_OR_MANY, SECRET, SHORTHAND, SPANNED, TABLE, TEXT, URL, quoted_variables};
use super::source::Span;
use super::yaml::{Entry, Kind, Node, Scalar};

const INTEGER: &str = "an integer";
const BOOL: &str = "true or false";

/// A mapping, and a field that was suggested in place of an unknown one. That this field is missing
/// is not reported again.
pub(super) type Suggestion = (Span, &'static str);

const MAX_SUGGESTIONS: usize = 1_000;

/// The results of deserializing besides the value.
#[derive(Default)]
pub(super) struct Context {
    pub(super) diagnostics: RefCell<Diagnostics>,
    /// Spans to redact in diagnostics.
    pub(super) secrets: RefCell<Vec<Span>>,
    pub(super) suggestions: RefCell<Vec<Suggestion>>,
}

#[derive(Debug)]
pub(super) enum Error {
    Reported,
    /// Reported by the struct that lacks the field.
    MissingField(&'static str),
    Custom(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Reported => f.write_str("already reported"),
            Error::MissingField(field) => write!(f, "missing field `{field}`"),
            Error::Custom(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for Error {}

impl de::Error for Error {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Error::Custom(message.to_string())
    }

    fn missing_field(field: &'static str) -> Self {
        Error::MissingField(field)
    }
}

#[derive(Clone, Copy)]
pub(super) struct NodeDeserializer<'de> {
    node: &'de Node,
    context: &'de Context,
    field: &'de str,
    /// Whether it is an item of that field's list.
    item: bool,
    /// Whether a list may be written as its only item.
    one_or_many: bool,
    /// Whether a mapping would be valid too.
    shorthand: bool,
}

impl<'de> NodeDeserializer<'de> {
    pub(super) fn new(node: &'de Node, context: &'de Context) -> Self {
        NodeDeserializer {
            node,
            context,
            field: "",
            item: false,
            one_or_many: false,
            shorthand: false,
        }
    }

    fn entry(&self, entry: &'de Entry) -> Self {
        NodeDeserializer {
            field: entry.name(),
            ..Self::new(&entry.value, self.context)
        }
    }

    fn error(&self, code: &'static str, message: String, help: Option<String>) -> Error {
        let mut diagnostics = self.context.diagnostics.borrow_mut();
        diagnostics
            .error(code, self.node.span, message)
            .maybe_help(help);
        Error::Reported
    }

    fn redact(&self, node: &Node) {
        match &node.kind {
            Kind::Null | Kind::Invalid => {}
            Kind::Scalar(_) => self.context.secrets.borrow_mut().push(node.span),
            Kind::List(items) => items.iter().for_each(|item| self.redact(item)),
            Kind::Map(entries) => entries.iter().for_each(|entry| self.redact(&entry.value)),
        }
    }

    /// Reports an error of a struct's field that is not reported yet.
    fn report(&self, error: Error, name: &str) -> Error {
        match error {
            Error::Reported => Error::Reported,
            Error::MissingField(field) => {
                let suggestions = self.context.suggestions.borrow();
                if suggestions.contains(&(self.node.span, field)) {
                    return Error::Reported;
                }
                let message = format!("missing field `{field}` in {name}");
                let help = hint::missing_field(name, field);
                self.error(code::MISSING_FIELD, message, help)
            }
            Error::Custom(message) => self.error(code::WRONG_TYPE, message, None),
        }
    }

    fn subject(&self) -> String {
        match (self.field, self.item) {
            ("", _) => String::new(),
            (field, true) => format!("item of `{field}`: "),
            (field, false) => format!("`{field}`: "),
        }
    }

    fn expected(&self, what: &str) -> Error {
        let or_mapping = if self.shorthand { " or a mapping" } else { "" };
        let found = match &self.node.kind {
            Kind::Invalid => return Error::Reported,
            Kind::Null if self.field.is_empty() => "nothing".to_owned(),
            Kind::Null => {
                let message = format!("{}missing value", self.subject());
                let help = format!("expected {what}{or_mapping}");
                return self.error(code::NO_VALUE, message, Some(help));
            }
            Kind::Scalar(scalar) if matches!(what, INTEGER | BOOL) => quoted_scalar(scalar),
            Kind::Scalar(scalar) if scalar.text.parse::<u64>().is_ok() => "a number".to_owned(),
            Kind::Scalar(_) => "text".to_owned(),
            Kind::List(_) => "a list".to_owned(),
            Kind::Map(_) => "a mapping".to_owned(),
        };
        let code = match self.node.kind {
            Kind::Null => code::NO_VALUE,
            _ => code::WRONG_TYPE,
        };
        let subject = self.subject();
        let message = format!("{subject}expected {what}{or_mapping}, found {found}");
        self.error(code, message, hint::wrong_type(self.node, self.field, what))
    }

    fn scalar(&self, what: &str) -> Result<&'de Scalar, Error> {
        match &self.node.kind {
            Kind::Scalar(scalar) => Ok(scalar),
            Kind::Null | Kind::List(_) | Kind::Map(_) | Kind::Invalid => Err(self.expected(what)),
        }
    }

    fn map(&self) -> Result<&'de [Entry], Error> {
        match &self.node.kind {
            Kind::Map(entries) => Ok(entries),
            Kind::Null | Kind::Scalar(_) | Kind::List(_) | Kind::Invalid => {
                Err(self.expected("a mapping"))
            }
        }
    }

    fn unknown_field(&self, name: &str, entry: &Entry, fields: &'static [&'static str]) {
        let field = entry.name();
        if hint::is_secret(field) {
            self.redact(&entry.value);
        }
        let hint = hint::unknown_field(name, field, fields);
        let suggested = |field: &&&str| hint.ends_with(&format!("mean `{field}`?"));
        if let Some(field) = fields.iter().find(suggested) {
            let mut suggestions = self.context.suggestions.borrow_mut();
            if suggestions.len() < MAX_SUGGESTIONS {
                suggestions.push((self.node.span, field));
            }
        }
        let message = format!("unknown field {} in {name}", quoted(field));
        let mut diagnostics = self.context.diagnostics.borrow_mut();
        diagnostics
            .error(code::UNKNOWN_FIELD, entry.key.span, message)
            .help(hint);
    }
}

impl<'de> IntoDeserializer<'de, Error> for NodeDeserializer<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for NodeDeserializer<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_borrowed_str(&self.scalar("text")?.text)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.scalar(BOOL)?.text.as_str() {
            "true" => visitor.visit_bool(true),
            "false" => visitor.visit_bool(false),
            _ => Err(self.expected(BOOL)),
        }
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let scalar = self.scalar(INTEGER)?;
        let digits = scalar.text.bytes().all(|byte| byte.is_ascii_digit());
        match scalar.text.parse() {
            Ok(number) if digits => visitor.visit_u64(number),
            Ok(_) | Err(_) => Err(self.expected(INTEGER)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let (items, is_list) = match &self.node.kind {
            Kind::List(items) => (items.as_slice(), true),
            Kind::Scalar(_) | Kind::Map(_) if self.one_or_many => {
                (std::slice::from_ref(self.node), false)
            }
            Kind::Scalar(_) | Kind::Map(_) | Kind::Null | Kind::Invalid => {
                return Err(self.expected("a list"));
            }
        };
        let item = |node| NodeDeserializer {
            field: self.field,
            item: is_list,
            ..Self::new(node, self.context)
        };
        visitor.visit_seq(SeqDeserializer::new(items.iter().map(item)))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if name == TEXT {
            let scalar = self.scalar("text")?;
            let fields = [scalar.text.clone(), scalar.variables.join(" ")];
            return visitor.visit_seq(SeqDeserializer::new(fields.into_iter()));
        }
        let entries = self.map()?.iter();
        let (known, unknown): (Vec<_>, Vec<_>) =
            entries.partition(|entry| fields.contains(&entry.name()));
        for entry in unknown {
            self.unknown_field(name, entry, fields);
        }
        let known = known.into_iter();
        let known = known.map(|entry| (entry.name(), self.entry(entry)));
        visitor
            .visit_map(MapDeserializer::new(known))
            .map_err(|error| self.report(error, name))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if name == SPANNED {
            let Span { file, start, end } = self.node.span;
            let tag = SeqDeserializer::new([file.into(), start, end].into_iter());
            return visitor.visit_enum(Tagged { tag, node: self });
        }
        if name == SHORTHAND {
            let is_map = matches!(self.node.kind, Kind::Map(_));
            let tag = if is_map { "map" } else { "value" }.into_deserializer();
            let node = NodeDeserializer {
                shorthand: !is_map,
                ..self
            };
            return visitor.visit_enum(Tagged { tag, node });
        }
        let expected = either(variants);
        let scalar = self.scalar(&expected)?;
        if variants.contains(&scalar.text.as_str()) {
            return visitor.visit_enum(scalar.text.as_str().into_deserializer());
        }
        let or_mapping = if self.shorthand { " or a mapping" } else { "" };
        let (subject, found) = (self.subject(), quoted_scalar(scalar));
        let message = format!("{subject}expected {expected}{or_mapping}, found {found}");
        let help = did_you_mean(&scalar.text, variants.iter().copied());
        let help = help.filter(|_| scalar.variables.is_empty());
        Err(self.error(code::UNKNOWN_WORD, message, help))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        match name {
            TABLE => {
                let entries = self.map()?.iter().map(|entry| {
                    let key = NodeDeserializer::new(&entry.key, self.context);
                    SeqDeserializer::new([key, self.entry(entry)].into_iter())
                });
                return visitor.visit_newtype_struct(SeqDeserializer::new(entries));
            }
            SECRET => self.redact(self.node),
            // Without a user there is no password.
            URL if matches!(&self.node.kind, Kind::Scalar(url) if url.text.contains('@')) => {
                self.redact(self.node);
            }
            _ => {}
        }
        visitor.visit_newtype_struct(NodeDeserializer {
            one_or_many: name == ONE_OR_MANY,
            ..self
        })
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        tuple tuple_struct map identifier ignored_any
    }
}

/// A node as the content of an enum variant that is chosen by `tag`.
struct Tagged<'de, T> {
    tag: T,
    node: NodeDeserializer<'de>,
}

impl<'de, T: Deserializer<'de, Error = Error>> EnumAccess<'de> for Tagged<'de, T> {
    type Error = Error;
    type Variant = NodeDeserializer<'de>;

    fn variant_seed<V: DeserializeSeed<'de>>(
        self,
        seed: V,
    ) -> Result<(V::Value, Self::Variant), Error> {
        Ok((seed.deserialize(self.tag)?, self.node))
    }
}

impl<'de> VariantAccess<'de> for NodeDeserializer<'de> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        let result = seed.deserialize(self);
        result.map_err(|error| self.report(error, "this value"))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_struct("this value", fields, visitor)
    }
}

/// A scalar for a message: values from the environment are replaced by variable names.
fn quoted_scalar(scalar: &Scalar) -> String {
    match scalar.variables.as_slice() {
        [] => quoted(&scalar.text),
        names => quoted_variables(names.iter().map(String::as_str)),
    }
}
