//! `tallygate replay`: decides recorded requests at their own timestamps.

mod line_reader;
mod memory;
mod output;
mod redis;
pub mod request;

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use tallygate_core::Quota;

use self::line_reader::LineReader;
use self::memory::MemoryCounters;
use self::output::OutputWriter;
use self::redis::RedisCounters;
use self::request::ReplayRequest;
use crate::cli::ReplayArgs;
use crate::error::Failure;
use crate::store_url::StoreUrl;

pub(crate) fn run(args: &ReplayArgs, out: &mut impl Write) -> Result<(), Failure> {
    let quotas = args
        .quotas
        .iter()
        .map(|text| text.parse::<Quota>())
        .collect::<Result<Vec<_>, _>>()?;
    let store = StoreUrl::from_args(&args.store)?;
    let input: Box<dyn Read> = match args.file.as_deref() {
        Some(path) if path != Path::new("-") => Box::new(open(path)?),
        Some(_) | None => Box::new(io::stdin().lock()),
    };
    let mut output = OutputWriter::new(&quotas, out);
    let mut counters = match store {
        StoreUrl::Memory => Counters::Memory(MemoryCounters::new(&quotas)),
        StoreUrl::Redis(builder) => Counters::Redis(RedisCounters::connect(builder, &quotas)?),
    };
    let replayed = replay(LineReader::new(input), &mut counters, &mut output);
    // Requests before an error are decided and written.
    let decided = counters.flush(&mut output);
    let flushed = output.flush().map_err(Failure::from);
    decided.and(replayed).and(flushed).and(counters.clear())
}

fn open(path: &Path) -> Result<File, Failure> {
    let cannot = |why: &dyn std::fmt::Display| {
        Failure::Input(format!("cannot read {}: {why}", path.display()))
    };
    let file = File::open(path).map_err(|error| cannot(&error))?;
    // Opening a directory succeeds; only reading it fails.
    if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
        return Err(cannot(&"it is a directory"));
    }
    Ok(file)
}

enum Counters {
    Memory(MemoryCounters),
    Redis(RedisCounters),
}

impl Counters {
    /// Decides a request, or queues it for the next batch.
    fn submit(
        &mut self,
        request: ReplayRequest<'_>,
        output: &mut OutputWriter<impl Write>,
    ) -> Result<(), Failure> {
        match self {
            Counters::Memory(counters) => {
                let decision = counters.decide(&request);
                Ok(output.write(&request, decision.verdict(), decision.verdicts())?)
            }
            Counters::Redis(counters) => counters.submit(request, output),
        }
    }

    fn flush(&mut self, output: &mut OutputWriter<impl Write>) -> Result<(), Failure> {
        match self {
            Counters::Memory(_) => Ok(()),
            Counters::Redis(counters) => counters.flush(output),
        }
    }

    fn clear(&self) -> Result<(), Failure> {
        match self {
            Counters::Memory(_) => Ok(()),
            Counters::Redis(counters) => counters.clear(),
        }
    }
}

fn replay(
    mut lines: LineReader<impl Read>,
    counters: &mut Counters,
    output: &mut OutputWriter<impl Write>,
) -> Result<(), Failure> {
    loop {
        // The next read may block: an interactive user wants the pending responses first.
        if !lines.is_ready() {
            counters.flush(output)?;
            output.flush()?;
        }
        let Some((number, line)) = lines.next()? else {
            return Ok(());
        };
        if line.iter().all(|byte| b" \t\r\n".contains(byte)) {
            continue;
        }
        let request = request::parse(line)
            .map_err(|error| Failure::Input(format!("line {number}: {error}")))?;
        counters.submit(request, output)?;
    }
}
