//! `tollgate replay`: recorded requests answered on their own time. Knows lines, a store and
//! answers; knows nothing of how a decision is reached.

mod answer;
mod json;
pub mod line;
mod lines;
mod store;

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use tollgate_core::Quota;

use self::answer::Answers;
use self::lines::{Lines, LinesError};
use self::store::Store;
use crate::cli::ReplayArgs;
use crate::failure::Failure;

pub(crate) fn run(args: &ReplayArgs, out: &mut impl Write) -> Result<(), Failure> {
    let quotas = args
        .quotas
        .iter()
        .map(|text| text.parse::<Quota>())
        .collect::<Result<Vec<_>, _>>()?;
    let mut store = Store::open(&args.store, &quotas)?;
    let mut answers = Answers::new(&quotas, out);

    let replayed = match args.file.as_deref() {
        Some(path) if path != Path::new("-") => replay(open(path)?, &mut store, &mut answers),
        Some(_) | None => replay(io::stdin().lock(), &mut store, &mut answers),
    };
    // Answers already given stand, whatever stopped the rest.
    let flushed = answers.flush().map_err(Failure::writing);
    replayed.and(flushed)
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

fn replay(
    input: impl Read,
    store: &mut Store,
    answers: &mut Answers<impl Write>,
) -> Result<(), Failure> {
    let mut lines = Lines::new(input);
    loop {
        // About to wait for input: whoever types the lines wants to see what came of them.
        if !lines.ready() {
            answers.flush().map_err(Failure::writing)?;
        }
        let (number, text) = match lines.next() {
            Ok(Some(line)) => line,
            Ok(None) => return Ok(()),
            Err(LinesError::TooLong { number, bound }) => {
                let text = format!("line {number}: longer than {bound} bytes");
                return Err(Failure::Input(text));
            }
            Err(LinesError::Read(error)) => {
                return Err(Failure::Outside(format!("cannot read the input: {error}")));
            }
        };
        if json::is_blank(text) {
            continue;
        }
        let line =
            line::parse(text).map_err(|error| Failure::Input(format!("line {number}: {error}")))?;
        let decision = store.decide(&line)?;
        answers.write(&line, &decision).map_err(Failure::writing)?;
    }
}
