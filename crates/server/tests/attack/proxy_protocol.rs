//! Headers of the PROXY protocol: those of trusted proxies name the client, and nobody else's do.

use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use tallygate_testkit::certificates::Certificates;
use tallygate_testkit::program::{self, Program};

use super::floods::connect_from;
use super::http2::Http2;
use super::real_servers::RealServer;
use super::refusals::{Refused, Sent};
use super::*;

/// The last number of the address of the proxy that is trusted.
const PROXY: u8 = 9;

const RULES: &str = "\
version: 1
trusted_proxies: 127.0.0.9
gateway: { proxy_protocol: true }
rules:
  - { name: all, key: ip, limits: 1000000/s }
";

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

/// A header of version 2: the command, the kind of addresses, and the rest.
fn v2(command: u8, kind: u8, rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
    [b"\r\n\r\n\0\r\nQUIT\n", &[command, kind][..], &length, rest].concat()
}

/// Addresses and ports of version 2.
fn ipv4(client: [u8; 4]) -> Vec<u8> {
    [client, [10, 0, 0, 1], [0xdc, 0x04, 0x01, 0xbb]].concat()
}

fn ipv6(client: &str) -> Vec<u8> {
    let client: Ipv6Addr = client.parse().unwrap();
    [&client.octets()[..], &[0; 16], &[0xdc, 0x04, 0x01, 0xbb]].concat()
}

/// Headers of a trusted proxy, and the client of the connection.
fn accepted() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let line = |line: &str| format!("{line}\r\n").into_bytes();
    let certificate = [
        &ipv4([192, 0, 2, 1])[..],
        &[0x20, 0x0f, 0x00],
        &[0x61; 3840],
    ]
    .concat();
    vec![
        (
            "v1, IPv4",
            line("PROXY TCP4 192.0.2.1 10.0.0.1 56324 443"),
            "192.0.2.1",
        ),
        (
            "v1, IPv6",
            line("PROXY TCP6 2001:db8::1 ::1 56324 443"),
            "2001:db8::1",
        ),
        (
            "v1, IPv4 in IPv6",
            line("PROXY TCP6 ::ffff:192.0.2.1 ::1 1 2"),
            "192.0.2.1",
        ),
        ("v1, unknown", line("PROXY UNKNOWN"), "127.0.0.9"),
        (
            "v1, unknown with addresses",
            line("PROXY UNKNOWN 192.0.2.1 10.0.0.1 56324 443"),
            "127.0.0.9",
        ),
        (
            "v2, IPv4",
            v2(0x21, 0x11, &ipv4([192, 0, 2, 1])),
            "192.0.2.1",
        ),
        (
            "v2, IPv6",
            v2(0x21, 0x21, &ipv6("2001:db8::1")),
            "2001:db8::1",
        ),
        (
            "v2, 4 KB of extensions",
            v2(0x21, 0x11, &certificate),
            "192.0.2.1",
        ),
        ("v2, local", v2(0x20, 0x00, &[]), "127.0.0.9"),
        (
            "v2, local with addresses",
            v2(0x20, 0x11, &ipv4([192, 0, 2, 1])),
            "127.0.0.9",
        ),
        ("v2, no addresses", v2(0x21, 0x00, &[]), "127.0.0.9"),
        (
            "v2, a Unix socket",
            v2(0x21, 0x31, &[0x61; 216]),
            "127.0.0.9",
        ),
    ]
}

