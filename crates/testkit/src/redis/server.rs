//! One server that can be frozen, killed and restarted.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::TempDir;

use super::config::{Role, ServerConfig};
use super::{Flavour, TIMEOUT, User};
use crate::poll;
use crate::process::Process;
use crate::resp::{Connection, Reply};

/// Attempts with another port, if a port is taken meanwhile.
const ATTEMPTS: usize = 20;

/// A running server; killed on drop.
#[derive(Debug)]
pub struct Server {
    // Declared before the folder, so that it is dropped first.
    process: Mutex<Option<Process>>,
    folder: TempDir,
    port: u16,
    config: ServerConfig,
}

enum StartError {
    PortTaken,
    Failed(String),
}

/// When a server counts as ready.
#[derive(Clone, Copy)]
enum Ready {
    Serving,
    Loading,
}

impl Server {
    /// Starts Redis: no persistence, DEBUG allowed.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts Redis with further arguments, such as `["--maxmemory", "1mb"]`.
    #[must_use]
    pub fn start_with(args: &[&str]) -> Self {
        Self::start_as(Flavour::Redis, args)
    }

    /// Starts Redis or Valkey with further arguments.
    ///
    /// # Panics
    ///
    /// Panics with the server's log if it does not start in time.
    #[must_use]
    pub fn start_as(flavour: Flavour, args: &[&str]) -> Self {
        Self::start_config(&ServerConfig::new(flavour, args))
    }

    /// Its URL: `redis://127.0.0.1:<port>`, with the password if there is one.
    #[must_use]
    pub fn url(&self) -> String {
        match self.password() {
            Some(password) => format!("redis://:{password}@127.0.0.1:{}", self.port),
            None => format!("redis://127.0.0.1:{}", self.port),
        }
    }

    /// Its Unix socket URL: `unix://<path>`.
    #[must_use]
    pub fn unix_url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// Its port on `127.0.0.1`, the same after restarts.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Redis or Valkey.
    #[must_use]
    pub fn flavour(&self) -> Flavour {
        self.config.flavour
    }

