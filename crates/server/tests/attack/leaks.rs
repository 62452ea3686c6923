//! What strangers say of themselves, and what one client may see of another's.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

use super::floods::connect_from;
use super::http2::{HEADERS, Http2};
use super::real_servers::RealServer;
use super::*;

/// An address that no client here has.
const CLAIMED: &str = "192.0.2.66";

/// Sends a request from 127.0.0.x and returns the whole response.
fn ask_from(client: u8, to: SocketAddr, request: &str) -> String {
    let mut stream = connect_from(client, to);
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

#[test]
fn no_client_gets_the_response_to_another_one_in_flight() {
    for setting in ["single_flight: true", "single_flight: { by: ip }"] {
        let arrived = Arc::new(AtomicUsize::new(0));
        // It trusts the address that the gateway tells it, and answers two requests at a time.
        let upstream = Upstream::start(move |request| {
            arrived.fetch_add(1, SeqCst);
            let _ = poll::within(TIMEOUT / 6, || arrived.load(SeqCst) == 2);
            match request.header("x-forwarded-for")[..] {
                ["127.0.0.1"] => b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nSECRET".to_vec(),
                _ => b"HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno".to_vec(),
            }
        });
        let rule = format!("{{ name: all, limits: 1000000/s, {setting} }}");
        let target = Target::start(&format!("version: 1\nrules:\n  - {rule}\n"), upstream);
        let to = target.server.gateway();
        let head = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        let first = thread::spawn(move || ask_from(1, to, head));
        let is_there = || target.upstream.received().len() == 1;
        poll::until(TIMEOUT, "the first request", is_there);
        // Also if it says that it is the other one.
        let head = head.replace("\r\n\r\n", "\r\nX-Forwarded-For: 127.0.0.1\r\n\r\n");
        let stranger = ask_from(2, to, &head);
        assert!(first.join().unwrap().ends_with("SECRET"), "{setting}");
        assert!(stranger.ends_with("no"), "{setting}: {stranger}");
    }
}

/// Headers that say who a client is or what it asked for at first.
const FORWARDING: &[&str] = &[
    "CF-Connecting-IP",
    "CF-Connecting-IPv6",
    "Client-Cert",
    "Client-IP",
    "DO-Connecting-IP",
    "Fastly-Client-IP",
    "Fly-Client-IP",
    "Forwarded",
    "Forwarded-For",
    "Proxy-Client-IP",
    "True-Client-IP",
    "WL-Proxy-Client-IP",
    "X-Azure-ClientIP",
    "X-Client-IP",
    "X-Cluster-Client-IP",
    "X-Envoy-External-Address",
    "X-Envoy-Internal",
    "X-Envoy-Original-Path",
    "X-Forwarded",
    "X-Forwarded-Client-Cert",
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Forwarded-Port",
    "X-Forwarded-Proto",
    "X-Forwarded-User",
    "X-Original-Forwarded-For",
    "X-Original-URL",
    "X-Originating-IP",
    "X-Real-IP",
    "X-Remote-Addr",
    "X-Remote-IP",
    "X-Rewrite-URL",
];

/// Another spelling, which CGI and WSGI do not tell apart, or the same.
type Spelling = fn(&str) -> String;

const SPELLINGS: &[(&str, Spelling)] = &[
    ("as usual", str::to_owned),
    ("in lower case", str::to_lowercase),
    ("underscores", |name| name.replace('-', "_")),
    ("one underscore", |name| name.replacen('-', "_", 1)),
    ("a dot", |name| name.replacen('-', ".", 1)),
];

#[test]
fn what_strangers_say_of_clients_reaches_no_upstream() {
    let rules = "version: 1\ntrusted_proxies: 127.0.0.9\n\
                 rules:\n  - { name: all, limits: 1000000/s }\n";
    let target = Target::start(rules, Upstream::text("hello"));
    let to = target.server.gateway();
    for name in FORWARDING {
        for (spelling, spell) in SPELLINGS {
            let spelled = spell(name);
            let header = format!("{spelled}: {CLAIMED}\r\n");
            for (client, kept) in [(2, false), (9, name.eq_ignore_ascii_case(&spelled))] {
                let requests = [
                    (
                        "header",
                        format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{header}\r\n"),
                        kept,
                    ),
                    (
                        "trailer",
                        format!(
                            "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTrailer: {spelled}, x-sum\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n{header}X-Sum: 1\r\n\r\n"
                        ),
                        false,
                    ),
                    (
                        "named by Connection",
                        format!(
                            "GET / HTTP/1.1\r\nHost: a\r\nConnection: close, {spelled}\r\n{header}\r\n"
                        ),
                        false,
                    ),
                ];
                for (place, request, kept) in requests {
                    let case = format!("{name}, {spelling}, {place}, from {client}");
                    assert_eq!(status(&ask_from(client, to, &request)), 200, "{case}");
                    let got = target.upstream.received().pop().unwrap();
                    let is_claimed = |line: &String| line.contains(CLAIMED);
                    assert_eq!(got.lines.iter().any(is_claimed), kept, "{case}: {got:?}");
                    assert!(!got.trailers.iter().any(is_claimed), "{case}: {got:?}");
                    // What the gateway itself knows.
                    let peer = format!("127.0.0.{client}");
                    let list = got.header("x-forwarded-for").join(", ");
                    assert!(list.ends_with(&peer), "{case}: {got:?}");
                    if place == "trailer" {
                        assert_eq!(got.trailers, ["x-sum: 1"], "{case}");
                    }
                }
            }
        }
    }
}

/// Rules that read a header in each place in which they may.
const READING: &str = "\
version: 1
trusted_proxies: 127.0.0.9
rules:
  - name: all
    match: { header: { x-env: { present: false } } }
    key: [{ header: x-api-key, or: { claim: sub, header: x-jwt-claims } }]
    on_missing: pass
    tier: { header: x-plan, default: free }
    tiers: { free: 1000000/s, pro: 2000000/s }
    cost: { header: x-cost }
    single_flight: { by: [{ header: x-tenant }] }
";
const READ: [&str; 6] = [
    "X-Env",
    "X-Api-Key",
    "X-Jwt-Claims",
    "X-Plan",
    "X-Cost",
    "X-Tenant",
];

#[test]
fn what_rules_read_reaches_no_upstream_in_another_spelling() {
    let target = Target::start(READING, Upstream::text("hello"));
    let to = target.server.gateway();
    let send = |client, request: &str| {
        assert_eq!(status(&ask_from(client, to, request)), 200, "{request}");
        target.upstream.received().pop().unwrap()
    };
    for name in READ {
        for (spelling, spell) in SPELLINGS {
            let spelled = spell(name);
            let is_other = !name.eq_ignore_ascii_case(&spelled);
            // Of a trusted proxy too, which may forward what its clients send.
            for client in [2, 9] {
                let case = format!("{name}, {spelling}, from {client}");
                let head = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX_Other: kept\r\n";
                let got = send(client, &format!("{head}{spelled}: {CLAIMED}\r\n\r\n"));
                let has = |lines: &[String]| lines.iter().any(|line| line.contains(CLAIMED));
                assert_eq!(has(&got.lines), !is_other, "{case}: {got:?}");
                assert_eq!(got.header("x_other"), ["kept"], "{case}");
                let chunks =
                    format!("Trailer: {spelled}, x-sum\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n");
                let trailers = format!("{spelled}: {CLAIMED}\r\nX-Sum: 1\r\n\r\n");
                let got = send(client, &format!("{head}{chunks}{trailers}"));
                assert_eq!(got.trailers, ["x-sum: 1"], "{case}");
            }
        }
    }
}

#[test]
fn a_key_cannot_be_presented_past_its_rule() {
    let upstream = RealServer::python(WSGI);
    let server = upstream.gateway(
        "version: 1\nrules:\n  - { name: keys, key: [{ header: x-api-key, or: ip }], \
         deny: [{ key: stolen }], limits: 1000000/s }\n",
    );
    for name in [
        "X-Api-Key",
        "x_api_key",
        "X-Api_Key",
        "X_API-KEY",
        "x.api.key",
    ] {
        let head =
            format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{name}: stolen\r\n\r\n");
        let response = raw(server.gateway(), head);
        assert!(!response.contains("stolen"), "{name}: {response}");
    }
    // HTTP/2 may carry white space around a value.
    for value in ["stolen", " stolen", "stolen\t"] {
        let mut client = Http2::open(server.gateway(), &[]);
        client.get_with(1, &[("x-api-key", value)]);
        assert_eq!(client.response(1).unwrap().0, 403, "{value:?}");
    }
}

#[test]
fn cookies_of_several_lines_reach_the_upstream_as_one() {
    let upstream = RealServer::python(WSGI);
    let server = upstream.gateway("version: 1\nrules:\n  - { name: all, limits: 1000000/s }\n");
    let expected = "HTTP_COOKIE=a=1; sid=x; b=2\n";
    let mut client = Http2::open(server.gateway(), &[]);
    client.get_with(
        1,
        &[("cookie", "a=1"), ("cookie", "sid=x"), ("cookie", "b=2")],
    );
    let (status, body) = client.response(1).unwrap();
    assert!(status == 200 && body.contains(expected), "{body}");
    let head = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nCookie: a=1\r\nCookie: sid=x; b=2\r\n\r\n";
    let response = raw(server.gateway(), head);
    assert!(response.contains(expected), "{response}");
}

/// Answers with the variables that a WSGI application gets.
const WSGI: &str = "
from wsgiref.simple_server import make_server, WSGIRequestHandler
class Handler(WSGIRequestHandler):
    def log_message(self, *args):
        pass
def app(environ, start_response):
    start_response('200 OK', [('Content-Type', 'text/plain')])
    names = sorted(name for name in environ if name.startswith('HTTP_'))
    return [''.join(name + '=' + environ[name] + '\\n' for name in names).encode()]
server = make_server('127.0.0.1', 0, app, handler_class=Handler)
print(server.server_port, flush=True)
server.serve_forever()
";

#[test]
fn a_wsgi_application_sees_what_the_gateway_says_of_the_client() {
    let upstream = RealServer::python(WSGI);
    let server = upstream.gateway("version: 1\nrules:\n  - { name: all, limits: 1000000/s }\n");
    let mut request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n".to_owned();
    for name in FORWARDING {
        for (_, spell) in SPELLINGS {
            request += &format!("{}: {CLAIMED}\r\n", spell(name));
        }
    }
    // 431 beyond 100 headers.
    for lines in request.lines().skip(3).collect::<Vec<_>>().chunks(50) {
        let head = format!(
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{}\r\n\r\n",
            lines.join("\r\n")
        );
        let response = ask_from(2, server.gateway(), &head);
        let (_, body) = response.split_once("\r\n\r\n").unwrap();
        let expected = "HTTP_HOST=a\nHTTP_X_FORWARDED_FOR=127.0.0.2\nHTTP_X_FORWARDED_HOST=a\n\
                        HTTP_X_FORWARDED_PROTO=http\n";
        assert!(body.contains(expected), "{body}");
        assert!(!body.contains(CLAIMED), "{body}");
    }
}

#[test]
fn the_server_itself_is_asked_for_with_its_host() {
    let target = Target::start(
        "version: 1\nrules:\n  - { name: all, limits: 1000000/s }\n",
        Upstream::text("hello"),
    );
    let to = target.server.gateway();
    let head = "OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    assert_eq!(status(&raw(to, head)), 200);
    let mut client = Http2::open(to, &[]);
    // Method, http, path, authority.
    client.end(1, b"\x02\x07OPTIONS\x86\x04\x01*\x01\x01a");
    assert_eq!(client.next_on(1, HEADERS).payload[0], 0x88);
    for request in target.upstream.received() {
        assert_eq!(request.lines[0], "OPTIONS * HTTP/1.1");
        assert_eq!(request.header("host"), ["a"], "{request:?}");
        assert_eq!(request.header("x-forwarded-host"), ["a"], "{request:?}");
    }
    assert_eq!(target.upstream.received().len(), 2);
}
