//! YAML as a tree in which everything knows its place. Knows YAML; knows nothing of rules.
//!
//! Built on the events of granit-parser, the parser below serde-saphyr: serde-saphyr itself stops
//! at the first mistake, and forgets places where a field may be written in more than one way.

use std::collections::HashMap;

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, Tag};

use super::diagnostic::{self, Problem, code, quoted};
use super::source::{Sources, Span};
use crate::format::floor_char_boundary;

/// How deep lists and mappings may be nested.
const DEEPEST: usize = 32;
/// How many values a file may hold once its aliases are followed.
const MOST_NODES: usize = 500_000;

/// A value and its place.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) span: Span,
    pub(crate) kind: Kind,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// `~`, `null`, or nothing at all.
    Nothing,
    Scalar(Scalar),
    List(Vec<Node>),
    Map(Vec<Entry>),
    /// It is wrong, and that has been said.
    Broken,
}

/// A text, a number, a yes or no: which of them is for the field to say.
#[derive(Clone, Debug)]
pub(crate) struct Scalar {
    pub(crate) text: String,
    /// The environment variables whose values are in it.
    pub(crate) variables: Vec<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// A text.
    pub(crate) key: Node,
    pub(crate) value: Node,
}

impl Entry {
    /// The field's name.
    pub(crate) fn name(&self) -> &str {
        match &self.key.kind {
            Kind::Scalar(scalar) => &scalar.text,
            Kind::Nothing | Kind::List(_) | Kind::Map(_) | Kind::Broken => "",
        }
    }
}

impl Node {
    /// What it is, in words.
    pub(crate) fn what(&self) -> &'static str {
        match &self.kind {
            Kind::Nothing => "nothing",
            Kind::Scalar(scalar) if scalar.text.parse::<u64>().is_ok() => "a number",
            Kind::Scalar(_) => "text",
            Kind::List(_) => "a list",
            Kind::Map(_) => "a mapping",
            Kind::Broken => "something wrong",
        }
    }
}

/// Reads a file's only document. None, if there is nothing to go on with; then a problem says so.
pub(crate) fn parse(sources: &Sources, file: u16, problems: &mut Vec<Problem>) -> Option<Node> {
    let text = &sources.get(file).text;
    let options = granit_parser::options! {
        emit_unresolved_aliases: true,
        flow_nesting_limit: DEEPEST,
        block_nesting_limit: DEEPEST,
    };
    let mut builder = Builder {
        file,
        text,
        stack: Vec::new(),
        root: None,
        anchors: HashMap::new(),
        nodes: 0,
        problems,
    };
    for next in Parser::new_from_str_with_options(text, options) {
        let outcome = match next {
            Ok((event, span)) => builder.event(event, &span),
            Err(error) => Err(builder.scan_error(&error)),
        };
        if let Err(problem) = outcome {
            diagnostic::note(builder.problems, problem);
            return None;
        }
    }
    match builder.root {
        Some(Node {
            kind: Kind::Nothing,
            ..
        })
        | None => {
            let problem = Problem::error(code::EMPTY, Span::start_of(file), "the file is empty");
            diagnostic::note(
                problems,
                problem.help("a rules file begins with `version: 1`"),
            );
            None
        }
        Some(root) => Some(root),
    }
}

struct Builder<'a> {
    file: u16,
    text: &'a str,
    stack: Vec<Frame>,
    root: Option<Node>,
    anchors: HashMap<usize, (Node, usize)>,
    nodes: usize,
    problems: &'a mut Vec<Problem>,
}

struct Frame {
    start: usize,
    anchor: usize,
    /// How many nodes there were when it began.
    nodes_before: usize,
    inside: Inside,
}

enum Inside {
    List(Vec<Node>),
    Map {
        entries: Vec<Entry>,
        seen: HashMap<String, Span>,
        /// The key whose value comes next; nothing if the key cannot be used.
        key: Option<Option<Node>>,
    },
}

