//! The command line as types, and its help. Knows what may be asked, not how it is done.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};

/// An exact rate limiter.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, max_term_width = 80, after_long_help = ABOUT_ALL)]
#[command(arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const ABOUT_ALL: &str = "\
Quotas:
  100/min                         the default: a sliding window counter
  fixed-window 100/min            windows on the clock
  sliding-window-log 100/min      exact; remembers every request
  token-bucket 10/s burst 50      bursts of 50, 10 a second in the long run
  leaky-bucket 10/s burst 20      level drains at 10 a second; excess refused
  leaky-bucket 10/s queue 20      excess waits its turn in a queue of 20
  Units: ms s min h d, also combined: fixed-window 5/1h30min

Exit codes:
  0  done
  1  something outside failed: a full disk, a store; for doctor: not healthy
  2  the input is wrong: arguments, a quota, FILE, a line to replay

Start here:
  tollgate demo";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Answer recorded requests on their own time, one JSON line each
    #[command(after_long_help = ABOUT_REPLAY)]
    Replay(ReplayArgs),
    /// Tell in plain words and a picture what a quota allows
    #[command(after_long_help = ABOUT_EXPLAIN)]
    Explain(ExplainArgs),
    /// Send the same bursty traffic through all six behaviours
    #[command(after_long_help = ABOUT_DEMO)]
    Demo(DemoArgs),
    /// Show how counting by read, check and write lets too many in at once
    #[command(after_long_help = ABOUT_RACE)]
    Race(RaceArgs),
    /// Check a store and say plainly what is wrong with it and what to do
    #[command(after_long_help = ABOUT_DOCTOR)]
    Doctor(DoctorArgs),
    /// Print a completion script for a shell
    #[command(after_long_help = ABOUT_COMPLETIONS)]
    Completions(CompletionsArgs),
    /// Print the manual page
    #[command(after_long_help = ABOUT_MAN)]
    Man(ManArgs),
}

const ABOUT_REPLAY: &str = "\
Each line is one request; cost is 1 and verb is check unless given:
  {\"t_us\": 1500000, \"key\": \"a\", \"cost\": 1, \"verb\": \"check\"}
  t_us  when, in microseconds: 0 to 2^52; may go back
  key   who is limited: any text
  cost  how much: 0 to 4294967295
  verb  check, peek, take, charge, refund or reset

Each answer is one line:
  {\"t_us\":1500000,\"key\":\"a\",\"allowed\":true,\"granted\":1,\"limit\":10,
   \"remaining\":9,\"retry_after_us\":null,\"reset_after_us\":8500000,\"delay_us\":0}
With several quotas the figures are the binding one's, and a last field
\"quotas\" lists each one's own.

Blank lines are skipped. The first malformed line, or one longer than 8 MiB,
stops the replay: the answers before it are written, standard error names the
line, exit 2. Keys are kept for the whole run, so memory grows with their number.

Every store gives the same answers to the byte. In Redis each run counts under a
name of its own (tollgate:1:replay-<random>:*), deletes it at the end, and what
a killed run leaves behind expires within a day.

Examples:
  tollgate replay --quota 100/min requests.jsonl
  echo '{\"t_us\": 0, \"key\": \"a\"}' | tollgate replay --quota 10/s
  tollgate replay --quota 10/s --quota 'fixed-window 1000/day' < requests.jsonl
  tollgate replay --quota 10/s --store redis://localhost requests.jsonl

Exit codes:
  0  every line is answered, or whoever reads the answers has gone
  1  reading, writing or the store failed
  2  a malformed line, a bad quota or store, FILE cannot be opened";

/// Where the counters are kept.
// `Debug` is written by hand: the URL may hold a password.
#[derive(Args)]
pub(crate) struct StoreArgs {
    /// Where the counters are kept: 'memory', or the URL of Redis or Valkey, such as
    /// redis://user:password@host:6379/0, rediss:// for TLS, unix:///path,
    /// redis-sentinel://host:26379/master or redis-cluster://host1,host2
    #[arg(
        long = "store",
        value_name = "URL",
        env = "TOLLGATE_STORE",
        hide_env_values = true,
        default_value = "memory"
    )]
    pub(crate) url: String,
    /// Trust the authority in this PEM file instead of the system's
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) ca_cert: Option<PathBuf>,
    /// Show the certificate in this PEM file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "client_key")]
    pub(crate) client_cert: Option<PathBuf>,
    /// Prove it with the key in this PEM file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "client_cert")]
    pub(crate) client_key: Option<PathBuf>,
}

