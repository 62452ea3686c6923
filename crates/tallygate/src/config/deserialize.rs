//! Reads the types of `schema` from a YAML tree. Continues after an error, so that one run reports
//! all of them. serde would stop at the first one and has no spans.

mod hint;

use super::diagnostic::{Diagnostics, code, did_you_mean, either, quoted};
use super::source::Span;
use super::yaml::{Entry, Kind, Node, Scalar};

pub(super) const INTEGER: &str = "an integer";
pub(super) const BOOL: &str = "true or false";

/// A mapping, and a field that was suggested in place of an unknown one. That this field is missing
/// is not reported again.
pub(super) type Suggestion = (Span, &'static str);

const MAX_SUGGESTIONS: usize = 1_000;

/// The results of reading besides the values.
#[derive(Default)]
pub(super) struct Context {
    pub(super) diagnostics: Diagnostics,
    /// Spans to redact in diagnostics.
    pub(super) secrets: Vec<Span>,
    pub(super) suggestions: Vec<Suggestion>,
}

impl Context {
    pub(super) fn redact(&mut self, node: &Node) {
        match &node.kind {
            Kind::Null | Kind::Invalid => {}
            Kind::Scalar(_) => self.secrets.push(node.span),
            Kind::List(items) => items.iter().for_each(|item| self.redact(item)),
            Kind::Map(entries) => entries.iter().for_each(|entry| self.redact(&entry.value)),
        }
    }
}

/// A type that is read from a node.
pub(super) trait FromNode: Sized {
    /// Reads a value. Returns `None` if it is invalid, which is reported.
    fn from_node(field: Field<'_>, context: &mut Context) -> Option<Self>;

    /// The value of a field that is not given; `None` if the field is required.
    fn absent() -> Option<Self> {
        None
    }
}

/// A node and the field it is the value of.
#[derive(Clone, Copy)]
pub(super) struct Field<'n> {
    pub(super) node: &'n Node,
    name: &'n str,
    /// Whether it is an item of that field's list.
    item: bool,
    /// Whether a mapping would be valid too.
    shorthand: bool,
}

impl<'n> Field<'n> {
    pub(super) fn new(node: &'n Node) -> Self {
        Field {
            node,
            name: "",
            item: false,
            shorthand: false,
        }
    }

    pub(super) fn from_entry(entry: &'n Entry) -> Self {
        Field {
            name: entry.name(),
            ..Field::new(&entry.value)
        }
    }

    /// An item of this list.
    pub(super) fn item(self, node: &'n Node) -> Self {
        Field {
            node,
            item: true,
            shorthand: false,
            ..self
        }
    }

    /// The same node, as the value that is short for a mapping or not.
    pub(super) fn with_shorthand(self, shorthand: bool) -> Self {
        Field { shorthand, ..self }
    }

    pub(super) fn scalar(self, what: &str, context: &mut Context) -> Option<&'n Scalar> {
        match &self.node.kind {
            Kind::Scalar(scalar) => Some(scalar),
            Kind::Null | Kind::List(_) | Kind::Map(_) | Kind::Invalid => {
                self.expected(what, context)
            }
        }
    }

    pub(super) fn entries(self, context: &mut Context) -> Option<&'n [Entry]> {
        match &self.node.kind {
            Kind::Map(entries) => Some(entries),
            Kind::Null | Kind::Scalar(_) | Kind::List(_) | Kind::Invalid => {
                self.expected("a mapping", context)
            }
        }
    }

    /// The fields of a mapping. `names` are all fields it may have.
    pub(super) fn fields(
        self,
        shown: &'static str,
        names: &[&'static str],
        context: &mut Context,
    ) -> Option<Fields<'n>> {
        let entries = self.entries(context)?;
        let names: Vec<_> = names.iter().map(|name| unescaped(name)).collect();
        let span = self.node.span;
        let unknown = |entry: &&Entry| !names.contains(&entry.name());
        for entry in entries.iter().filter(unknown) {
            let name = entry.name();
            if hint::is_secret(name) {
                context.redact(&entry.value);
            }
            let hint = hint::unknown_field(shown, name, &names);
            let suggested = |name: &&&str| hint.ends_with(&format!("mean `{name}`?"));
            if let Some(name) = names.iter().find(suggested)
                && context.suggestions.len() < MAX_SUGGESTIONS
            {
                context.suggestions.push((span, name));
            }
            let message = format!("unknown field {} in {shown}", quoted(name));
            let diagnostics = &mut context.diagnostics;
            diagnostics
                .error(code::UNKNOWN_FIELD, entry.key.span, message)
                .help(hint);
        }
        Some(Fields {
            span,
            shown,
            entries,
        })
    }

    /// One of several words.
    pub(super) fn word<T: Copy>(self, words: &[(&str, T)], context: &mut Context) -> Option<T> {
        let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
        let expected = either(&names);
        let scalar = self.scalar(&expected, context)?;
        if let Some((_, value)) = words.iter().find(|(name, _)| *name == scalar.text) {
            return Some(*value);
        }
        let help = hint::switch(&scalar.text, &names).or_else(|| did_you_mean(&scalar.text, names));
        let help = help.filter(|_| scalar.is_literal());
        let message = self.mismatch(&expected, &scalar.quoted());
        self.error(code::UNKNOWN_WORD, message, help, context)
    }

    /// Reports that the value is not what was expected.
    pub(super) fn expected<T>(self, what: &str, context: &mut Context) -> Option<T> {
        let found = match &self.node.kind {
            Kind::Invalid => return None,
            Kind::Null if self.name.is_empty() => "nothing".to_owned(),
            Kind::Null => {
                let message = format!("{}missing value", self.subject());
                let help = format!("expected {what}{}", self.or_mapping());
                return self.error(code::NO_VALUE, message, Some(help), context);
            }
            Kind::Scalar(scalar) if matches!(what, INTEGER | BOOL) => scalar.quoted(),
            Kind::Scalar(scalar) if scalar.text.parse::<u64>().is_ok() => "a number".to_owned(),
            Kind::Scalar(_) => "text".to_owned(),
            Kind::List(_) => "a list".to_owned(),
            Kind::Map(_) => "a mapping".to_owned(),
        };
        let code = match self.node.kind {
            Kind::Null => code::NO_VALUE,
            _ => code::WRONG_TYPE,
        };
        let help = match (self.name, what) {
            ("", "a mapping") => Some(context.diagnostics.first_line.to_owned()),
            (name, what) => hint::wrong_type(self.node, name, what),
        };
        self.error(code, self.mismatch(what, &found), help, context)
    }

    fn mismatch(self, expected: &str, found: &str) -> String {
        let (subject, or_mapping) = (self.subject(), self.or_mapping());
        format!("{subject}expected {expected}{or_mapping}, found {found}")
    }

    fn subject(self) -> String {
        match (self.name, self.item) {
            ("", _) => String::new(),
            (name, true) => format!("item of `{name}`: "),
            (name, false) => format!("`{name}`: "),
        }
    }

    fn or_mapping(self) -> &'static str {
        if self.shorthand { " or a mapping" } else { "" }
    }

    fn error<T>(
        self,
        code: &'static str,
        message: String,
        help: Option<String>,
        context: &mut Context,
    ) -> Option<T> {
        let diagnostics = &mut context.diagnostics;
        diagnostics
            .error(code, self.node.span, message)
            .maybe_help(help);
        None
    }
}

/// The fields of a mapping.
pub(super) struct Fields<'n> {
    span: Span,
    /// What messages call the mapping.
    shown: &'static str,
    entries: &'n [Entry],
}

impl Fields<'_> {
    /// Reads a field; `None` if it is required and not given.
    pub(super) fn read<T: FromNode>(&self, name: &str, context: &mut Context) -> Option<T> {
        let mut entries = self.entries.iter();
        match entries.find(|entry| entry.name() == unescaped(name)) {
            Some(entry) => T::from_node(Field::from_entry(entry), context),
            None => T::absent(),
        }
    }

    /// Reports a field that is required and not given.
    pub(super) fn report_missing<T>(&self, name: &'static str, context: &mut Context) -> Option<T> {
        let name = unescaped(name);
        if !context.suggestions.contains(&(self.span, name)) {
            let message = format!("missing field `{name}` in {}", self.shown);
            let diagnostics = &mut context.diagnostics;
            diagnostics
                .error(code::MISSING_FIELD, self.span, message)
                .maybe_help(hint::missing_field(self.shown, name));
        }
        None
    }
}

/// A field's name, without the prefix that a keyword of Rust needs.
fn unescaped(name: &str) -> &str {
    name.strip_prefix("r#").unwrap_or(name)
}
