//! Loads a rules file and the files it includes.

use std::path::{Path, PathBuf};

use crate::rules::RuleSet;

use super::deserialize::{Context, Field, FromNode};
use super::diagnostic::code;
use super::env::{self, Environment};
use super::report::Report;
use super::schema::OptionalList;
use super::source::{Sources, Span};
use super::validate::{self, GatewayConfig, StoreConfig};
use super::{lint, schema, yaml};

const MAX_INCLUDE_DEPTH: usize = 8;
const MAX_FILES: usize = 256;
const RELATIVE: &str = "paths are relative to the directory of this file";

/// A loaded rules file.
#[derive(Clone, Debug)]
pub struct Config {
    /// The rules.
    pub rules: RuleSet,
    /// The store of the counters.
    pub store: StoreConfig,
    /// The gateway, if the file has one.
    pub gateway: Option<GatewayConfig>,
    /// Warnings.
    pub warnings: Report,
    /// The files that were read, the main file first.
    pub files: Vec<PathBuf>,
}

/// Loads a rules file and the files it includes.
///
/// # Errors
/// All errors of the files.
pub fn load(path: &Path) -> Result<Config, Report> {
    load_with_env(path, &|name| std::env::var(name).ok())
}

/// Loads a rules file and the files it includes, with other environment variables.
///
/// # Errors
/// All errors of the files.
pub fn load_with_env(
    path: &Path,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Config, Report> {
    let mut loader = Loader::new(environment);
    let name = path.display().to_string();
    let diagnostics = &mut loader.context.diagnostics;
    let file = loader.sources.read(&name, path, diagnostics);
    loader.load(file)
}

/// Loads rules from bytes. They cannot include files.
///
/// # Errors
/// All errors of the rules.
pub fn load_bytes(
    name: &str,
    bytes: &[u8],
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Config, Report> {
    let mut loader = Loader::new(environment);
    let diagnostics = &mut loader.context.diagnostics;
    let file = loader
        .sources
        .add_bytes(name, None, bytes.to_vec(), diagnostics);
    loader.load(file)
}

struct Loader<'e> {
    environment: Environment<'e>,
    sources: Sources,
    context: Context,
    files: Vec<schema::RulesFile>,
    /// The canonical paths of the current file and the files that include it.
    stack: Vec<PathBuf>,
    /// The canonical paths of all files.
    seen: Vec<PathBuf>,
}

impl<'e> Loader<'e> {
    fn new(environment: Environment<'e>) -> Self {
        Loader {
            environment,
            sources: Sources::default(),
            context: Context::default(),
            files: Vec::new(),
            stack: Vec::new(),
            seen: Vec::new(),
        }
    }

    fn load(mut self, file: Option<u16>) -> Result<Config, Report> {
        if let Some(file) = file {
            let path = self.sources.get(file).path.clone();
            let path = path.map(|path| path.canonicalize().unwrap_or(path));
            self.stack.extend(path.clone());
            self.seen.extend(path);
            self.file(file);
        }
        let (mut diagnostics, suggestions) = (self.context.diagnostics, self.context.suggestions);
        let (files, sources) = (&self.files, &self.sources);
        let config = validate::validate(files, sources, &suggestions, &mut diagnostics);
        if !diagnostics.has_errors() {
            config.report_faults(&mut diagnostics);
        }
        let failed = diagnostics.has_errors();
        if !failed {
            lint::lint(&config, &mut diagnostics);
        }
        let files = self.sources.iter().filter_map(|source| source.path.clone());
        let files = files.collect();
        let report = Report::new(self.sources, diagnostics);
        if failed {
            return Err(report);
        }
        Ok(Config {
            rules: config.set,
            store: config.store,
            gateway: config.gateway,
            warnings: report,
            files,
        })
    }

    /// Reads a file and the files it includes.
    fn file(&mut self, file: u16) {
        let diagnostics = &mut self.context.diagnostics;
        let Some(mut root) = yaml::parse(&self.sources, file, diagnostics) else {
            return;
        };
        env::expand(&mut root, &self.sources, self.environment, diagnostics);
        let parsed = schema::RulesFile::from_node(Field::new(&root), &mut self.context);
        let secrets = std::mem::take(&mut self.context.secrets);
        self.sources.redact(file, &secrets);
        let Some(parsed) = parsed else { return };
        let include = parsed.include.items().to_vec();
        self.files.push(parsed);
        for pattern in include {
            let span = pattern.span;
            match pattern.value {
                None => {}
                Some(pattern) if pattern.is_literal() => self.include(span, &pattern.text),
                Some(_) => {
                    let message = "`include` must not contain variables";
                    self.context
                        .diagnostics
                        .error(code::VARIABLE, span, message)
                        .help("write the names of the files");
                }
            }
        }
    }

    fn include(&mut self, span: Span, pattern: &str) {
        let Some(path) = &self.sources.get(span.file).path else {
            return self.include_error(span, "only a file can include files", None);
        };
        let directory = path.parent().unwrap_or(Path::new("")).to_owned();
        if self.stack.len() >= MAX_INCLUDE_DEPTH {
            let message = format!("files are included deeper than {MAX_INCLUDE_DEPTH} levels");
            return self.include_error(span, message, None);
        }
        for path in self.matching_files(span, &directory, pattern) {
            self.include_file(span, &path);
        }
    }

    /// The files that match a pattern, sorted by name.
    fn matching_files(&mut self, span: Span, directory: &Path, pattern: &str) -> Vec<PathBuf> {
        if !pattern.contains(['*', '?', '[']) {
            return vec![directory.join(pattern)];
        }
        if pattern.contains("**") {
            let help = "list the directories: `[a/*.yaml, b/*.yaml]`";
            self.include_error(span, "`**` is not supported", Some(help));
            return Vec::new();
        }
        let escaped = PathBuf::from(glob::Pattern::escape(&directory.to_string_lossy()));
        let found = match glob::glob(&escaped.join(pattern).to_string_lossy()) {
            Ok(paths) => paths,
            Err(error) => {
                let message = format!("invalid file pattern: {}", error.msg);
                self.include_error(span, message, None);
                return Vec::new();
            }
        };
        let mut paths: Vec<PathBuf> = found
            .filter_map(Result::ok)
            .filter(|path| path.is_file())
            .take(MAX_FILES + 1)
            .collect();
        paths.sort();
        if paths.is_empty() {
            self.context
                .diagnostics
                .warning("rules::includes-nothing", span, "no file matches")
                .help(RELATIVE);
        }
        paths
    }

    fn include_file(&mut self, span: Span, path: &Path) {
        let name = path.display().to_string();
        if self.files.len() >= MAX_FILES {
            return self.include_error(span, format!("more than {MAX_FILES} files"), None);
        }
        let canonical = match path.canonicalize() {
            Ok(canonical) if canonical.is_file() => canonical,
            Ok(_) | Err(_) => {
                return self.include_error(span, format!("no such file: {name}"), Some(RELATIVE));
            }
        };
        if self.stack.contains(&canonical) {
            return self.include_error(span, format!("{name} includes itself"), None);
        }
        if self.seen.contains(&canonical) {
            return self.include_error(span, format!("{name} is included twice"), None);
        }
        self.seen.push(canonical.clone());
        if let Some(file) = self
            .sources
            .read(&name, path, &mut self.context.diagnostics)
        {
            self.stack.push(canonical);
            self.file(file);
            self.stack.pop();
        }
    }

    fn include_error(&mut self, span: Span, message: impl Into<String>, help: Option<&str>) {
        self.context
            .diagnostics
            .error(code::INCLUDE, span, message)
            .maybe_help(help.map(str::to_owned));
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The YAML blocks of a document, completed to whole files.
    pub(in crate::config) fn blocks(markdown: &str) -> Vec<String> {
        let blocks = markdown.split("```yaml\n").skip(1);
        let complete = |rest: &str| {
            let block = rest.split("```").next().unwrap();
            if block.contains("version:") {
                block.to_owned()
            } else if block.starts_with("- name:") {
                format!("version: 1\nrules:\n  {}\n", block.replace('\n', "\n  "))
            } else {
                format!("version: 1\n{block}")
            }
        };
        blocks.map(complete).collect()
    }

    #[test]
    fn documented_examples_load_without_warnings() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/rules.md");
        let blocks = blocks(&std::fs::read_to_string(docs).unwrap());
        assert!(blocks.len() >= 18, "{}", blocks.len());
        // The other variables of the examples have defaults.
        let secret = "0123456789abcdef0123456789abcdef";
        let variable = |name: &str| (name == "TALLYGATE_HMAC_SECRET").then(|| secret.to_owned());
        for block in blocks {
            // The included files do not exist.
            let block = block.replace("include:", "# include:");
            let config = load_bytes("docs/rules.md", block.as_bytes(), &variable);
            let config = config.unwrap_or_else(|report| panic!("{report}\n{block}"));
            // An excerpt may have no rules.
            let mut codes = config.warnings.codes();
            let none = codes.all(|code| code == "rules::no-rules");
            assert!(none, "{}\n{block}", config.warnings);
        }
    }
}
