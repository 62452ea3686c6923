//! A program that serves and says where in its first line. Knows nothing of what it serves.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A program that serves, ended with its value.
#[derive(Debug)]
pub struct Served {
    child: Child,
    /// The first line that it said, when it was ready.
    pub first_line: String,
}

impl Served {
    /// Starts it without our own settings, and waits for its first line.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(command: &mut Command) -> Self {
        let ours = |name: &str| name.starts_with("TALLYGATE_") || name.starts_with("OTEL_");
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(ours) {
                command.env_remove(name);
            }
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command
            .stderr(Stdio::null())
            .spawn()
            .expect("it can be started");
        let stdout = child.stdout.take().expect("it is piped");
        let mut first_line = String::new();
        let read = BufReader::new(stdout).read_line(&mut first_line);
        read.expect("what it says is text");
        Served { child, first_line }
    }

    /// The number of its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it at once.
    pub fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.end();
    }
}
