//! One connection through the proxy, on its own thread.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_socket_linger;

use super::mode::{GARBAGE, Mode};
use super::{Once, Shared};

const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct Connection<'a> {
    client: TcpStream,
    server: TcpStream,
    wakeups: UnixStream,
    shared: &'a Shared,
    /// The last change of mode it has seen.
    change: u64,
    /// Its own mode, if it carried the request of a one-shot mode.
    own: Option<Mode>,
    /// Requests to forward when the mode changes.
    held_requests: Vec<u8>,
    /// Delayed replies and their due times.
    replies: VecDeque<(Instant, Vec<u8>)>,
    has_lost_bytes: bool,
}

/// How a connection ends.
enum End {
    Closed,
    Reset,
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> Self {
        Self::Closed
    }
}

impl<'a> Connection<'a> {
    pub(super) fn new(
        client: TcpStream,
        server: TcpStream,
        wakeups: UnixStream,
        shared: &'a Shared,
    ) -> Self {
        Self {
            client,
            server,
            wakeups,
            shared,
            change: shared.state().change,
            own: None,
            held_requests: Vec::new(),
            replies: VecDeque::new(),
            has_lost_bytes: false,
        }
    }

    pub(super) fn run(mut self) {
        let Err(end) = self.forward() else { return };
        match end {
            End::Closed => {}
            // Closing with a zero linger time sends a reset.
            End::Reset => {
                let _ = set_socket_linger(&self.client, Some(Duration::ZERO));
            }
        }
    }

    /// Runs until the connection ends.
    fn forward(&mut self) -> Result<(), End> {
        for stream in [&self.client, &self.server] {
            stream.set_nodelay(true)?;
            stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
        }
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let mode = self.mode()?;
            let [from_client, from_server] = self.wait(&mode)?;
            // The mode may have changed during the wait.
            let mode = self.mode()?;
            if mode == Mode::Hold {
                continue;
            }
            self.deliver()?;
            if !self.held_requests.is_empty() {
                let held = std::mem::take(&mut self.held_requests);
                self.request(&held, mode.clone())?;
            }
            if from_client {
                let length = read(&mut self.client, &mut buffer)?;
                let mode = self
                    .own_mode(&buffer[..length])
                    .unwrap_or_else(|| mode.clone());
                self.request(&buffer[..length], mode)?;
            }
            if from_server {
                let length = read(&mut self.server, &mut buffer)?;
                let mode = self.own.clone().unwrap_or(mode);
                self.reply(&buffer[..length], mode)?;
            }
        }
    }

    /// The current mode. After a change, connections that lost bytes end.
    fn mode(&mut self) -> Result<Mode, End> {
        let state = self.shared.state();
        if state.change != self.change {
            self.change = state.change;
            self.own = None;
            if self.has_lost_bytes && state.mode != Mode::BlackHole {
                return Err(End::Reset);
            }
        }
        let mode = self.own.as_ref().unwrap_or(&state.mode).clone();
        match mode {
            Mode::Refuse => Err(End::Closed),
            mode => Ok(mode),
        }
    }

    /// Takes the one-shot mode for this request, if there is one.
    fn own_mode(&mut self, request: &[u8]) -> Option<Mode> {
        let matches = |once: &mut Once| contains(request, &once.word);
        let once = self.shared.state().once.take_if(matches)?;
        self.own = Some(once.mode);
        self.own.clone()
    }

    /// Waits for the client, the server, a wake-up, or the next due reply; returns which of the
    /// first two is readable.
    fn wait(&mut self, mode: &Mode) -> Result<[bool; 2], End> {
        let holds = *mode == Mode::Hold;
        let wanted = if holds {
            PollFlags::empty()
        } else {
            PollFlags::IN
        };
        let mut sources = [
            PollFd::new(&self.client, wanted),
            PollFd::new(&self.server, wanted),
            PollFd::new(&self.wakeups, PollFlags::IN),
        ];
        let next = self.replies.front().filter(|_| !holds);
        let due = next.map(|(due, _)| {
            let left = due.saturating_duration_since(Instant::now());
            Timespec::try_from(left).expect("a delay is short")
        });
        poll(&mut sources, due.as_ref()).map_err(io::Error::from)?;
        let [client, server, wakeups] = sources.map(|source| !source.revents().is_empty());
        if wakeups {
            self.wakeups.read_exact(&mut [0])?;
        }
        // No other events were requested, so the peer has closed.
        if holds && (client || server) {
            return Err(End::Closed);
        }
        Ok([client, server])
    }

    fn request(&mut self, request: &[u8], mode: Mode) -> Result<(), End> {
        match mode {
            Mode::Pass
            | Mode::ResetAfter
            | Mode::Garbage
            | Mode::Answer(_)
            | Mode::Replace(..)
            | Mode::Delay(_)
            | Mode::Cut => self.server.write_all(request)?,
            Mode::BlackHole => self.drop_bytes(),
            Mode::Hold => self.held_requests.extend_from_slice(request),
            Mode::Refuse => return Err(End::Closed),
            Mode::ResetBefore => return Err(End::Reset),
        }
        Ok(())
    }

    fn reply(&mut self, reply: &[u8], mode: Mode) -> Result<(), End> {
        let mut late = Duration::ZERO;
        let reply = match mode {
            // A reply to a request from before the mode.
            Mode::Pass | Mode::ResetBefore | Mode::Hold => reply.to_vec(),
            Mode::Garbage => GARBAGE.to_vec(),
            Mode::Answer(answer) => answer,
            Mode::Replace(old, new) => replace(reply, old, new),
            Mode::Delay(delay) => {
                late = delay;
                reply.to_vec()
            }
            Mode::BlackHole => {
                self.drop_bytes();
                return Ok(());
            }
            Mode::Cut => {
                self.client.write_all(&reply[..reply.len().div_ceil(2)])?;
                return Err(End::Closed);
            }
            Mode::Refuse => return Err(End::Closed),
            Mode::ResetAfter => return Err(End::Reset),
        };
        // The one-shot mode is used up.
        self.own = None;
        let after = self.replies.back().map(|(due, _)| *due);
        let due = after.max(Some(Instant::now() + late));
        self.replies.extend(due.map(|due| (due, reply)));
        self.deliver().map_err(End::from)
    }

    fn drop_bytes(&mut self) {
        self.has_lost_bytes = true;
        self.shared.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Sends the client the replies that are due.
    fn deliver(&mut self) -> io::Result<()> {
        let now = Instant::now();
        while let Some((due, reply)) = self.replies.front()
            && *due <= now
        {
            self.client.write_all(reply)?;
            self.replies.pop_front();
        }
        Ok(())
    }
}

fn read(stream: &mut TcpStream, buffer: &mut [u8]) -> Result<usize, End> {
    match stream.read(buffer)? {
        0 => Err(End::Closed),
        length => Ok(length),
    }
}

fn contains(bytes: &[u8], word: &[u8]) -> bool {
    word.is_empty() || bytes.windows(word.len()).any(|window| window == word)
}

fn replace(bytes: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    assert_eq!(old.len(), new.len(), "a reply contains its length");
    let mut bytes = bytes.to_vec();
    let mut from = 0;
    while let Some(found) = bytes[from..]
        .windows(old.len())
        .position(|window| window == old)
    {
        let start = from + found;
        bytes[start..start + old.len()].copy_from_slice(new);
        from = start + old.len();
    }
    bytes
}