/// What a trusted proxy may not send first: a name, and the start of the connection.
fn malformed() -> Vec<(&'static str, Vec<u8>)> {
    let line = |line: &str| format!("{line}\r\n").into_bytes();
    let good = line("PROXY TCP4 192.0.2.1 10.0.0.1 56324 443");
    vec![
        ("no header", Vec::new()),
        ("an empty line", line("")),
        (
            "lower case",
            line("proxy TCP4 192.0.2.1 10.0.0.1 56324 443"),
        ),
        (
            "a space before",
            line(" PROXY TCP4 192.0.2.1 10.0.0.1 56324 443"),
        ),
        (
            "two spaces",
            line("PROXY TCP4  192.0.2.1 10.0.0.1 56324 443"),
        ),
        (
            "a space after",
            line("PROXY TCP4 192.0.2.1 10.0.0.1 56324 443 "),
        ),
        (
            "a line feed alone",
            b"PROXY TCP4 192.0.2.1 10.0.0.1 56324 443\n".to_vec(),
        ),
        ("datagrams", line("PROXY UDP4 192.0.2.1 10.0.0.1 56324 443")),
        (
            "another kind of address",
            line("PROXY TCP4 2001:db8::1 ::1 56324 443"),
        ),
        ("a name", line("PROXY TCP4 client 10.0.0.1 56324 443")),
        (
            "a list",
            line("PROXY TCP4 192.0.2.1,192.0.2.2 10.0.0.1 56324 443"),
        ),
        (
            "leading zeros",
            line("PROXY TCP4 192.000.002.001 10.0.0.1 56324 443"),
        ),
        (
            "a signed port",
            line("PROXY TCP4 192.0.2.1 10.0.0.1 +56324 443"),
        ),
        (
            "a huge port",
            line("PROXY TCP4 192.0.2.1 10.0.0.1 65536 443"),
        ),
        ("no ports", line("PROXY TCP4 192.0.2.1 10.0.0.1")),
        ("no protocol", line("PROXY ")),
        ("a carriage return alone", line("PROXY UNKNOWN a\rb")),
        (
            "an endless line",
            format!("PROXY UNKNOWN {}", "x".repeat(200)).into(),
        ),
        ("two headers", [&good[..], &good].concat()),
        (
            "a client's own header after it",
            [&good[..], b"PROXY UNKNOWN\r\n"].concat(),
        ),
        (
            "version 1 in the format of 2",
            v2(0x11, 0x11, &ipv4([192, 0, 2, 1])),
        ),
        ("version 3", v2(0x31, 0x11, &ipv4([192, 0, 2, 1]))),
        ("an unknown command", v2(0x22, 0x11, &ipv4([192, 0, 2, 1]))),
        ("an unknown kind", v2(0x21, 0x41, &ipv4([192, 0, 2, 1]))),
        ("half an address", v2(0x21, 0x11, &[192, 0])),
        ("IPv6 of 12 bytes", v2(0x21, 0x21, &ipv4([192, 0, 2, 1]))),
        ("64 KB of extensions", v2(0x20, 0x00, &[0; 0xffff])),
        ("half a signature", b"\r\n\r\n\0\r\nQUIX\n".to_vec()),
    ]
}

