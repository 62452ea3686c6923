//! How problems are shown: with their places on a terminal or in a log, or as JSON. Knows nothing
//! of what they mean.

use std::fmt;

use miette::{
    Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteError,
    MietteSpanContents, SourceCode, SourceSpan, SpanContents, ThemeCharacters, ThemeStyles,
};
use serde::Serialize;

use super::diagnostic::{Problem, Severity};
use super::source::{Source, Sources, Span};
use crate::format::{ceil_char_boundary, floor_char_boundary};

/// How wide a report is.
const WIDTH: usize = 80;
/// The most problems that are shown; who has more will come back anyway.
const MOST_SHOWN: usize = 40;
/// The most of a line that is shown on either side of a place.
const MOST_OF_A_LINE: usize = 100;

/// Everything that is wrong with, or questionable about, some rules.
#[derive(Clone, Debug, Default)]
pub struct Report {
    sources: Sources,
    problems: Vec<Problem>,
}

/// What a report is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Anything: plain ASCII frames.
    Plain,
    /// A terminal.
    Terminal {
        /// Whether in colour.
        colour: bool,
    },
}

impl Report {
    /// Puts a report together, in the order of the files.
    pub(crate) fn new(sources: Sources, mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| (problem.span, problem.severity));
        Report { sources, problems }
    }

    /// How many errors there are.
    pub fn errors(&self) -> usize {
        self.count(Severity::Error)
    }

    /// How many warnings there are.
    pub fn warnings(&self) -> usize {
        self.count(Severity::Warning)
    }

    fn count(&self, severity: Severity) -> usize {
        let alike = |problem: &&Problem| problem.severity == severity;
        self.problems.iter().filter(alike).count()
    }

    /// The code of each problem, in the order of the files.
    pub fn codes(&self) -> impl Iterator<Item = &'static str> {
        self.problems.iter().map(|problem| problem.code)
    }

    /// Every problem in its place, below one another.
    pub fn text(&self, style: Style) -> String {
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
            // Asks for the whole line; see `Snippet`.
            .with_context_lines(1);
        let mut text = String::new();
        for problem in self.problems.iter().take(MOST_SHOWN) {
            let shown = Shown {
                problem,
                snippet: Snippet {
                    source: self.sources.get(problem.span.file),
                },
                other: self.elsewhere(problem),
            };
            if !text.is_empty() {
                text.push('\n');
            }
            let mut page = String::new();
            handler
                .render_report(&mut page, &shown)
                .expect("a text takes what is written to it");
            for line in page.lines() {
                text.push_str(line.trim_end());
                text.push('\n');
            }
        }
        if self.problems.len() > MOST_SHOWN {
            let more = self.problems.len() - MOST_SHOWN;
            text += &format!("\nand {more} more\n");
        }
        text
    }

    /// Where else to look, if that is in another file.
    fn elsewhere(&self, problem: &Problem) -> Option<String> {
        let (span, what) = problem.other.as_deref()?;
        let far = span.file != problem.span.file;
        far.then(|| format!("{what}: {}", self.sources.place(*span)))
    }

    /// Every problem as JSON would have it.
    pub(crate) fn json(&self) -> Vec<ProblemJson<'_>> {
        let json = |problem| ProblemJson::of(&self.sources, problem);
        self.problems.iter().map(json).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text(Style::Plain).trim_end())
    }
}

impl std::error::Error for Report {}

/// A problem as JSON has it.
#[derive(Serialize)]
pub(crate) struct ProblemJson<'a> {
    severity: &'static str,
    code: &'static str,
    message: &'a str,
    file: &'a str,
    line: usize,
    column: usize,
    help: Option<&'a str>,
}

impl<'a> ProblemJson<'a> {
    fn of(sources: &'a Sources, problem: &'a Problem) -> Self {
        let (line, column) = sources.line_and_column(problem.span);
        ProblemJson {
            severity: problem.severity.word(),
            code: problem.code,
            message: &problem.message,
            file: &sources.get(problem.span.file).name,
            line,
            column,
            help: problem.help.as_deref(),
        }
    }
}

/// A problem as miette wants it.
struct Shown<'a> {
    problem: &'a Problem,
    snippet: Snippet<'a>,
    other: Option<String>,
}

impl fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.problem.fmt(f)
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem.message)
    }
}

impl std::error::Error for Shown<'_> {}

impl Diagnostic for Shown<'_> {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(self.problem.code))
    }

    fn severity(&self) -> Option<miette::Severity> {
        Some(match self.problem.severity {
            Severity::Error => miette::Severity::Error,
            Severity::Warning => miette::Severity::Warning,
        })
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        let parts = [self.problem.help.as_deref(), self.other.as_deref()];
        let help: Vec<&str> = parts.into_iter().flatten().collect();
        (!help.is_empty()).then(|| Box::new(help.join("\n")) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        // A file that could not be read has nothing to show.
        (!self.snippet.source.text.is_empty()).then_some(&self.snippet)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let problem = self.problem;
        let main =
            LabeledSpan::new_primary_with_span(problem.label.clone(), self.marks(problem.span));
        let other = problem.other.as_deref();
        let near = other.filter(|(span, _)| span.file == problem.span.file);
        let near = near
            .map(|(span, what)| LabeledSpan::new_with_span(Some(what.clone()), self.marks(*span)));
        Some(Box::new([Some(main), near].into_iter().flatten()))
    }
}

impl Shown<'_> {
    /// What to mark of a place: the beginning, if it is long.
    fn marks(&self, span: Span) -> SourceSpan {
        let range = span.range();
        let text = self.snippet.source.shown();
        let place = text.get(range.clone()).unwrap_or_default();
        let line = place.lines().next().unwrap_or_default();
        let long = floor_char_boundary(line, line.len().min(MOST_OF_A_LINE));
        (range.start, long).into()
    }
}

/// A text as miette wants it: the lines of a place, long ones cut, and no others. What stands beside
/// a mistake may be nobody's business, such as an API key.
struct Snippet<'a> {
    source: &'a Source,
}

impl fmt::Debug for Snippet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source.name)
    }
}

impl SourceCode for Snippet<'_> {
    fn read_span<'a>(
        &'a self,
        span: &SourceSpan,
        lines_before: usize,
        _: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let text = self.source.shown();
        let start = floor_char_boundary(text, span.offset().min(text.len()));
        let end = ceil_char_boundary(text, (span.offset() + span.len()).min(text.len()));
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = text[end..].find('\n').map_or(text.len(), |at| end + at);
        // Asked without lines around it, it is the place itself that is meant.
        let far = match lines_before {
            0 => start,
            _ => start.saturating_sub(MOST_OF_A_LINE).max(line_start),
        };
        let from = ceil_char_boundary(text, far);
        let to = floor_char_boundary(text, line_end.min(end + MOST_OF_A_LINE));
        let data = &text[from..to.max(end)];
        let line = text[..line_start].matches('\n').count();
        let column = text[line_start..from].chars().count();
        let lines = data.matches('\n').count() + 1;
        let place = (from, data.len()).into();
        Ok(Box::new(MietteSpanContents::new_named(
            self.source.name.clone(),
            data.as_bytes(),
            place,
            line,
            column,
            lines,
        )))
    }
}
