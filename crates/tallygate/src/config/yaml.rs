//! YAML as a tree of nodes with spans.
//!
//! Built on the events of granit-parser, the parser below serde-saphyr. serde-saphyr stops at the
//! first error and loses spans inside untagged enums.

use std::collections::HashMap;

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, Tag};

use super::diagnostic::{Diagnostics, code, quoted};
use super::source::{Sources, Span, floor_char_boundary};

const MAX_DEPTH: usize = 32;
/// The maximum number of nodes of a file, after expanding aliases.
const MAX_NODES: usize = 500_000;

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) span: Span,
    pub(crate) kind: Kind,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// `~`, `null` or nothing at all.
    Null,
    Scalar(Scalar),
    List(Vec<Node>),
    Map(Vec<Entry>),
    /// Already reported as an error.
    Invalid,
}

/// Text, a number or a boolean; the type of the field decides.
#[derive(Clone, Debug)]
pub(crate) struct Scalar {
    pub(crate) text: String,
    /// The environment variables whose values are in it.
    pub(crate) variables: Vec<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Always a scalar.
    pub(crate) key: Node,
    pub(crate) value: Node,
}

impl Scalar {
    /// The text for a message: values from the environment are replaced by variable names.
    pub(crate) fn quoted(&self) -> String {
        if self.is_literal() {
            return quoted(&self.text);
        }
        let names: Vec<String> = self
            .variables
            .iter()
            .map(|name| format!("${{{name}}}"))
            .collect();
        format!("the value of {}", names.join(" and "))
    }

    /// Returns whether nothing of it comes from the environment.
    pub(crate) fn is_literal(&self) -> bool {
        self.variables.is_empty()
    }
}

impl Entry {
    pub(crate) fn name(&self) -> &str {
        match &self.key.kind {
            Kind::Scalar(scalar) => &scalar.text,
            Kind::Null | Kind::List(_) | Kind::Map(_) | Kind::Invalid => "",
        }
    }
}

/// Parses a file of one document. Returns `None` and reports an error if it has no usable content.
pub(crate) fn parse(sources: &Sources, file: u16, diagnostics: &mut Diagnostics) -> Option<Node> {
    let text = &sources.get(file).text;
    let options = granit_parser::options! {
        emit_unresolved_aliases: true,
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
    };
    let mut builder = Builder {
        file,
        text,
        stack: Vec::new(),
        root: None,
        anchors: HashMap::new(),
        nodes: 0,
        diagnostics,
    };
    for next in Parser::new_from_str_with_options(text, options) {
        match next {
            Ok((event, span)) => builder.event(event, &span)?,
            Err(error) => {
                builder.scan_error(&error);
                return None;
            }
        }
    }
    let root = builder.root.filter(|root| !matches!(root.kind, Kind::Null));
    if root.is_none() {
        let help = diagnostics.first_line;
        diagnostics
            .error(code::EMPTY, Span::start_of(file), "the file is empty")
            .help(help);
    }
    root
}

struct Builder<'a> {
    file: u16,
    text: &'a str,
    stack: Vec<Frame>,
    root: Option<Node>,
    /// Nodes by anchor, with their sizes in nodes.
    anchors: HashMap<usize, (Node, usize)>,
    nodes: usize,
    diagnostics: &'a mut Diagnostics,
}

/// A list or mapping that is not complete.
struct Frame {
    node: Node,
    anchor: usize,
    /// The number of nodes when it was opened.
    nodes_before: usize,
    /// The keys of a mapping.
    seen: HashMap<String, Span>,
    /// The key of the next value; `Some(None)` if the key is invalid and the value is skipped.
    key: Option<Option<Node>>,
}