impl std::fmt::Debug for StoreArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreArgs").finish_non_exhaustive()
    }
}

#[derive(Args, Debug)]
pub(crate) struct ReplayArgs {
    /// A quota, such as '100/min'; give several to apply all of them, all or nothing
    #[arg(long = "quota", value_name = "QUOTA", required = true)]
    pub(crate) quotas: Vec<String>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// The requests, as JSON lines; '-' or nothing for standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,
}

const ABOUT_EXPLAIN: &str = "\
Examples:
  tollgate explain 'token-bucket 10/s burst 50'
  tollgate explain 100/min
  tollgate explain --json 'leaky-bucket 10/s queue 20'

Exit codes:
  0  explained
  2  the quota is wrong; standard error points at the place";

#[derive(Args, Debug)]
pub(crate) struct ExplainArgs {
    /// The quota, such as 'token-bucket 10/s burst 50'; quotes keep its words together
    // Taken as words, so that forgotten quotes do no harm.
    #[arg(value_name = "QUOTA", required = true, num_args = 1..)]
    pub(crate) quota: Vec<String>,
    /// Print the exact figures as JSON, times in microseconds
    #[arg(long)]
    pub(crate) json: bool,
}

const ABOUT_DEMO: &str = "\
Nothing waits and nothing is random: time is supplied, the engine is the one
that limits in production, and the same picture comes out every time.

Examples:
  tollgate demo
  tollgate demo --color always | less -R";

#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// Whether to colour the output; auto colours a terminal unless NO_COLOR is set
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: Color,
}

/// When to colour the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

const ABOUT_RACE: &str = "\
Clients that ask all at once, each over a connection of its own, are counted
twice: by reading the count, checking it and writing it back, as most limiters
in articles do, and by Tollgate's one atomic step. The first lets too many in.
With --store memory the clients are threads.

Examples:
  tollgate race
  tollgate race --store redis://localhost --clients 100 --limit 5
  tollgate race --store redis-cluster://host1,host2 --json

Exit codes:
  0  shown
  1  the store failed
  2  the arguments are wrong";

#[derive(Args, Debug)]
pub(crate) struct RaceArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// How many ask at once
    #[arg(long, value_name = "N", default_value_t = 50,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) clients: u32,
    /// How many may be let in
    #[arg(long, value_name = "L", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) limit: u32,
    /// How often it is tried
    #[arg(long, value_name = "R", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) rounds: u32,
    /// Print the figures as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const ABOUT_DOCTOR: &str = "\
Connects as a limiter would, tries everything one needs, and looks at what may
surprise one later. Each finding is ok, info, warn or fail; what is not ok says
what to do. Nothing is changed: what it counts goes under a name of its own
(tollgate:1:doctor-<random>:*) and is deleted. What it may not look at, it says.

Examples:
  tollgate doctor --store redis://user:password@host:6379
  tollgate doctor --store rediss://host --ca-cert ca.pem
  TOLLGATE_STORE=redis-cluster://host1,host2 tollgate doctor --json

Exit codes:
  0  healthy; warnings are allowed
  1  not healthy
  2  the arguments are wrong";

#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print the findings as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const ABOUT_COMPLETIONS: &str = "\
Examples:
  bash  source <(tollgate completions bash)
  zsh   tollgate completions zsh > \"${fpath[1]}/_tollgate\"
  fish  tollgate completions fish > ~/.config/fish/completions/tollgate.fish";

#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

const ABOUT_MAN: &str = "\
Examples:
  tollgate man | man -l -
  tollgate man --dir ~/.local/share/man/man1";

#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// Write a page for every command into this directory instead
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) dir: Option<PathBuf>,
}
