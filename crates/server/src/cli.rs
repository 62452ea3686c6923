//! The command line as types, and its help. Knows what may be asked, not how it is done.

mod serve;

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};

pub(crate) use serve::{Failing, ServeArgs};

/// An exact rate limiter.
#[derive(Debug, Parser)]
#[command(name = "tallygate", version, max_term_width = 80, after_long_help = ABOUT_ALL)]
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
  1  something outside failed: a full disk, a store; for doctor: not healthy;
     for config check --strict: warnings; for config diff: differences
  2  the input is wrong: arguments, a quota, FILE, a line to replay, rules

Start here:
  tallygate serve
  tallygate demo";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve: a gateway before a service, or a check API beside any proxy
    #[command(after_long_help = serve::ABOUT)]
    Serve(Box<ServeArgs>),
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
    /// Check, explain and compare rules files
    #[command(after_long_help = ABOUT_CONFIG)]
    Config(ConfigArgs),
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
name of its own (tallygate:1:replay-<random>:*), deletes it at the end, and what
a killed run leaves behind expires within a day.

Examples:
  tallygate replay --quota 100/min requests.jsonl
  echo '{\"t_us\": 0, \"key\": \"a\"}' | tallygate replay --quota 10/s
  tallygate replay --quota 10/s --quota 'fixed-window 1000/day' < requests.jsonl
  tallygate replay --quota 10/s --store redis://localhost requests.jsonl

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
        env = "TALLYGATE_STORE",
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
  tallygate explain 'token-bucket 10/s burst 50'
  tallygate explain 100/min
  tallygate explain --json 'leaky-bucket 10/s queue 20'

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
  tallygate demo
  tallygate demo --color always | less -R";

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
in articles do, and by Tallygate's one atomic step. The first lets too many in.
With --store memory the clients are threads.

Examples:
  tallygate race
  tallygate race --store redis://localhost --clients 100 --limit 5
  tallygate race --store redis-cluster://host1,host2 --json

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
(tallygate:1:doctor-<random>:*) and is deleted. What it may not look at, it says.

Examples:
  tallygate doctor --store redis://user:password@host:6379
  tallygate doctor --store rediss://host --ca-cert ca.pem
  TALLYGATE_STORE=redis-cluster://host1,host2 tallygate doctor --json

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

const ABOUT_CONFIG: &str = "\
A rules file says which requests are limited, by whom and by how much; every
field of it is in docs/rules.md. Variables such as ${REDIS_URL} are taken from
the environment. Nothing here connects to a store.

Examples:
  tallygate config check rules.yaml
  tallygate config explain rules.yaml --request 'POST /login' --ip 192.0.2.7
  tallygate config diff old.yaml new.yaml
  tallygate config schema > rules.schema.json";

#[derive(Args, Debug)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Tell everything that is wrong with rules files, or questionable
    #[command(after_long_help = ABOUT_CHECK)]
    Check(CheckArgs),
    /// Tell what the rules make of one request, and what its client would see
    #[command(after_long_help = ABOUT_CONFIG_EXPLAIN)]
    Explain(ConfigExplainArgs),
    /// Tell what another rules file would change, and whose counts it would keep
    #[command(after_long_help = ABOUT_DIFF)]
    Diff(DiffArgs),
    /// Print the JSON Schema of rules files, for editors
    #[command(after_long_help = ABOUT_SCHEMA)]
    Schema,
}

const ABOUT_CHECK: &str = "\
Every mistake is shown in its place with a stable code such as
rules::unknown-field and a hint. Warnings are for what is allowed and probably
not meant; docs/rules.md lists them. With --json, each file is one line.

Examples:
  tallygate config check rules.yaml
  tallygate config check --strict rules.yaml
  tallygate config check --json staging.yaml production.yaml

Exit codes:
  0  good; warnings are allowed
  1  good, but with --strict there are warnings
  2  errors";

#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// The rules files, each with those it includes
    #[arg(value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) files: Vec<PathBuf>,
    /// Let warnings fail too
    #[arg(long)]
    pub(crate) strict: bool,
    /// Print what was found as JSON, a line for each file
    #[arg(long)]
    pub(crate) json: bool,
}

const ABOUT_CONFIG_EXPLAIN: &str = "\
Says of every rule whether it applies and why, which keys, tier, cost and limits
the request has, and what the client is told: when it is admitted for the first
time, and once the limit that refuses first is used up. The engine is the one
that limits in production, over counters that nobody has used, at the start of a
window. Secrets in keys are not shown.

Examples:
  tallygate config explain rules.yaml --request 'POST /login'
  tallygate config explain rules.yaml --request 'GET https://api.example.com/x' \\
    --header 'x-api-key: k1' --ip 192.0.2.7
  tallygate config explain rules.yaml --request 'GET /' --peer 10.0.0.1 \\
    --ip 192.0.2.7 --json

Exit codes:
  0  explained
  2  the rules file or the request is wrong";

// `Debug` is written by hand: a header may hold a secret.
#[derive(Args)]
pub(crate) struct ConfigExplainArgs {
    /// The rules file
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// The request: a method and a path or URL, such as 'POST /login'
    #[arg(long, value_name = "REQUEST")]
    pub(crate) request: String,
    /// A header of it, such as 'x-api-key: k1'; may be given several times
    #[arg(long = "header", value_name = "HEADER")]
    pub(crate) headers: Vec<String>,
    /// The client's address; 192.0.2.1 unless given
    #[arg(long, value_name = "ADDR")]
    pub(crate) ip: Option<IpAddr>,
    /// Who is at the other end of the connection, if that is a proxy: it forwards for --ip
    #[arg(long, value_name = "ADDR")]
    pub(crate) peer: Option<IpAddr>,
    /// Print it as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl std::fmt::Debug for ConfigExplainArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConfigExplainArgs").finish_non_exhaustive()
    }
}

const ABOUT_DIFF: &str = "\
A counter is known by its rule's name, its limit's name, its behaviour and its
period: a changed limit or burst keeps every count, a new name starts anew.

Examples:
  tallygate config diff rules.yaml new-rules.yaml
  tallygate config diff --json <(git show HEAD:rules.yaml) rules.yaml

Exit codes:
  0  the same rules
  1  they differ
  2  a rules file is wrong";

#[derive(Args, Debug)]
pub(crate) struct DiffArgs {
    /// The rules file in force
    #[arg(value_name = "OLD", value_hint = ValueHint::FilePath)]
    pub(crate) old: PathBuf,
    /// The rules file that is to take its place
    #[arg(value_name = "NEW", value_hint = ValueHint::FilePath)]
    pub(crate) new: PathBuf,
    /// Print the changes as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const ABOUT_SCHEMA: &str = "\
Examples:
  tallygate config schema > rules.schema.json
An editor with a YAML language server reads it by a first line in the file:
  # yaml-language-server: $schema=rules.schema.json";

const ABOUT_COMPLETIONS: &str = "\
Examples:
  bash  source <(tallygate completions bash)
  zsh   tallygate completions zsh > \"${fpath[1]}/_tallygate\"
  fish  tallygate completions fish > ~/.config/fish/completions/tallygate.fish";

#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

const ABOUT_MAN: &str = "\
Examples:
  tallygate man | man -l -
  tallygate man --dir ~/.local/share/man/man1";

#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// Write a page for every command into this directory instead
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) dir: Option<PathBuf>,
}
