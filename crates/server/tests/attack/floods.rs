//! Clients that take more than their share: connections, files, and uploads that nobody wants.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4, TcpStream};
use std::process::Command;
use std::time::Instant;

use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use super::client::send;
use super::http2::{DATA, HEADERS, Http2, RST_STREAM};
use super::refusals::{Port, Refused, Sent};
use super::server::JSON;
use super::*;

const RULES: &str = "rules:\n  - { name: all, limits: 1000000/s }\n";

fn gateway(settings: &str, args: &[&str]) -> Target {
    let rules = format!("version: 1\n{settings}\n{RULES}");
    // The API port answers `GET /` then.
    let args = [&["--playground"], args].concat();
    Target::start_with(&rules, Upstream::text("hello"), &args)
}

/// Connects from 127.0.0.x: each of these is a client of its own.
pub(super) fn connect_from(client: u8, to: SocketAddr) -> TcpStream {
    let IpAddr::V4(ip) = to.ip() else {
        panic!("not IPv4: {to}")
    };
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    let from = SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, client), 0);
    bind(&socket, &from).unwrap();
    connect(&socket, &SocketAddrV4::new(ip, to.port())).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream
}

/// Sends a request and reads its response; `None` if the connection is closed.
fn request(stream: &mut TcpStream, head: &str) -> Option<u16> {
    stream.write_all(head.as_bytes()).ok()?;
    let mut response = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) => return None,
            Ok(length) => response.extend(&chunk[..length]),
        }
        let text = String::from_utf8_lossy(&response);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let head = head.to_ascii_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
            return Some(status(&text));
        }
    }
}

fn is_closed(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let closed = match (&mut &*stream).read(&mut [0; 64]) {
        Ok(length) => length == 0,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    };
    stream.set_nonblocking(false).unwrap();
    closed
}

const GET: &str = "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// A name, an address, and a request that is answered with 200.
type Listener = (&'static str, fn(&Target) -> SocketAddr, &'static str);

