//! A flood through the gateway with a healthy Redis: how many requests pass of those that may, how
//! many are answered, and how soon.

use std::fs;
use std::io;

use tallygate_testkit::ports;
use tallygate_testkit::redis::Server;

use super::contender::Setup;
use super::process::{Cores, Process};
use super::wrk::{self, Load, LoadResult};

/// Connections, each with one request in flight.
pub const CONNECTIONS: [usize; 4] = [500, 1_000, 2_000, 4_000];
const SECONDS: u32 = 5;
/// Units per second, and of the burst.
const LIMIT: u64 = 100;

/// What the clients of a flood saw.
#[derive(Clone, Copy, Debug)]
pub struct Flood {
    /// The requests that passed.
    pub passed: u64,
    /// The requests that may pass.
    pub bound: u64,
    /// The result of the load generator.
    pub result: LoadResult,
}

/// Floods one exhausted key over a number of connections.
///
/// # Errors
/// When a program cannot be run.
pub fn flood(setup: &Setup, connections: usize) -> io::Result<Flood> {
    let redis = Server::start();
    let file = setup.folder().join("overload.yaml");
    let rules = format!(
        "version: 1\nstore: {}\nrules:\n  - name: all\n    key: ip\n    \
         limits: token-bucket {LIMIT}/s burst {LIMIT}\n    on_failure: open\n",
        redis.url()
    );
    fs::write(&file, rules)?;
    let port = ports::free();
    let address = |port: u16| format!("127.0.0.1:{port}");
    let mut command = Cores::Any.command(setup.program());
    command.arg("serve").arg("--config").arg(file);
    // All connections are this machine's.
    command.args(["--connections-per-client", "0"]);
    command.args(["--admin", &address(ports::free())]);
    command.args(["--listen", &address(ports::free())]);
    command.args([
        "--gateway",
        &address(port),
        "--upstream",
        &setup.upstream_url(),
    ]);
    let process = Process::listening(command, port)?;
    let load = Load {
        connections,
        seconds: SECONDS,
    };
    let result = wrk::run(
        Cores::Any,
        load,
        None,
        &format!("http://{}/", address(port)),
    )?;
    drop(process);
    Ok(Flood {
        passed: result.requests - result.errors,
        bound: LIMIT + LIMIT * u64::from(SECONDS),
        result,
    })
}
