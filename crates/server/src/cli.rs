//! The command line and its help texts.

mod serve;

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, ColorChoice, Parser, Subcommand, ValueHint};

pub(crate) use serve::{Failing, ServeArgs};

/// An exact rate limiter.
#[derive(Parser)]
#[command(name = "tallygate", version, max_term_width = 80, after_long_help = ABOUT_ALL)]
#[command(arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const ABOUT_ALL: &str = "\
Quotas:
  100/min                         the default: a sliding window counter
  fixed-window 100/min            windows aligned to the clock
  sliding-window-log 100/min      exact; stores every request
  token-bucket 10/s burst 50      bursts of 50, 10 per second in the long run
  leaky-bucket 10/s burst 20      drains at 10 per second; excess is refused
  leaky-bucket 10/s queue 20      excess is delayed in a queue of 20
  token-bucket 100/s shared 4     members share it by weight, and borrow the rest
  concurrent 10 for 30s           10 in flight, each held for 30 s at most
  Units: ms s min h d, also combined: fixed-window 5/1h30min

Exit codes:
  0  success
  1  an external failure, such as a full disk or a store; doctor: not healthy;
     config check --strict: warnings; config diff: differences;
     simulate: a bound is broken
  2  bad input: arguments, a quota, FILE, a line to replay, a rules file

Start here:
  tallygate serve
  tallygate demo";

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run the gateway in front of a service, and the check API
    #[command(after_long_help = serve::ABOUT)]
    Serve(Box<ServeArgs>),
    /// Watch a running server in the terminal: rules, keys and the store
    #[command(after_long_help = ABOUT_TOP)]
    Top(TopArgs),
    /// Decide recorded requests at their own timestamps, one JSON line each
    #[command(after_long_help = ABOUT_REPLAY)]
    Replay(ReplayArgs),
    /// Describe what a quota allows, with a chart
    #[command(after_long_help = ABOUT_EXPLAIN)]
    Explain(ExplainArgs),
    /// Show what every kind of limit does with bursty traffic
    #[command(after_long_help = ABOUT_DEMO)]
    Demo(DemoArgs),
    /// Show the race condition of counting by read, check and write
    #[command(after_long_help = ABOUT_RACE)]
    Race(RaceArgs),
    /// Simulate a fleet: what it admits, how it fails and what it costs
    #[command(after_long_help = ABOUT_SIMULATE)]
    Simulate(SimulateArgs),
    /// Diagnose a store: what is wrong with it and how to fix it
    #[command(after_long_help = ABOUT_DOCTOR)]
    Doctor(DoctorArgs),
    /// Check, explain and compare rules files
    #[command(after_long_help = ABOUT_CONFIG)]
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Print a completion script for a shell
    #[command(after_long_help = ABOUT_COMPLETIONS)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    #[command(after_long_help = ABOUT_MAN)]
    Man {
        /// Write one page per command into this directory instead
        #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
        dir: Option<PathBuf>,
    },
}

const ABOUT_TOP: &str = "\
Shows what /live shows, once a second. Keys: q quits, Tab goes to the next list,
s sorts the rules, / filters, p pauses, ? lists all keys. Without a terminal it
prints plain text once a second. A stream that breaks is opened again.

The token is that of the server; from the same machine it needs none. It may be
in the variable TALLYGATE_ADMIN_TOKEN.

Examples:
  tallygate top
  tallygate top --url http://10.0.0.7:8090 --admin-token-file token
  tallygate top --once --json | jq .store

Exit codes:
  0  success
  1  the server cannot be read
  2  bad arguments";

#[derive(Args)]
pub(crate) struct TopArgs {
    /// The admin listener of the server
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8090")]
    pub(crate) url: String,
    /// A file with the admin token
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) admin_token_file: Option<PathBuf>,
    /// Print plain text once, and exit
    #[arg(long)]
    pub(crate) once: bool,
    /// Print the events as JSON, one per line
    #[arg(long)]
    pub(crate) json: bool,
}

