//! A TCP proxy with fault injection in front of one server. A request is what arrives from the
//! client, a reply what then arrives from the server, whatever the protocol.

mod connection;
mod mode;

pub use mode::Mode;

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::net::{Shutdown, shutdown};

use self::connection::Connection;
use crate::{poll, ports};

const TIMEOUT: Duration = Duration::from_secs(10);

/// A proxy; it forwards everything by default. Its connections end when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    /// `None` while connections are refused.
    listening: Mutex<Option<Listening>>,
}

/// Shared by the proxy and its connections.
#[derive(Debug)]
struct Shared {
    target: u16,
    accepted: AtomicU64,
    dropped: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    mode: Mode,
    /// Counts the changes of mode.
    change: u64,
    once: Option<Once>,
    /// A byte written to one of these wakes a connection to check the mode.
    wakers: Vec<(u64, UnixStream)>,
}

/// A one-shot mode for the first request that contains a word.
#[derive(Debug)]
struct Once {
    word: Vec<u8>,
    mode: Mode,
}

#[derive(Debug)]
struct Listening {
    listener: Arc<TcpListener>,
    thread: JoinHandle<()>,
}

impl Proxy {
    /// Starts a proxy to a port of `127.0.0.1`.
    ///
    /// # Panics
    ///
    /// Panics if no port can be listened on.
    #[must_use]
    pub fn to(target: u16) -> Self {
        let (port, listener) = poll::first(TIMEOUT, || {
            // Not chosen by the system: the port must still be free after a refusal.
            let port = ports::free();
            Some((port, TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()?))
        })
        .expect("a free port can be listened on");
        let shared = Arc::new(Shared {
            target,
            accepted: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            state: Mutex::new(State {
                mode: Mode::Pass,
                change: 0,
                once: None,
                wakers: Vec::new(),
            }),
        });
        let listening = Listening::start(listener, &shared);
        Self {
            port,
            shared,
            listening: Mutex::new(Some(listening)),
        }
    }

    /// Its URL: `redis://127.0.0.1:<port>`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The port of `127.0.0.1` it listens on, the same in every mode.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sets the mode, for open connections too, and clears a mode of [`once`](Self::once). For
    /// [`Mode::Refuse`], returns when all connections are closed.
    ///
    /// # Panics
    ///
    /// Panics if the port cannot be bound again after a refusal.
    pub fn set(&self, mode: Mode) {
        let mut listening = lock(&self.listening);
        let refuses = mode == Mode::Refuse;
        if refuses && let Some(listening) = listening.take() {
            listening.end();
        }
        self.shared.set(mode);
        if refuses {
            poll::until(TIMEOUT, "connections end", || self.open() == 0);
        } else if listening.is_none() {
            let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, self.port)).ok();
            let listener = poll::first(TIMEOUT, bind).expect("the port is still free");
            *listening = Some(Listening::start(listener, &self.shared));
        }
    }

    /// Applies a mode to the first request that contains a word, such as `EVALSHA`, and to its
    /// reply; everything else is not affected. With an empty word it is the next request.
    pub fn once(&self, word: &str, mode: Mode) {
        let word = word.as_bytes().to_vec();
        self.shared.state().once = Some(Once { word, mode });
    }

    /// Whether the mode of [`once`](Self::once) has not been used yet.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.shared.state().once.is_some()
    }

    /// How many connections were accepted since the start.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::Relaxed)
    }

    /// How many requests and replies a [`Mode::BlackHole`] has dropped; bytes read together count
    /// once.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// How many connections are open now.
    #[must_use]
    pub fn open(&self) -> usize {
        self.shared.state().wakers.len()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(listening) = lock(&self.listening).take() {
            listening.end();
        }
        self.shared.set(Mode::Refuse);
    }
}

impl Listening {
    fn start(listener: TcpListener, shared: &Arc<Shared>) -> Self {
        let listener = Arc::new(listener);
        let (accepting, shared) = (Arc::clone(&listener), Arc::clone(shared));
        let thread = thread::spawn(move || {
            while let Ok((client, _)) = accepting.accept() {
                let number = shared.accepted.fetch_add(1, Ordering::Relaxed);
                Shared::serve(&shared, number, client);
            }
        });
        Self { listener, thread }
    }

    fn end(self) {
        // Makes `accept` return an error.
        let _ = shutdown(&self.listener, Shutdown::Read);
        let _ = self.thread.join();
    }
}

impl Shared {
    /// Runs a connection on its own thread.
    fn serve(shared: &Arc<Self>, number: u64, client: TcpStream) {
        let Ok((waker, wakeups)) = UnixStream::pair() else {
            return;
        };
        shared.state().wakers.push((number, waker));
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            // Without a server, the client is disconnected.
            if let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, shared.target)) {
                Connection::new(client, server, wakeups, &shared).run();
            }
            shared.state().wakers.retain(|(other, _)| *other != number);
        });
    }

    fn set(&self, mode: Mode) {
        let mut state = self.state();
        state.mode = mode;
        state.change += 1;
        state.once = None;
        for (_, waker) in &state.wakers {
            // It fails if the connection has just ended.
            let _ = (&*waker).write_all(b"!");
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// Ignores poisoning: a panicked test must not block the others.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
