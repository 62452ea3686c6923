//! Renders diagnostics for terminals, logs and JSON.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use miette::{
    GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteDiagnostic, MietteError,
    MietteSpanContents, SourceCode, SourceSpan, SpanContents, ThemeCharacters, ThemeStyles,
};
use serde::Serialize;

use super::diagnostic::{Diagnostic, Diagnostics, Severity};
use super::source::{Source, Sources, Span, ceil_char_boundary, floor_char_boundary};
use crate::error::debug_is_display;

const WIDTH: usize = 80;
const MAX_RENDERED: usize = 40;
/// The maximum number of bytes of a line that are shown before and after a span.
const MAX_LINE_BYTES: usize = 100;

/// The errors and warnings of a rules file.
#[derive(Clone, Default)]
pub struct Report {
    sources: Sources,
    diagnostics: Vec<Diagnostic>,
    /// What replaces `rules` in codes, for files of another kind.
    family: Option<&'static str>,
}

/// How a report is rendered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// ASCII.
    Plain,
    /// Unicode, for a terminal.
    Terminal {
        /// Whether to use colour.
        colour: bool,
    },
}

impl Report {
    pub(crate) fn new(sources: Sources, diagnostics: Diagnostics) -> Self {
        let mut diagnostics = diagnostics.into_vec();
        diagnostics.sort_by_key(|diagnostic| (diagnostic.span, diagnostic.severity));
        Report {
            sources,
            diagnostics,
            family: None,
        }
    }

    /// Names codes after another kind of file.
    #[cfg(feature = "simulate")]
    pub(crate) fn with_family(mut self, family: &'static str) -> Self {
        self.family = Some(family);
        self
    }

    fn code(&self, diagnostic: &Diagnostic) -> Cow<'static, str> {
        let (_, name) = diagnostic.code.split_once("::").unwrap_or_default();
        match self.family {
            Some(family) => format!("{family}::{name}").into(),
            None => diagnostic.code.into(),
        }
    }

    /// The number of errors.
    pub fn errors(&self) -> usize {
        self.count(Severity::Error)
    }

    /// The number of warnings.
    pub fn warnings(&self) -> usize {
        self.count(Severity::Warning)
    }

    fn count(&self, severity: Severity) -> usize {
        let same = |found: &&Diagnostic| found.severity == severity;
        self.diagnostics.iter().filter(same).count()
    }

    /// The code of each diagnostic, in the order of the files.
    pub fn codes(&self) -> impl Iterator<Item = &'static str> {
        self.diagnostics.iter().map(|diagnostic| diagnostic.code)
    }

    /// Renders all diagnostics with the lines they refer to.
    pub fn render(&self, style: Style) -> String {
        let theme = match style {
            Style::Plain => GraphicalTheme::none(),
            Style::Terminal { colour: false } => GraphicalTheme::unicode_nocolor(),
            Style::Terminal { colour: true } => GraphicalTheme {
                characters: ThemeCharacters::unicode(),
                styles: ThemeStyles::ansi(),
            },
        };
        let handler = GraphicalReportHandler::new_themed(theme)
            .with_width(WIDTH)
            .with_links(false)
            // Requests whole lines from `Snippet`.
            .with_context_lines(1);
        let mut text = String::new();
        for diagnostic in self.diagnostics.iter().take(MAX_RENDERED) {
            if !text.is_empty() {
                text.push('\n');
            }
            let mut page = String::new();
            handler
                .render_report(&mut page, self.for_miette(diagnostic).as_ref())
                .expect("writing to a String cannot fail");
            for line in page.lines() {
                text.push_str(line.trim_end());
                text.push('\n');
            }
        }
        if self.diagnostics.len() > MAX_RENDERED {
            let more = self.diagnostics.len() - MAX_RENDERED;
            text += &format!("\nand {more} more\n");
        }
        text
    }

    fn for_miette(&self, diagnostic: &Diagnostic) -> miette::Report {
        let span = diagnostic.span;
        let source = self.sources.get(span.file);
        let label = diagnostic.label.map(str::to_owned);
        let primary = LabeledSpan::new_primary_with_span(label, underline(source, span));
        let mut labels = vec![primary];
        let mut help = Vec::from_iter(diagnostic.help.clone());
        match diagnostic.related.as_deref() {
            Some((other, label)) if other.file == span.file => {
                let label = Some(label.clone());
                labels.push(LabeledSpan::new_with_span(label, underline(source, *other)));
            }
            Some((other, label)) => {
                help.push(format!("{label}: {}", self.sources.location(*other)));
            }
            None => {}
        }
        let report = miette::Report::new(MietteDiagnostic {
            code: Some(self.code(diagnostic).into_owned()),
            severity: Some(match diagnostic.severity {
                Severity::Error => miette::Severity::Error,
                Severity::Warning => miette::Severity::Warning,
            }),
            help: (!help.is_empty()).then(|| help.join("\n")),
            labels: Some(labels),
            ..MietteDiagnostic::new(&diagnostic.message)
        });
        // A file that could not be read has no text.
        match source.text.is_empty() {
            true => report,
            false => report.with_source_code(Snippet(Arc::clone(source))),
        }
    }

    /// All diagnostics, to be serialized as JSON.
    pub fn to_json(&self) -> Vec<DiagnosticJson<'_>> {
        let json = |diagnostic: &'_ Diagnostic| {
            let (line, column) = self.sources.line_and_column(diagnostic.span);
            DiagnosticJson {
                severity: diagnostic.severity,
                code: self.code(diagnostic),
                message: diagnostic.message.clone(),
                file: &self.sources.get(diagnostic.span.file).name,
                line,
                column,
                help: diagnostic.help.clone(),
            }
        };
        self.diagnostics.iter().map(json).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.render(Style::Plain).trim_end())
    }
}

debug_is_display!(Report);

impl std::error::Error for Report {}

/// A diagnostic, to be serialized as JSON.
#[derive(Debug, Serialize)]
pub struct DiagnosticJson<'a> {
    severity: Severity,
    code: Cow<'static, str>,
    message: String,
    file: &'a str,
    line: usize,
    column: usize,
    help: Option<String>,
}

/// The part of a span to underline: the start of its first line.
fn underline(source: &Source, span: Span) -> SourceSpan {
    let range = span.range();
    let text = source.sanitized.get(range.clone()).unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let length = floor_char_boundary(line, line.len().min(MAX_LINE_BYTES));
    (range.start, length).into()
}

/// A source that shows only the lines of a span, truncated: lines nearby may hold secrets.
struct Snippet(Arc<Source>);

impl SourceCode for Snippet {
    fn read_span<'a>(
        &'a self,
        span: &SourceSpan,
        lines_before: usize,
        _: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let text = &self.0.sanitized;
        let start = floor_char_boundary(text, span.offset().min(text.len()));
        let end = ceil_char_boundary(text, (span.offset() + span.len()).min(text.len()));
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = text[end..].find('\n').map_or(text.len(), |at| end + at);
        // Without context lines, miette requests the span itself.
        let from = match lines_before {
            0 => start,
            _ => start.saturating_sub(MAX_LINE_BYTES).max(line_start),
        };
        let from = ceil_char_boundary(text, from);
        let to = floor_char_boundary(text, line_end.min(end + MAX_LINE_BYTES));
        let data = &text[from..to.max(end)];
        Ok(Box::new(MietteSpanContents::new_named(
            self.0.name.clone(),
            data.as_bytes(),
            (from, data.len()).into(),
            text[..line_start].matches('\n').count(),
            text[line_start..from].chars().count(),
            data.matches('\n').count() + 1,
        )))
    }
}