const ABOUT_REPLAY: &str = "\
Each line is one request; cost and weight default to 1, verb to check, member
and owner to an empty string:
  {\"t_us\": 1500000, \"key\": \"a\", \"cost\": 1, \"verb\": \"check\"}
  t_us    the time in microseconds, 0 to 2^52; may go back
  key     who is limited, any string
  cost    units to take, 0 to 4294967295
  verb    check, peek, take, charge, refund, reset, reserve, settle, renew or
          release
  member  who shares the key's bucket, any string; weight 1 to 1000
  owner   who holds units of a concurrency limit, any string
  id      of a reservation, any string: with reserve and settle, always

Each response is one line:
  {\"t_us\":1500000,\"key\":\"a\",\"allowed\":true,\"granted\":1,\"limit\":10,
   \"remaining\":9,\"retry_after_us\":null,\"reset_after_us\":8500000,\"delay_us\":0}
With several quotas these are the values of the binding quota, and a last field
\"quotas\" lists the values of each.

Blank lines are skipped. The first malformed line, or one longer than 8 MiB,
stops the replay: earlier responses are written, standard error names the line,
exit 2. Keys are kept for the whole run, so memory grows with their number.

Every store gives byte-identical responses. In Redis each run uses its own
namespace (tallygate:1:replay-<random>:*) and deletes it at the end; keys of a
killed run expire within a day.

Examples:
  tallygate replay --quota 100/min requests.jsonl
  echo '{\"t_us\": 0, \"key\": \"a\"}' | tallygate replay --quota 10/s
  tallygate replay --quota 10/s --quota 'fixed-window 1000/day' < requests.jsonl
  tallygate replay --quota 10/s --store redis://localhost requests.jsonl

Exit codes:
  0  every line was decided, or the reader of the output is gone
  1  reading, writing or the store failed
  2  a malformed line, a bad quota or store, FILE cannot be opened";

/// The store of the counters.
#[derive(Args)]
pub(crate) struct StoreArgs {
    /// The store of the counters: 'memory', or the URL of Redis or Valkey, such as
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
    /// Trust the CA certificates in this PEM file instead of the system's
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) ca_cert: Option<PathBuf>,
    /// Client certificate, a PEM file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "client_key")]
    pub(crate) client_cert: Option<PathBuf>,
    /// Private key of the client certificate, a PEM file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "client_cert")]
    pub(crate) client_key: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct ReplayArgs {
    /// A quota, such as '100/min'; may be repeated: all of them apply, all or nothing
    #[arg(long = "quota", value_name = "QUOTA", required = true)]
    pub(crate) quotas: Vec<String>,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// The requests as JSON lines; '-' or none for standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,
}

const ABOUT_EXPLAIN: &str = "\
Examples:
  tallygate explain 'token-bucket 10/s burst 50'
  tallygate explain 100/min
  tallygate explain --json 'leaky-bucket 10/s queue 20'

Exit codes:
  0  success
  2  bad quota; standard error points at the mistake";

#[derive(Args)]
pub(crate) struct ExplainArgs {
    /// The quota, such as 'token-bucket 10/s burst 50'
    // Several words: quotes may be omitted.
    #[arg(value_name = "QUOTA", required = true, num_args = 1..)]
    pub(crate) quota: Vec<String>,
    /// Print the exact values as JSON, times in microseconds
    #[arg(long)]
    pub(crate) json: bool,
}

const ABOUT_DEMO: &str = "\
The same traffic through all six algorithms; then fair shares, a concurrency limit
and reservations. The production engine decides at supplied timestamps, so the
demo is immediate and its output is always the same.

Examples:
  tallygate demo
  tallygate demo --color always | less -R";

#[derive(Args)]
pub(crate) struct DemoArgs {
    /// When to colour the output; auto colours a terminal unless NO_COLOR is set
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: ColorChoice,
}

const ABOUT_RACE: &str = "\
Concurrent clients, each on its own connection, are counted twice: by reading
the count, checking it and writing it back, as in many articles, and by one
atomic step, as in Tallygate. The first admits too many. With --store memory the
clients are threads.

Examples:
  tallygate race
  tallygate race --store redis://localhost --clients 100 --limit 5
  tallygate race --store redis-cluster://host1,host2 --json

Exit codes:
  0  success
  1  the store failed
  2  bad arguments";

#[derive(Args)]
pub(crate) struct RaceArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// The number of concurrent clients
    #[arg(long, value_name = "N", default_value_t = 50,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) clients: u32,
    /// The limit
    #[arg(long, value_name = "L", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) limit: u32,
    /// The number of rounds
    #[arg(long, value_name = "R", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) rounds: u32,
    /// Print the results as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const ABOUT_SIMULATE: &str = "\
Runs the real core, leases, refusal cache, breakers and batches on simulated
time: up to 1,000 processes over 100 servers, with delays, losses, drifting
clocks and crashes. The same scenario and seed give the same results. They are
compared with an exact limiter that is asked the same. docs/scaling.md describes
the fields of a scenario; ops/scenarios has five.

Bounds, of the scenario and of --check, are a metric, <= < >= or > and a value:
  admitted <= 1.25x     relative to the exact limiter; also refused
  worst <= 1x           the most of one key in any span, relative to the worst
                        case of its limit; worst(NAME) for one limit
  calls <= 0.1          script calls per decision; steps: counters decided
  p99 < 5ms             also p50, p90, p999 and max
  degraded <= 1%        also leased, cached, unanswered, healthy and busy
  stranded <= 100       units

Examples:
  tallygate simulate ops/scenarios/hot-tenant.yaml
  tallygate simulate fleet.yaml --seed 7 --html report.html
  tallygate simulate fleet.yaml --check 'worst <= 1.25x' --check 'p99 < 5ms'

Exit codes:
  0  every bound holds
  1  a bound is broken, or a file cannot be written
  2  a bad scenario or bound";

#[derive(Args)]
pub(crate) struct SimulateArgs {
    /// The scenario, a YAML file
    #[arg(value_name = "SCENARIO", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// The seed of all random numbers, instead of the scenario's
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// A bound on the results, such as 'admitted <= 1.25x'; may be repeated
    #[arg(long = "check", value_name = "BOUND")]
    pub(crate) bounds: Vec<String>,
    /// Write a report with plots to this file, a single HTML page
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) html: Option<PathBuf>,
    /// Write the plots to this file, an SVG picture
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) svg: Option<PathBuf>,
    /// Print the results as JSON, times in microseconds
    #[arg(long)]
    pub(crate) json: bool,
}