pub(super) fn refused() -> Vec<Refused> {
    let row = |name: String, header: Vec<u8>, client| Refused {
        client,
        ..Refused::by_gateway(
            name,
            Sent::Http1([&header[..], b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"].concat()),
            400,
            "bad-request",
        )
    };
    let malformed = malformed().into_iter();
    let malformed = malformed.map(|(name, header)| row(format!("PROXY: {name}"), header, PROXY));
    // From anybody else.
    let strangers = accepted().into_iter();
    let strangers =
        strangers.map(|(name, header, _)| row(format!("a stranger's PROXY: {name}"), header, 2));
    malformed.chain(strangers).collect()
}

/// Whom the upstream takes for the client of the last request.
fn last_client(target: &Target) -> String {
    let last = target.upstream.received().pop().unwrap();
    last.header("x-forwarded-for").join(", ")
}

#[test]
fn a_trusted_proxy_names_the_client() {
    let target = Target::start(RULES, Upstream::text("hello"));
    let to = target.server.gateway();
    for (name, header, client) in accepted() {
        let request = [&header[..], GET.as_bytes()].concat();
        let response = raw_over(connect_from(PROXY, to), request);
        assert_eq!(status(&response), 200, "{name}: {response}");
        assert_eq!(last_client(&target), client, "{name}");
        // In pieces, and then HTTP/2.
        let mut stream = connect_from(PROXY, to);
        stream.set_nodelay(true).unwrap();
        for piece in header.chunks(header.len() / 3 + 1) {
            stream.write_all(piece).unwrap();
            thread::yield_now();
        }
        let mut connection = Http2::over(stream, &[]);
        connection.get(1, "/");
        assert_eq!(connection.response(1).unwrap().0, 200, "{name}");
        assert_eq!(last_client(&target), client, "{name}");
    }
    // Others may not send one, and are served without.
    assert_eq!(status(&raw(to, GET)), 200);
    assert_eq!(last_client(&target), "127.0.0.1");
    assert_eq!(target.server.stderr().matches("PROXY protocol").count(), 0);
}

#[test]
fn the_client_that_a_proxy_names_is_the_one_that_is_limited() {
    let rules = "\
version: 1
trusted_proxies: 127.0.0.9
gateway: { proxy_protocol: on }
rules:
  - { name: all, match: { path: /by-ip }, key: ip, limits: 1/h }
  - name: plan
    match: { path: /plan }
    tier: { header: x-plan, default: free }
    tiers: { free: 1/h, pro: 1000/h }
";
    let target = Target::start(rules, Upstream::text("hello"));
    let to = target.server.gateway();
    let send = |client: &str, path: &str, headers: &str| {
        let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{headers}\r\n");
        let request = format!("PROXY TCP4 {client} 10.0.0.1 1 2\r\n{head}");
        status(&raw_over(connect_from(PROXY, to), request))
    };
    assert_eq!(send("192.0.2.1", "/by-ip", ""), 200);
    // The balancer relays bytes: headers are the client's, and the proxy is not its peer any more.
    let spoofed = "X-Forwarded-For: 192.0.2.77\r\nForwarded: for=192.0.2.77\r\n";
    assert_eq!(send("192.0.2.1", "/by-ip", spoofed), 429);
    assert_eq!(send("192.0.2.2", "/by-ip", spoofed), 200);
    assert_eq!(last_client(&target), "192.0.2.2");
    let statuses = ["", "x-plan: pro\r\n"].map(|plan| send("192.0.2.1", "/plan", plan));
    assert_eq!(statuses, [200, 429]);
    // One that names a trusted proxy is from a proxy in front of it.
    let chained = "X-Forwarded-For: 192.0.2.3\r\n";
    assert_eq!(send("127.0.0.9", "/by-ip", chained), 200);
    assert_eq!(send("127.0.0.9", "/by-ip", chained), 429);
    assert_eq!(send("192.0.2.3", "/by-ip", ""), 429);
}

#[test]
fn connections_count_for_the_client_that_a_proxy_names() {
    let rules = RULES.replace("true", "true, sizes: { connections_per_client: 4 }");
    // The upstream does not answer: the connections are busy.
    let target = Target::start(&rules, Upstream::start(|_| Vec::new()));
    let to = target.server.gateway();
    let connect = |client: &str| {
        let mut stream = connect_from(PROXY, to);
        let request = format!("PROXY TCP4 {client} 10.0.0.1 1 2\r\n{GET}");
        stream.write_all(request.as_bytes()).unwrap();
        stream
    };
    let _busy: Vec<TcpStream> = (0..4).map(|_| connect("192.0.2.1")).collect();
    let received = || target.upstream.received().len();
    poll::until(TIMEOUT, "four in flight", || received() == 4);
    let fifth = raw_over(connect("192.0.2.1"), "");
    assert_eq!(fifth, "");
    let _other = connect("192.0.2.2");
    poll::until(TIMEOUT, "another client is served", || received() == 5);
    assert!(target.server.stderr().contains("connections_per_client"));
}

/// How a header of a trusted proxy stays incomplete.
const INCOMPLETE: [(&str, &[u8]); 4] = [
    ("nothing", b""),
    ("half a line", b"PROXY TCP4 192.0.2.1 "),
    ("half a signature", b"\r\n\r\n\0"),
    (
        "no addresses",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00",
    ),
];

#[test]
fn a_header_that_does_not_arrive_in_time_closes_the_connection() {
    let timeout = Duration::from_millis(500);
    let rules = RULES.replace("true", "true, timeouts: { header: 500ms }");
    let target = Target::start(&rules, Upstream::text("hello"));
    for (name, start) in INCOMPLETE {
        let mut stream = connect_from(PROXY, target.server.gateway());
        stream.write_all(start).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_millis(20)))
            .unwrap();
        let started = Instant::now();
        // A byte now and then does not help.
        let closed = loop {
            assert!(started.elapsed() < 20 * timeout, "{name}");
            match stream.read(&mut [0; 64]) {
                Ok(length) => break length == 0,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => break true,
            }
            if name == "no addresses" {
                let _ = stream.write_all(b"x").is_err();
                thread::sleep(timeout / 10);
            }
        };
        assert!(closed, "{name}");
    }
    let lines = target.server.stderr();
    assert_eq!(lines.matches("PROXY protocol").count(), 1, "{lines}");
    assert!(lines.contains("did not arrive in time"), "{lines}");
    assert_eq!(target.upstream.received().len(), 0);
}

#[test]
fn health_checks_that_connect_and_leave_are_not_logged() {
    let target = Target::start(RULES, Upstream::text("hello"));
    for _ in 0..20 {
        drop(connect_from(PROXY, target.server.gateway()));
    }
    let response = raw_over(
        connect_from(PROXY, target.server.gateway()),
        format!("PROXY UNKNOWN\r\n{GET}"),
    );
    assert_eq!(status(&response), 200);
    assert!(!target.server.stderr().contains("WARN"));
}

#[test]
fn without_the_setting_a_header_is_no_request() {
    let rules = RULES.replace("gateway: { proxy_protocol: true }\n", "");
    let target = Target::start(&rules, Upstream::text("hello"));
    for (name, header, _) in accepted() {
        let request = [&header[..], GET.as_bytes()].concat();
        let response = raw_over(connect_from(PROXY, target.server.gateway()), request);
        assert_eq!(status(&response), 400, "{name}: {response}");
    }
    assert_eq!(target.upstream.received().len(), 0);
}