impl Builder<'_> {
    /// Handles one event. Returns `None` after an error that ends parsing.
    fn event(&mut self, event: Event<'_>, at: &granit_parser::Span) -> Option<()> {
        let span = self.span(at);
        match event {
            Event::DocumentStart(..) if self.root.is_some() => {
                let message = "expected one document, found a second";
                self.diagnostics
                    .error(code::SEVERAL_DOCUMENTS, span, message)
                    .help("remove the `---`, or move the document to a file of its own");
                return None;
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.tag(tag.as_deref(), at);
                let null = matches!(style, ScalarStyle::Plain)
                    && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                let kind = match null {
                    true => Kind::Null,
                    false => Kind::Scalar(Scalar {
                        text: text.into_owned(),
                        variables: Vec::new(),
                    }),
                };
                self.count(1, span)?;
                self.finish(Node { span, kind }, anchor, 1);
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.tag(tag.as_deref(), at);
                self.open(Kind::List(Vec::new()), anchor, span)?;
            }
            Event::MappingStart(_, anchor, tag) => {
                self.tag(tag.as_deref(), at);
                self.open(Kind::Map(Vec::new()), anchor, span)?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(at),
            Event::Alias(anchor) => {
                let Some((node, size)) = self.anchors.get(&anchor).cloned() else {
                    self.diagnostics
                        .error(code::YAML, span, "alias inside its own anchor");
                    return None;
                };
                self.count(size, span)?;
                self.insert(node);
            }
            Event::UnresolvedAlias(name) => {
                let alias = quoted(&format!("*{name}"));
                let message = format!("unknown anchor of the alias {alias}");
                self.diagnostics
                    .error(code::YAML, span, message)
                    .help("quote text that starts with `*`, such as '*.example.com'");
                let kind = Kind::Invalid;
                self.insert(Node { span, kind });
            }
            // Starts and ends of documents and the stream.
            _ => {}
        }
        Some(())
    }

    fn open(&mut self, kind: Kind, anchor: usize, span: Span) -> Option<()> {
        if self.stack.len() >= MAX_DEPTH {
            self.too_deep(span);
            return None;
        }
        self.stack.push(Frame {
            node: Node { span, kind },
            anchor,
            nodes_before: self.nodes,
            seen: HashMap::new(),
            key: None,
        });
        self.count(1, span)
    }

    fn close(&mut self, at: &granit_parser::Span) {
        let Some(mut frame) = self.stack.pop() else {
            return;
        };
        let start = frame.node.span.start as usize;
        let end = at.end.byte_offset().unwrap_or(start);
        // Underline the first line only.
        let text = self.text.get(start..end).unwrap_or_default();
        let line = text.lines().next().unwrap_or_default().trim_end();
        frame.node.span = Span::new(self.file, start..start + line.len());
        let size = self.nodes - frame.nodes_before;
        self.finish(frame.node, frame.anchor, size);
    }

    fn finish(&mut self, node: Node, anchor: usize, size: usize) {
        if anchor != 0 {
            self.anchors.insert(anchor, (node.clone(), size));
        }
        self.insert(node);
    }

    /// Inserts a node into the innermost open list or mapping.
    fn insert(&mut self, mut node: Node) {
        let Some(frame) = self.stack.last_mut() else {
            self.root = Some(node);
            return;
        };
        let entries = match &mut frame.node.kind {
            Kind::List(items) => return items.push(node),
            Kind::Map(entries) => entries,
            Kind::Null | Kind::Scalar(_) | Kind::Invalid => return,
        };
        match frame.key.take() {
            Some(None) => {}
            Some(Some(key)) => {
                if matches!(node.kind, Kind::Null) {
                    node.span = key.span;
                }
                entries.push(Entry { key, value: node });
            }
            None => {
                let valid = check_key(&node, &mut frame.seen, self.diagnostics);
                frame.key = Some(valid.then_some(node));
            }
        }
    }

    fn tag(&mut self, tag: Option<&Tag>, at: &granit_parser::Span) {
        if tag.is_some() {
            let span = self.span(&at.tag_span().unwrap_or(*at));
            self.diagnostics
                .error(code::YAML, span, "tags are not supported")
                .help("quote text that starts with `!`");
        }
    }

    fn count(&mut self, nodes: usize, span: Span) -> Option<()> {
        self.nodes += nodes;
        if self.nodes <= MAX_NODES {
            return Some(());
        }
        let message = format!("more than {MAX_NODES} values after expanding aliases");
        self.diagnostics
            .error(code::TOO_MANY_ALIASES, span, message)
            .help("an alias is a copy, and copies of copies multiply");
        None
    }

    fn too_deep(&mut self, span: Span) {
        let message = format!("nested deeper than {MAX_DEPTH} lists and mappings");
        self.diagnostics.error(code::TOO_DEEP, span, message);
    }

    fn span(&self, at: &granit_parser::Span) -> Span {
        let range = at.byte_range().unwrap_or(0..0);
        let end = range.end.min(self.text.len());
        Span::new(self.file, range.start.min(end)..end)
    }

    fn scan_error(&mut self, error: &ScanError) {
        let at = error.marker().byte_offset().unwrap_or(0);
        let mut at = floor_char_boundary(self.text, at);
        if matches!(error.kind(), ErrorKind::TabInPlainScalar) {
            // The parser reports the start of the scalar.
            at += self.text[at..].find('\t').unwrap_or(0);
        }
        let next = self.text[at..].chars().next().filter(|&c| c != '\n');
        let span = Span::new(self.file, at..at + next.map_or(0, char::len_utf8));
        if matches!(error.kind(), ErrorKind::RecursionLimitExceeded) {
            return self.too_deep(span);
        }
        let line_start = self.text[..at].rfind('\n').map_or(0, |end| end + 1);
        let line = self.text[line_start..].lines().next().unwrap_or_default();
        let before = line.find("${").map_or("", |variable| &line[..variable]);
        let hint = match before.contains(['[', '{']) {
            true => Some("quote variables inside `[ ]` and `{ }`: [\"${NAME}\"]"),
            false => syntax_hint(error.kind()),
        };
        self.diagnostics
            .error(code::YAML, span, format!("invalid YAML: {}", error.info()))
            .maybe_help(hint.map(str::to_owned));
    }
}

