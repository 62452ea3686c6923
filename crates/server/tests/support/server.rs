//! The `tallygate serve` process under test.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tallygate_testkit::poll;

use crate::client::{Response, send};

/// For everything that a test waits for.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// The binary under test, without inherited settings.
pub(crate) fn tallygate(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tallygate"));
    command.args(args).stdin(Stdio::null());
    for name in [
        "TALLYGATE_STORE",
        "TALLYGATE_ADMIN_TOKEN",
        "TALLYGATE_ACCESS_LOG",
        "TALLYGATE_LOG",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "OTEL_EXPORTER_OTLP_PROTOCOL",
        "OTEL_TRACES_SAMPLER_ARG",
    ] {
        command.env_remove(name);
    }
    command
}

/// A server process, killed on drop.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) api: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) first_line: String,
    pub(crate) stderr: Arc<Mutex<String>>,
}

impl Server {
    /// Starts on free ports.
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::start_with_env(args, &[])
    }

    /// Starts on free ports, with environment variables.
    pub(crate) fn start_with_env(args: &[&str], variables: &[(&str, &str)]) -> Self {
        let ports = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let mut child = tallygate(&[&ports, args].concat())
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = Arc::new(Mutex::new(String::new()));
        let mut pipe = child.stderr.take().unwrap();
        let buffer = Arc::clone(&stderr);
        thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(length @ 1..) = pipe.read(&mut chunk) {
                let text = String::from_utf8_lossy(&chunk[..length]).into_owned();
                buffer.lock().unwrap().push_str(&text);
            }
        });
        let mut first_line = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut first_line).unwrap();
        let addresses: Value = serde_json::from_str(&first_line)
            .unwrap_or_else(|_| panic!("no first line: {}", stderr.lock().unwrap()));
        let address = |name: &str| addresses[name].as_str().unwrap().parse().unwrap();
        Server {
            child,
            api: address("api"),
            admin: address("admin"),
            first_line,
            stderr,
        }
    }

    /// The address of the gateway.
    pub(crate) fn gateway(&self) -> SocketAddr {
        let line: Value = serde_json::from_str(&self.first_line).unwrap();
        line["gateway"].as_str().unwrap().parse().unwrap()
    }

    /// Posts JSON to the check API.
    pub(crate) fn post(&self, path: &str, body: &str) -> Response {
        send(self.api, "POST", path, &[JSON], body)
    }

    pub(crate) fn check(&self, body: &str) -> Response {
        self.post("/v1/check", body)
    }

    /// Sends JSON to the admin listener.
    pub(crate) fn admin(&self, method: &str, path: &str, body: &str) -> Response {
        send(self.admin, method, path, &[JSON], body)
    }

    /// The value of one series.
    pub(crate) fn metric(&self, series: &str) -> Option<f64> {
        let text = self.admin("GET", "/metrics", "").body;
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("{series} ")))?;
        line.rsplit(' ').next()?.parse().ok()
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([name, &id]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits for the process to exit.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let exited = poll::first(TIMEOUT, || self.child.try_wait().unwrap());
        exited.unwrap_or_else(|| panic!("still running: {}", self.stderr()))
    }

    /// Standard error so far.
    pub(crate) fn stderr(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) const JSON: (&str, &str) = ("content-type", "application/json");

/// A directory that is deleted on drop.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tallygate-serve-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        TempDir(path)
    }

    /// Writes a file and returns its path.
    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
