//! `tallygate serve` as a stranger meets it: the real binary, its first line, real sockets.

// A test that cannot go on may say so by panicking, helpers included.
#![allow(clippy::unwrap_used)]

mod admin;
mod auth;
mod bad_input;
mod check;
mod client;
mod crowds;
mod drain;
mod gateway;
mod live;
mod metrics;
mod otlp;
mod playground;
mod prometheus;
mod reload;
mod starting;
mod stores;
mod tls;
mod top;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use client::{Answer, ask};
use serde_json::Value;
use tallygate_testkit::poll;

/// How long anything may take that is waited for.
const SOON: Duration = Duration::from_secs(30);

/// The binary under test, with nothing of the surroundings.
fn tallygate(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tallygate"));
    command.args(args).stdin(Stdio::null());
    for name in [
        "TALLYGATE_STORE",
        "TALLYGATE_ADMIN_TOKEN",
        "TALLYGATE_LOG",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "OTEL_EXPORTER_OTLP_PROTOCOL",
        "OTEL_TRACES_SAMPLER_ARG",
    ] {
        command.env_remove(name);
    }
    command
}

/// A server, ended with the test.
struct Server {
    child: Child,
    api: SocketAddr,
    admin: SocketAddr,
    first_line: String,
    said: Arc<Mutex<String>>,
}

impl Server {
    /// Starts on free ports.
    fn start(args: &[&str]) -> Self {
        Self::start_as(args, &[])
    }

    /// Starts on free ports, with variables of the environment.
    fn start_as(args: &[&str], variables: &[(&str, &str)]) -> Self {
        let ports = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let mut child = tallygate(&[&ports, args].concat())
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        let mut stderr = child.stderr.take().unwrap();
        let heard = Arc::clone(&said);
        thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(length @ 1..) = stderr.read(&mut chunk) {
                let text = String::from_utf8_lossy(&chunk[..length]).into_owned();
                heard.lock().unwrap().push_str(&text);
            }
        });
        let mut first_line = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut first_line).unwrap();
        let addresses: Value = serde_json::from_str(&first_line)
            .unwrap_or_else(|_| panic!("no first line: {}", said.lock().unwrap()));
        let address = |name: &str| addresses[name].as_str().unwrap().parse().unwrap();
        Server {
            child,
            api: address("api"),
            admin: address("admin"),
            first_line,
            said,
        }
    }

    /// Posts JSON to the check API.
    fn post(&self, path: &str, body: &str) -> Answer {
        ask(self.api, "POST", path, &[JSON], body)
    }

    /// Posts one question.
    fn check(&self, body: &str) -> Answer {
        self.post("/v1/check", body)
    }

    /// Asks the admin listener.
    fn admin(&self, method: &str, path: &str, body: &str) -> Answer {
        ask(self.admin, method, path, &[JSON], body)
    }

    /// The value of one series.
    fn metric(&self, series: &str) -> Option<f64> {
        let text = self.admin("GET", "/metrics", "").body;
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("{series} ")))?;
        line.rsplit(' ').next()?.parse().ok()
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([name, &id]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits for it to end by itself.
    fn ended(&mut self) -> ExitStatus {
        let ended = poll::first(SOON, || self.child.try_wait().unwrap());
        ended.unwrap_or_else(|| panic!("still there: {}", self.said()))
    }

    /// What it said on standard error so far.
    fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const JSON: (&str, &str) = ("content-type", "application/json");

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tallygate-serve-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    /// Writes a file, and gives its path.
    fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
