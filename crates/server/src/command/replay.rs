//! `tallygate replay`: recorded requests answered on their own time. Knows lines, where counters are
//! kept, and answers; knows nothing of how a decision is reached.

mod json;
mod line_reader;
mod memory;
mod output;
mod redis;
pub mod request;

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use tallygate_core::Quota;

use self::line_reader::{Lines, LinesError};
use self::memory::Memory;
use self::output::Answers;
use self::redis::Remote;
use self::request::Line;
use crate::cli::ReplayArgs;
use crate::error::Failure;
use crate::store_url::Place;

pub(crate) fn run(args: &ReplayArgs, out: &mut impl Write) -> Result<(), Failure> {
    let quotas = args
        .quotas
        .iter()
        .map(|text| text.parse::<Quota>())
        .collect::<Result<Vec<_>, _>>()?;
    let place = Place::of(&args.store)?;
    let input: Box<dyn Read> = match args.file.as_deref() {
        Some(path) if path != Path::new("-") => Box::new(open(path)?),
        Some(_) | None => Box::new(io::stdin().lock()),
    };
    let mut lines = Lines::new(input);
    let mut answers = Answers::new(&quotas, out);
    match place {
        Place::Memory => {
            let replayed = in_memory(&mut lines, Memory::new(&quotas), &mut answers);
            // Answers already given stand, whatever stopped the rest.
            let flushed = answers.flush().map_err(Failure::writing);
            replayed.and(flushed)
        }
        Place::Redis(builder) => {
            let mut remote = Remote::connect(builder, &quotas)?;
            let replayed = in_redis(&mut lines, &mut remote, &mut answers);
            let flushed = answers.flush().map_err(Failure::writing);
            let cleared = remote.clear();
            replayed.and(flushed).and(cleared)
        }
    }
}

fn open(path: &Path) -> Result<File, Failure> {
    let cannot = |why: &dyn std::fmt::Display| {
        Failure::Input(format!("cannot read {}: {why}", path.display()))
    };
    let file = File::open(path).map_err(|error| cannot(&error))?;
    // A directory opens well enough and fails only when read.
    if file.metadata().is_ok_and(|found| found.is_dir()) {
        return Err(cannot(&"it is a directory"));
    }
    Ok(file)
}

fn in_memory(
    lines: &mut Lines<impl Read>,
    mut memory: Memory,
    answers: &mut Answers<impl Write>,
) -> Result<(), Failure> {
    loop {
        // About to wait for input: whoever types the lines wants to see what came of them.
        if !lines.ready() {
            answers.flush().map_err(Failure::writing)?;
        }
        match next(lines)? {
            Next::Request(line) => {
                let decision = memory.decide(&line);
                answers
                    .write(&line, decision.verdict(), decision.verdicts())
                    .map_err(Failure::writing)?;
            }
            Next::Blank => {}
            Next::End => return Ok(()),
        }
    }
}

fn in_redis(
    lines: &mut Lines<impl Read>,
    remote: &mut Remote,
    answers: &mut Answers<impl Write>,
) -> Result<(), Failure> {
    loop {
        if !lines.ready() {
            remote.decide(answers)?;
            answers.flush().map_err(Failure::writing)?;
        }
        match next(lines) {
            Ok(Next::Request(line)) => remote.take(line),
            Ok(Next::Blank) => {}
            Ok(Next::End) => return remote.decide(answers),
            // What came before it is answered.
            Err(failure) => return remote.decide(answers).and(Err(failure)),
        }
        if remote.is_full() {
            remote.decide(answers)?;
        }
    }
}

/// What the next line is.
enum Next<'a> {
    Request(Line<'a>),
    Blank,
    End,
}

fn next<R: Read>(lines: &mut Lines<R>) -> Result<Next<'_>, Failure> {
    let (number, text) = match lines.next() {
        Ok(Some(line)) => line,
        Ok(None) => return Ok(Next::End),
        Err(LinesError::TooLong { number, bound }) => {
            let text = format!("line {number}: longer than {bound} bytes");
            return Err(Failure::Input(text));
        }
        Err(LinesError::Read(error)) => {
            return Err(Failure::Outside(format!("cannot read the input: {error}")));
        }
    };
    if json::is_blank(text) {
        return Ok(Next::Blank);
    }
    let line = request::parse(text);
    let line = line.map_err(|error| Failure::Input(format!("line {number}: {error}")))?;
    Ok(Next::Request(line))
}