    /// Its process ID, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process().as_ref().map(Process::id)
    }

    /// Sends a command over the Unix socket and returns the reply. A server error is a [`Reply`].
    ///
    /// # Panics
    ///
    /// Panics with the end of the log if there is no reply within ten seconds.
    #[track_caller]
    pub fn command<A: AsRef<[u8]>>(&self, args: &[A]) -> Reply {
        match self.try_command(args) {
            Ok(reply) => reply,
            Err(error) => panic!("no reply from {}: {error}\n{}", self.url(), self.log_tail()),
        }
    }

    /// As [`command`](Self::command), for a server that may be gone.
    ///
    /// # Errors
    ///
    /// On an I/O error.
    pub fn try_command<A: AsRef<[u8]>>(&self, args: &[A]) -> io::Result<Reply> {
        self.connect()?.command(args)
    }

    /// Opens a connection over the Unix socket.
    ///
    /// # Errors
    ///
    /// On an I/O error.
    pub fn connect(&self) -> io::Result<Connection> {
        let mut connection = Connection::to_socket(&self.socket())?;
        if let Some((user, password)) = &self.config.login {
            connection.command(&["AUTH", user, password])?;
        }
        Ok(connection)
    }

    /// Adds a user, until the next restart.
    pub fn add_user(&self, user: User) {
        let mut command = vec![
            "ACL".to_owned(),
            "SETUSER".to_owned(),
            user.name().to_owned(),
        ];
        command.extend(user.rules());
        let reply = self.command(&command);
        assert_eq!(reply.error(), None, "{user:?}");
    }

    /// One field of `INFO`.
    #[must_use]
    pub fn info(&self, field: &str) -> Option<String> {
        let Ok(Reply::Bulk(info)) = self.try_command(&["INFO", "everything"]) else {
            return None;
        };
        let info = String::from_utf8_lossy(&info).into_owned();
        info.lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
            .map(str::to_owned)
    }

    /// Freezes it with SIGSTOP: connections stay open without replies.
    pub fn stop(&self) {
        self.running(Process::stop);
    }

    /// Resumes it after [`stop`](Self::stop).
    pub fn resume(&self) {
        self.running(Process::resume);
    }

    /// Pins its main thread to one processor.
    pub fn pin(&self, processor: usize) {
        self.running(|process| process.pin(processor));
    }

    /// Kills it with SIGKILL; its data is lost.
    pub fn kill(&self) {
        *self.process() = None;
    }

    /// Whether its process exists, frozen or not.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.process().as_mut().is_some_and(Process::is_running)
    }

    /// Whether its process exists and is not frozen.
    #[must_use]
    pub fn is_awake(&self) -> bool {
        let awake = |process: &mut Process| process.is_running() && !process.is_stopped();
        self.process().as_mut().is_some_and(awake)
    }

    /// Restarts it on the same port without its data.
    pub fn restart(&self) {
        self.kill();
        let _ = fs::remove_file(self.folder.path().join("dump.rdb"));
        let _ = fs::remove_dir_all(self.folder.path().join("appendonlydir"));
        self.start_again(Ready::Serving);
    }

    /// Restarts it on the same port with its data, saved now if it still runs.
    pub fn restart_with_data(&self) {
        self.save_and_kill();
        self.start_again(Ready::Serving);
    }

    /// As [`restart_with_data`](Self::restart_with_data), but returns while it still replies
    /// `LOADING`. For that to last, start it with `--key-load-delay <µs>` and
    /// `--loading-process-events-interval-bytes 1024` and give it keys.
    pub fn restart_loading(&self) {
        self.save_and_kill();
        self.start_again(Ready::Loading);
    }

    /// The last lines of its log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(20)..].join("\n");
        format!("log of port {}:\n{tail}", self.port)
    }

    /// Its Unix socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// Starts a server, on another port if the first is taken.
    pub(super) fn start_config(config: &ServerConfig) -> Self {
        for _ in 0..ATTEMPTS {
            let folder = tempfile::Builder::new()
                .prefix("tallygate-redis-")
                .tempdir()
                .expect("the temporary folder can be written to");
            let port = config.port();
            let server = Self {
                process: Mutex::new(None),
                folder,
                port,
                config: config.clone(),
            };
            let text = config.render(port, server.folder.path());
            fs::write(server.config_path(), text).expect("the server's folder can be written to");
            match server.run(Ready::Serving) {
                Ok(()) => return server,
                Err(StartError::PortTaken) => {}
                Err(StartError::Failed(reason)) => panic!("{reason}"),
            }
        }
        panic!("all of {ATTEMPTS} ports were in use");
    }

    pub(super) fn password(&self) -> Option<&str> {
        let (_, password) = self.config.login.as_ref()?;
        Some(password)
    }

    fn save_and_kill(&self) {
        if self.is_running() {
            let saved = self.command(&["SAVE"]);
            assert_eq!(saved.error(), None, "a server saves its data");
        }
        self.kill();
    }

    fn start_again(&self, ready: Ready) {
        // The port may be in use for a moment.
        let started = poll::first(TIMEOUT, || match self.run(ready) {
            Ok(()) => Some(()),
            Err(StartError::PortTaken) => None,
            Err(StartError::Failed(reason)) => panic!("{reason}"),
        });
        assert!(started.is_some(), "port {} stays in use", self.port);
    }

    /// Starts the program and waits until it replies.
    fn run(&self, ready: Ready) -> Result<(), StartError> {
        let mut args = vec![self.config_path().display().to_string()];
        if self.config.role == Role::Sentinel {
            args.push("--sentinel".to_owned());
        }
        args.extend_from_slice(&self.config.args);
        let program = self.config.flavour.program();
        let log_before = self.log().len();
        let process = Process::spawn(&program, &args, self.folder.path(), &self.log_path());
        let process = process.unwrap_or_else(|error| {
            panic!(
                "cannot run {}: {error}; ./test installs it",
                program.display()
            )
        });
        *self.process() = Some(process);
        let ended_or_ready = poll::within(TIMEOUT, || self.is_ready(ready) || !self.is_running());
        if ended_or_ready && self.is_running() {
            return Ok(());
        }
        self.kill();
        if self.log()[log_before..].contains("Address already in use") {
            return Err(StartError::PortTaken);
        }
        let reason = if ended_or_ready {
            "ended"
        } else {
            "does not reply"
        };
        let reason = format!(
            "{} {reason}: {args:?}\n{}",
            program.display(),
            self.log_tail()
        );
        Err(StartError::Failed(reason))
    }

    fn is_ready(&self, ready: Ready) -> bool {
        match (self.try_command(&["PING"]), ready) {
            (Ok(Reply::Status(_)), Ready::Serving | Ready::Loading) => true,
            (Ok(reply), Ready::Loading) => reply
                .error()
                .is_some_and(|error| error.starts_with("LOADING")),
            (Ok(_), Ready::Serving) | (Err(_), Ready::Serving | Ready::Loading) => false,
        }
    }

    fn running(&self, action: impl FnOnce(&Process)) {
        action(self.process().as_ref().expect("the server runs"));
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        // A poisoned lock must not leave a server behind.
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn config_path(&self) -> PathBuf {
        self.folder.path().join("server.conf")
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn log(&self) -> String {
        let bytes = fs::read(self.log_path()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
