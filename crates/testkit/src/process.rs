//! A child process that does not outlive the test. Knows nothing of what it runs.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::poll;

/// Ends the child and clears its folder once the test's process is gone: then, whatever ended it,
/// this end of the pipe reads its end.
const WATCHDOG: &str = r#"read -r _; kill -9 "$1"; rm -rf "$2""#;

/// A child in a folder of its own, ended by SIGKILL on drop or when the test's process dies.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    watchdog: Child,
}

impl Process {
    /// Runs a program in a folder; all it prints is appended to a log.
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

    /// Freezes the child; it has stopped when this returns.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
        poll::until(Duration::from_secs(5), "a process stops", || {
            self.is_stopped()
        });
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.state() == Some('T')
    }

    /// Lets a frozen child go on.
    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Keeps the child's first thread on one processor.
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

    /// The letter the kernel gives for what the child is doing.
    fn state(&self) -> Option<char> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.id())).ok()?;
        // The name before it is in parentheses and may hold anything.
        stat.rsplit_once(") ")?.1.chars().next()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The child is reaped last: until then nobody else gets the pid the watchdog knows.
        let _ = self.child.kill();
        end(&mut self.watchdog);
        let _ = self.child.wait();
    }
}

/// A Ctrl-C meant for the tests would end a watchdog too early.
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
    fn a_child_ends_when_its_watchdog_hears_no_more() {
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
        poll::until(Duration::from_secs(10), "its folder goes", || {
            !folder.path().exists()
        });
    }
}
