//! A server in a process group of its own, and its CPU time.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// How long a server may take to listen, and to stop.
const PROCESS_TIMEOUT: Duration = Duration::from_secs(10);

/// The cores that a process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cores {
    /// The first one.
    First,
    /// All others.
    Others,
    /// Any.
    Any,
}

impl Cores {
    /// Wraps a program to run on these cores and to end with this process.
    pub fn command(self, program: impl AsRef<OsStr>) -> Command {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM"]);
        let list = match self {
            Cores::First => Some("0".to_owned()),
            Cores::Others => Some(format!("1-{}", cores.saturating_sub(1))),
            Cores::Any => None,
        };
        if let Some(list) = list.filter(|_| cores > 1) {
            command.args(["taskset", "-c", &list]);
        }
        command.arg(program);
        command
    }
}

/// A server, stopped on drop.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

impl Process {
    /// Runs a command and waits until a port of the loopback address accepts connections.
    ///
    /// # Errors
    /// When it cannot be run, ends, or does not listen in time.
    pub fn listening(mut command: Command, port: u16) -> io::Result<Self> {
        let child = command
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let mut process = Process { child };
        let deadline = Instant::now() + PROCESS_TIMEOUT;
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            if let Some(status) = process.child.try_wait()? {
                return Err(io::Error::other(format!("{command:?} ended: {status}")));
            }
            if Instant::now() > deadline {
                let reason = format!("{command:?} does not listen on {port}");
                return Err(io::Error::other(reason));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(process)
    }

    /// The CPU time of its process group.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn cpu(&self) -> io::Result<Duration> {
        let mut ticks = 0;
        for entry in fs::read_dir("/proc")? {
            // Processes may end meanwhile.
            let Ok(stat) = fs::read_to_string(entry?.path().join("stat")) else {
                continue;
            };
            ticks += cpu_ticks(&stat, self.child.id()).unwrap_or(0);
        }
        let second = rustix::param::clock_ticks_per_second().max(1);
        Ok(Duration::from_secs(ticks) / u32::try_from(second).unwrap_or(100))
    }
}

/// The user and system time of a process of the group.
fn cpu_ticks(stat: &str, group: u32) -> Option<u64> {
    // The process name in parentheses may contain anything.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    (number(2)? == u64::from(group)).then_some(number(11)? + number(12)?)
}

impl Drop for Process {
    fn drop(&mut self) {
        let group = Pid::from_child(&self.child);
        let _ = kill_process_group(group, Signal::TERM);
        let deadline = Instant::now() + PROCESS_TIMEOUT;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_of_a_group_is_read_with_any_process_name() {
        let stat = "12 (a) b (c) S 1 77 77 0 -1 4194560 5 0 0 0 30 12 0 0 20 0 1 0";
        assert_eq!(cpu_ticks(stat, 77), Some(42));
        assert_eq!(cpu_ticks(stat, 12), None);
        assert_eq!(cpu_ticks("", 77), None);
    }
}
