//! From a tree to the types of `raw`: a serde reader that goes on after a mistake. Every mistake is
//! noted with its place; knows fields by what `raw` declares, and no rule.

mod access;
mod hint;

use std::cell::RefCell;
use std::fmt;

use serde::de::{self, Deserializer, IntoDeserializer, Visitor};

use self::access::{Items, Pairs, Placed, Shape};
use super::diagnostic::{self, Problem, code, did_you_mean, either, quoted};
use super::source::Span;
use super::yaml::{Kind, Node, Scalar};

/// Asks for a value together with its place; what is wrong inside is noted, and nothing is lost
/// beside it.
pub(super) const AT: &str = "$at";
/// Asks for a text together with the variables in it.
pub(super) const TEXT: &str = "$text";
/// Asks for a text that must not be shown.
pub(super) const SECRET: &str = "$secret";
/// Asks for a text that must not be shown if there is an account in it.
pub(super) const URL: &str = "$url";
/// Asks for a list, which may be written as its only item.
pub(super) const ONE_OR_MANY: &str = "$one-or-many";
/// What numbers and flags are called.
const WHOLE: &str = "a whole number";
const FLAG: &str = "true or false";
/// What a value can look like: an enum whose variants are called so is told apart by it.
const SHAPES: [&str; 3] = ["text", "list", "map"];

/// What is found on the way.
#[derive(Default)]
pub(super) struct Notes {
    pub(super) problems: RefCell<Vec<Problem>>,
    /// Places that must not be shown.
    pub(super) secrets: RefCell<Vec<Span>>,
    /// Fields that were probably meant by unknown ones, and the mappings those are in: that such a
    /// field is missing has been said well enough.
    pub(super) meant: RefCell<Vec<Meant>>,
}

/// The most of them that are remembered: about as many as problems are noted.
const MOST_MEANT: usize = 1_000;

/// A mapping, and a field that was probably meant in it.
pub(super) type Meant = (Span, &'static str);

/// Reads a node, and whatever is below it.
#[derive(Clone, Copy)]
pub(super) struct Reader<'de> {
    node: &'de Node,
    notes: &'de Notes,
    /// The field it is the value of.
    field: &'de str,
    /// Whether it is one of several values of that field.
    item: bool,
    /// Whether a lone value will do for a list.
    lone: bool,
}

impl<'de> Reader<'de> {
    pub(super) fn new(node: &'de Node, notes: &'de Notes) -> Self {
        Reader {
            node,
            notes,
            field: "",
            item: false,
            lone: false,
        }
    }

    fn note(&self, problem: Problem) -> Stopped {
        diagnostic::note(&mut self.notes.problems.borrow_mut(), problem);
        Stopped::Noted
    }

    /// Notes that nothing below a node may be shown.
    fn hide(&self, node: &Node) {
        match &node.kind {
            Kind::Nothing | Kind::Broken => {}
            Kind::Scalar(_) => self.notes.secrets.borrow_mut().push(node.span),
            Kind::List(items) => items.iter().for_each(|item| self.hide(item)),
            Kind::Map(entries) => entries.iter().for_each(|entry| self.hide(&entry.value)),
        }
    }

    /// Notes whatever has not been noted yet.
    fn settle(&self, stopped: Stopped, what: &str) -> Stopped {
        match stopped {
            Stopped::Noted => Stopped::Noted,
            Stopped::Missing(field)
                if self.notes.meant.borrow().contains(&(self.node.span, field)) =>
            {
                Stopped::Noted
            }
            Stopped::Missing(field) => {
                let message = format!("{what} needs a field `{field}`");
                let problem = Problem::error(code::MISSING_FIELD, self.node.span, message);
                self.note(problem.maybe_help(hint::for_missing(what, field)))
            }
            Stopped::Other(message) => {
                let problem = Problem::error(code::WRONG_TYPE, self.node.span, message);
                self.note(problem)
            }
        }
    }