impl Builder<'_> {
    fn event(&mut self, event: Event<'_>, at: &granit_parser::Span) -> Result<(), Problem> {
        let span = self.span(at);
        match event {
            Event::DocumentStart(..) if self.root.is_some() => {
                let problem = Problem::error(
                    code::SEVERAL_DOCUMENTS,
                    span,
                    "a second document begins here; a rules file is one",
                );
                Err(problem.help("remove the `---`, or put it into a file of its own"))
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.tag(tag.as_deref(), at);
                let nothing = matches!(style, ScalarStyle::Plain)
                    && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                let kind = if nothing {
                    Kind::Nothing
                } else {
                    Kind::Scalar(Scalar {
                        text: text.into_owned(),
                        variables: Vec::new(),
                    })
                };
                self.count(1, span)?;
                self.finish(Node { span, kind }, anchor, 1);
                Ok(())
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.tag(tag.as_deref(), at);
                self.open(Inside::List(Vec::new()), anchor, span)
            }
            Event::MappingStart(_, anchor, tag) => {
                self.tag(tag.as_deref(), at);
                let inside = Inside::Map {
                    entries: Vec::new(),
                    seen: HashMap::new(),
                    key: None,
                };
                self.open(inside, anchor, span)
            }
            Event::SequenceEnd | Event::MappingEnd => {
                self.close(at);
                Ok(())
            }
            Event::Alias(anchor) => {
                let Some((node, size)) = self.anchors.get(&anchor).cloned() else {
                    return Err(Problem::error(
                        code::YAML,
                        span,
                        "an alias inside of what it stands for",
                    ));
                };
                self.count(size, span)?;
                self.put(node);
                Ok(())
            }
            Event::UnresolvedAlias(name) => {
                let shown = quoted(&format!("*{name}"));
                let problem = Problem::error(
                    code::YAML,
                    span,
                    format!("{shown} is an alias, and nothing has that anchor"),
                );
                let hint = "text that begins with `*` needs quotes, such as '*.example.com'";
                diagnostic::note(self.problems, problem.help(hint));
                let kind = Kind::Broken;
                self.put(Node { span, kind });
                Ok(())
            }
            // Where documents begin and end, and whatever else is no value.
            _ => Ok(()),
        }
    }

    fn open(&mut self, inside: Inside, anchor: usize, span: Span) -> Result<(), Problem> {
        if self.stack.len() >= DEEPEST {
            let message = format!("nested deeper than {DEEPEST} lists and mappings");
            return Err(Problem::error(code::TOO_DEEP, span, message));
        }
        let frame = Frame {
            start: span.start as usize,
            anchor,
            nodes_before: self.nodes,
            inside,
        };
        self.count(1, span)?;
        self.stack.push(frame);
        Ok(())
    }

    fn close(&mut self, at: &granit_parser::Span) {
        let Some(frame) = self.stack.pop() else {
            return;
        };
        let end = at.end.byte_offset().unwrap_or(frame.start);
        // The first line of it is enough to point at.
        let text = self.text.get(frame.start..end).unwrap_or_default();
        let line = text.lines().next().unwrap_or_default().trim_end();
        let span = Span::new(self.file, frame.start..frame.start + line.len());
        let kind = match frame.inside {
            Inside::List(items) => Kind::List(items),
            Inside::Map { entries, .. } => Kind::Map(entries),
        };
        let size = self.nodes - frame.nodes_before;
        self.finish(Node { span, kind }, frame.anchor, size);
    }

    /// Puts a node where it belongs, and remembers it if it has an anchor.
    fn finish(&mut self, node: Node, anchor: usize, size: usize) {
        if anchor != 0 {
            self.anchors.insert(anchor, (node.clone(), size));
        }
        self.put(node);
    }

    fn put(&mut self, mut node: Node) {
        let Some(frame) = self.stack.last_mut() else {
            self.root = Some(node);
            return;
        };
        let (entries, seen, key) = match &mut frame.inside {
            Inside::List(items) => return items.push(node),
            Inside::Map { entries, seen, key } => (entries, seen, key),
        };
        match key.take() {
            // Its value goes the way of the key.
            Some(None) => {}
            Some(Some(key)) => {
                if matches!(node.kind, Kind::Nothing) {
                    // Nothing has no place of its own.
                    node.span = key.span;
                }
                entries.push(Entry { key, value: node });
            }
            None => {
                let usable = usable_key(&node, seen, self.problems);
                *key = Some(usable.then_some(node));
            }
        }
    }

    fn tag(&mut self, tag: Option<&Tag>, at: &granit_parser::Span) {
        if tag.is_some() {
            let span = at
                .tag_span()
                .map_or_else(|| self.span(at), |at| self.span(&at));
            let problem = Problem::error(code::YAML, span, "a tag has no meaning here");
            let hint = "text that begins with `!` needs quotes";
            diagnostic::note(self.problems, problem.help(hint));
        }
    }

    fn count(&mut self, more: usize, span: Span) -> Result<(), Problem> {
        self.nodes += more;
        if self.nodes <= MOST_NODES {
            return Ok(());
        }
        let message = format!("more than {MOST_NODES} values, aliases followed");
        let problem = Problem::error(code::TOO_MANY_ALIASES, span, message);
        Err(problem.help("an alias stands for a copy; copies of copies grow fast"))
    }

    fn span(&self, at: &granit_parser::Span) -> Span {
        let range = at.byte_range().unwrap_or(0..0);
        let end = range.end.min(self.text.len());
        Span::new(self.file, range.start.min(end)..end)
    }

    fn scan_error(&self, error: &ScanError) -> Problem {
        let at = error.marker().byte_offset().unwrap_or(0);
        let mut at = floor_char_boundary(self.text, at);
        if matches!(error.kind(), ErrorKind::TabInPlainScalar) {
            // It is told by where the text begins.
            at += self.text[at..].find('\t').unwrap_or(0);
        }
        let long = self.text[at..].chars().next().filter(|&c| c != '\n');
        let span = Span::new(self.file, at..at + long.map_or(0, char::len_utf8));
        if matches!(error.kind(), ErrorKind::RecursionLimitExceeded) {
            let message = format!("nested deeper than {DEEPEST} lists and mappings");
            return Problem::error(code::TOO_DEEP, span, message);
        }
        let problem = Problem::error(code::YAML, span, format!("not YAML: {}", error.info()));
        let line_start = self.text[..at].rfind('\n').map_or(0, |end| end + 1);
        let line = self.text[line_start..].lines().next().unwrap_or_default();
        let before = line.find("${").map_or("", |variable| &line[..variable]);
        let variable = before.contains(['[', '{']);
        let hint = match variable {
            true => Some("inside `[ ]` and `{ }` a variable needs quotes: [\"${NAME}\"]"),
            false => advice(error.kind()),
        };
        problem.maybe_help(hint.map(str::to_owned))
    }
}

