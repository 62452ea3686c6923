//! The arguments of `tallygate serve`, and their help.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

pub(super) const ABOUT: &str = "\
Without a rules file, --limit applies to every client address, or else a small
sample of rules, and the counters are in memory. The first line on standard
output is JSON with the bound addresses; port 0 picks a free port. Logs go to
standard error: text on a terminal, JSON otherwise. TALLYGATE_LOG sets the
level, such as debug.

SIGHUP and any change of the rules file reload it; an invalid file changes
nothing. SIGHUP also opens the access log again. Changes of the gateway's
certificate and key reload them too. SIGTERM and SIGINT stop accepting
connections and finish requests in flight, for at most 20 seconds.

Arguments override the `gateway` section of the rules file; timeouts and other
sizes are set only there.

Changes by the admin API and the verbs charge, refund and reset need a token:
Authorization: Bearer <token>, at least 16 characters, from
TALLYGATE_ADMIN_TOKEN or --admin-token-file. If none is set, only requests from
this machine may make them.

Examples:
  tallygate serve
  tallygate serve --limit 10/s --upstream http://localhost:3000
  tallygate serve --config rules.yaml --store redis://localhost
  tallygate serve --config rules.yaml --upstream http://localhost:3000
  tallygate serve --config rules.yaml --upstream https://api.internal \\
    --gateway 0.0.0.0:443 --tls-cert cert.pem --tls-key key.pem
  tallygate serve --config rules.yaml --check
  tallygate serve --listen 0.0.0.0:8080 --admin-token-file /run/secrets/token

Exit codes:
  0  stopped by a signal; the log says if all requests were finished; --check: valid
  1  an external failure, such as an address in use
  2  bad arguments or an invalid rules file";

#[derive(Args)]
pub(crate) struct ServeArgs {
    /// The rules file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
    /// Instead of a rules file: a limit for every client address, on every path, such as '10/s'; may
    /// be repeated: all of them apply
    // An invalid quota such as -1/s is no flag.
    #[arg(long = "limit", value_name = "QUOTA", allow_hyphen_values = true)]
    pub(crate) limits: Vec<String>,
    /// Address of the check API and the playground
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,
    /// Address of the gateway, if there is an upstream; 127.0.0.1:8000 by default
    #[arg(long, value_name = "ADDR")]
    pub(crate) gateway: Option<SocketAddr>,
    /// Upstream of the gateway, such as http://localhost:3000: https:// for TLS, h2c:// for
    /// HTTP/2, h2:// for both; may be repeated, for round robin
    #[arg(long = "upstream", value_name = "URL")]
    pub(crate) upstreams: Vec<String>,
    /// For upstreams, trust the CA certificates in this PEM file instead of the system's
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) upstream_ca_cert: Option<PathBuf>,
    /// Certificate of the gateway for TLS, a PEM file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of the gateway's certificate, a PEM file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Trusted proxies have to start their connections to the gateway with a PROXY protocol header, which
    /// names the client; needs trusted_proxies in the rules file
    #[arg(long)]
    pub(crate) proxy_protocol: bool,
    /// Address of health checks, metrics and the admin API
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8090")]
    pub(crate) admin: SocketAddr,
    /// Connections of one client to each listener, overriding the rules file: beyond them its
    /// idlest is closed, trusted proxies are exempt, 0 is no bound; 1024 by default
    #[arg(long, value_name = "N")]
    pub(crate) connections_per_client: Option<usize>,
    /// The store of the counters, overriding the rules file: 'memory', or the URL of Redis or
    /// Valkey, such as redis://user:password@host:6379/0
    #[arg(
        long,
        value_name = "URL",
        env = "TALLYGATE_STORE",
        hide_env_values = true
    )]
    pub(crate) store: Option<String>,
    /// How many live keys have their own counters in memory, overriding the rules file: all keys
    /// with the memory store, otherwise those counted while the store fails; 1000000 by default
    #[arg(long, value_name = "N", value_parser = memory_keys)]
    pub(crate) memory_keys: Option<usize>,
    /// For the store, trust the CA certificates in this PEM file instead of the system's
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) ca_cert: Option<PathBuf>,
    /// Client certificate for the store, a PEM file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "client_key")]
    pub(crate) client_cert: Option<PathBuf>,
    /// Private key of the client certificate, a PEM file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "client_cert")]
    pub(crate) client_key: Option<PathBuf>,
    /// What to do without the store for checks that name no rule
    #[arg(long, value_name = "POLICY", default_value = "local")]
    pub(crate) on_failure: Failing,
    /// Read the admin token from this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) admin_token_file: Option<PathBuf>,
    /// Show the most frequent and most refused keys in clear instead of hashed, except secrets
    #[arg(long)]
    pub(crate) show_keys: bool,
    /// Append a line of JSON for each request to the gateway and the API to this file; '-' is standard
    /// output. SIGHUP opens the file again
    #[arg(long, value_name = "FILE", env = "TALLYGATE_ACCESS_LOG", value_hint = ValueHint::FilePath)]
    pub(crate) access_log: Option<PathBuf>,
    /// Send metrics and traces to this OpenTelemetry receiver (OTLP over HTTP), such as
    /// http://localhost:4318
    #[arg(
        long,
        value_name = "URL",
        env = "OTEL_EXPORTER_OTLP_ENDPOINT",
        hide_env_values = true
    )]
    pub(crate) otlp: Option<String>,
    /// Share of requests to trace, 0 to 1, unless the trace context of a trusted proxy decides; by
    /// default OTEL_TRACES_SAMPLER_ARG or 0.01
    #[arg(long, value_name = "RATIO")]
    pub(crate) otlp_sample: Option<f64>,
    /// Serve the playground also with --config; without one it always is
    #[arg(long)]
    pub(crate) playground: bool,
    /// Check the arguments and the rules file, then exit
    #[arg(long)]
    pub(crate) check: bool,
}

impl ServeArgs {
    /// Whether visitors may try quotas: by default only where there are no rules of one's own.
    pub(crate) fn serves_playground(&self) -> bool {
        self.playground || self.config.is_none()
    }
}

fn memory_keys(text: &str) -> Result<usize, String> {
    const MAX: usize = 100_000_000;
    let keys = text.parse().ok().filter(|keys| (1..=MAX).contains(keys));
    keys.ok_or_else(|| format!("expected a number from 1 to {MAX}"))
}

/// What to do without the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Failing {
    /// Count in this process, with its share of the limit
    Local,
    /// Admit, marked as degraded
    Open,
    /// Answer 503
    Closed,
}