const ABOUT_DOCTOR: &str = "\
Connects as a limiter does, tries every command a limiter needs, and checks the
server's settings. Each finding is ok, info, warn or fail; all but ok include
advice. Nothing is changed: its counters are in their own namespace
(tallygate:1:doctor-<random>:*) and are deleted. Checks that its user has no
permission for are reported as such.

Examples:
  tallygate doctor --store redis://user:password@host:6379
  tallygate doctor --store rediss://host --ca-cert ca.pem
  TALLYGATE_STORE=redis-cluster://host1,host2 tallygate doctor --json

Exit codes:
  0  healthy; warnings are allowed
  1  not healthy
  2  bad arguments";

#[derive(Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print the findings as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const ABOUT_CONFIG: &str = "\
A rules file defines which requests are limited, by which key and to what rate;
docs/rules.md describes every field. Variables such as ${REDIS_URL} are taken
from the environment. These commands do not connect to a store.

Examples:
  tallygate config check rules.yaml
  tallygate config explain rules.yaml --request 'POST /login' --ip 192.0.2.7
  tallygate config diff old.yaml new.yaml
  tallygate config schema > rules.schema.json";

#[derive(Subcommand)]
pub(crate) enum ConfigCommand {
    /// Report all errors and warnings in rules files
    #[command(after_long_help = ABOUT_CHECK)]
    Check(CheckArgs),
    /// Explain how the rules apply to a request, and the responses its client gets
    #[command(after_long_help = ABOUT_CONFIG_EXPLAIN)]
    Explain(ConfigExplainArgs),
    /// Compare two rules files: what changes, and which counters are kept
    #[command(after_long_help = ABOUT_DIFF)]
    Diff(DiffArgs),
    /// Print the JSON Schema of rules files, for editors
    #[command(after_long_help = ABOUT_SCHEMA)]
    Schema,
}

