//! The thread that writes lines to a file or to standard output.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::metrics::AccessLogMetrics;

/// Lines are written together up to this size, and at once if no more are queued.
const MAX_WRITE_BYTES: usize = 64 << 10;
/// How often failures are logged.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) enum Message {
    Line(Vec<u8>),
    /// Opens the file again.
    Reopen,
    /// Answers when the lines before it are written.
    Flush(oneshot::Sender<()>),
}

pub(super) struct Output {
    file: File,
    /// `None`: standard output.
    path: Option<PathBuf>,
}

impl Output {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        if path != Path::new("-") {
            return Ok(Output {
                file: append_to(path)?,
                path: Some(path.to_owned()),
            });
        }
        Ok(Output {
            file: stdout()?,
            path: None,
        })
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

/// A copy of standard output, whose lock the command holds.
#[cfg(unix)]
fn stdout() -> io::Result<File> {
    use std::os::fd::AsFd;
    Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
}

#[cfg(windows)]
fn stdout() -> io::Result<File> {
    use std::os::windows::io::AsHandle;
    Ok(File::from(io::stdout().as_handle().try_clone_to_owned()?))
}

struct Writer {
    output: Output,
    metrics: AccessLogMetrics,
    buffer: Vec<u8>,
    /// The lines in the buffer.
    buffered: u64,
    /// Whether the last write failed, maybe in the middle of a line.
    has_failed: bool,
    logged: Option<Instant>,
}

/// Starts the thread. It ends when the queue does.
pub(super) fn start(
    output: Output,
    queue: Receiver<Message>,
    metrics: AccessLogMetrics,
) -> io::Result<()> {
    let mut writer = Writer {
        output,
        metrics,
        buffer: Vec::new(),
        buffered: 0,
        has_failed: false,
        logged: None,
    };
    let thread = thread::Builder::new().name("access-log".to_owned());
    thread.spawn(move || writer.run(&queue))?;
    Ok(())
}

impl Writer {
    fn run(&mut self, queue: &Receiver<Message>) {
        while let Ok(message) = queue.recv() {
            self.handle(message);
            while self.buffer.len() < MAX_WRITE_BYTES {
                match queue.try_recv() {
                    Ok(message) => self.handle(message),
                    Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
                }
            }
            self.write();
        }
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Line(line) => {
                self.buffer.extend(line);
                self.buffered += 1;
            }
            Message::Reopen => {
                self.write();
                self.reopen();
            }
            Message::Flush(done) => {
                self.write();
                let _ = done.send(());
            }
        }
    }

    fn write(&mut self) {
        if self.buffer.is_empty() {
            return;
        }
        if self.has_failed {
            // Ends a line that may be incomplete.
            self.buffer.insert(0, b'\n');
        }
        let written = self.output.file.write_all(&self.buffer);
        let counter = match &written {
            Ok(()) => &self.metrics.written,
            Err(_) => &self.metrics.failed,
        };
        counter.inc_by(self.buffered);
        self.has_failed = written.is_err();
        self.buffer.clear();
        self.buffered = 0;
        if let Err(error) = written {
            self.log_failure("cannot write the access log", &error);
        }
    }

    fn reopen(&mut self) {
        let Some(path) = &self.output.path else {
            return;
        };
        match append_to(path) {
            Ok(file) => {
                self.output.file = file;
                self.has_failed = false;
            }
            // The old file goes on.
            Err(error) => self.log_failure("cannot open the access log again", &error),
        }
    }

    fn log_failure(&mut self, what: &str, error: &io::Error) {
        let now = Instant::now();
        if self.logged.is_none_or(|last| now - last >= LOG_INTERVAL) {
            self.logged = Some(now);
            tracing::error!(%error, "{what}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::mpsc::sync_channel;

    use super::*;

    #[test]
    fn lines_are_appended_and_a_renamed_file_is_opened_again() {
        let folder = std::env::temp_dir().join(format!("tallygate-log-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("access.log");
        fs::write(&path, "before\n").unwrap();
        let (lines, queue) = sync_channel(9);
        let metrics = AccessLogMetrics::unregistered();
        start(Output::open(&path).unwrap(), queue, metrics.clone()).unwrap();
        let flush = || {
            let (done, flushed) = oneshot::channel();
            lines.send(Message::Flush(done)).unwrap();
            flushed.blocking_recv().unwrap();
        };
        lines.send(Message::Line(b"one\n".to_vec())).unwrap();
        flush();
        let old = folder.join("access.log.1");
        fs::rename(&path, &old).unwrap();
        lines.send(Message::Line(b"two\n".to_vec())).unwrap();
        lines.send(Message::Reopen).unwrap();
        lines.send(Message::Line(b"three\n".to_vec())).unwrap();
        flush();
        assert_eq!(fs::read_to_string(&old).unwrap(), "before\none\ntwo\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "three\n");
        assert_eq!((metrics.written.get(), metrics.failed.get()), (3, 0));
        fs::remove_dir_all(&folder).unwrap();
    }
}
