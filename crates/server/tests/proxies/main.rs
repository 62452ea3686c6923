//! Tallygate beside its neighbours with the configurations in `ops/`: real proxies, as seen by a client,
//! applications that call the check API, and Kubernetes' schemas.

// Helpers of tests may panic.
#![allow(clippy::unwrap_used)]

mod caddy;
mod clients;
mod envoy;
mod kubernetes;
mod nginx;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tallygate_testkit::ServerProcess;

/// How long a test waits for anything.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Rules that refuse after a few requests.
const RULES: &str = "\
version: 1
trusted_proxies: [127.0.0.1]
rules:
  - name: login
    match: { method: POST, path: /login }
    key: [ip]
    limits: [sliding-window-log 2/h]
    deny: [127.0.0.66]
  - name: strict
    match: { path: /strict }
    key: [{ header: x-api-key }]
    on_missing: refuse
    limits: [2/h]
  - name: api
    match: { path: /api/** }
    key: [ip]
    limits: [2/h]
";

/// A server, stopped on drop.
struct Tallygate {
    served: ServerProcess,
    api: SocketAddr,
    admin: SocketAddr,
    folder: std::path::PathBuf,
}

impl Tallygate {
    fn start() -> Self {
        let name = format!(
            "tallygate-proxies-{}-{:?}",
            std::process::id(),
            thread::current().id()
        );
        let folder = std::env::temp_dir().join(name.replace(['(', ')'], "-"));
        fs::create_dir_all(&folder).unwrap();
        let rules = folder.join("rules.yaml");
        fs::write(&rules, RULES).unwrap();
        let served = ServerProcess::start(
            Command::new(env!("CARGO_BIN_EXE_tallygate"))
                .args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
                .arg("--config")
                .arg(&rules),
        );
        let addresses: Value = serde_json::from_str(&served.first_line).unwrap();
        let address = |name: &str| addresses[name].as_str().unwrap().parse().unwrap();
        Tallygate {
            served,
            api: address("api"),
            admin: address("admin"),
            folder,
        }
    }

    fn set_kill_switch(&self, state: &str) {
        let body = format!("{{\"state\":\"{state}\"}}");
        let json = [("content-type", "application/json")];
        let response = Client::at(1).send(self.admin, "PUT", "/admin/kill-switch", &json, &body);
        assert_eq!(response.status, 200, "{response:?}");
    }

    fn stop(&mut self) {
        self.served.kill();
    }
}

impl Drop for Tallygate {
    fn drop(&mut self) {
        self.stop();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// An application that responds with 200, or NNN for `/status/NNN`, and records request heads.
struct App {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl App {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let recorded = Arc::clone(&heads);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, recorded) = (stream.unwrap(), Arc::clone(&recorded));
                thread::spawn(move || serve(stream, &recorded));
            }
        });
        App { address, heads }
    }

    fn heads(&self) -> usize {
        self.heads.lock().unwrap().len()
    }
}

fn serve(mut stream: TcpStream, heads: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            let is = name.eq_ignore_ascii_case("content-length");
            is.then(|| value.trim().parse().unwrap())
        });
        let mut body = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut body).unwrap();
        let status = match head.split_once("/status/") {
            Some((_, rest)) => rest[..3].to_owned(),
            None => "200".to_owned(),
        };
        heads.lock().unwrap().push(head);
        let response = format!("HTTP/1.1 {status} So\r\ncontent-length: 5\r\n\r\nhello");
        if stream.write_all(response.as_bytes()).is_err() {
            return;
        }
    }
}

/// A client with the address `127.0.0.N`.
struct Client(u8);

/// A response.
#[derive(Debug)]
struct Response {
    status: u16,
    head: String,
    body: String,
}

impl Response {
    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (known, value) = line.split_once(':')?;
            known.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

impl Client {
    fn at(last: u8) -> Self {
        Client(last)
    }

    fn send(
        &self,
        to: SocketAddr,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Response {
        self.try_send(to, method, path, headers, body).unwrap()
    }

    /// Sends a request on a new connection; `None` if that breaks.
    fn try_send(
        &self,
        to: SocketAddr,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Option<Response> {
        let mut stream = self.connect(to)?;
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut head =
            format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += &format!("content-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(head.as_bytes()).ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let (head, body) = text.split_once("\r\n\r\n")?;
        Some(Response {
            status: head.split(' ').nth(1)?.parse().ok()?,
            head: head.to_owned(),
            body: body.to_owned(),
        })
    }

    fn connect(&self, to: SocketAddr) -> Option<TcpStream> {
        use std::os::fd::OwnedFd;
        let from = SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, self.0), 0);
        let socket = rustix::net::socket(
            rustix::net::AddressFamily::INET,
            rustix::net::SocketType::STREAM,
            None,
        );
        let socket: OwnedFd = socket.unwrap();
        rustix::net::bind(&socket, &from).unwrap();
        rustix::net::connect(&socket, &to).ok()?;
        Some(TcpStream::from(socket))
    }
}

/// Logs in until refused, and checks the responses, which are returned: the first and the refusal.
/// Neither another client nor any of `ignored_headers` changes the result.
fn assert_login_is_limited(
    proxy: SocketAddr,
    app: &App,
    ignored_headers: &[(&str, &str)],
) -> [Response; 2] {
    let log_in = |client: u8, headers: &[(&str, &str)]| {
        Client::at(client).send(proxy, "POST", "/login?next=/", headers, "name=ann")
    };
    let before = app.heads();
    let first = log_in(7, &[]);
    assert_eq!(
        (first.status, first.body.as_str()),
        (200, "hello"),
        "{first:?}"
    );
    let ratelimit = first.header("ratelimit").unwrap();
    assert!(ratelimit.starts_with("\"login\";r=1;t=3"), "{ratelimit}");
    assert_eq!(log_in(7, &[]).status, 200);
    let refused = log_in(7, &[]);
    assert_eq!(refused.status, 429, "{refused:?}");
    let retry_after: u32 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((3000..=3600).contains(&retry_after), "{refused:?}");
    assert_eq!(
        refused.header("content-type"),
        Some("application/problem+json")
    );
    assert_eq!(
        app.heads() - before,
        2,
        "the application received a refused request"
    );
    for header in ignored_headers {
        assert_eq!(log_in(7, &[*header]).status, 429, "{header:?}");
    }
    assert_eq!(log_in(8, &[]).status, 200);
    [first, refused]
}

/// A configuration of `ops/` with the addresses of this test, each replaced exactly `times` times.
fn ops_config(name: &str, changes: &[(&str, usize, String)]) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ops");
    let mut text = fs::read_to_string(folder.join(name)).unwrap();
    for (old, times, new) in changes {
        assert_eq!(text.matches(old).count(), *times, "{old} in ops/{name}");
        text = text.replace(old, new);
    }
    text
}
