//! A node with scripted replies in front of a real server, for replies that a healthy server does
//! not give: stale topologies and odd redirections.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use crate::resp::{Connection, Reply};

/// Maps a command, its words joined by spaces, to a raw RESP reply; `None` forwards it.
type Script = dyn Fn(&str) -> Option<String> + Send + Sync;

/// A port of `127.0.0.1` that speaks RESP; closed on drop.
#[derive(Debug)]
pub struct FakeNode {
    port: u16,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    target: u16,
    script: Mutex<Arc<Script>>,
    closed: AtomicBool,
    clients: Mutex<Vec<TcpStream>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

impl FakeNode {
    /// Starts a node that forwards everything to a port of `127.0.0.1`.
    ///
    /// # Panics
    ///
    /// Panics if no port can be listened on.
    #[must_use]
    pub fn to(target: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let port = listener.local_addr().expect("it has an address").port();
        let forward: Arc<Script> = Arc::new(|_| None);
        let shared = Arc::new(Shared {
            target,
            script: Mutex::new(forward),
            closed: AtomicBool::new(false),
            clients: Mutex::default(),
        });
        let accepting = Arc::clone(&shared);
        let thread = thread::spawn(move || accepting.accept(&listener));
        Self {
            port,
            shared,
            thread: Some(thread),
        }
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sets the replies: raw RESP for a command, given as its words joined by spaces; `None`
    /// forwards the command.
    pub fn reply(&self, script: impl Fn(&str) -> Option<String> + Send + Sync + 'static) {
        *lock(&self.shared.script) = Arc::new(script);
    }

    /// The reply to `CLUSTER SLOTS` of a cluster whose slots are all on one port. The host is a
    /// raw RESP value, such as `$-1`.
    #[must_use]
    pub fn all_slots_on(host: &str, port: u16) -> String {
        let id = "0".repeat(40);
        format!("*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n{host}\r\n:{port}\r\n$40\r\n{id}\r\n")
    }
}

impl Drop for FakeNode {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Relaxed);
        // Wakes the accepting thread.
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let _ = TcpStream::connect(address);
        for client in lock(&self.shared.clients).drain(..) {
            let _ = client.shutdown(std::net::Shutdown::Both);
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming() {
            if self.closed.load(Ordering::Relaxed) {
                return;
            }
            let Ok(client) = client else {
                continue;
            };
            if let Ok(client) = client.try_clone() {
                lock(&self.clients).push(client);
            }
            let shared = Arc::clone(self);
            // An error means that one side is gone.
            thread::spawn(move || shared.serve(client));
        }
    }

    fn serve(&self, client: TcpStream) -> io::Result<()> {
        client.set_nodelay(true)?;
        let mut output = client.try_clone()?;
        let mut input = BufReader::new(client);
        let mut server = None;
        loop {
            let args = read_command(&mut input)?;
            let words: Vec<String> = args
                .iter()
                .map(|arg| String::from_utf8_lossy(arg).into_owned())
                .collect();
            let script = Arc::clone(&lock(&self.script));
            let reply = if let Some(reply) = script(&words.join(" ")) {
                reply.into_bytes()
            } else if words[0] == "HELLO" {
                b"%1\r\n$6\r\nserver\r\n$5\r\nredis\r\n".to_vec()
            } else {
                let server = match &mut server {
                    Some(server) => server,
                    none => none.insert(Connection::to_port(self.target)?),
                };
                encode(&server.command(&args)?)
            };
            output.write_all(&reply)?;
        }
    }
}

fn read_command(input: &mut impl BufRead) -> io::Result<Vec<Vec<u8>>> {
    let number = |input: &mut dyn BufRead| -> io::Result<usize> {
        let mut line = String::new();
        input.read_line(&mut line)?;
        let digits = line.trim_end().get(1..).and_then(|text| text.parse().ok());
        digits.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))
    };
    let count = number(input)?;
    let mut args = Vec::with_capacity(count);
    for _ in 0..count {
        let mut arg = vec![0; number(input)? + 2];
        input.read_exact(&mut arg)?;
        arg.truncate(arg.len() - 2);
        args.push(arg);
    }
    Ok(args)
}

fn encode(reply: &Reply) -> Vec<u8> {
    match reply {
        Reply::Nil => b"$-1\r\n".to_vec(),
        Reply::Status(text) => format!("+{text}\r\n").into_bytes(),
        Reply::Error(text) => format!("-{text}\r\n").into_bytes(),
        Reply::Integer(number) => format!(":{number}\r\n").into_bytes(),
        Reply::Bulk(bytes) => {
            let head = format!("${}\r\n", bytes.len()).into_bytes();
            [&*head, bytes, b"\r\n"].concat()
        }
        Reply::Array(replies) => {
            let mut out = format!("*{}\r\n", replies.len()).into_bytes();
            out.extend(replies.iter().flat_map(encode));
            out
        }
    }
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
