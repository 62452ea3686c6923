//! Requests that a server understands like a limited one and that are written differently.

use std::net::{Ipv4Addr, SocketAddr};

use super::real_servers::RealServer;
use super::refusals::{Refused, Sent};
use super::*;

/// Each budget is one request an hour, and is for one path.
const RULES: &str = "\
version: 1
trusted_proxies: [10.0.0.0/8]
rules:
  - { name: login, match: { method: POST, path: /login }, limits: 1/h }
  - { name: vhost, match: { host: api.example.com, path: /vhost }, limits: 1/h }
  - name: plan
    match: { path: /plan }
    tier: { header: x-plan, default: free }
    tiers: { free: 1/h, pro: 1000/h }
  - { name: cost, match: { path: /cost }, limits: 3/h, cost: { header: x-cost, default: 2 } }
  - name: claim
    match: { path: /claim }
    key: [{ claim: sub, header: x-jwt, or: ip }]
    limits: 1/h
  - { name: method, match: { path: /method }, key: [method], limits: 1/h }
";

/// One request in an hour to each path, which is admitted.
const PLAIN: [&str; 6] = [
    "POST /login",
    "GET /vhost",
    "GET /plan",
    "GET /cost",
    "GET /claim",
    "GET /method",
];

/// A request to the gateway.
enum Spelled {
    /// The request line and the headers, with `|` for a line end; `host` is not added.
    Http1(&'static str),
    /// The fields, with `|` between them.
    Http2(&'static str),
}

use Spelled::{Http1, Http2 as H2};

/// Refused before any rule: the status and the problem.
const REFUSED: &[(Spelled, u16, &str)] = &[
    // Methods: some servers take `post` for POST.
    (
        Http1("post /login HTTP/1.1|host: a"),
        501,
        "method-not-supported",
    ),
    (
        Http1("Post /login HTTP/1.1|host: a"),
        501,
        "method-not-supported",
    ),
    (
        Http1("pOST /login HTTP/1.0|host: a"),
        501,
        "method-not-supported",
    ),
    (
        Http1("get /plan HTTP/1.1|host: a"),
        501,
        "method-not-supported",
    ),
    (
        Http1("propfind /plan HTTP/1.1|host: a"),
        501,
        "method-not-supported",
    ),
    (
        H2(":method post|:scheme http|:authority a|:path /login"),
        501,
        "method-not-supported",
    ),
    (
        H2(":method Post|:scheme http|:authority a|:path /login"),
        501,
        "method-not-supported",
    ),
    // Targets of other methods.
    (Http1("POST login HTTP/1.1|host: login"), 400, "bad-request"),
    (
        Http1("POST login:80 HTTP/1.1|host: login:80"),
        400,
        "bad-request",
    ),
    (Http1("POST * HTTP/1.1|host: a"), 400, "bad-request"),
    (
        H2(":method POST|:scheme http|:authority a|:path *"),
        400,
        "bad-request",
    ),
    (Http1("POST login HTTP/1.0"), 400, "bad-request"),
    (Http1("POST login|host: a"), 400, "bad-request"),
    (Http1("POST /login|host: a"), 400, "bad-request"),
    (Http1("POST\t/login\tHTTP/1.1|host: a"), 400, "bad-request"),
    (Http1("POST /login HTTP/1.1 |host: a"), 400, "bad-request"),
    (Http1("POST /login  HTTP/1.1|host: a"), 400, "bad-request"),
    (Http1("POST /log in HTTP/1.1|host: a"), 400, "bad-request"),
    (
        Http1("POST http:///login HTTP/1.1|host: a"),
        400,
        "bad-request",
    ),
    (
        Http1("POST http:/login HTTP/1.1|host: a"),
        400,
        "bad-request",
    ),
    (
        Http1("POST ?/../login HTTP/1.1|host: a"),
        400,
        "bad-request",
    ),
    (Http1("POST \\login HTTP/1.1|host: a"), 400, "bad-request"),
    // Hosts: some servers cut at the first `:`, others what comes before `@`.
    (Http1("GET /vhost HTTP/1.1"), 400, "bad-request"),
    (Http1("GET /vhost HTTP/1.1|host:"), 400, "bad-request"),
    (Http1("GET /vhost HTTP/1.1|host: :80"), 400, "bad-request"),
    (
        Http1("GET /vhost HTTP/1.1|host: u@api.example.com"),
        400,
        "bad-request",
    ),
    (
        Http1("GET /vhost HTTP/1.1|host: api.example.com:80@x"),
        400,
        "bad-request",
    ),
    (
        Http1("GET /vhost HTTP/1.1|host: api.example.com:80:x"),
        400,
        "bad-request",
    ),
    (
        Http1("GET /vhost HTTP/1.1|host: api.example.com:x"),
        400,
        "bad-request",
    ),
    (
        Http1("GET /vhost HTTP/1.1|host: api.example.com,x"),
        400,
        "bad-request",
    ),
    (
        Http1("GET /vhost HTTP/1.1|host: x, api.example.com"),
        400,
        "bad-request",
    ),
    (
        Http1("GET /vhost HTTP/1.1|host: api.example.com.."),
        400,
        "bad-request",
    ),
    (
        Http1("GET /vhost HTTP/1.1|host: .api.example.com"),
        400,
        "bad-request",
    ),
    (
        Http1("GET /vhost HTTP/1.1|host: api.example.com/x"),
        400,
        "bad-request",
    ),
    (
        Http1("GET /vhost HTTP/1.1|host: api%2eexample.com"),
        400,
        "bad-request",
    ),
    (
        Http1("GET /vhost HTTP/1.1|host: x|host: api.example.com"),
        400,
        "bad-request",
    ),
    (
        Http1("GET http://api.example.com/vhost HTTP/1.1|host: x"),
        400,
        "bad-request",
    ),
    (
        Http1("GET http://api.example.com/vhost HTTP/1.1"),
        400,
        "bad-request",
    ),
    (
        Http1("GET http://u@x/vhost HTTP/1.1|host: u@x"),
        400,
        "bad-request",
    ),
    (
        Http1("GET http://api.example.com:80@x/vhost HTTP/1.1|host: x"),
        400,
        "bad-request",
    ),
    (Http1("GET /vhost HTTP/1.0|host:"), 400, "bad-request"),
    (
        Http1("GET /vhost HTTP/1.0|host: api.example.com:80@x"),
        400,
        "bad-request",
    ),
    (
        Http1("GET http://api.example.com:80@x/vhost HTTP/1.0"),
        400,
        "bad-request",
    ),
    (
        Http1("GET http://u@api.example.com/vhost HTTP/1.0"),
        400,
        "bad-request",
    ),
    (
        Http1("GET http://api.example.com/vhost HTTP/1.0|host: x"),
        400,
        "bad-request",
    ),
    (
        H2(":method GET|:scheme http|:path /vhost"),
        400,
        "bad-request",
    ),
    (
        H2(":method GET|:scheme http|:authority api.example.com:80@x|:path /vhost"),
        400,
        "bad-request",
    ),
    (
        H2(":method GET|:scheme http|:authority u@api.example.com|:path /vhost"),
        400,
        "bad-request",
    ),
    (
        H2(":method GET|:scheme http|:authority :80|:path /vhost"),
        400,
        "bad-request",
    ),
    (
        H2(":method GET|:scheme http|:authority api.example.com:x|:path /vhost"),
        400,
        "bad-request",
    ),
    (
        H2(":method GET|:scheme http|:path /vhost|host api.example.com:80@x"),
        400,
        "bad-request",
    ),
    (
        H2(":method GET|:scheme http|:path /vhost|host :80"),
        400,
        "bad-request",
    ),
    (
        H2(":method GET|:scheme http|:authority x|:path /vhost|host api.example.com"),
        400,
        "bad-request",
    ),
    (
        H2(":method GET|:scheme http|:authority x|:path /vhost|host x|host api.example.com"),
        400,
        "bad-request",
    ),
];

/// Limited as the plain request that was sent before.
const LIMITED: &[Spelled] = &[
    Http1("POST /login HTTP/1.1|host: a"),
    Http1("POST /%6cogin HTTP/1.1|host: a"),
    Http1("POST /a/../login HTTP/1.1|host: a"),
    Http1("POST /x//../login HTTP/1.1|host: a"),
    Http1("POST /x%2F..%2flogin HTTP/1.1|host: a"),
    Http1("POST /login;x=1 HTTP/1.1|host: a"),
    Http1("POST /login?x HTTP/1.1|host: a"),
    Http1("POST /./login/ HTTP/1.1|host: a"),
    Http1("POST //login HTTP/1.1|host: a"),
    // A URL without scheme, to `new URL(target, base)`.
    Http1("POST //evil/login HTTP/1.1|host: a"),
    Http1("POST ///evil:80/login HTTP/1.1|host: a"),
    Http1("POST /\\evil/login HTTP/1.1|host: a"),
    Http1("POST //u@evil\\login HTTP/1.1|host: a"),
    Http1("POST http://a//evil/login HTTP/1.1|host: a"),
    // One server takes some of these for slashes, another one the others.
    Http1("POST /a%2Fb\\..\\login HTTP/1.1|host: a"),
    Http1("POST /a\\b%2F..%2Flogin HTTP/1.1|host: a"),
    Http1("POST /\\evil%2F@in.\\login HTTP/1.1|host: a"),
    Http1("POST /x%2F..;%2Fy/login HTTP/1.1|host: a"),
    Http1("POST //evil/login HTTP/1.0"),
    H2(":method POST|:scheme http|:authority a|:path //evil/login"),
    H2(":method POST|:scheme http|:authority a|:path /%6cogin"),
    // Hosts.
    Http1("GET /vhost HTTP/1.1|host: API.Example.COM"),
    Http1("GET /vhost HTTP/1.1|host: api.example.com.:8080"),
    Http1("GET http://API.example.com/vhost HTTP/1.1|host: api.example.com"),
    Http1("GET http://api.example.com/vhost HTTP/1.0"),
    H2(":method GET|:scheme http|:authority API.example.com:80|:path /vhost"),
    H2(":method GET|:scheme http|:path /vhost|host api.example.com"),
    // What only a proxy can know.
    Http1("GET /plan HTTP/1.1|host: a|x-plan: pro"),
    H2(":method GET|:scheme http|:authority a|:path /plan|x-plan pro"),
    Http1("GET /cost HTTP/1.1|host: a|x-cost: 1"),
    Http1("GET /claim HTTP/1.1|host: a|x-jwt: {\"sub\":\"new\"}"),
    Http1("GET /method HTTP/1.1|host: a"),
];

impl Spelled {
    fn sent(&self) -> Sent {
        match self {
            Http1(text) => {
                let head = text.replace('|', "\r\n");
                Sent::Http1(format!("{head}\r\ncontent-length: 0\r\n\r\n").into())
            }
            H2(text) => Sent::Http2(text),
        }
    }

    /// Sends it on a new connection, which is closed then. Returns the status and the response.
    fn send(&self, to: SocketAddr) -> (u16, String) {
        let mut sent = self.sent();
        if let Sent::Http1(bytes) = &mut sent {
            bytes.truncate(bytes.len() - 2);
            bytes.extend(b"connection: close\r\n\r\n");
        }
        sent.send(TcpStream::connect(to).unwrap())
    }

    fn text(&self) -> &'static str {
        match self {
            Http1(text) | H2(text) => text,
        }
    }
}

pub(super) fn refused() -> Vec<Refused> {
    let row = |(spelled, status, problem): &(Spelled, u16, &'static str)| {
        Refused::by_gateway(spelled.text(), spelled.sent(), *status, problem)
    };
    let long = format!("POST {}/login HTTP/1.1\r\nhost: a\r\n", "/a/..".repeat(128));
    let long = Refused {
        closes: false,
        ..Refused::by_gateway(
            "too many segments",
            Sent::Http1((long + "connection: close\r\ncontent-length: 0\r\n\r\n").into()),
            414,
            "target-too-long",
        )
    };
    REFUSED.iter().map(row).chain([long]).collect()
}

/// Sends a request such as `POST /login` as it is usually written.
fn send_plain(to: SocketAddr, line: &str) -> u16 {
    let head = format!("{line} HTTP/1.1\r\nhost: api.example.com\r\ncontent-length: 0\r\n");
    status(&raw(to, format!("{head}connection: close\r\n\r\n")))
}

#[test]
fn no_spelling_of_a_limited_request_is_admitted() {
    let target = Target::start(RULES, Upstream::text("hello"));
    let gateway = target.server.gateway();
    for (spelled, ..) in REFUSED {
        spelled.send(gateway);
    }
    // None of them was charged.
    for line in PLAIN {
        assert_eq!(send_plain(gateway, line), 200, "{line}");
    }
    for spelled in LIMITED {
        let (status, response) = spelled.send(gateway);
        assert_eq!(status, 429, "{}: {response}", spelled.text());
    }
    assert_eq!(target.upstream.received().len(), PLAIN.len());
}

/// Applications that say whether they took a request for a POST to /login, or for one to the host
/// api.example.com, in the way of frameworks on such a server.
fn applications() -> [(&'static str, RealServer); 3] {
    let nginx = "\
        server { listen {address} default_server; location / { return 200 OTHER; } \
            location = /login { if ($request_method = POST) { return 200 LOGIN; } return 200 OTHER; } }
        server { listen {address}; server_name api.example.com; location / { return 200 VHOST; } }";
    // Django's `require_POST` compares the method in upper case.
    let uvicorn = "
import socket, uvicorn
async def app(scope, receive, send):
    if scope['type'] != 'http':
        return
    host = dict(scope['headers']).get(b'host', b'').split(b':')[0].lower()
    login = scope['method'].upper() == 'POST' and scope['path'] == '/login'
    text = b'LOGIN' if login else b'VHOST' if host == b'api.example.com' else b'OTHER'
    await send({'type': 'http.response.start', 'status': 200, 'headers': []})
    await send({'type': 'http.response.body', 'body': text})
sock = socket.socket()
sock.bind(('127.0.0.1', 0))
print(sock.getsockname()[1], flush=True)
config = uvicorn.Config(app, http='h11', lifespan='off', log_level='error')
uvicorn.Server(config).run(sockets=[sock])
";
    let node = "
import http from 'node:http';
const server = http.createServer((request, response) => {
  const { pathname } = new URL(request.url, 'http://base');
  const host = (request.headers.host ?? '').split(':')[0].toLowerCase();
  const login = request.method.toUpperCase() === 'POST' && pathname === '/login';
  response.end(login ? 'LOGIN' : host === 'api.example.com' ? 'VHOST' : 'OTHER');
});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
";
    [
        ("nginx", RealServer::nginx(nginx)),
        ("uvicorn", RealServer::uvicorn(uvicorn)),
        ("node", RealServer::node(node)),
    ]
}

#[test]
fn no_spelling_reaches_a_limited_handler_of_a_real_server() {
    for (name, application) in applications() {
        let server = application.gateway(RULES);
        let to = server.gateway();
        // Spends the limits, and shows that the application tells these requests from others.
        for (line, host, expected) in [
            ("POST /login", "a", "LOGIN"),
            ("GET /vhost", "api.example.com", "VHOST"),
            ("GET /free", "a", "OTHER"),
        ] {
            let head = format!("{line} HTTP/1.1\r\nhost: {host}\r\ncontent-length: 0\r\n");
            let response = raw(to, format!("{head}connection: close\r\n\r\n"));
            assert!(response.contains(expected), "{name}: {response}");
        }
        let rows = REFUSED.iter().map(|(spelled, ..)| spelled);
        for spelled in rows.chain(LIMITED) {
            let (_, response) = spelled.send(to);
            let is_handled = ["LOGIN", "VHOST"]
                .iter()
                .any(|text| response.contains(text));
            assert!(!is_handled, "{name}, {}: {response}", spelled.text());
        }
    }
}

#[test]
fn what_is_admitted_is_forwarded_as_it_was_sent() {
    let target = Target::start("version: 1\nrules: []\n", Upstream::text("hello"));
    let long = "/a".repeat(256);
    let paths = ["//evil/a", "/a//../b;c/%2e%2E\\d", "/%2F%6c?//x", &long];
    for path in paths {
        assert_eq!(
            send_plain(target.server.gateway(), &format!("GET {path}")),
            200
        );
    }
    let head = "POST /a HTTP/1.1\r\nhost: a\r\nx-http-method-override: DELETE\r\n\
                x-method-override: PUT\r\nx-http-method: PATCH\r\nconnection: close\r\n\r\n";
    assert_eq!(status(&raw(target.server.gateway(), head)), 200);
    let received = target.upstream.received();
    let lines: Vec<&str> = received.iter().map(|request| &*request.lines[0]).collect();
    let expected = paths.map(|path| format!("GET {path} HTTP/1.1"));
    assert_eq!(lines[..paths.len()], expected);
    let overridden = received.last().unwrap();
    assert_eq!(overridden.header("x-http-method-override"), ["DELETE"]);
    assert_eq!(overridden.header("x-method-override"), ["PUT"]);
    assert_eq!(overridden.header("x-http-method"), ["PATCH"]);
}

#[test]
fn a_trusted_proxy_is_believed_and_its_clients_behind_nat64_are_ipv4_clients() {
    let own = Ipv4Addr::LOCALHOST.to_string();
    let rules = RULES
        .replace("10.0.0.0/8", &own)
        .replace("match: { path: /plan }", "key: ip");
    let target = Target::start(&rules, Upstream::text("hello"));
    let send = |path: &str, headers: &str| {
        let head = format!("GET {path} HTTP/1.1\r\nhost: a\r\n{headers}connection: close\r\n\r\n");
        status(&raw(target.server.gateway(), head))
    };
    let client = |address: &str| format!("x-forwarded-for: {address}\r\n");
    assert_eq!(send("/a", &client("192.0.2.1")), 200);
    for same in [
        "192.0.2.1",
        "64:ff9b::192.0.2.1",
        "::ffff:192.0.2.1",
        "64:ff9b::c000:201",
    ] {
        assert_eq!(send("/a", &client(same)), 429, "{same}");
    }
    assert_eq!(send("/a", &client("64:ff9b::192.0.2.2")), 200);
    let pro = format!("{}x-plan: pro\r\n", client("192.0.2.1"));
    assert_eq!(send("/a", &pro), 200);
    let others = ["x-cost: 1\r\n", "", "x-cost: 1\r\n"].into_iter().zip(3..);
    let others = others.map(|(cost, i)| format!("{}{cost}", client(&format!("192.0.2.{i}"))));
    let statuses: Vec<u16> = others.map(|headers| send("/cost", &headers)).collect();
    assert_eq!(statuses, [200, 200, 429]);
    for (claim, i, expected) in [("a", 6, 200), ("a", 7, 429), ("b", 8, 200)] {
        let client = client(&format!("192.0.2.{i}"));
        let claim = format!("{client}x-jwt: {{\"sub\":\"{claim}\"}}\r\n");
        assert_eq!(send("/claim", &claim), expected, "{claim}");
    }
}

#[test]
fn forward_auth_limits_every_spelling() {
    let rules = RULES.replace("10.0.0.0/8", "127.0.0.1");
    let target = Target::start(&rules, Upstream::text("hello"));
    let ask = |method: &str, path: &str, host: &str| {
        let headers = [
            ("x-forwarded-method", method),
            ("x-forwarded-uri", path),
            ("x-forwarded-host", host),
        ];
        client::send(target.server.api, "GET", "/v1/auth", &headers, "").status
    };
    assert_eq!(ask("POST", "/login", "a"), 200);
    for method in ["POST", "post", "Post", "pOsT"] {
        assert_eq!(ask(method, "/login", "a"), 429, "{method}");
    }
    for path in ["//evil/login", "/\\evil/login", "/x;/..;/login"] {
        assert_eq!(ask("POST", path, "a"), 429, "{path}");
    }
    assert_eq!(ask("GET", "/vhost", "api.example.com"), 200);
    for host in [
        "API.example.com:80",
        "api.example.com:80@x",
        "u@api.example.com",
        "api.example.com,x",
        "x, api.example.com",
    ] {
        assert_eq!(ask("GET", "/vhost", host), 429, "{host}");
    }
    assert_eq!(ask("GET", "/method", "a"), 200);
    assert_eq!(
        [ask("GET", "/method", "a"), ask("get", "/method", "a")],
        [429, 429]
    );
    assert_eq!(ask("GET", &"/a".repeat(257), "a"), 414);
}

#[test]
fn a_check_by_rule_compares_methods_without_case_and_bounds_segments() {
    let target = Target::start(RULES, Upstream::text("hello"));
    let check = |attributes: &str| {
        let body = format!(r#"{{"rule":"method","attributes":{{{attributes}}}}}"#);
        target.server.check(&body)
    };
    assert_eq!(check(r#""method":"POST""#).status, 200);
    assert_eq!(check(r#""method":"post""#).status, 429);
    let long = "/a".repeat(257);
    let response = check(&format!(r#""method":"PUT","path":"{long}""#));
    assert_eq!(
        (response.status, response.code().as_str()),
        (414, "target-too-long")
    );
    assert_eq!(check(r#""method":"PUT""#).status, 200);
    // The caller vouches for what it says of its client.
    let body = r#"{"rule":"plan","attributes":{"ip":"192.0.2.1","headers":{"x-plan":"pro"}}}"#;
    assert_eq!(target.server.check(body).json()["limit"], 1000);
}