const LISTENERS: [Listener; 3] = [
    ("gateway", |target| target.server.gateway(), GET),
    (
        "api",
        |target| target.server.api,
        "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ),
    (
        "admin",
        |target| target.server.admin,
        "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ),
];

#[test]
fn a_client_at_its_bound_loses_its_idlest_connection_and_others_none() {
    let target = gateway("", &["--connections-per-client", "4"]);
    for (name, address, head) in LISTENERS {
        let to = address(&target);
        let mut other = connect_from(9, to);
        assert_eq!(request(&mut other, head), Some(200), "{name}");
        let mut open: Vec<TcpStream> = Vec::new();
        for i in 0..12 {
            let mut stream = connect_from(2, to);
            assert_eq!(request(&mut stream, head), Some(200), "{name}, {i}");
            open.push(stream);
            let closed =
                |open: &[TcpStream]| open.iter().filter(|stream| is_closed(stream)).count();
            let expected = open.len().saturating_sub(4);
            poll::until(TIMEOUT, name, || closed(&open) == expected);
            // The oldest are the idlest.
            assert_eq!(closed(&open[..expected]), expected, "{name}");
        }
        assert_eq!(request(&mut other, head), Some(200), "{name}");
        let mut newcomer = connect_from(3, to);
        assert_eq!(request(&mut newcomer, head), Some(200), "{name}");
    }
}

const UPGRADE: &str =
    "GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";

/// What a connection is in use for: what the client sends, and what the upstream answers.
const IN_USE: [(&str, &str); 2] = [
    (GET, ""),
    (
        UPGRADE,
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
    ),
];

#[test]
fn a_client_whose_connections_are_all_in_use_is_refused_another() {
    for (request_head, answer) in IN_USE {
        let rules =
            format!("version: 1\ngateway: {{ sizes: {{ connections_per_client: 4 }} }}\n{RULES}");
        let target = Target::start(&rules, Upstream::start(|_| answer.as_bytes().to_vec()));
        let to = target.server.gateway();
        let mut in_use: Vec<TcpStream> = (0..4).map(|_| connect_from(2, to)).collect();
        for stream in &mut in_use {
            stream.write_all(request_head.as_bytes()).unwrap();
            if !answer.is_empty() {
                let mut head = vec![0; 32];
                stream.read_exact(&mut head).unwrap();
            }
        }
        poll::until(TIMEOUT, "all are in flight", || target.upstream.open() == 4);
        let mut fifth = connect_from(2, to);
        assert_eq!(request(&mut fifth, GET), None, "{request_head}");
        // It says so, without the address.
        let logged = || target.server.stderr().contains("connections_per_client");
        poll::until(TIMEOUT, "a warning", logged);
        assert!(!target.server.stderr().contains("127.0.0.2"));
        // Another client is served.
        let mut other = connect_from(3, to);
        other.write_all(GET.as_bytes()).unwrap();
        let served = || target.upstream.received().len() == 5;
        poll::until(TIMEOUT, "another client is served", served);
        assert!(in_use.iter().all(|stream| !is_closed(stream)));
    }
}

#[test]
fn trusted_proxies_have_no_bound() {
    let target = gateway(
        "trusted_proxies: 127.0.0.2",
        &["--connections-per-client", "4"],
    );
    for (name, address, head) in LISTENERS {
        let open: Vec<TcpStream> = (0..20)
            .map(|_| {
                let mut stream = connect_from(2, address(&target));
                assert_eq!(request(&mut stream, head), Some(200), "{name}");
                stream
            })
            .collect();
        assert!(open.iter().all(|stream| !is_closed(stream)), "{name}");
    }
}

/// A name, and how a connection gets idle.
type Idle = (&'static str, fn(SocketAddr) -> TcpStream);

const IDLE: [Idle; 4] = [
    ("nothing sent", |to| connect_from(2, to)),
    ("half a head", |to| {
        let mut stream = connect_from(2, to);
        stream.write_all(&GET.as_bytes()[..20]).unwrap();
        stream
    }),
    ("kept alive", |to| {
        let mut stream = connect_from(2, to);
        assert_eq!(request(&mut stream, GET), Some(200));
        stream
    }),
    // It does not acknowledge that the server wants to leave.
    ("HTTP/2", |to| {
        let mut client = Http2::open(to, &[]);
        client.get(1, "/");
        client.next_on(1, DATA);
        client.stream
    }),
];

#[test]
fn a_full_listener_closes_idle_connections_for_new_clients() {
    // Longer than anything here may take.
    let settings = "gateway: { sizes: { connections: 6 }, timeouts: { header: 10min } }";
    for (name, open) in IDLE {
        let target = gateway(settings, &[]);
        let to = target.server.gateway();
        let _idle: Vec<TcpStream> = (0..6).map(|_| open(to)).collect();
        for i in 0..6 {
            let mut newcomer = connect_from(3, to);
            assert_eq!(request(&mut newcomer, GET), Some(200), "{name}, {i}");
        }
    }
}

#[test]
fn a_server_without_files_says_so_once_a_second_and_serves_new_clients() {
    let target = gateway("", &[]);
    let server = &target.server;
    let pid = Pid::from_raw(i32::try_from(server.child.id()).unwrap());
    let open = fs::read_dir(format!("/proc/{}/fd", server.child.id())).unwrap();
    let files = Some(open.count() as u64 + 20);
    let limit = Rlimit {
        current: files,
        maximum: files,
    };
    prlimit(pid, Resource::Nofile, limit).unwrap();
    let started = Instant::now();
    let _idle: Vec<TcpStream> = (0..200).map(|_| connect_from(2, server.api)).collect();
    let lines = || server.stderr().matches("cannot accept connections").count();
    poll::until(TIMEOUT, "a warning", || lines() > 0);
    // Idle connections make room for these.
    for _ in 0..20 {
        let mut newcomer = connect_from(3, server.api);
        assert_eq!(request(&mut newcomer, GET), Some(200));
    }
    let seconds = usize::try_from(started.elapsed().as_secs()).unwrap();
    assert!(lines() <= seconds + 1, "{} lines in {seconds} s", lines());
}

/// Uploads as Python's http.client does: everything is written before anything is read.
const UPLOAD: &str = "
import http.client, sys
host, port, path, size, count = sys.argv[1:]
for _ in range(int(count)):
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    try:
        headers = {'Content-Type': 'application/json'}
        connection.request('POST', path, b'x' * int(size), headers)
        print(connection.getresponse().status)
    except OSError as error:
        print(repr(error))
    connection.close()
";

const PORTS: [Port; 3] = [Port::Gateway, Port::Api, Port::Admin];

/// What every port refuses: a name, the bytes, the status and the problem.
fn oversized() -> Vec<(&'static str, Vec<u8>, u16, &'static str)> {
    let long = "a".repeat(100_000);
    let get = "GET / HTTP/1.1\r\nHost: localhost\r\n";
    let many = (0..101)
        .map(|i| format!("x-{i}: y\r\n"))
        .collect::<String>();
    let text = |text: String| text.into_bytes();
    let target = format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n");
    let query = format!("GET /?{long} HTTP/1.1\r\nHost: a\r\n\r\n");
    let name = format!("{get}{long}: y\r\n\r\n");
    let value = format!("{get}x: {long}\r\n\r\n");
    vec![
        ("a target of 100 KB", text(target), 414, "target-too-long"),
        ("a query of 100 KB", text(query), 414, "target-too-long"),
        (
            "a method of 100 KB",
            text(long.to_uppercase()),
            414,
            "target-too-long",
        ),
        ("a header name of 100 KB", text(name), 431, "head-too-large"),
        ("a header of 100 KB", text(value), 431, "head-too-large"),
        (
            "101 headers",
            text(format!("{get}{many}\r\n")),
            431,
            "head-too-large",
        ),
        (
            "TLS",
            b"\x16\x03\x01\x02\x00\x01\x00".repeat(50),
            400,
            "bad-request",
        ),
        (
            "another protocol",
            text("SSH-2.0-OpenSSH_9.2\r\n".to_owned()),
            400,
            "bad-request",
        ),
        (
            "HTTP/3.0",
            text("GET / HTTP/3.0\r\nHost: a\r\n\r\n".to_owned()),
            400,
            "bad-request",
        ),
        ("zeros", vec![0; 1000], 400, "bad-request"),
    ]
}

pub(super) fn refused() -> Vec<Refused> {
    let oversized = oversized()
        .into_iter()
        .flat_map(|(name, bytes, status, problem)| {
            PORTS.map(|port| Refused {
                port,
                ..Refused::by_gateway(name, Sent::Http1(bytes.clone()), status, problem)
            })
        });
    let uploads = [
        (Port::Gateway, "POST / HTTP/1.1\r\n"),
        (
            Port::Api,
            "POST /v1/check HTTP/1.1\r\nContent-Type: application/json\r\n",
        ),
    ];
    let uploads = uploads.into_iter().map(|(port, head)| {
        let bytes = format!("{head}Host: localhost\r\nContent-Length: 10000000\r\n\r\n");
        let sent = Sent::Http1(bytes.into());
        Refused {
            port,
            ..Refused::by_gateway("a body of 10 MB", sent, 413, "body-too-large")
        }
    });
    oversized.chain(uploads).collect()
}

/// Who refuses an upload early: the listener, the path, the rules and the status.
const REFUSALS: [(&str, &str, &str, &str); 4] = [
    (
        "gateway",
        "/spent",
        "version: 1\nrules:\n  - { name: all, match: { path: /spent }, limits: 1/1d }\n",
        "429",
    ),
    (
        "gateway",
        "/large",
        "version: 1\ngateway: { sizes: { body_bytes: 1000 } }\nrules: []\n",
        "413",
    ),
    (
        "gateway",
        "/denied",
        "version: 1\nrules:\n  - { name: all, deny: [127.0.0.1], limits: 1000000/s }\n",
        "403",
    ),
    ("api", "/v1/check", "version: 1\nrules: []\n", "413"),
];

#[test]
fn clients_that_write_everything_first_read_why_they_were_refused() {
    for (listener, path, rules, refusal) in REFUSALS {
        let target = Target::start(rules, Upstream::text("hello"));
        let to = match listener {
            "api" => target.server.api,
            _ => target.server.gateway(),
        };
        // Spends the limit of the first.
        raw(
            to,
            format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"),
        );
        for size in ["1000000", "5000000"] {
            let (ip, port) = (to.ip().to_string(), to.port().to_string());
            let output = Command::new("python3")
                .args(["-c", UPLOAD, &ip, &port, path, size, "10"])
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            let seen = text.lines().filter(|line| *line == refusal).count();
            assert_eq!(seen, 10, "{listener}{path}, {size} bytes: {text}");
        }
    }
}

#[test]
fn an_early_refusal_over_http2_is_read_before_the_upload_is_stopped() {
    let target = Target::start(REFUSALS[0].2, Upstream::text("hello"));
    let mut client = Http2::open(target.server.gateway(), &[]);
    client.get(1, "/spent");
    client.next_on(1, HEADERS);
    for stream in (3..23).step_by(2) {
        client.post(stream, "/spent");
        let _ = client.write(DATA, 0, stream, &[b'x'; 4096]);
        client.next_on(stream, HEADERS);
        assert!(client.next_on(stream, DATA).payload.starts_with(b"{"));
        // NO_ERROR: stop sending, the response is complete.
        assert_eq!(client.next_on(stream, RST_STREAM).number(), 0);
    }
    // The connection goes on.
    client.get(23, "/");
    client.next_on(23, DATA);
}

#[test]
fn what_is_discarded_after_a_refusal_has_a_bound() {
    let target = Target::start(REFUSALS[1].2, Upstream::text("hello"));
    let mut client = connect_from(2, target.server.gateway());
    let head = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000000\r\n\r\n";
    client.write_all(head.as_bytes()).unwrap();
    let mut sent = 0;
    while let Ok(length) = client.write(&[b'x'; 64 << 10]) {
        sent += length;
        assert!(sent < 500 << 20, "{sent} bytes were taken");
    }
}

const TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[test]
fn a_stranger_cannot_have_requests_traced() {
    for (trusted, is_traced) in [("[192.0.2.1]", false), ("[127.0.0.1]", true)] {
        let receiver = Upstream::text("");
        let mut target = gateway(
            &format!("trusted_proxies: {trusted}"),
            &["--otlp", &receiver.url(), "--otlp-sample", "0"],
        );
        let headers = [("traceparent", TRACEPARENT), JSON];
        let check = r#"{"key":"a","quota":"9/s"}"#;
        for _ in 0..20 {
            let sent = send(target.server.gateway(), "GET", "/", &headers, "");
            assert_eq!(sent.status, 200);
            let sent = send(target.server.api, "POST", "/v1/check", &headers, check);
            assert!([200, 429].contains(&sent.status), "{sent:?}");
        }
        // The upstream decides for itself what it believes.
        let forwarded = target.upstream.received();
        let continues = forwarded[0].header("traceparent")[0].starts_with(&TRACEPARENT[..36]);
        assert!(continues, "{forwarded:?}");
        // Shutdown flushes spans.
        target.server.signal("-TERM");
        assert!(target.server.wait().success());
        let received = receiver.received();
        let traces = |one: &&upstream::Received| one.lines[0].starts_with("POST /v1/traces ");
        let exported = received.iter().find(traces);
        assert_eq!(exported.is_some(), is_traced, "{trusted}");
    }
}
