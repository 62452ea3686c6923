//! Runs tasks in fresh processes of the same program, so that the heap of an earlier measurement
//! does not influence the next one.

use std::env;
use std::io;
use std::process::{Command, Stdio};

use crate::measurement::Measurement;
use crate::options::Options;

/// Runs this program again for one task and returns the measurements it prints.
///
/// # Errors
///
/// The program cannot be started, or it fails.
pub fn measurements(options: &Options, task: &[String]) -> io::Result<Vec<Measurement>> {
    let output = Command::new(env::current_exe()?)
        .args(&options.given)
        .arg("--child")
        .args(task)
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        let task = task.join(" ");
        return Err(io::Error::other(format!("{task}: {}", output.status)));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(Measurement::parse).collect())
}