    /// Notes that it should be something else.
    fn expected(&self, what: &str) -> Stopped {
        let (field, span) = (self.field, self.node.span);
        match &self.node.kind {
            Kind::Broken => Stopped::Noted,
            Kind::Nothing if field.is_empty() => {
                let message = format!("expected {what}, found nothing");
                self.note(Problem::error(code::NO_VALUE, span, message))
            }
            Kind::Nothing => {
                let subject = self.subject();
                let problem = Problem::error(code::NO_VALUE, span, format!("{subject} is empty"));
                self.note(problem.help(format!("expected {what}")))
            }
            Kind::Scalar(_) | Kind::List(_) | Kind::Map(_) => {
                let found = match &self.node.kind {
                    Kind::Scalar(scalar) if matches!(what, WHOLE | FLAG) => {
                        format!("not {}", shown(scalar))
                    }
                    _ => format!("found {}", self.node.what()),
                };
                let message = if field.is_empty() {
                    format!("expected {what}, {found}")
                } else {
                    format!("{} takes {what}, {found}", self.subject())
                };
                let problem = Problem::error(code::WRONG_TYPE, span, message);
                self.note(problem.maybe_help(hint::for_type(self.node, self.field, what)))
            }
        }
    }

    /// What an error is about.
    fn subject(&self) -> String {
        match self.item {
            true => format!("an item of `{}`", self.field),
            false => format!("`{}`", self.field),
        }
    }

    fn scalar(&self, what: &str) -> Result<&'de Scalar, Stopped> {
        match &self.node.kind {
            Kind::Scalar(scalar) => Ok(scalar),
            Kind::Nothing | Kind::List(_) | Kind::Map(_) | Kind::Broken => Err(self.expected(what)),
        }
    }
}