/// Whether a key of a mapping is text and the only one of its kind; if not, that is said.
fn usable_key(node: &Node, seen: &mut HashMap<String, Span>, problems: &mut Vec<Problem>) -> bool {
    let span = node.span;
    let text = match &node.kind {
        Kind::Scalar(scalar) => &scalar.text,
        Kind::Broken => return false,
        Kind::Nothing | Kind::List(_) | Kind::Map(_) => {
            let problem = Problem::error(code::YAML, span, "a field's name has to be text");
            diagnostic::note(
                problems,
                problem.help("a value that begins with `{` or `[` needs quotes"),
            );
            return false;
        }
    };
    if text == "<<" {
        let problem = Problem::error(code::UNKNOWN_FIELD, span, "mappings are not merged by `<<`");
        diagnostic::note(
            problems,
            problem.help("an alias can stand for a whole value: `limits: *usual`"),
        );
        return false;
    }
    if let Some(&first) = seen.get(text) {
        let message = format!("the field {} is given twice", quoted(text));
        let problem = Problem::error(code::DUPLICATE_FIELD, span, message);
        diagnostic::note(
            problems,
            problem.label("again here").other(first, "first here"),
        );
        return false;
    }
    seen.insert(text.clone(), span);
    true
}

/// What usually helps.
fn advice(kind: &ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::TabNotAllowed
        | ErrorKind::TabInBlockIndentation
        | ErrorKind::TabInIndentation
        | ErrorKind::TabInPlainScalar
        | ErrorKind::TabAtBlockScalarStart => Some("indent with spaces; YAML forbids tabs there"),
        ErrorKind::UnexpectedCharacter { .. } => {
            Some("text that begins with such a character needs quotes")
        }
        ErrorKind::UnclosedFlowCollection { .. }
        | ErrorKind::UnexpectedEofFlowSequence
        | ErrorKind::UnexpectedEofFlowMapping
        | ErrorKind::UnexpectedEofImplicitFlowMapping
        | ErrorKind::ExpectedFlowMappingSeparator
        | ErrorKind::ExpectedFlowSequenceSeparator
        | ErrorKind::InvalidColonPlacement
        | ErrorKind::MismatchedFlowCollectionEnd { .. } => {
            Some("a comma or a closing `]` or `}` is missing before this")
        }
        ErrorKind::UnclosedQuotedScalar | ErrorKind::InvalidQuotedScalarIndent => {
            Some("the closing quote is missing, here or in a line before")
        }
        ErrorKind::MappingValueNotAllowed => Some(
            "fields of one mapping begin in the same column; text with `: ` in it needs quotes",
        ),
        ErrorKind::InvalidSimpleKey | ErrorKind::SimpleKeyExpected => {
            Some("`name: value` needs a `:` and a space; text with `: ` in it needs quotes")
        }
        ErrorKind::ExpectedBlockMappingKey
        | ErrorKind::ExpectedBlockSequenceEntry
        | ErrorKind::BlockSequenceEntryNotAllowed
        | ErrorKind::InvalidIndentation => {
            Some("fields of one mapping, and `-` of one list, begin in the same column")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (Option<Node>, Vec<&'static str>) {
        let mut sources = Sources::default();
        let file = sources.add("f", None, text.to_owned());
        let mut problems = Vec::new();
        let node = parse(&sources, file, &mut problems);
        (node, problems.iter().map(|problem| problem.code).collect())
    }

    #[test]
    fn a_bomb_of_aliases_is_refused_in_little_time() {
        let mut text = String::from("a: &a [x, x, x, x, x, x, x, x, x]\n");
        for (name, inner) in ["b", "c", "d", "e", "f", "g", "h"]
            .iter()
            .zip("abcdefg".chars())
        {
            let alias = format!("*{inner}, ").repeat(9);
            text += &format!("{name}: &{name} [{alias}]\n");
        }
        assert_eq!(parsed(&text).1, [code::TOO_MANY_ALIASES]);
    }

    #[test]
    fn an_alias_inside_its_own_anchor_is_refused() {
        assert_eq!(parsed("a: &a [*a]").1, [code::YAML]);
    }

    #[test]
    fn depth_is_bounded() {
        assert_eq!(parsed(&"[".repeat(100_000)).1, [code::TOO_DEEP]);
        assert_eq!(parsed(&"- ".repeat(100_000)).1, [code::TOO_DEEP]);
        assert_eq!(parsed(&"a: {".repeat(100)).1, [code::TOO_DEEP]);
    }

    #[test]
    fn every_duplicate_is_told_and_the_first_counts() {
        let (node, codes) = parsed("a: 1\nb: 2\na: 3\nb: 4\n");
        assert_eq!(codes, [code::DUPLICATE_FIELD, code::DUPLICATE_FIELD]);
        let Kind::Map(entries) = node.unwrap().kind else {
            panic!("not a mapping");
        };
        assert_eq!(entries.len(), 2);
    }

    #[test]
    fn nothing_at_all_is_an_empty_file() {
        for text in ["", "\n\n", "# only a comment\n", "---\n", "\u{feff}", "~"] {
            assert_eq!(parsed(text).1, [code::EMPTY], "{text:?}");
        }
    }
}
