//! A standing attacker: what was tried against `tallygate serve`, one file per family of attacks.
//! A new finding is one more row in one of their tables.

#![allow(clippy::unwrap_used)]

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../support/client.rs"]
mod client;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../support/server.rs"]
mod server;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../support/upstream.rs"]
mod upstream;

mod cross_site;
mod floods;
mod http2;
mod leaks;
mod proxy_protocol;
mod real_servers;
mod refusals;
mod secrets;
mod smuggling;
mod spelling;
mod stalls;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use server::{Server, TIMEOUT, TempDir};
use tallygate_testkit::poll;
use upstream::{Received, Upstream};

/// A gateway in front of an upstream, with a rules file.
struct Target {
    server: Server,
    upstream: Upstream,
    _files: TempDir,
}

impl Target {
    /// Starts a gateway with these rules (YAML) in front of an upstream.
    fn start(rules: &str, upstream: Upstream) -> Self {
        Self::start_with(rules, upstream, &[])
    }

    /// The same with more arguments for `serve`.
    fn start_with(rules: &str, upstream: Upstream, args: &[&str]) -> Self {
        Self::start_with_env(rules, upstream, args, &[])
    }

    /// The same with environment variables.
    fn start_with_env(
        rules: &str,
        upstream: Upstream,
        args: &[&str],
        variables: &[(&str, &str)],
    ) -> Self {
        let files = TempDir::new();
        let config = files.write("rules.yaml", rules);
        let url = upstream.url();
        let base = [
            "--config",
            &config,
            "--gateway",
            "127.0.0.1:0",
            "--upstream",
            &url,
        ];
        let server = Server::start_with_env(&[&base, args].concat(), variables);
        Target {
            server,
            upstream,
            _files: files,
        }
    }
}

/// Sends bytes on a new connection and reads until it is closed.
fn raw(to: SocketAddr, bytes: impl AsRef<[u8]>) -> String {
    raw_over(TcpStream::connect(to).unwrap(), bytes)
}

/// The same on a connection.
fn raw_over(mut stream: TcpStream, bytes: impl AsRef<[u8]>) -> String {
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let _ = stream.write_all(bytes.as_ref());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// The status of the first response in a text.
fn status(response: &str) -> u16 {
    let status = response
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    status.unwrap_or_else(|| panic!("no status: {response:?}"))
}
