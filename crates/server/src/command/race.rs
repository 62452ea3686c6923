//! `tallygate race`: compares read-check-write with one atomic step under concurrency.

mod redis;
mod threads;

use std::io::{self, Write};

use serde::Serialize;
use tallygate::Quota;
use tallygate_core::Algorithm;

use crate::cli::RaceArgs;
use crate::error::Failure;
use crate::format::{self, write_wrapped};
use crate::store::ServerStore;
use crate::store_url::StoreUrl;

/// The width of a paragraph; the output has 80 columns.
const WIDTH: usize = 76;

pub(crate) fn run(args: &RaceArgs, out: &mut impl Write) -> Result<(), Failure> {
    let race = Race {
        clients: args.clients,
        limit: args.limit,
        rounds: args.rounds,
    };
    let (store, rounds) = match StoreUrl::from_args(&args.store)? {
        StoreUrl::Memory => ("memory", threads::race(&race)),
        StoreUrl::Redis(builder) => ("redis", redis::race(&race, builder)?),
    };
    match args.json {
        true => Ok(write_json(&race, store, &rounds, out)?),
        false => Ok(write_text(&race, store, &rounds, out)?),
    }
}

pub(crate) async fn over(counters: &ServerStore, race: Race) -> Result<Vec<Round>, Failure> {
    match counters.redis_store() {
        Some(store) => redis::race_on(&race, store).await,
        None => {
            let race = tokio::task::spawn_blocking(move || threads::race(&race));
            let ended = |_| Failure::Outside("the race did not end".to_owned());
            race.await.map_err(ended)
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Race {
    pub(crate) clients: u32,
    pub(crate) limit: u32,
    pub(crate) rounds: u32,
}

impl Race {
    /// An exact quota of which nothing expires during the race.
    fn quota(&self) -> Quota {
        let hour = std::time::Duration::from_secs(3_600);
        Quota::new(Algorithm::SlidingWindowLog, self.limit, hour)
            .expect("the command line bounds the limit")
    }

    fn allowed(&self) -> u32 {
        self.limit.min(self.clients)
    }
}

#[derive(Clone, Copy, Serialize)]
pub(crate) struct Round {
    pub(crate) read_check_write: u32,
    pub(crate) atomic: u32,
}

fn write_text(race: &Race, store: &str, rounds: &[Round], out: &mut impl Write) -> io::Result<()> {
    let each = match store {
        "memory" => "each a thread of this process",
        _ => "each over a connection of its own",
    };
    let Race { clients, limit, .. } = race;
    let intro = format!(
        "{clients} clients send a request at the same time, {each}. The limit is {limit}. Admitted:"
    );
    write_wrapped(&intro, 0, WIDTH, out)?;
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
            race.allowed(),
            round.read_check_write,
            round.atomic
        )?;
    }
    writeln!(out)?;
    write_wrapped(&explain(race, rounds), 0, WIDTH, out)
}

fn explain(race: &Race, rounds: &[Round]) -> String {
    let allowed = race.allowed();
    let max = rounds.iter().map(|round| round.read_check_write).max();
    let max = max.unwrap_or_default();
    if allowed == race.clients {
        return "The limit admits every client, so there is no race: use more --clients or a \
                lower --limit."
            .to_owned();
    }
    if max <= allowed {
        return "This time read-check-write was correct: no client read between another's read \
                and write. Nothing guarantees that; try again, or with more --clients."
            .to_owned();
    }
    format!(
        "Read, check and write are three steps. A client that reads before the others have \
         written sees capacity that is already taken: up to {max} were admitted where {allowed} \
         were allowed. Tallygate reads, decides and writes in one atomic step."
    )
}

fn write_json(race: &Race, store: &str, rounds: &[Round], out: &mut impl Write) -> io::Result<()> {
    #[derive(Serialize)]
    struct Output<'a> {
        store: &'a str,
        clients: u32,
        limit: u32,
        allowed: u32,
        rounds: &'a [Round],
    }
    let output = Output {
        store,
        clients: race.clients,
        limit: race.limit,
        allowed: race.allowed(),
        rounds,
    };
    format::write_json(&output, out)
}
