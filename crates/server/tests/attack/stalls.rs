//! Clients that stop in the middle: they take no response, or send their request slowly. Each loses
//! its own request, and nothing of an upstream or of the gateway stays with it.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use super::http2::{DATA, END_STREAM, HEADERS, Http2, INITIAL_WINDOW_SIZE, RST_STREAM};
use super::*;

/// The timeout that most tests set.
const SHORT: Duration = Duration::from_millis(500);
/// When the server must have acted on it.
const BOUND: Duration = SHORT.saturating_mul(20);

const BIG: usize = 5 << 20;

/// An upstream whose responses have so many bytes.
fn big_upstream(bytes: usize) -> Upstream {
    Upstream::start(move |_| {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {bytes}\r\n\r\n");
        [head.as_bytes(), &vec![b'x'; bytes]].concat()
    })
}

/// The memory that a server occupies.
fn resident_bytes(server: &Server) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    let kilobytes: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kilobytes << 10
}

fn gateway(settings: &str, upstream: Upstream) -> Target {
    let rules = "rules:\n  - { name: all, limits: 1000000/s }";
    Target::start(&format!("version: 1\n{settings}\n{rules}\n"), upstream)
}

/// Clients that take no response: how many, the size of a response, and how they send so many
/// requests.
type Stalled = (usize, usize, fn(SocketAddr, usize) -> Vec<TcpStream>);

const STALLED: [(&str, Stalled); 3] = [
    (
        "HTTP/2, no stream has a window",
        (50, 1 << 20, |to, number| stalled_http2(to, number, 0)),
    ),
    (
        "HTTP/2, the connection has the least window",
        (50, 1 << 20, |to, number| stalled_http2(to, number, 1 << 30)),
    ),
    // More than the buffers of the sockets.
    (
        "HTTP/1",
        (5, 20 << 20, |to, number| {
            let open = |_| {
                let mut stream = TcpStream::connect(to).unwrap();
                let head = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
                stream.write_all(head).unwrap();
                stream
            };
            (0..number).map(open).collect()
        }),
    ),
];

fn stalled_http2(to: SocketAddr, number: usize, window: u32) -> Vec<TcpStream> {
    let mut client = Http2::open(to, &[(INITIAL_WINDOW_SIZE, window)]);
    for stream in (1..).step_by(2).take(number) {
        client.get(stream, "/");
    }
    vec![client.stream]
}

#[test]
fn responses_that_nobody_takes_release_their_upstream_connections() {
    for (name, (number, bytes, send)) in STALLED {
        let settings = "gateway: { timeouts: { write: 500ms } }";
        let target = gateway(settings, big_upstream(bytes));
        let clients = send(target.server.gateway(), number);
        poll::until(TIMEOUT, name, || target.upstream.received().len() == number);
        poll::until(BOUND, name, || target.upstream.open() == 0);
        drop(clients);
    }
}

#[test]
fn a_stalled_stream_is_reset_and_others_of_its_connection_go_on() {
    let target = gateway("gateway: { timeouts: { write: 500ms } }", big_upstream(BIG));
    let mut client = Http2::open(target.server.gateway(), &[(INITIAL_WINDOW_SIZE, 0)]);
    client.get(1, "/stalled");
    client.get(3, "/moving");
    // A piece of the second response now and then, for longer than the first one may stall.
    const PIECE: u32 = 32 << 10;
    let started = Instant::now();
    let mut reset = None;
    let mut pieces = 0;
    while reset.is_none() || started.elapsed() < 6 * SHORT {
        assert!(started.elapsed() < 2 * BOUND, "stream 1 was not reset");
        client.open_window(0, PIECE);
        client.open_window(3, PIECE);
        let mut left = PIECE as usize;
        while left > 0 {
            let frame = client.next().expect("the connection is open");
            match (frame.stream, frame.kind) {
                (3, DATA) => left -= frame.payload.len(),
                (1, RST_STREAM) => reset = Some(frame.number()),
                (1 | 3, HEADERS) => {}
                other => panic!("unexpected frame {other:?}"),
            }
        }
        pieces += 1;
        thread::sleep(SHORT / 4);
    }
    // CANCEL, not a problem of the connection.
    assert_eq!(reset, Some(8));
    poll::until(TIMEOUT, "its upstream connection is closed", || {
        target.upstream.open() == 1
    });
    // The rest at once.
    let mut left = BIG - pieces * PIECE as usize;
    client.open_window(0, 1 << 30);
    client.open_window(3, 1 << 30);
    while left > 0 {
        left -= client.next_on(3, DATA).payload.len();
    }
}

