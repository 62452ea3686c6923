//! The command line of the real binary.
//!
//! Output is compared with `tests/golden/*`. After an intended change, update the files with
//! `UPDATE_GOLDEN=1 cargo test -p tallygate-server --test cli` and read the diff.

// Test helpers may panic.
#![allow(clippy::unwrap_used)]

#[path = "../support/golden.rs"]
mod golden_file;

mod bad_stores;
mod config;
mod doctor;
mod golden;
mod malformed;
mod race;
mod replay;
mod replay_stores;
mod simulate;
mod streams;
mod vectors;

use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::thread;

/// The binary under test, without variables that change its output.
fn tallygate(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tallygate"));
    command
        .args(args)
        .env_remove("NO_COLOR")
        .env_remove("TALLYGATE_STORE")
        .env_remove("REDIS_URL")
        .env("COLUMNS", "80");
    command
}

/// The exit code and the output of a command.
struct CommandOutput {
    code: i32,
    stdout: String,
    stderr: String,
}

/// Runs to the end with this standard input.
fn run(args: &[&str], input: impl Into<Vec<u8>>) -> CommandOutput {
    let input = input.into();
    let mut child = tallygate(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A run that stops early does not read everything.
    let feeder = thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap();
    output.into()
}

impl From<Output> for CommandOutput {
    fn from(output: Output) -> Self {
        CommandOutput {
            code: output.status.code().unwrap(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}