const ABOUT_CHECK: &str = "\
Every error is shown at its position with a stable code such as
rules::unknown-field and a hint. Warnings mark what is allowed but probably a
mistake; docs/rules.md lists them. With --json, each file is one line.

Examples:
  tallygate config check rules.yaml
  tallygate config check --strict rules.yaml
  tallygate config check --json staging.yaml production.yaml

Exit codes:
  0  valid; warnings are allowed
  1  warnings, with --strict
  2  errors";

#[derive(Args)]
pub(crate) struct CheckArgs {
    /// The rules files, each with the files it includes
    #[arg(value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) files: Vec<PathBuf>,
    /// Fail on warnings too
    #[arg(long)]
    pub(crate) strict: bool,
    /// Print the findings as JSON, one line per file
    #[arg(long)]
    pub(crate) json: bool,
}

const ABOUT_CONFIG_EXPLAIN: &str = "\
Shows for every rule whether it applies and why; the keys, tier, cost and limits
of the request; and the responses its client gets: the first admission, and the
first refusal. The production engine decides, on fresh counters at the start of a
window. Secrets in keys are not shown.

Examples:
  tallygate config explain rules.yaml --request 'POST /login'
  tallygate config explain rules.yaml --request 'GET https://api.example.com/x' \\
    --header 'x-api-key: k1' --ip 192.0.2.7
  tallygate config explain rules.yaml --request 'GET /' --peer 10.0.0.1 \\
    --ip 192.0.2.7 --json

Exit codes:
  0  success
  2  the rules file or the request is invalid";

#[derive(Args)]
pub(crate) struct ConfigExplainArgs {
    /// The rules file
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// The request: a method and a path or URL, such as 'POST /login'
    #[arg(long, value_name = "REQUEST")]
    pub(crate) request: String,
    /// A header of the request, such as 'x-api-key: k1'; may be repeated
    #[arg(long = "header", value_name = "HEADER")]
    pub(crate) headers: Vec<String>,
    /// The client's address; 192.0.2.1 by default
    #[arg(long, value_name = "ADDR")]
    pub(crate) ip: Option<IpAddr>,
    /// The address of the proxy that forwards the request for --ip, if any
    #[arg(long, value_name = "ADDR")]
    pub(crate) peer: Option<IpAddr>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const ABOUT_DIFF: &str = "\
A counter is identified by the rule's name, the limit's name, the algorithm and
the period. A changed limit or burst keeps the counts; a new name starts at zero.

Examples:
  tallygate config diff rules.yaml new-rules.yaml
  tallygate config diff --json <(git show HEAD:rules.yaml) rules.yaml

Exit codes:
  0  the same rules
  1  the rules differ
  2  a rules file is invalid";

#[derive(Args)]
pub(crate) struct DiffArgs {
    /// The current rules file
    #[arg(value_name = "OLD", value_hint = ValueHint::FilePath)]
    pub(crate) old: PathBuf,
    /// The new rules file
    #[arg(value_name = "NEW", value_hint = ValueHint::FilePath)]
    pub(crate) new: PathBuf,
    /// Print the changes as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const ABOUT_SCHEMA: &str = "\
Examples:
  tallygate config schema > rules.schema.json
An editor with a YAML language server uses it if the file starts with:
  # yaml-language-server: $schema=rules.schema.json";

const ABOUT_COMPLETIONS: &str = "\
Examples:
  bash  source <(tallygate completions bash)
  zsh   tallygate completions zsh > \"${fpath[1]}/_tallygate\"
  fish  tallygate completions fish > ~/.config/fish/completions/tallygate.fish";

const ABOUT_MAN: &str = "\
Examples:
  tallygate man | man -l -
  tallygate man --dir ~/.local/share/man/man1";
