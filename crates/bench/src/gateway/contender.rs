//! The contenders: their command lines and configurations.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use tallygate_testkit::ports;
use tempfile::TempDir;

use super::bare::Bare;
use super::process::{Cores, Process};
use super::scenario::{Scenario, Workers, Workload};

/// A server to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// `tallygate serve`.
    Tallygate,
    /// hyper without limits.
    Bare,
    /// nginx with `limit_req`.
    Nginx,
}

impl Contender {
    /// All contenders; the others are compared with the first.
    pub const ALL: [Contender; 3] = [Contender::Tallygate, Contender::Bare, Contender::Nginx];

    /// The name of its column.
    pub fn name(self) -> &'static str {
        match self {
            Contender::Tallygate => "tallygate",
            Contender::Bare => "bare hyper",
            Contender::Nginx => "nginx",
        }
    }

    /// Whether it supports a workload.
    pub fn supports(self, workload: Workload) -> bool {
        match (self, workload) {
            (Contender::Tallygate, _) => true,
            (Contender::Bare, Workload::Proxied | Workload::Checked | Workload::Streamed)
            | (Contender::Nginx, Workload::Proxied | Workload::Refused) => true,
            (Contender::Bare, Workload::Refused | Workload::Settled)
            | (Contender::Nginx, Workload::Checked | Workload::Streamed | Workload::Settled) => {
                false
            }
        }
    }

    /// Starts it. Returns the process and the URL to request.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start(
        self,
        scenario: Scenario,
        setup: &Setup,
        cores: Cores,
    ) -> io::Result<(Process, String)> {
        let port = ports::free();
        let command = match self {
            Contender::Tallygate => setup.tallygate(scenario, cores, port)?,
            Contender::Bare => setup.bare(scenario, cores, port)?,
            Contender::Nginx => setup.nginx(scenario, cores, port)?,
        };
        let path = match scenario.workload {
            Workload::Checked => "/v1/check",
            Workload::Proxied | Workload::Refused | Workload::Streamed | Workload::Settled => "/",
        };
        let url = format!("http://127.0.0.1:{port}{path}");
        Ok((Process::listening(command, port)?, url))
    }
}

/// What all runs share: a folder, the program, the upstream.
#[derive(Debug)]
pub struct Setup {
    folder: TempDir,
    tallygate: PathBuf,
    /// Answers with a short text.
    upstream: u16,
    /// Answers with a stream of events.
    events: u16,
    _upstreams: [Process; 2],
}

impl Setup {
    /// Builds the program and starts the upstreams.
    ///
    /// # Errors
    /// When nginx, wrk, taskset or setpriv is missing, or the program cannot be built.
    pub fn new() -> io::Result<Self> {
        for (program, package) in [
            ("nginx", "nginx-light"),
            ("wrk", "wrk"),
            ("taskset", "util-linux"),
            ("setpriv", "util-linux"),
        ] {
            if Command::new(program).arg("-v").output().is_err() {
                let reason = format!("{program} is missing: apt-get install {package}");
                return Err(io::Error::other(reason));
            }
        }
        let folder = tempfile::tempdir()?;
        fs::write(folder.path().join("check.lua"), SCRIPT)?;
        let upstream = ports::free();
        let server = format!(
            "server {{ listen 127.0.0.1:{upstream}; keepalive_requests 100000000;\n\
             location / {{ return 200 \"{}\"; }} }}",
            "hello ".repeat(20)
        );
        let upstream_nginx = nginx(
            folder.path(),
            "upstream",
            Cores::Others,
            Workers::One,
            &server,
        )?;
        let events = ports::free();
        let mut event_server = Cores::Others.command(env::current_exe()?);
        event_server.arg("--child").args(Bare::Events.task(events));
        Ok(Setup {
            tallygate: build()?,
            _upstreams: [
                Process::listening(upstream_nginx, upstream)?,
                Process::listening(event_server, events)?,
            ],
            folder,
            upstream,
            events,
        })
    }

    /// The folder for configurations.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The program.
    pub fn program(&self) -> &Path {
        &self.tallygate
    }

