//! `tallygate simulate`: what a fleet of processes over shared servers would decide.

// For display only.
#![allow(clippy::float_arithmetic)]

mod html;
mod json;
mod plot;

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use tallygate::simulation::{Bound, BoundError, Results, Scenario, simulate};

use super::config;
use crate::cli::SimulateArgs;
use crate::error::Failure;
use crate::format::{count, duration, plural, write_json};

/// The characters of a full progress bar.
const BAR: usize = 40;

pub(crate) fn run(args: &SimulateArgs, out: &mut impl Write) -> Result<(), Failure> {
    let mut scenario = load(&args.file)?;
    if let Some(seed) = args.seed {
        scenario = scenario.with_seed(seed);
    }
    for text in &args.bounds {
        let bound = text.trim().parse::<Bound>();
        let added = bound.and_then(|bound| scenario.with_bound(bound));
        scenario = added.map_err(bad_bound)?;
    }
    let results = {
        let mut bar = Progress::new();
        simulate(&scenario, |done| bar.show(done))
    };
    if let Some(path) = &args.html {
        let source = fs::read_to_string(&args.file).unwrap_or_default();
        write_file(path, &html::page(&scenario, &results, &source))?;
    }
    if let Some(path) = &args.svg {
        write_file(path, &plot::picture(&scenario, &results))?;
    }
    match args.json {
        true => write_json(&json::results(&results), out)?,
        false => write_text(&scenario, &results, out)?,
    }
    match results.bounds.iter().all(|bound| bound.holds) {
        true => Ok(()),
        false => Err(Failure::CheckFailed),
    }
}

fn load(path: &Path) -> Result<Scenario, Failure> {
    Scenario::load(path).map_err(|report| {
        let text = report.render(config::style(&io::stderr()));
        Failure::Input(format!(
            "cannot use {}: {}\n\n{}",
            path.display(),
            plural(report.errors(), "error"),
            text.trim_end()
        ))
    })
}

fn bad_bound(error: BoundError) -> Failure {
    Failure::Input(format!("bad bound: {error}"))
}

fn write_file(path: &Path, text: &str) -> Result<(), Failure> {
    let written = fs::write(path, text);
    written.map_err(|error| Failure::Outside(format!("cannot write {}: {error}", path.display())))
}

/// A progress bar on standard error, if that is a terminal. Removed when dropped.
struct Progress {
    shown: bool,
}

impl Progress {
    fn new() -> Self {
        Progress {
            shown: io::stderr().is_terminal(),
        }
    }

    fn show(&mut self, done: f64) {
        if !self.shown {
            return;
        }
        let full = (done * BAR as f64) as usize;
        let (full, rest) = ("#".repeat(full), ".".repeat(BAR.saturating_sub(full)));
        let line = format!("\r[{full}{rest}] {:>3.0} %", done * 100.0);
        // Without a reader there is nothing to show.
        self.shown = io::stderr().lock().write_all(line.as_bytes()).is_ok();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = io::stderr().lock().write_all(b"\r\x1b[K");
        }
    }
}

/// The share of a whole in percent.
fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => "0 %".to_owned(),
        whole => format!("{:.1} %", 100.0 * part as f64 / whole as f64),
    }
}

/// How many times as many.
fn times(found: u64, of: u64) -> String {
    match of {
        0 => String::new(),
        of => format!(" ({:.3}x)", found as f64 / of as f64),
    }
}

/// The title, or the file name of the source.
fn title(scenario: &Scenario) -> &str {
    match scenario.title() {
        "" => "A simulated fleet",
        title => title,
    }
}

/// The size of the fleet in one line.
fn fleet(scenario: &Scenario) -> String {
    let nodes = plural(scenario.nodes() as usize, "node");
    let shards = plural(scenario.shards() as usize, "shard");
    let us = u64::try_from(scenario.duration().as_micros()).unwrap_or(u64::MAX);
    let seed = scenario.seed();
    format!("{nodes}, {shards}, {}, seed {seed}", duration(us))
}

