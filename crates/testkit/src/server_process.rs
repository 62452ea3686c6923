//! A server program that prints its address in its first line.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A running server program; killed on drop.
#[derive(Debug)]
pub struct ServerProcess {
    child: Child,
    /// The first line it printed, when it was ready.
    pub first_line: String,
}

impl ServerProcess {
    /// Starts it without Tallygate and OpenTelemetry variables, and waits for its first line.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(command: &mut Command) -> Self {
        let is_ours = |name: &str| name.starts_with("TALLYGATE_") || name.starts_with("OTEL_");
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(is_ours) {
                command.env_remove(name);
            }
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command
            .stderr(Stdio::null())
            .spawn()
            .expect("the program can be started");
        let stdout = child.stdout.take().expect("stdout is piped");
        let mut first_line = String::new();
        let read = BufReader::new(stdout).read_line(&mut first_line);
        read.expect("the first line is UTF-8");
        ServerProcess { child, first_line }
    }

    /// Its process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills it.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.kill();
    }
}