impl<'de> Deserializer<'de> for Reader<'de> {
    type Error = Stopped;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stopped> {
        match &self.node.kind {
            Kind::Scalar(scalar) => visitor.visit_borrowed_str(&scalar.text),
            Kind::List(_) => self.deserialize_seq(visitor),
            Kind::Map(_) => self.deserialize_map(visitor),
            Kind::Nothing | Kind::Broken => Err(self.expected("a value")),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stopped> {
        visitor.visit_borrowed_str(&self.scalar("text")?.text)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stopped> {
        self.deserialize_str(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stopped> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stopped> {
        match self.scalar(FLAG)?.text.as_str() {
            "true" => visitor.visit_bool(true),
            "false" => visitor.visit_bool(false),
            _ => Err(self.expected(FLAG)),
        }
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stopped> {
        let scalar = self.scalar(WHOLE)?;
        let digits = scalar.text.bytes().all(|byte| byte.is_ascii_digit());
        match scalar.text.parse() {
            Ok(number) if digits => visitor.visit_u64(number),
            Ok(_) | Err(_) => Err(self.expected(WHOLE)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stopped> {
        // A field that is given is given a value.
        visitor.visit_some(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stopped> {
        let items = match &self.node.kind {
            Kind::List(items) => items.as_slice(),
            Kind::Scalar(_) | Kind::Map(_) if self.lone => std::slice::from_ref(self.node),
            Kind::Scalar(_) | Kind::Map(_) | Kind::Nothing | Kind::Broken => {
                return Err(self.expected("a list"));
            }
        };
        visitor.visit_seq(Items::new(self, items))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stopped> {
        match &self.node.kind {
            Kind::Map(entries) => visitor.visit_map(Pairs::new(self, entries.iter().collect())),
            Kind::Nothing | Kind::Scalar(_) | Kind::List(_) | Kind::Broken => {
                Err(self.expected("a mapping"))
            }
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        what: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Stopped> {
        let Kind::Map(entries) = &self.node.kind else {
            return Err(self.expected("a mapping"));
        };
        let (known, unknown): (Vec<_>, Vec<_>) = entries
            .iter()
            .partition(|entry| fields.contains(&entry.name()));
        for entry in unknown {
            let name = entry.name();
            if hint::is_secret(name) {
                self.hide(&entry.value);
            }
            let message = format!("{what} has no field {}", quoted(name));
            let problem = Problem::error(code::UNKNOWN_FIELD, entry.key.span, message);
            let known = match fields {
                [only] => format!("its only field is `{only}`"),
                _ => format!("its fields are {}", either(fields).replace(" or ", " and ")),
            };
            let hint = hint::for_unknown(what, name, fields).unwrap_or(known);
            let meant = |field: &&&str| hint == format!("did you mean `{field}`?");
            if let Some(field) = fields.iter().find(meant) {
                let mut meant = self.notes.meant.borrow_mut();
                if meant.len() < MOST_MEANT {
                    meant.push((self.node.span, field));
                }
            }
            self.note(problem.help(hint));
        }
        visitor
            .visit_map(Pairs::new(self, known))
            .map_err(|stopped| self.settle(stopped, what))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        what: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Stopped> {
        let shape = match &self.node.kind {
            Kind::Scalar(_) => "text",
            Kind::List(_) => "list",
            Kind::Map(_) => "map",
            Kind::Nothing | Kind::Broken => "",
        };
        if variants.iter().all(|variant| SHAPES.contains(variant)) {
            return match variants.contains(&shape) {
                true => visitor.visit_enum(Shape::new(self, shape)),
                false => Err(self.expected(what)),
            };
        }
        let words = either(variants);
        let scalar = self.scalar(&words)?;
        if variants.contains(&scalar.text.as_str()) {
            return visitor.visit_enum(scalar.text.as_str().into_deserializer());
        }
        let shown = shown(scalar);
        let problem = Problem::error(
            code::UNKNOWN_WORD,
            self.node.span,
            format!("{} takes {words}, not {shown}", self.subject()),
        );
        let near = did_you_mean(&scalar.text, variants.iter().copied());
        let public = scalar.variables.is_empty();
        Err(self.note(problem.maybe_help(near.filter(|_| public))))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Stopped> {
        match name {
            AT => visitor.visit_seq(Placed::new(self)),
            SECRET => {
                self.hide(self.node);
                visitor.visit_newtype_struct(self)
            }
            URL => {
                // Where there is no account there is no password.
                if matches!(&self.node.kind, Kind::Scalar(url) if url.text.contains('@')) {
                    self.hide(self.node);
                }
                visitor.visit_newtype_struct(self)
            }
            ONE_OR_MANY => visitor.visit_newtype_struct(Reader { lone: true, ..self }),
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Stopped> {
        if name != TEXT {
            return self.deserialize_seq(visitor);
        }
        let scalar = self.scalar("text")?;
        let parts = [scalar.text.clone(), scalar.variables.join(" ")];
        visitor.visit_seq(de::value::SeqDeserializer::new(parts.into_iter()))
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u128 f32 f64 char bytes byte_buf unit unit_struct tuple
        ignored_any
    }
}

/// A value as an error may show it: what came from the environment goes by its name.
pub(super) fn shown(scalar: &Scalar) -> String {
    match scalar.variables.as_slice() {
        [] => quoted(&scalar.text),
        names => shown_variables(names.iter().map(String::as_str)),
    }
}

/// Values of the environment, by their names.
pub(super) fn shown_variables<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<String> = names
        .into_iter()
        .map(|name| format!("${{{name}}}"))
        .collect();
    format!("the value of {}", names.join(" and "))
}

/// Why reading stopped.
#[derive(Debug)]
pub(super) enum Stopped {
    /// It has been noted.
    Noted,
    /// A field is missing; whoever knows of what notes it.
    Missing(&'static str),
    /// Something else; whoever knows where notes it.
    Other(String),
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stopped::Noted => f.write_str("noted"),
            Stopped::Missing(field) => write!(f, "`{field}` is missing"),
            Stopped::Other(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for Stopped {}

impl de::Error for Stopped {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Stopped::Other(message.to_string())
    }

    fn missing_field(field: &'static str) -> Self {
        Stopped::Missing(field)
    }
}