/// Reports a key that is not text, or that the mapping already has.
fn check_key(node: &Node, seen: &mut HashMap<String, Span>, diagnostics: &mut Diagnostics) -> bool {
    let span = node.span;
    let text = match &node.kind {
        Kind::Scalar(scalar) => &scalar.text,
        Kind::Invalid => return false,
        Kind::Null | Kind::List(_) | Kind::Map(_) => {
            diagnostics
                .error(code::YAML, span, "expected text as a field name")
                .help("quote a value that starts with `{` or `[`");
            return false;
        }
    };
    if text == "<<" {
        let message = "the merge key `<<` is not supported";
        diagnostics
            .error(code::UNKNOWN_FIELD, span, message)
            .help("an alias can replace a whole value: `limits: *shared`");
        return false;
    }
    if let Some(&first) = seen.get(text) {
        let message = format!("duplicate field {}", quoted(text));
        diagnostics
            .error(code::DUPLICATE_FIELD, span, message)
            .label("duplicate")
            .related(first, "first defined here");
        return false;
    }
    seen.insert(text.clone(), span);
    true
}

fn syntax_hint(kind: &ErrorKind) -> Option<&'static str> {
    Some(match kind {
        ErrorKind::TabNotAllowed
        | ErrorKind::TabInBlockIndentation
        | ErrorKind::TabInIndentation
        | ErrorKind::TabInPlainScalar
        | ErrorKind::TabAtBlockScalarStart => "indent with spaces instead of tabs",
        ErrorKind::UnexpectedCharacter { .. } => "quote text that starts with this character",
        ErrorKind::UnclosedFlowCollection { .. }
        | ErrorKind::UnexpectedEofFlowSequence
        | ErrorKind::UnexpectedEofFlowMapping
        | ErrorKind::UnexpectedEofImplicitFlowMapping
        | ErrorKind::ExpectedFlowMappingSeparator
        | ErrorKind::ExpectedFlowSequenceSeparator
        | ErrorKind::InvalidColonPlacement
        | ErrorKind::MismatchedFlowCollectionEnd { .. } => {
            "a comma or a closing `]` or `}` is missing before this"
        }
        ErrorKind::UnclosedQuotedScalar | ErrorKind::InvalidQuotedScalarIndent => {
            "the closing quote is missing, on this line or an earlier one"
        }
        ErrorKind::MappingValueNotAllowed => {
            "align the fields of a mapping in one column, and quote text that contains `: `"
        }
        ErrorKind::InvalidSimpleKey | ErrorKind::SimpleKeyExpected => {
            "`name: value` needs a `:` and a space; quote text that contains `: `"
        }
        ErrorKind::ExpectedBlockMappingKey
        | ErrorKind::ExpectedBlockSequenceEntry
        | ErrorKind::BlockSequenceEntryNotAllowed
        | ErrorKind::InvalidIndentation => {
            "align the fields of a mapping, and the `-` of a list, in one column"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_text(text: &str) -> (Option<Node>, Vec<&'static str>) {
        let mut sources = Sources::default();
        let file = sources.add("f", None, text.to_owned());
        let mut diagnostics = Diagnostics::default();
        let node = parse(&sources, file, &mut diagnostics);
        let diagnostics = diagnostics.into_vec();
        (node, diagnostics.iter().map(|found| found.code).collect())
    }

    #[test]
    fn an_alias_inside_its_own_anchor_is_rejected() {
        assert_eq!(parse_text("a: &a [*a]").1, [code::YAML]);
    }

    #[test]
    fn depth_is_bounded() {
        assert_eq!(parse_text(&"[".repeat(100_000)).1, [code::TOO_DEEP]);
        assert_eq!(parse_text(&"- ".repeat(100_000)).1, [code::TOO_DEEP]);
        assert_eq!(parse_text(&"a: {".repeat(100)).1, [code::TOO_DEEP]);
    }

    #[test]
    fn every_duplicate_is_reported_and_the_first_value_is_used() {
        let (node, codes) = parse_text("a: 1\nb: 2\na: 3\nb: 4\n");
        assert_eq!(codes, [code::DUPLICATE_FIELD, code::DUPLICATE_FIELD]);
        let Kind::Map(entries) = node.unwrap().kind else {
            panic!("not a mapping");
        };
        assert_eq!(entries.len(), 2);
    }

    #[test]
    fn a_file_without_content_is_empty() {
        for text in ["", "\n\n", "# only a comment\n", "---\n", "\u{feff}", "~"] {
            assert_eq!(parse_text(text).1, [code::EMPTY], "{text:?}");
        }
    }
}
