//! Loads a scenario of `tallygate simulate`.

use std::path::Path;

use super::deserialize::{Context, Field, FromNode};
use super::report::Report;
use super::schema::scenario::ScenarioFile;
use super::source::Sources;
use super::{validate, yaml};
use crate::simulation::Scenario;

/// What a file of this kind starts with, and what its errors are named after.
const FIRST_LINE: &str = "a scenario has at least `limits: 100/s` and `traffic: 1000/s`";
const FAMILY: &str = "scenario";

pub(crate) fn load_scenario(path: &Path) -> Result<Scenario, Report> {
    let (mut sources, mut context) = start();
    let name = path.display().to_string();
    let file = sources.read(&name, path, &mut context.diagnostics);
    finish(sources, context, file)
}

pub(crate) fn load_scenario_bytes(name: &str, bytes: &[u8]) -> Result<Scenario, Report> {
    let (mut sources, mut context) = start();
    let bytes = bytes.to_vec();
    let file = sources.add_bytes(name, None, bytes, &mut context.diagnostics);
    finish(sources, context, file)
}

fn start() -> (Sources, Context) {
    let mut context = Context::default();
    context.diagnostics.first_line = FIRST_LINE;
    (Sources::default(), context)
}

fn finish(sources: Sources, mut context: Context, file: Option<u16>) -> Result<Scenario, Report> {
    let root = file.and_then(|file| yaml::parse(&sources, file, &mut context.diagnostics));
    let parsed = root.and_then(|root| ScenarioFile::from_node(Field::new(&root), &mut context));
    let Context {
        mut diagnostics,
        suggestions,
        ..
    } = context;
    let scenario = parsed.and_then(|parsed| {
        validate::validate_scenario(&parsed, &sources, &suggestions, &mut diagnostics)
    });
    scenario.ok_or_else(|| Report::new(sources, diagnostics).with_family(FAMILY))
}