    /// The URL of the upstream that answers with a short text.
    pub fn upstream_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.upstream)
    }

    /// The port of the upstream of a workload.
    fn upstream_of(&self, workload: Workload) -> u16 {
        match workload {
            Workload::Proxied | Workload::Refused | Workload::Checked => self.upstream,
            Workload::Streamed | Workload::Settled => self.events,
        }
    }

    /// The wrk script for the check API.
    pub fn script(&self) -> PathBuf {
        self.folder.path().join("check.lua")
    }

    fn tallygate(&self, scenario: Scenario, cores: Cores, port: u16) -> io::Result<Command> {
        let limit = match scenario.workload {
            Workload::Refused => "token-bucket 1/d",
            Workload::Proxied | Workload::Checked | Workload::Streamed | Workload::Settled => {
                UNREACHED_LIMIT
            }
        };
        let cost = match scenario.workload {
            Workload::Proxied | Workload::Refused | Workload::Checked | Workload::Streamed => "1",
            Workload::Settled => "{ default: 100, actual: { json: usage.total_tokens } }",
        };
        let rules = format!(
            "version: 1\nrules:\n  - {{ name: all, key: [ip], limits: [{limit}], cost: {cost} }}\n"
        );
        let file = self.folder.path().join("rules.yaml");
        fs::write(&file, rules)?;
        let mut command = with_threads(cores.command(&self.tallygate), scenario.workers);
        command.arg("serve").arg("--config").arg(file);
        // All connections are this machine's.
        command.args(["--connections-per-client", "0"]);
        command.args(["--admin", &address(ports::free())]);
        match scenario.workload {
            Workload::Checked => {
                command.args(["--listen", &address(port)]);
            }
            Workload::Proxied | Workload::Refused | Workload::Streamed | Workload::Settled => {
                let upstream = address(self.upstream_of(scenario.workload));
                command.args(["--listen", &address(ports::free())]);
                command.args(["--gateway", &address(port)]);
                command.args(["--upstream", &format!("http://{upstream}")]);
            }
        }
        Ok(command)
    }

    fn bare(&self, scenario: Scenario, cores: Cores, port: u16) -> io::Result<Command> {
        let bare = match scenario.workload {
            Workload::Checked => Bare::Check,
            workload => Bare::Proxy {
                to: self.upstream_of(workload),
            },
        };
        let mut command = with_threads(cores.command(env::current_exe()?), scenario.workers);
        command.arg("--child").args(bare.task(port));
        Ok(command)
    }

    fn nginx(&self, scenario: Scenario, cores: Cores, port: u16) -> io::Result<Command> {
        let (rate, burst) = match scenario.workload {
            Workload::Refused => ("1r/m", ""),
            Workload::Proxied | Workload::Checked | Workload::Streamed | Workload::Settled => {
                ("1000000r/s", " burst=1000000 nodelay")
            }
        };
        let servers = format!(
            "limit_req_zone $binary_remote_addr zone=all:10m rate={rate};\n\
             limit_req_status 429;\n\
             upstream app {{ server 127.0.0.1:{}; keepalive 64; keepalive_requests 100000000; }}\n\
             server {{ listen 127.0.0.1:{port}; keepalive_requests 100000000;\n\
             location / {{ limit_req zone=all{burst};\n\
             proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection \"\"; }} }}",
            self.upstream
        );
        nginx(
            self.folder.path(),
            "front",
            cores,
            scenario.workers,
            &servers,
        )
    }
}

/// A limit that no run reaches.
const UNREACHED_LIMIT: &str = "token-bucket 1000000/s burst 1000000";

/// Sends checks for a thousand keys in turn.
const SCRIPT: &str = r#"
local requests = {}
for i = 1, 1000 do
  local body = string.format('{"key":"user:%d","quota":"token-bucket 1000000/s burst 1000000","cost":1}', i)
  requests[i] = wrk.format("POST", "/v1/check", { ["content-type"] = "application/json" }, body)
end
local i = 0
request = function()
  i = i % 1000 + 1
  return requests[i]
end
"#;

fn address(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

fn with_threads(mut command: Command, workers: Workers) -> Command {
    match workers {
        Workers::One => command.env("TOKIO_WORKER_THREADS", "1"),
        Workers::Default => command.env_remove("TOKIO_WORKER_THREADS"),
    };
    command
}

/// nginx with a configuration of its own, in the foreground.
fn nginx(
    folder: &Path,
    name: &str,
    cores: Cores,
    workers: Workers,
    servers: &str,
) -> io::Result<Command> {
    let count = match workers {
        Workers::One => "1",
        Workers::Default => "auto",
    };
    let config = format!(
        "worker_processes {count};\ndaemon off;\npid {name}.pid;\nerror_log /dev/null;\n\
         events {{ worker_connections 16384; }}\n\
         http {{\naccess_log off;\ndefault_type text/plain;\n\
         client_body_temp_path {name}.body;\nproxy_temp_path {name}.proxy;\n\
         fastcgi_temp_path {name}.fastcgi;\nuwsgi_temp_path {name}.uwsgi;\n\
         scgi_temp_path {name}.scgi;\n{servers}\n}}\n"
    );
    let file = folder.join(format!("{name}.conf"));
    fs::write(&file, config)?;
    let mut command = cores.command("nginx");
    command.arg("-p").arg(folder).arg("-c").arg(file);
    Ok(command)
}

/// Builds the program in release mode.
fn build() -> io::Result<PathBuf> {
    let built = Command::new(env!("CARGO"))
        .args(["build", "--release", "-p", "tallygate-server"])
        .status()?;
    if !built.success() {
        return Err(io::Error::other("tallygate-server cannot be built"));
    }
    // This program is in its `deps` folder.
    let this = env::current_exe()?;
    let folder = this.parent().and_then(Path::parent);
    let folder = folder.ok_or_else(|| io::Error::other("this program has no parent folder"))?;
    Ok(folder.join("tallygate"))
}