/// HAProxy, which relays connections from its port to a gateway, from the trusted address.
fn haproxy(gateway: SocketAddr, options: &str) -> RealServer {
    RealServer::haproxy(&format!(
        "defaults\n  mode tcp\n  timeout connect 10s\n  timeout client 30s\n  timeout server 30s\n\
         frontend f\n  bind {{address}}\n  default_backend b\n\
         backend b\n  option httpchk\n  http-check send meth GET uri /health ver HTTP/1.1 hdr Host a\n\
         \x20 server s {gateway} source 127.0.0.9 {options}\n"
    ))
}

#[test]
fn haproxy_names_clients_in_both_versions() {
    for version in ["send-proxy", "send-proxy-v2", "send-proxy-v2-ssl-cn"] {
        let target = Target::start(RULES, Upstream::text("hello"));
        let haproxy = haproxy(target.server.gateway(), version);
        for client in [5, 6] {
            let response = raw_over(connect_from(client, haproxy.address), GET);
            assert_eq!(
                status(&response),
                200,
                "{version}: {response}, {}",
                haproxy.log()
            );
            let address = Ipv4Addr::new(127, 0, 0, client).to_string();
            assert_eq!(last_client(&target), address, "{version}");
        }
        // The client's own header comes after HAProxy's.
        let spoofed = format!("PROXY TCP4 192.0.2.1 10.0.0.1 1 2\r\n{GET}");
        let response = raw_over(connect_from(5, haproxy.address), spoofed);
        assert_eq!(status(&response), 400, "{version}: {response}");
        let claimed = GET.replace("\r\n\r\n", "\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n");
        let response = raw_over(connect_from(5, haproxy.address), claimed);
        assert_eq!(status(&response), 200, "{version}: {response}");
        assert_eq!(last_client(&target), "127.0.0.5", "{version}");
    }
}

#[test]
fn haproxy_health_checks_are_haproxys_own_requests() {
    for version in ["send-proxy", "send-proxy-v2"] {
        let target = Target::start(RULES, Upstream::text("hello"));
        let options = format!("{version} check check-send-proxy inter 100ms");
        let _haproxy = haproxy(target.server.gateway(), &options);
        let checked = || target.upstream.received().len() >= 3;
        poll::until(TIMEOUT, "health checks", checked);
        for check in target.upstream.received() {
            assert!(check.lines[0].starts_with("GET /health "), "{check:?}");
            assert_eq!(check.header("x-forwarded-for"), ["127.0.0.9"], "{version}");
        }
        assert!(!target.server.stderr().contains("WARN"));
    }
}

#[test]
fn the_header_comes_before_tls() {
    let certificates = Certificates::new();
    let pair = certificates.server();
    let (cert, key) = (
        pair.certificate.to_str().unwrap(),
        pair.key.to_str().unwrap(),
    );
    let args = ["--tls-cert", cert, "--tls-key", key];
    let target = Target::start_with(RULES, Upstream::text("hello"), &args);
    for version in ["send-proxy", "send-proxy-v2"] {
        let haproxy = haproxy(target.server.gateway(), version);
        // A TLS client, from its own address.
        let script = "
import socket, ssl, sys
context = ssl.create_default_context(cafile=sys.argv[2])
plain = socket.create_connection(('127.0.0.1', int(sys.argv[1])), 30, ('127.0.0.5', 0))
with context.wrap_socket(plain, server_hostname='localhost') as client:
    client.sendall(b'GET / HTTP/1.1\\r\\nHost: a\\r\\nConnection: close\\r\\n\\r\\n')
    response = b''
    while chunk := client.recv(4096):
        response += chunk
print(response.decode())
";
        let mut client = Program::start(&program::python3(), |folder| {
            let path = folder.join("client.py");
            std::fs::write(&path, script).unwrap();
            let authority = certificates.authority();
            let port = haproxy.address.port().to_string();
            let [path, authority] = [path, authority].map(|path| path.to_str().unwrap().to_owned());
            vec![path, port, authority]
        });
        poll::until(TIMEOUT, "the client is done", || !client.is_running());
        let response = client.log();
        assert!(response.contains("200 OK"), "{version}: {response}");
        assert_eq!(last_client(&target), "127.0.0.5", "{version}");
        let received = target.upstream.received().pop().unwrap();
        assert_eq!(received.header("x-forwarded-proto"), ["https"]);
    }
    // Neither TLS without a header from the proxy, nor a header from others.
    let hello = b"\x16\x03\x01\x00\x05hello";
    for (client, start) in [
        (PROXY, &hello[..]),
        (2, b"PROXY UNKNOWN\r\n\x16\x03\x01\x00\x05hello"),
    ] {
        let response = raw_over(connect_from(client, target.server.gateway()), start);
        assert!(!response.contains("HTTP/"), "{client}: {response}");
    }
    assert_eq!(target.upstream.received().len(), 2);
}