#[test]
fn a_client_that_reads_slowly_but_steadily_gets_everything() {
    let target = gateway("gateway: { timeouts: { write: 500ms } }", big_upstream(BIG));
    let mut client = TcpStream::connect(target.server.gateway()).unwrap();
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    client
        .write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        .unwrap();
    let mut received = 0;
    let mut chunk = vec![0; 512 << 10];
    loop {
        match client.read(&mut chunk).unwrap() {
            0 => break,
            length => received += length,
        }
        thread::sleep(SHORT / 10);
    }
    assert!(received > BIG, "{received}");
}

/// What the head of an upload looks like, and whether the upload has to have the least rate.
const UPLOADS: [(&str, bool); 5] = [
    (
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\n",
        true,
    ),
    // Chunks of a byte, below.
    (
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n",
        true,
    ),
    (
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-type: text/plain\r\ncontent-length: 100000\r\n\r\n",
        true,
    ),
    (
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-type: application/grpc+proto\r\n\
         content-length: 100000\r\n\r\n",
        false,
    ),
    (
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-type: application/grpc-web\r\n\
         content-length: 100000\r\n\r\n",
        false,
    ),
];

#[test]
fn a_body_that_trickles_is_cut_and_a_stream_of_messages_is_not() {
    let settings = "gateway: { timeouts: { body_grace: 500ms } }";
    let target = gateway(settings, Upstream::text("done"));
    thread::scope(|scope| {
        for (head, has_least_rate) in UPLOADS {
            let gateway = target.server.gateway();
            scope.spawn(move || {
                let mut stream = TcpStream::connect(gateway).unwrap();
                stream.write_all(head.as_bytes()).unwrap();
                stream
                    .set_read_timeout(Some(Duration::from_millis(50)))
                    .unwrap();
                let piece: &[u8] = match head.contains("chunked") {
                    true => b"1\r\nx\r\n",
                    false => b"x",
                };
                let started = Instant::now();
                let mut response = Vec::new();
                // Some 20 bytes a second.
                while started.elapsed() < BOUND && response.is_empty() {
                    let _ = stream.write_all(piece);
                    let mut chunk = [0; 1024];
                    if let Ok(length) = stream.read(&mut chunk) {
                        response.extend(&chunk[..length]);
                    }
                    if !has_least_rate && started.elapsed() > 5 * SHORT {
                        break;
                    }
                }
                let response = String::from_utf8_lossy(&response);
                match has_least_rate {
                    true => assert_eq!(status(&response), 408, "{head}"),
                    false => assert_eq!(response, "", "{head}"),
                }
            });
        }
    });
    // HTTP/2: the stream ends, and the connection goes on.
    let mut client = Http2::open(target.server.gateway(), &[]);
    client.post(1, "/");
    let started = Instant::now();
    client
        .stream
        .set_read_timeout(Some(Duration::from_millis(50)))
        .unwrap();
    let answer = loop {
        assert!(started.elapsed() < BOUND, "not cut");
        let _ = client.write(DATA, 0, 1, b"x");
        if let Some(frame) = client.next().filter(|frame| frame.stream == 1) {
            break frame;
        }
    };
    assert_eq!(answer.kind, HEADERS);
    client.stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    assert_eq!(client.next_on(1, RST_STREAM).number(), 0);
    client.get(3, "/");
    let done = client.next_on(3, DATA);
    assert_eq!((&*done.payload, done.flags), (&b"done"[..], END_STREAM));
}

