//! A child process that does not outlive the test.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::poll;

/// Kills the child and removes its folder once the test process is gone: the pipe then reads EOF,
/// whatever ended the process.
const WATCHDOG: &str = r#"read -r _; kill -9 "$1"; rm -rf "$2""#;

/// A child in its own folder, ended by SIGKILL on drop or when the test process ends.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    watchdog: Child,
}

impl Process {
    /// Runs a program in a folder; its output is appended to a log.
    pub(crate) fn spawn(
        program: &Path,
        args: &[String],
        folder: &Path,
        log: &Path,
    ) -> io::Result<Self> {
        let log = OpenOptions::new().create(true).append(true).open(log)?;
        let mut child = in_own_group(Command::new(program))
            .args(args)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(File::try_clone(&log)?)
            .stderr(log)
            .spawn()?;
        let watchdog = in_own_group(Command::new("sh"))
            .args(["-c", WATCHDOG, "watchdog", &child.id().to_string()])
            .arg(folder)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match watchdog {
            Ok(watchdog) => Ok(Self { child, watchdog }),
            Err(error) => {
                end(&mut child);
                Err(error)
            }
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Freezes the child and waits until it has stopped.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
        poll::until(Duration::from_secs(5), "a process stops", || {
            self.is_stopped()
        });
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.state() == Some('T')
    }

    /// Resumes a frozen child.
    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Pins the child's main thread to one processor.
    pub(crate) fn pin(&self, processor: usize) {
        let mut only = CpuSet::new();
        only.set(processor);
        sched_setaffinity(Some(self.pid()), &only).expect("the processor exists");
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("a child not waited for keeps its pid");
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// The child's state letter in `/proc`.
    fn state(&self) -> Option<char> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.id())).ok()?;
        // The name before it is in parentheses and may contain any character.
        stat.rsplit_once(") ")?.1.chars().next()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The child is reaped last: until then its PID, which the watchdog knows, is not reused.
        let _ = self.child.kill();
        end(&mut self.watchdog);
        let _ = self.child.wait();
    }
}

/// In its own process group: a Ctrl-C for the tests must not end the watchdog.
fn in_own_group(mut command: Command) -> Command {
    command.process_group(0);
    command
}

fn end(child: &mut Child) {
    // An error means that it has ended already.
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_ends_when_the_pipe_of_its_watchdog_closes() {
        let folder = tempfile::tempdir().unwrap();
        let args = ["600".to_owned()];
        let log = folder.path().join("log");
        let mut process = Process::spawn(Path::new("sleep"), &args, folder.path(), &log).unwrap();
        assert!(process.is_running());
        // What the kernel does with the pipe when this process dies.
        drop(process.watchdog.stdin.take());
        poll::until(Duration::from_secs(10), "the child ends", || {
            !process.is_running()
        });
        poll::until(Duration::from_secs(10), "its folder is removed", || {
            !folder.path().exists()
        });
    }
}
