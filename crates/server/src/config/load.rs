//! From a file, and those it includes, to rules. Knows the file system; leaves what is in the files
//! to others.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::deserialize::{Meant, Notes, Reader};
use super::diagnostic::{self, Problem, Severity, code};
use super::env::{self, Environment};
use super::field::At;
use super::report::Report;
use super::source::{Sources, Span};
use super::validate::{self, GatewaySetting, StoreSetting};
use super::{lint, schema, yaml};
use tallygate::rules::RuleSet;

/// How deep files may include one another.
const DEEPEST: usize = 8;
/// The most files.
const MOST_FILES: usize = 256;

/// What a rules file says.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The rules.
    pub rules: RuleSet,
    /// Where the counters are kept.
    pub store: StoreSetting,
    /// The gateway, if there is to be one.
    pub gateway: Option<GatewaySetting>,
    /// What is questionable.
    pub warnings: Report,
    /// The files that were read, the main one first: what to watch for changes.
    pub files: Vec<PathBuf>,
}

/// Reads a rules file, and those it includes.
///
/// # Errors
/// Everything that is wrong with them, if anything is.
pub fn load(path: &Path) -> Result<Loaded, Report> {
    load_with(path, &|name| std::env::var(name).ok())
}

/// Reads a rules file, and those it includes, in an environment other than the process's own.
///
/// # Errors
/// Everything that is wrong with them, if anything is.
pub fn load_with(
    path: &Path,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Loaded, Report> {
    let name = path.display().to_string();
    let mut loader = Loader::new(environment);
    let file = loader.sources.read(&name, path);
    loader.load(file)
}

/// Reads rules from bytes that are called `name`. They cannot include files.
///
/// # Errors
/// Everything that is wrong with them, if anything is.
pub fn load_text(
    name: &str,
    bytes: &[u8],
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Loaded, Report> {
    let mut loader = Loader::new(environment);
    let file = loader.sources.take(name, None, bytes.to_vec());
    loader.load(file)
}

struct Loader<'e> {
    environment: Environment<'e>,
    sources: Sources,
    problems: Vec<Problem>,
    files: Vec<schema::File>,
    /// Fields that were probably meant where unknown ones are.
    meant: Vec<Meant>,
    /// The file that is read and those that include it, from the main one.
    open: Vec<PathBuf>,
    /// Every file that was read, in one form whatever way led there.
    seen: Vec<PathBuf>,
}

impl<'e> Loader<'e> {
    fn new(environment: Environment<'e>) -> Self {
        Loader {
            environment,
            sources: Sources::default(),
            problems: Vec::new(),
            files: Vec::new(),
            meant: Vec::new(),
            open: Vec::new(),
            seen: Vec::new(),
        }
    }

    fn load(mut self, file: Result<u16, Problem>) -> Result<Loaded, Report> {
        match file {
            Ok(file) => {
                let path = self.sources.get(file).path.clone();
                let path = path.map(|path| path.canonicalize().unwrap_or(path));
                self.open.extend(path.clone());
                self.seen.extend(path);
                self.file(file);
            }
            Err(problem) => self.problems.push(problem),
        }
        let checked = validate::check(&self.files, &self.sources, &self.meant, &mut self.problems);
        let wrong = |problem: &Problem| problem.severity == Severity::Error;
        if !self.problems.iter().any(wrong) {
            self.problems.extend(checked.faults());
        }
        if !self.problems.iter().any(wrong) {
            lint::lint(&checked, &mut self.problems);
        }
        let failed = self.problems.iter().any(wrong);
        let files = (0..self.sources.len())
            .filter_map(|file| u16::try_from(file).ok())
            .filter_map(|file| self.sources.get(file).path.clone())
            .collect();
        let report = Report::new(self.sources, self.problems);
        if failed {
            return Err(report);
        }
        Ok(Loaded {
            rules: checked.set,
            store: checked.store,
            gateway: checked.gateway,
            warnings: report,
            files,
        })
    }

    /// Reads one file, then those it includes.
    fn file(&mut self, file: u16) {
        let Some(mut root) = yaml::parse(&self.sources, file, &mut self.problems) else {
            return;
        };
        env::replace(
            &mut root,
            &self.sources,
            self.environment,
            &mut self.problems,
        );
        let notes = Notes::default();
        let raw = schema::File::deserialize(Reader::new(&root, &notes));
        for problem in notes.problems.take() {
            diagnostic::note(&mut self.problems, problem);
        }
        self.sources.hide(file, &notes.secrets.borrow());
        self.meant.append(&mut notes.meant.borrow_mut());
        // What stopped it has been noted.
        let Ok(raw) = raw else { return };
        let include = raw.include.as_ref().and_then(At::get);
        let patterns: Vec<_> = include
            .map_or(&[][..], |list| &list.0)
            .iter()
            .filter_map(|at| Some((at.span, at.get()?.clone())))
            .collect();
        self.files.push(raw);
        for (span, pattern) in patterns {
            if !pattern.is_public() {
                let message = "`include` takes no variables";
                let problem = Problem::error(code::VARIABLE, span, message);
                self.problems
                    .push(problem.help("which files are read should be plain to see"));
                continue;
            }
            self.include(span, &pattern.text);
        }
    }

    fn include(&mut self, span: Span, pattern: &str) {
        let Some(path) = &self.sources.get(span.file).path else {
            let message = "only a file can include files";
            return self.problem(Problem::error(code::INCLUDE, span, message));
        };
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        if self.open.len() >= DEEPEST {
            let message = format!("files include one another deeper than {DEEPEST}");
            return self.problem(Problem::error(code::INCLUDE, span, message));
        }
        for path in self.matching(span, &folder, pattern) {
            self.include_one(span, &path);
        }
    }

    /// The files that a pattern means, in the order of their names.
    fn matching(&mut self, span: Span, folder: &Path, pattern: &str) -> Vec<PathBuf> {
        if !pattern.contains(['*', '?', '[']) {
            return vec![folder.join(pattern)];
        }
        if pattern.contains("**") {
            let message = "`**` would walk through every folder below";
            let problem = Problem::error(code::INCLUDE, span, message);
            self.problem(problem.help("name the folders: `[a/*.yaml, b/*.yaml]`"));
            return Vec::new();
        }
        // The folder's own name may hold what would mean something in a pattern.
        let escaped = PathBuf::from(glob::Pattern::escape(&folder.to_string_lossy()));
        let whole = escaped.join(pattern);
        let found = match glob::glob(&whole.to_string_lossy()) {
            Ok(paths) => paths,
            Err(error) => {
                let message = format!("not a pattern of files: {}", error.msg);
                self.problem(Problem::error(code::INCLUDE, span, message));
                return Vec::new();
            }
        };
        let mut paths: Vec<PathBuf> = found
            .filter_map(Result::ok)
            .filter(|path| path.is_file())
            .take(MOST_FILES + 1)
            .collect();
        paths.sort();
        if paths.is_empty() {
            let problem = Problem::warning(lint::INCLUDES_NOTHING, span, "no file is called so");
            self.problem(problem.help("names are taken from the folder of this file"));
        }
        paths
    }

    fn include_one(&mut self, span: Span, path: &Path) {
        let name = path.display().to_string();
        if self.files.len() >= MOST_FILES {
            let message = format!("more than {MOST_FILES} files");
            return self.problem(Problem::error(code::INCLUDE, span, message));
        }
        let one = match path.canonicalize() {
            Ok(one) if one.is_file() => one,
            Ok(_) | Err(_) => {
                let message = format!("there is no file {name}");
                let problem = Problem::error(code::INCLUDE, span, message);
                let hint = "names are taken from the folder of this file";
                return self.problem(problem.help(hint));
            }
        };
        if self.open.contains(&one) {
            let message = format!("{name} includes this file, or is this file");
            return self.problem(Problem::error(code::INCLUDE, span, message));
        }
        if self.seen.contains(&one) {
            let message = format!("{name} is included twice");
            return self.problem(Problem::error(code::INCLUDE, span, message));
        }
        self.seen.push(one.clone());
        match self.sources.read(&name, path) {
            Ok(file) => {
                self.open.push(one);
                self.file(file);
                self.open.pop();
            }
            Err(problem) => self.problem(problem),
        }
    }

    fn problem(&mut self, problem: Problem) {
        self.problems.push(problem);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The files of a document: every block of YAML, made whole where it shows only a part.
    pub(in crate::config) fn blocks(markdown: &str) -> Vec<String> {
        let mut blocks = Vec::new();
        let mut rest = markdown;
        while let Some(start) = rest.find("```yaml\n") {
            let inside = &rest[start + "```yaml\n".len()..];
            let end = inside.find("```").unwrap();
            let block = &inside[..end];
            let indented = block.replace('\n', "\n  ");
            blocks.push(if block.contains("version:") {
                block.to_owned()
            } else if block.starts_with("- name:") {
                format!("version: 1\nrules:\n  {indented}\n")
            } else {
                format!("version: 1\n{block}")
            });
            rest = &inside[end..];
        }
        blocks
    }

    #[test]
    fn every_documented_file_loads_without_a_warning() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/rules.md");
        let blocks = blocks(&std::fs::read_to_string(docs).unwrap());
        assert!(blocks.len() >= 18, "{}", blocks.len());
        for block in blocks {
            // Files to include are not there.
            let block = block.replace("include:", "# include:");
            let loaded = load_text("docs/rules.md", block.as_bytes(), &|_| None);
            let loaded = loaded.unwrap_or_else(|report| panic!("{report}\n{block}"));
            // A part of a file need not have rules.
            let mut codes = loaded.warnings.codes();
            let fine = codes.all(|code| code == "rules::no-rules");
            assert!(fine, "{}\n{block}", loaded.warnings);
        }
    }
}
