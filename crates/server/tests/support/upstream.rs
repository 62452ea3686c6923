//! An HTTP/1.1 upstream that records what it receives, byte by byte.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A request as the upstream received it.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    /// The request line and the header lines, in lower-case names, without line ends.
    pub(crate) lines: Vec<String>,
    pub(crate) body: Vec<u8>,
    /// The trailer lines of a chunked body.
    pub(crate) trailers: Vec<String>,
}

impl Received {
    /// The values of a header.
    pub(crate) fn header(&self, name: &str) -> Vec<&str> {
        let lines = self.lines[1..]
            .iter()
            .filter_map(|line| line.split_once(':'));
        let named = lines.filter(|(other, _)| *other == name);
        named.map(|(_, value)| value.trim()).collect()
    }
}

/// A server on a free port; its threads end with the process.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
    open: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
}

impl Upstream {
    /// Answers every request with the bytes that a function returns. The connection stays open.
    pub(crate) fn start(
        answer: impl Fn(&Received) -> Vec<u8> + Send + Sync + Clone + 'static,
    ) -> Self {
        Self::start_paused(Duration::ZERO, answer)
    }

    /// The same, but reads a connection only after a pause.
    pub(crate) fn start_paused(
        pause: Duration,
        answer: impl Fn(&Received) -> Vec<u8> + Send + Sync + Clone + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let received: Arc<Mutex<Vec<Received>>> = Arc::default();
        let open: Arc<AtomicUsize> = Arc::default();
        let connections: Arc<AtomicUsize> = Arc::default();
        let accepted = Arc::clone(&connections);
        let (record, counter) = (Arc::clone(&received), Arc::clone(&open));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (record, answer) = (Arc::clone(&record), answer.clone());
                let counter = Arc::clone(&counter);
                counter.fetch_add(1, SeqCst);
                accepted.fetch_add(1, SeqCst);
                thread::spawn(move || {
                    thread::sleep(pause);
                    serve(&stream, &record, answer);
                    drop(stream);
                    counter.fetch_sub(1, SeqCst);
                });
            }
        });
        Upstream {
            address,
            received,
            open,
            connections,
        }
    }

    /// Answers every request with `200` and this text.
    pub(crate) fn text(text: &'static str) -> Self {
        Self::start(move |_| {
            let length = text.len();
            format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{text}").into_bytes()
        })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// How many connections are open.
    pub(crate) fn open(&self) -> usize {
        self.open.load(SeqCst)
    }

    /// How many connections there have been.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(SeqCst)
    }

    /// The requests so far.
    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }
}

fn serve(stream: &TcpStream, record: &Mutex<Vec<Received>>, answer: impl Fn(&Received) -> Vec<u8>) {
    let mut reader = BufReader::new(stream);
    while let Some(request) = read(&mut reader) {
        record.lock().unwrap().push(request.clone());
        let mut stream = stream;
        if stream.write_all(&answer(&request)).is_err() {
            return;
        }
    }
}

/// Reads a request; none at the end of the connection.
fn read(reader: &mut impl BufRead) -> Option<Received> {
    let mut lines = read_lines(reader)?;
    for line in &mut lines[1..] {
        if let Some((name, value)) = line.split_once(':') {
            *line = format!("{}:{value}", name.to_ascii_lowercase());
        }
    }
    let mut request = Received {
        lines,
        body: Vec::new(),
        trailers: Vec::new(),
    };
    if request.header("transfer-encoding") == ["chunked"] {
        loop {
            let size = read_line(reader)?;
            let size = usize::from_str_radix(size.split(';').next()?, 16).ok()?;
            if size == 0 {
                request.trailers = read_lines(reader)?;
                break;
            }
            let start = request.body.len();
            request.body.resize(start + size, 0);
            reader.read_exact(&mut request.body[start..]).ok()?;
            read_line(reader)?;
        }
    } else if let [length] = request.header("content-length")[..] {
        request.body = vec![0; length.parse().ok()?];
        reader.read_exact(&mut request.body).ok()?;
    }
    Some(request)
}

/// Reads lines until an empty one.
fn read_lines(reader: &mut impl BufRead) -> Option<Vec<String>> {
    let mut lines = Vec::new();
    loop {
        let line = read_line(reader)?;
        if line.is_empty() {
            return Some(lines);
        }
        lines.push(line);
    }
}

fn read_line(reader: &mut impl BufRead) -> Option<String> {
    let mut line = Vec::new();
    if reader.read_until(b'\n', &mut line).ok()? == 0 {
        return None;
    }
    let line = String::from_utf8_lossy(&line);
    Some(line.trim_end_matches(['\r', '\n']).to_owned())
}
