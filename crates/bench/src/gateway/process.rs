//! A server in a process group of its own, and what its processes cost. Knows nothing of what it
//! serves.

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
const PATIENCE: Duration = Duration::from_secs(10);

/// Which processors a process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// The first one, by itself.
    First,
    /// All others.
    Others,
    /// Any.
    Any,
}

impl On {
    /// The command that runs another one there; it ends when this process does.
    pub fn command(self, program: impl AsRef<OsStr>) -> Command {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM"]);
        let list = match self {
            On::First => Some("0".to_owned()),
            On::Others => Some(format!("1-{}", cores.saturating_sub(1))),
            On::Any => None,
        };
        if let Some(list) = list.filter(|_| cores > 1) {
            command.args(["taskset", "-c", &list]);
        }
        command.arg(program);
        command
    }
}

/// A server that ends with this value.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

impl Process {
    /// Runs a command and waits until something listens on a port of the loopback address.
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
        let until = Instant::now() + PATIENCE;
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            if let Some(status) = process.child.try_wait()? {
                return Err(io::Error::other(format!("{command:?} ended: {status}")));
            }
            if Instant::now() > until {
                let why = format!("{command:?} does not listen on {port}");
                return Err(io::Error::other(why));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(process)
    }

    /// The processor time that its processes have spent.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn cpu(&self) -> io::Result<Duration> {
        let mut ticks = 0;
        for entry in fs::read_dir("/proc")? {
            // Some end while they are looked at.
            let Ok(stat) = fs::read_to_string(entry?.path().join("stat")) else {
                continue;
            };
            ticks += ticks_of(&stat, self.child.id()).unwrap_or(0);
        }
        let second = rustix::param::clock_ticks_per_second().max(1);
        Ok(Duration::from_secs(ticks) / u32::try_from(second).unwrap_or(100))
    }
}

/// The user and system time of a process, if it is of that group.
fn ticks_of(stat: &str, group: u32) -> Option<u64> {
    // The name before it is in parentheses and may hold anything.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    (number(2)? == u64::from(group)).then_some(number(11)? + number(12)?)
}

impl Drop for Process {
    fn drop(&mut self) {
        let group = Pid::from_child(&self.child);
        let _ = kill_process_group(group, Signal::TERM);
        let until = Instant::now() + PATIENCE;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < until {
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
    fn the_time_of_a_group_is_read_whatever_a_process_is_called() {
        let stat = "12 (a) b (c) S 1 77 77 0 -1 4194560 5 0 0 0 30 12 0 0 20 0 1 0";
        assert_eq!(ticks_of(stat, 77), Some(42));
        assert_eq!(ticks_of(stat, 12), None);
        assert_eq!(ticks_of("", 77), None);
    }
}
