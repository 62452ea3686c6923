//! Requests and responses that two servers could delimit differently. What is ambiguous is refused and
//! its connection closed, so that nothing of one client's request is taken for another one's.

use std::io::Write;

use super::http2::{DATA, END_STREAM, HEADERS, Http2, block};
use super::real_servers::RealServer;
use super::refusals::{Refused, Sent};
use super::*;

const RULES: &str = "version: 1\nrules:\n  - { name: all, limits: 1000000/s }\n";

fn gateway(upstream: Upstream) -> Target {
    Target::start(RULES, upstream)
}

/// What the upstream got: methods and paths.
fn received(target: &Target) -> Vec<String> {
    let line = |request: Received| request.lines[0].replace(" HTTP/1.1", "");
    target.upstream.received().into_iter().map(line).collect()
}

const NEXT: &str = "GET /smuggled HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

/// What follows `POST / HTTP/1.1` and `Host: a`.
const AMBIGUOUS: &[(&str, &str)] = &[
    (
        "length and coding",
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "coding and length",
        "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    ),
    (
        "two lengths",
        "Content-Length: 4\r\nContent-Length: 5\r\n\r\nbodyx",
    ),
    ("a list of lengths", "Content-Length: 4, 4\r\n\r\nbody"),
    ("a signed length", "Content-Length: +4\r\n\r\nbody"),
    ("a negative length", "Content-Length: -1\r\n\r\n"),
    ("a length in hexadecimal", "Content-Length: 0x4\r\n\r\nbody"),
    (
        "a huge length",
        "Content-Length: 99999999999999999999\r\n\r\n",
    ),
    ("an empty length", "Content-Length: \r\n\r\n"),
    (
        "another coding",
        "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "a coding after chunked",
        "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    ),
    (
        "an unknown coding",
        "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "two codings",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "a coding in quotes",
        "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n",
    ),
    (
        "a coding with a parameter",
        "Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n",
    ),
    (
        "an empty element before the coding",
        "Transfer-Encoding: , chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "an empty element after the coding",
        "Transfer-Encoding: chunked,\r\n\r\n0\r\n\r\n",
    ),
    ("an empty coding", "Transfer-Encoding:\r\n\r\n"),
    (
        "identity and a length",
        "Transfer-Encoding: identity\r\nContent-Length: 4\r\n\r\nbody",
    ),
    ("a name in parentheses", "X(: x\r\n\r\n"),
    ("an escape character", "X: a\x1bb\r\n\r\n"),
    ("a delete character", "X: a\x7fb\r\n\r\n"),
    (
        "a vertical tab",
        "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "a space before the colon",
        "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    ),
    ("a folded line", "X-Folded: a\r\n b\r\n\r\n"),
    (
        "a folded coding",
        "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    ),
    ("a line without a colon", "X-Nothing\r\n\r\n"),
    ("an empty name", ": x\r\n\r\n"),
    ("a name with a space", "X Y: x\r\n\r\n"),
    ("a zero byte", "X-Zero: a\0b\r\n\r\n"),
    ("a lone carriage return", "X-Return: a\rb\r\n\r\n"),
    ("two hosts", "Host: b\r\n\r\n"),
    ("the same host twice", "Host: a\r\n\r\n"),
    (
        "two equal lengths",
        "Content-Length: 4\r\nContent-Length: 4\r\n\r\nbody",
    ),
];

/// Whole heads.
const HEADS: &[(&str, &str)] = &[
    (
        "a coding in HTTP/1.0",
        "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "a space before the first header",
        "POST / HTTP/1.1\r\n Host: a\r\n\r\n",
    ),
    (
        "a tab before the first header",
        "POST / HTTP/1.1\r\n\tHost: a\r\n\r\n",
    ),
    ("HTTP/0.9", "GET /\r\n"),
    ("HTTP/1.2", "GET / HTTP/1.2\r\nHost: a\r\n\r\n"),
    ("HTTP/01.1", "GET / HTTP/01.1\r\nHost: a\r\n\r\n"),
    ("HTTP/1.1x", "GET / HTTP/1.1x\r\nHost: a\r\n\r\n"),
    ("http/1.1", "GET / http/1.1\r\nHost: a\r\n\r\n"),
    ("HTTP/2.0 in text", "GET / HTTP/2.0\r\nHost: a\r\n\r\n"),
    ("half a preface", "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"),
    (
        "a carriage return for a line end",
        "GET / HTTP/1.1\rHost: a\r\n\r\n",
    ),
    (
        "two carriage returns",
        "GET / HTTP/1.1\r\nHost: a\r\r\n\r\n",
    ),
];

pub(super) fn refused() -> Vec<Refused> {
    let row = |name: &str, bytes: String| {
        Refused::by_gateway(name, Sent::Http1(bytes.into()), 400, "bad-request")
    };
    let ambiguous = AMBIGUOUS
        .iter()
        .map(|(name, rest)| row(name, format!("POST / HTTP/1.1\r\nHost: a\r\n{rest}")));
    let heads = HEADS
        .iter()
        .map(|(name, head)| row(name, (*head).to_owned()));
    ambiguous.chain(heads).collect()
}

/// Chunked bodies.
const MALFORMED: &[(&str, &str)] = &[
    ("no number", "x\r\nbody\r\n0\r\n\r\n"),
    ("an empty number", "\r\nbody\r\n0\r\n\r\n"),
    ("a sign", "+4\r\nbody\r\n0\r\n\r\n"),
    ("a prefix", "0x4\r\nbody\r\n0\r\n\r\n"),
    (
        "a number too large",
        "fffffffffffffffff\r\nbody\r\n0\r\n\r\n",
    ),
    ("a piece too long", "3\r\nbody\r\n0\r\n\r\n"),
    ("a space in the number", "4 4\r\nbody\r\n0\r\n\r\n"),
    ("a line feed alone", "4\nbody\r\n0\r\n\r\n"),
    ("a line feed in an extension", "4;a\nb\r\nbody\r\n0\r\n\r\n"),
    ("no line end after a piece", "4\r\nbodyxx0\r\n\r\n"),
    // For some servers it ends the body, and what follows is the next request.
    ("a line feed at the end", "0\r\n\n"),
    ("a line feed after a trailer", "0\r\na: b\n\r\n"),
    ("a line feed after trailers", "0\r\na: b\r\n\n"),
    (
        "a carriage return alone in a trailer",
        "0\r\na: b\rc\r\n\r\n",
    ),
];

#[test]
fn a_malformed_chunked_body_closes_the_connection() {
    let target = gateway(Upstream::text("hello"));
    let head = "POST /first HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (name, body) in MALFORMED {
        let together = raw(target.server.gateway(), format!("{head}{body}{NEXT}"));
        // The upstream has the head before the body arrives.
        let connections = target.upstream.connections();
        let mut stream = TcpStream::connect(target.server.gateway()).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        poll::until(TIMEOUT, name, || {
            target.upstream.connections() > connections
        });
        let apart = raw_over(stream, format!("{body}{NEXT}"));
        for response in [together, apart] {
            assert_eq!(status(&response), 400, "{name}: {response}");
            assert!(response.contains("connection: close"), "{name}: {response}");
            let responses = response.matches("HTTP/1.").count();
            assert_eq!(responses, 1, "{name}: {response}");
        }
    }
    // None was complete.
    assert_eq!(received(&target), Vec::<String>::new());
}

#[test]
fn the_ambiguous_one_of_several_pipelined_requests_is_refused_and_those_before_it_are_not() {
    let target = gateway(Upstream::text("hello"));
    let bytes = "POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody\
                 POST /chunks HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
                 4\r\nbody\r\n0\r\n\r\n\
                 POST /both HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\
                 Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    let response = raw(target.server.gateway(), format!("{bytes}{NEXT}"));
    assert_eq!(response.matches(" 200 ").count(), 2, "{response}");
    assert_eq!(response.matches("HTTP/1.1 400").count(), 1, "{response}");
    assert_eq!(received(&target), ["POST /length", "POST /chunks"]);
}

/// The lines of a head that would be refused.
const BOTH: &str =
    "POST /smuggled HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Requests whose body looks like such a head, as somebody may upload it.
fn uploads_of_heads() -> Vec<(&'static str, String)> {
    let length = BOTH.len();
    let coding = "Transfer-Encoding: chunked\r\n\r\n";
    vec![
        (
            "a length",
            format!("Content-Length: {length}\r\n\r\n{BOTH}"),
        ),
        (
            "chunks",
            format!("{coding}{length:x}\r\n{BOTH}\r\n0\r\n\r\n"),
        ),
        (
            "chunks with extensions and trailers",
            format!("{coding}{length:X};a=b\r\n{BOTH}\r\n0;c\r\nX: y\r\n\r\n"),
        ),
    ]
}

#[test]
fn what_looks_like_a_head_in_a_body_breaks_no_later_request_on_the_connection() {
    // A proxy in front keeps connections for the requests of several users.
    let target = gateway(Upstream::text("hello"));
    for (name, upload) in uploads_of_heads() {
        let response = raw(
            target.server.gateway(),
            format!(
                "POST /one HTTP/1.1\r\nHost: a\r\n{upload}\
                 POST /other HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\
                 Connection: close\r\n\r\n4\r\nbody\r\n0\r\n\r\n"
            ),
        );
        assert_eq!(response.matches(" 200 ").count(), 2, "{name}: {response}");
    }
    let bodies: Vec<Vec<u8>> = target
        .upstream
        .received()
        .into_iter()
        .map(|request| request.body)
        .collect();
    let pair = [BOTH.as_bytes(), b"body"];
    assert_eq!(bodies, [pair, pair, pair].concat());
}

/// Requests with methods that have no body mostly: the head without the method, and the body.
const UNEXPECTED_BODIES: &[(&str, &str, &str)] = &[
    ("a length", "Content-Length: 4\r\n\r\n", "body"),
    (
        "chunks",
        "Transfer-Encoding: chunked\r\n\r\n",
        "4\r\nbody\r\n0\r\n\r\n",
    ),
];

#[test]
fn bodies_of_get_and_head_reach_the_upstream_and_nothing_follows_them_on_its_connection() {
    let target = gateway(Upstream::text(""));
    let to = target.server.gateway();
    for method in ["GET", "HEAD", "OPTIONS"] {
        for (name, head, body) in UNEXPECTED_BODIES {
            let head = format!("{method} / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{head}");
            assert_eq!(status(&raw(to, head + body)), 200, "{method}, {name}");
        }
    }
    let mut client = Http2::open(to, &[]);
    client.start(1, &block(b"\x82\x86", "/"));
    client.write(DATA, END_STREAM, 1, b"body").unwrap();
    client.next_on(1, HEADERS);
    let requests = target.upstream.received();
    assert_eq!(requests.len(), 7);
    for request in requests {
        assert_eq!(request.body, b"body", "{request:?}");
        assert_eq!(request.header("connection"), ["close"], "{request:?}");
    }
}

/// Answers with the paths of all requests so far. Reads no body of a GET, as many servers, and
/// takes what follows the head for the next request.
const IGNORES_BODIES: &str = "
import http.server
paths = []
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_GET(self):
        paths.append(self.path)
        text = ' '.join(paths).encode()
        self.send_response(200)
        self.send_header('Content-Length', str(len(text)))
        self.end_headers()
        self.wfile.write(text)
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
";

#[test]
fn a_body_that_the_upstream_ignores_is_no_request() {
    let upstream = RealServer::python(IGNORES_BODIES);
    let server = upstream.gateway(RULES);
    let request = "GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n";
    let length = request.len();
    for body in [
        format!("Content-Length: {length}\r\n\r\n{request}"),
        format!("Transfer-Encoding: chunked\r\n\r\n{length:x}\r\n{request}\r\n0\r\n\r\n"),
    ] {
        let head = format!("GET /first HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{body}");
        assert_eq!(status(&raw(server.gateway(), head)), 200);
    }
    let response = raw(
        server.gateway(),
        "GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    );
    assert!(response.ends_with("/first /first /last"), "{response}");
}

const CHUNKS: &str = "1e\r\n012345678901234567890123456789\r\n0\r\n\r\n";

/// Answers of an upstream: what follows the status line, and what a client may get of it.
const ANSWERS: &[(&str, &str, Option<&str>)] = &[
    ("a length", "content-length: 5\r\n\r\nhello", Some("hello")),
    (
        "chunks",
        "transfer-encoding: Chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        Some("hello"),
    ),
    (
        "length and coding",
        "content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n{CHUNKS}",
        None,
    ),
    (
        "coding and length",
        "transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n{CHUNKS}",
        None,
    ),
    (
        "two lengths",
        "content-length: 5\r\ncontent-length: 30\r\n\r\nhello",
        None,
    ),
    (
        "the same length twice",
        "content-length: 5\r\ncontent-length: 5\r\n\r\nhello",
        None,
    ),
    (
        "a list of lengths",
        "content-length: 5, 5\r\n\r\nhello",
        None,
    ),
    ("a signed length", "content-length: +5\r\n\r\nhello", None),
    (
        "another coding",
        "transfer-encoding: gzip, chunked\r\n\r\n{CHUNKS}",
        None,
    ),
    (
        "two codings",
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n{CHUNKS}",
        None,
    ),
    (
        "an unknown coding",
        "transfer-encoding: identity\r\n\r\n{CHUNKS}",
        None,
    ),
    (
        "a folded line",
        "x-folded: a\r\n b\r\ncontent-length: 0\r\n\r\n",
        None,
    ),
    (
        "a space before the colon",
        "content-length : 5\r\n\r\nhello",
        None,
    ),
];

#[test]
fn ambiguous_responses_are_a_502_and_their_connection_is_not_used_again() {
    for (name, answer, expected) in ANSWERS {
        let answer = format!("HTTP/1.1 200 OK\r\n{}", answer.replace("{CHUNKS}", CHUNKS));
        let target = gateway(Upstream::start(move |_| answer.clone().into_bytes()));
        let to = target.server.gateway();
        for method in ["GET", "POST"] {
            let head = format!("{method} / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            let response = raw(to, head);
            match expected {
                Some(body) => {
                    assert_eq!(status(&response), 200, "{name}: {response}");
                    assert!(response.contains(body), "{name}: {response}");
                }
                None => {
                    assert_eq!(status(&response), 502, "{name}: {response}");
                    let problem = "\"type\":\"urn:tallygate:problem:upstream-failed\"";
                    assert!(response.contains(problem), "{name}: {response}");
                }
            }
        }
        let mut client = Http2::open(to, &[]);
        client.get(1, "/");
        let head = client.next_on(1, HEADERS).payload;
        // `:status: 200` is indexed.
        assert_eq!(head[0] == 0x88, expected.is_some(), "{name}: {head:?}");
        let closed = || target.upstream.open() == usize::from(expected.is_some());
        poll::until(TIMEOUT, name, closed);
    }
}

/// Lines of requests that want to leave HTTP, and whether the upstream gets to see that.
const UPGRADES: &[(&str, bool)] = &[
    ("Connection: Upgrade\r\nUpgrade: websocket\r\n", true),
    (
        "Connection: keep-alive, upgrade\r\nUpgrade: WebSocket\r\n",
        true,
    ),
    ("Upgrade: websocket\r\n", false),
    ("Connection: upgrade\r\nUpgrade: h2c\r\n", false),
    (
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
         HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n",
        false,
    ),
    ("Connection: upgrade\r\nUpgrade: websocket, h2c\r\n", false),
    (
        "Connection: upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n",
        false,
    ),
    (
        "Connection: upgrade\r\nUpgrade: TLS/1.0, HTTP/1.1\r\n",
        false,
    ),
    ("Connection: upgrade\r\nUpgrade: HTTP/2.0\r\n", false),
    ("Connection: upgrade\r\nUpgrade: anything\r\n", false),
    (
        "Connection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 4\r\n",
        false,
    ),
];

#[test]
fn only_websockets_leave_http() {
    let target = gateway(Upstream::text("hello"));
    for (lines, passes) in UPGRADES {
        let body = if lines.contains("Length: 4") {
            "body"
        } else {
            ""
        };
        let bytes = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n{body}");
        let mut stream = TcpStream::connect(target.server.gateway()).unwrap();
        stream.write_all(bytes.as_bytes()).unwrap();
        let response = client::Connection::over(stream).read().unwrap();
        // The upstream does not switch, and the request was one like others.
        assert_eq!(response.status, 200, "{lines}");
        let request = target.upstream.received().pop().unwrap();
        let expected: &[&str] = if *passes { &["websocket"] } else { &[] };
        assert_eq!(request.header("upgrade"), expected, "{request:?}");
        assert!(request.header("http2-settings").is_empty(), "{request:?}");
        let connection = request.header("connection").join(",");
        assert_eq!(connection.contains("upgrade"), *passes, "{request:?}");
    }
}

#[test]
fn a_switch_to_another_protocol_than_asked_for_is_a_502() {
    for (asks, answers) in [
        ("", "websocket"),
        ("Connection: upgrade\r\nUpgrade: websocket\r\n", "h2c"),
        ("Connection: upgrade\r\nUpgrade: h2c\r\n", "h2c"),
    ] {
        let target = gateway(Upstream::start(move |_| {
            format!(
                "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: {answers}\r\n\r\n"
            )
            .into_bytes()
        }));
        let mut stream = TcpStream::connect(target.server.gateway()).unwrap();
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{asks}\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let response = client::Connection::over(stream).read().unwrap();
        assert_eq!(response.status, 502, "{asks} {answers}");
    }
}