#[test]
fn a_body_that_the_gateway_holds_back_is_not_too_slow() {
    // The last request waits for four times the time after which the rate counts.
    let rules = "version: 1
gateway: { timeouts: { body_grace: 500ms }, sizes: { body_rate: 1000000 } }
rules:
  - { name: all, limits: leaky-bucket 1/s queue 10 }
";
    let target = Target::start(rules, Upstream::text("done"));
    let body = "x".repeat(200_000);
    let send = || {
        let head =
            "POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 200000\r\n\r\n";
        status(&raw(target.server.gateway(), format!("{head}{body}")))
    };
    thread::scope(|scope| {
        let sent: Vec<_> = (0..3).map(|_| scope.spawn(send)).collect();
        for sent in sent {
            assert_eq!(sent.join().unwrap(), 200);
        }
    });
}

#[test]
fn an_upload_that_the_upstream_reads_slowly_is_not_too_slow() {
    // The upstream starts to read after twice the time after which the rate counts.
    let upstream = Upstream::start_paused(2 * SHORT, |_| {
        b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone".to_vec()
    });
    let settings = "gateway: { timeouts: { body_grace: 500ms }, sizes: { body_rate: 10000000 } }";
    let target = gateway(settings, upstream);
    let length = 20 << 20;
    let head = format!(
        "POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    let request = [head.as_bytes(), &vec![b'x'; length]].concat();
    assert_eq!(status(&raw(target.server.gateway(), request)), 200);
}

#[test]
fn bodies_that_are_held_back_take_no_more_than_their_bound() {
    let rules = "version: 1
gateway: { timeouts: { body_idle: 1min } }
rules:
  - { name: all, limits: leaky-bucket 1/h queue 100 }
";
    let target = Target::start(rules, Upstream::text("done"));
    let to = target.server.gateway();
    raw(to, "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    let before = resident_bytes(&target.server);

    // HTTP/1: 64 KB, and what the sockets hold.
    const HTTP1: usize = 20;
    let clients: Vec<TcpStream> = (0..HTTP1)
        .map(|_| {
            let mut stream = TcpStream::connect(to).unwrap();
            let head = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 100000000\r\n\r\n";
            stream.write_all(head.as_bytes()).unwrap();
            stream.set_nonblocking(true).unwrap();
            stream
        })
        .collect();
    let chunk = [b'x'; 16 << 10];
    // Until nothing is accepted for a while.
    let mut last = Instant::now();
    while last.elapsed() < SHORT {
        for mut stream in &clients {
            if let Ok(1..) = stream.write(&chunk) {
                last = Instant::now();
            }
        }
        thread::yield_now();
    }
    let http1 = resident_bytes(&target.server).saturating_sub(before);
    assert!(http1 < HTTP1 * (256 << 10), "{http1}");

    // HTTP/2: the windows, 256 KB for all requests of a connection.
    let mut client = Http2::open(to, &[]);
    for i in 0..50 {
        client.post(1 + 2 * i, "/");
    }
    client.stream.set_read_timeout(Some(SHORT)).unwrap();
    // The update of the connection's window arrives.
    assert!(client.next().is_none());
    let mut sent = 0;
    let mut windows = [client.stream_window; 50];
    'send: loop {
        for (i, window) in (0..).zip(&mut windows) {
            let length = client.connection_window.min(*window).min(1 << 14);
            if client.connection_window <= 0 {
                break 'send;
            }
            let length = usize::try_from(length).unwrap();
            client.write(DATA, 0, 1 + 2 * i, &chunk[..length]).unwrap();
            client.connection_window -= i64::try_from(length).unwrap();
            *window -= i64::try_from(length).unwrap();
            sent += length;
        }
    }
    assert!(sent <= 256 << 10, "{sent}");
    // No window opens while they wait.
    assert!(client.next().is_none());
    assert!(
        client.connection_window <= 0,
        "{}",
        client.connection_window
    );
    drop(clients);
}
