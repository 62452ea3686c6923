//! `tallygate race`: what happens when many are counted at once by reading, checking and writing,
//! against one atomic step. Knows how the race is told; knows nothing of how it is run.

mod redis;
mod threads;

use std::io::{self, Write};

use serde::Serialize;
use tallygate::Quota;
use tallygate_core::Algorithm;

use crate::cli::RaceArgs;
use crate::error::Failure;
use crate::format::wrap;
use crate::store::Counters;
use crate::store_url::Place;

/// How wide a paragraph runs; the page is 80 columns.
const WIDTH: usize = 76;

pub(crate) fn run(args: &RaceArgs, out: &mut impl Write) -> Result<(), Failure> {
    let field = Field {
        clients: args.clients,
        limit: args.limit,
        rounds: args.rounds,
    };
    let (store, rounds) = match Place::of(&args.store)? {
        Place::Memory => ("memory", threads::race(&field)),
        Place::Redis(builder) => ("redis", redis::race(&field, builder)?),
    };
    let written = if args.json {
        write_json(&field, store, &rounds, out)
    } else {
        page(&field, store, &rounds, out)
    };
    written.and_then(|()| out.flush()).map_err(Failure::writing)
}

/// The race where a server counts: its own servers, or the threads of this process.
pub(crate) async fn over(counters: &Counters, field: Field) -> Result<Vec<Round>, Failure> {
    match counters.redis_store() {
        Some(store) => redis::among(&field, store).await,
        None => {
            let race = tokio::task::spawn_blocking(move || threads::race(&field));
            let ended = |_| Failure::Outside("the race did not end".to_owned());
            race.await.map_err(ended)
        }
    }
}

/// Who races for what.
#[derive(Clone, Copy)]
pub(crate) struct Field {
    pub(crate) clients: u32,
    pub(crate) limit: u32,
    pub(crate) rounds: u32,
}

impl Field {
    /// The limit as a quota of which nothing comes back while the race lasts, and that remembers
    /// exactly.
    fn quota(&self) -> Quota {
        let hour = std::time::Duration::from_secs(3_600);
        Quota::new(Algorithm::SlidingWindowLog, self.limit, hour)
            .expect("the command line keeps to a log's bounds")
    }

    /// How many may be let in.
    fn allowed(&self) -> u32 {
        self.limit.min(self.clients)
    }
}

/// How many each way let in.
#[derive(Clone, Copy, Serialize)]
pub(crate) struct Round {
    pub(crate) read_check_write: u32,
    pub(crate) atomic: u32,
}

fn page(field: &Field, store: &str, rounds: &[Round], out: &mut impl Write) -> io::Result<()> {
    let each = match store {
        "memory" => "each a thread of this process",
        _ => "each over a connection of its own",
    };
    let Field { clients, limit, .. } = field;
    let intro = format!(
        "{clients} clients ask at the same moment, {each}. The limit is {limit}. How many got in:"
    );
    for line in wrap(&intro, WIDTH) {
        writeln!(out, "{line}")?;
    }
    writeln!(out)?;
    writeln!(
        out,
        "  round   allowed   read, check, write   one atomic step"
    )?;
    for (i, round) in rounds.iter().enumerate() {
        writeln!(
            out,
            "  {:>5}   {:>7}   {:>18}   {:>15}",
            i + 1,
            field.allowed(),
            round.read_check_write,
            round.atomic
        )?;
    }
    writeln!(out)?;
    for line in wrap(&moral(field, rounds), WIDTH) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// What went wrong, in words.
fn moral(field: &Field, rounds: &[Round]) -> String {
    let allowed = field.allowed();
    let most = rounds.iter().map(|round| round.read_check_write).max();
    let most = most.unwrap_or_default();
    if allowed == field.clients {
        return "There is room for every client, so that nothing can go wrong: give more \
                --clients or a lower --limit."
            .to_owned();
    }
    if most <= allowed {
        return "This time reading, checking and writing got away with it: no client happened to \
                read between another's read and write. Nothing makes sure of that; try again, \
                or with more --clients."
            .to_owned();
    }
    format!(
        "Reading, checking and writing are three steps. Whoever reads before the others have \
         written sees room that is no longer there: up to {most} got in where {allowed} were \
         allowed. Tallygate reads, decides and writes in one step that nothing can come between."
    )
}

fn write_json(
    field: &Field,
    store: &str,
    rounds: &[Round],
    out: &mut impl Write,
) -> io::Result<()> {
    #[derive(Serialize)]
    struct Shown<'a> {
        store: &'a str,
        clients: u32,
        limit: u32,
        allowed: u32,
        rounds: &'a [Round],
    }
    let shown = Shown {
        store,
        clients: field.clients,
        limit: field.limit,
        allowed: field.allowed(),
        rounds,
    };
    serde_json::to_writer_pretty(&mut *out, &shown)?;
    writeln!(out)
}