/// A table of names and figures, for text and HTML.
fn figures(results: &Results) -> Vec<(&'static str, String)> {
    let Results {
        requests,
        admitted,
        refused,
        ..
    } = *results;
    let (exact_admitted, exact_refused) = (results.exact_admitted, results.exact_refused());
    let answers = &results.answers;
    let of_all = |part: u64| format!("{}, {}", count(part), percent(part, requests));
    let latency = |thousandths| duration(results.latency.at(thousandths));
    let busiest = results.shards.iter().map(|shard| shard.busy);
    let busiest = busiest.fold(0.0, f64::max);
    let leases = &results.leases;
    let mut figures = vec![
        ("Requests", count(requests)),
        (
            "Admitted",
            format!(
                "{}; by an exact limiter {}{}",
                count(admitted),
                count(exact_admitted),
                times(admitted, exact_admitted)
            ),
        ),
        (
            "Refused",
            format!(
                "{}; by an exact limiter {}{}",
                count(refused),
                count(exact_refused),
                times(refused, exact_refused)
            ),
        ),
        ("Unanswered", of_all(results.unanswered)),
        ("By the servers", of_all(answers.servers)),
        ("By leases", of_all(answers.leases)),
        ("By the refusal cache", of_all(answers.refusal_cache)),
        ("By policy, failure", of_all(answers.failure)),
        ("By policy, overload", of_all(answers.overload)),
        (
            "Script calls",
            format!(
                "{}, {:.3} per decision",
                count(results.calls),
                results.calls_per_decision()
            ),
        ),
        (
            "Counters decided",
            format!(
                "{}, {:.3} per decision",
                count(results.steps),
                results.steps_per_decision()
            ),
        ),
        (
            "Time to a decision",
            format!(
                "p50 {}, p90 {}, p99 {}, p99.9 {}, max {}",
                latency(500),
                latency(900),
                latency(990),
                latency(999),
                latency(1_000)
            ),
        ),
        (
            "Busiest server",
            format!("{:.1} % of the time", 100.0 * busiest),
        ),
    ];
    if leases.taken > 0 {
        let text = format!(
            "{} taken, {} returned, {} stranded",
            count(leases.taken),
            count(leases.returned),
            count(leases.stranded)
        );
        figures.push(("Leased units", text));
    }
    if results.healthy < 1.0 {
        let text = format!("{:.1} % by their servers", 100.0 * results.healthy);
        figures.push(("Healthy shards", text));
    }
    for worst in &results.worst {
        let text = format!(
            "`{}`: {} in {}, the limit's worst case is {}{}",
            worst.limit,
            count(worst.admitted),
            duration(worst.span_us),
            count(worst.bound),
            times(worst.admitted, worst.bound)
        );
        figures.push(("Most of one key", text));
    }
    figures
}

fn write_text(scenario: &Scenario, results: &Results, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}\n{}\n", title(scenario), fleet(scenario))?;
    for (at, length, what) in scenario.faults() {
        let us = |time: std::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let (at, length) = (duration(us(at)), duration(us(length)));
        writeln!(out, "  {at:>8}  {what}, {length}")?;
    }
    if scenario.faults().next().is_some() {
        writeln!(out)?;
    }
    for (name, text) in figures(results) {
        writeln!(out, "  {name:<22}{text}")?;
    }
    if results.bounds.is_empty() {
        return Ok(());
    }
    let width = results.bounds.iter().map(|one| one.bound.chars().count());
    let width = width.max().unwrap_or(0);
    writeln!(out, "\nBounds:")?;
    for bound in &results.bounds {
        let holds = if bound.holds { "holds " } else { "BROKEN" };
        let (text, found) = (&bound.bound, &bound.found);
        writeln!(out, "  {holds}  {text:<width$}  found {found}")?;
    }
    Ok(())
}
