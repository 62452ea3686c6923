//! What all refusals of the tables have in common: a status, a problem type and, where two servers
//! could read the connection differently, its end. Nothing is charged, and no upstream is asked.

use std::net::TcpStream;

use super::floods::connect_from;
use super::http2::Http2;
use super::*;

/// Of a server with all that refuses something: trusted proxies, which have to send a PROXY header, and
/// a token.
const RULES: &str = "\
version: 1
trusted_proxies: 127.0.0.9
gateway: { proxy_protocol: on, sizes: { body_bytes: 1000 } }
rules:
  - { name: login, match: { method: POST, path: /login }, key: ip, limits: 1/h }
  - { name: all, limits: 1000000/s }
";
const TOKEN: &str = "0123456789abcdef";

/// Where a request is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    Gateway,
    Api,
    Admin,
}

/// A request as a client writes it.
#[derive(Clone, Debug)]
pub(crate) enum Sent {
    /// The bytes of a connection.
    Http1(Vec<u8>),
    /// The fields of a head, with `|` between them.
    Http2(&'static str),
}

/// A request that is refused, without a decision of the rules.
#[derive(Clone, Debug)]
pub(crate) struct Refused {
    pub(crate) name: String,
    pub(crate) port: Port,
    /// The client is 127.0.0.x.
    pub(crate) client: u8,
    pub(crate) sent: Sent,
    pub(crate) status: u16,
    /// The last part of the problem's type.
    pub(crate) problem: &'static str,
    /// Whether what follows on the connection could be a part of it: then the connection is closed.
    pub(crate) closes: bool,
}

impl Refused {
    /// A request to the gateway that closes the connection.
    pub(crate) fn by_gateway(
        name: impl Into<String>,
        sent: Sent,
        status: u16,
        problem: &'static str,
    ) -> Self {
        Refused {
            name: name.into(),
            port: Port::Gateway,
            client: 1,
            sent,
            status,
            problem,
            closes: true,
        }
    }
}

impl Sent {
    /// Sends it on a new connection. Returns the status and all that comes back.
    pub(crate) fn send(&self, stream: TcpStream) -> (u16, String) {
        match self {
            Sent::Http1(bytes) => {
                let response = raw_over(stream, bytes);
                (status(&response), response)
            }
            Sent::Http2(text) => {
                let fields = text.split('|').map(|field| field.split_once(' ').unwrap());
                let fields: Vec<_> = fields.collect();
                let mut client = Http2::over(stream, &[]);
                client.request(1, &fields);
                client.response(1).expect("a response")
            }
        }
    }
}

/// The rows of all tables.
fn all() -> Vec<Refused> {
    [
        smuggling::refused(),
        spelling::refused(),
        floods::refused(),
        cross_site::refused(),
        proxy_protocol::refused(),
    ]
    .concat()
}

/// How many decisions the server has made that charge something, by any rule.
fn charged(server: &Server) -> f64 {
    let text = server.admin("GET", "/metrics", "").body;
    let lines = text
        .lines()
        .filter(|line| line.starts_with("tallygate_decisions_total{"))
        .filter(|line| !line.contains("outcome=\"refused\""));
    let counts = lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap());
    counts.sum()
}

#[test]
fn every_refusal_has_a_status_and_a_problem_and_charges_nothing() {
    let variables = [("TALLYGATE_ADMIN_TOKEN", TOKEN)];
    let target = Target::start_with_env(
        RULES,
        Upstream::text("hello"),
        &["--playground"],
        &variables,
    );
    let rows = all();
    assert!(rows.len() > 200, "{} rows", rows.len());
    for row in rows {
        let Refused {
            name,
            port,
            status: expected,
            ..
        } = &row;
        let to = match port {
            Port::Gateway => target.server.gateway(),
            Port::Api => target.server.api,
            Port::Admin => target.server.admin,
        };
        let mut sent = row.sent.clone();
        if let (Sent::Http1(bytes), true) = (&mut sent, row.closes) {
            bytes.extend(b"GET /next HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        }
        let (status, response) = sent.send(connect_from(row.client, to));
        assert_eq!(status, *expected, "{name}: {response}");
        let problem = format!("\"type\":\"urn:tallygate:problem:{}\"", row.problem);
        assert!(response.contains(&problem), "{name}: {response}");
        if let Sent::Http1(_) = sent {
            let head = response
                .split("\r\n\r\n")
                .next()
                .unwrap()
                .to_ascii_lowercase();
            let kind = "content-type: application/problem+json";
            assert!(head.contains(kind), "{name}: {response}");
            if row.closes {
                assert!(head.contains("connection: close"), "{name}: {response}");
                // What follows is not read.
                let responses = response.matches("HTTP/1.").count();
                assert_eq!(responses, 1, "{name}: {response}");
            }
        }
        assert_eq!(charged(&target.server), 0.0, "{name} was charged");
        assert!(
            target.upstream.received().is_empty(),
            "{name} was forwarded"
        );
    }
}
