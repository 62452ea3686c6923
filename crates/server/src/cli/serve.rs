//! The arguments of `tallygate serve`, and their help.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

pub(super) const ABOUT: &str = "\
Without a rules file it counts in this process under a small sample of rules.
The first line on standard output is JSON and says where it listens; port 0
finds a free port. Logs go to standard error: text on a terminal, JSON
elsewhere; TALLYGATE_LOG=debug says more.

SIGHUP, and any change of the rules file, reads it again; one that is wrong
changes nothing. So do changes of the gateway's certificate and its key. SIGTERM
and SIGINT stop taking connections and answer what is under way, for at most 20
seconds.

What the rules file says under `gateway` holds unless an argument says
otherwise; its timeouts and sizes are there only.

Away from this machine, the admin API and the verbs charge, refund and reset
need a token: Authorization: Bearer <token>, at least 16 characters, from
TALLYGATE_ADMIN_TOKEN or --admin-token-file. Without one nobody else gets in.

Examples:
  tallygate serve
  tallygate serve --config rules.yaml --store redis://localhost
  tallygate serve --config rules.yaml --upstream http://localhost:3000
  tallygate serve --config rules.yaml --upstream https://api.internal \\
    --gateway 0.0.0.0:443 --tls-cert cert.pem --tls-key key.pem
  tallygate serve --config rules.yaml --check
  tallygate serve --listen 0.0.0.0:8080 --admin-token-file /run/secrets/token

Exit codes:
  0  told to stop; the log says whether every request under way was answered; --check: good
  1  something outside failed: an address is taken
  2  the arguments or the rules are wrong";

// `Debug` is written by hand: a URL may hold a password.
#[derive(Args)]
pub(crate) struct ServeArgs {
    /// The rules file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
    /// Where the check API and the playground listen
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,
    /// Where the gateway listens, with an upstream: 127.0.0.1:8000 unless given
    #[arg(long, value_name = "ADDR")]
    pub(crate) gateway: Option<SocketAddr>,
    /// The service that the gateway leads to, such as http://localhost:3000: https:// for TLS,
    /// h2c:// for HTTP/2, h2:// for both; give several to take turns
    #[arg(long = "upstream", value_name = "URL")]
    pub(crate) upstreams: Vec<String>,
    /// Trust the authority in this PEM file with upstreams instead of the system's
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) upstream_ca_cert: Option<PathBuf>,
    /// Speak TLS with the gateway's clients: the certificate in this PEM file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Its private key
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Where health, metrics and the admin API are
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8090")]
    pub(crate) admin: SocketAddr,
    /// Where the counters are kept, whatever the rules file says: 'memory', or the URL of Redis or
    /// Valkey, such as redis://user:password@host:6379/0
    #[arg(
        long,
        value_name = "URL",
        env = "TALLYGATE_STORE",
        hide_env_values = true
    )]
    pub(crate) store: Option<String>,
    /// Trust the authority in this PEM file with the store instead of the system's
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) ca_cert: Option<PathBuf>,
    /// Show the store the certificate in this PEM file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "client_key")]
    pub(crate) client_cert: Option<PathBuf>,
    /// Prove it with the key in this PEM file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "client_cert")]
    pub(crate) client_key: Option<PathBuf>,
    /// What a check that names no rule is answered when the store does not answer
    #[arg(long, value_name = "POLICY", default_value = "open")]
    pub(crate) on_failure: Failing,
    /// Read the admin token from this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) admin_token_file: Option<PathBuf>,
    /// Show the hottest and most refused keys in clear instead of hashed, but for secrets
    #[arg(long)]
    pub(crate) show_keys: bool,
    /// Send metrics and traces to this OpenTelemetry receiver (OTLP over HTTP), such as
    /// http://localhost:4318
    #[arg(
        long,
        value_name = "URL",
        env = "OTEL_EXPORTER_OTLP_ENDPOINT",
        hide_env_values = true
    )]
    pub(crate) otlp: Option<String>,
    /// Trace this share of the requests that do not say themselves whether they are traced: 0 to 1;
    /// 0.01 unless given here or in OTEL_TRACES_SAMPLER_ARG
    #[arg(long, value_name = "RATIO")]
    pub(crate) otlp_sample: Option<f64>,
    /// Check the arguments and the rules, and end
    #[arg(long)]
    pub(crate) check: bool,
}

/// What to answer without the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Failing {
    /// Admit, marked as degraded
    Open,
    /// Answer 503
    Closed,
}

impl std::fmt::Debug for ServeArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServeArgs").finish_non_exhaustive()
    }
}
