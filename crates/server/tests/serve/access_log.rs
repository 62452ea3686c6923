//! The access log: what a line holds and what it does not, rotation, a writer that stalls or fails.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use serde_json::{Value, json};
use tallygate_testkit::poll;

use super::client::{Connection, send};
use super::upstream::Upstream;
use super::{JSON, Server, TIMEOUT, TempDir, tallygate};

const RULES: &str = "\
version: 1
trusted_proxies: [127.0.0.1]
rules:
  - name: free
    match: { path: /free }
    key: [{ query: user }]
    limits: 1000/h
  - name: api
    match: { path: /api/** }
    key: [{ header: x-api-key, or: ip }]
    limits: sliding-window-log 2/h
  - name: banned
    match: { path: /banned }
    key: ip
    limits: 1/s
    deny: [192.0.2.66]
";

struct Logged {
    folder: TempDir,
    server: Server,
}

impl Logged {
    fn start(upstream: &Upstream, args: &[&str]) -> Self {
        let folder = TempDir::new();
        let rules = folder.write("rules.yaml", RULES);
        let log = folder.path().join("access.log");
        let url = format!("http://{}", upstream.address);
        let own = [
            "--config",
            &rules,
            "--gateway",
            "127.0.0.1:0",
            "--upstream",
            &url,
            "--access-log",
            log.to_str().unwrap(),
        ];
        let server = Server::start(&[&own[..], args].concat());
        Logged { folder, server }
    }

    fn get(&self, path: &str, headers: &[(&str, &str)]) -> u16 {
        send(self.server.gateway(), "GET", path, headers, "").status
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }

    /// The lines, once there are so many.
    fn lines(&self, number: usize) -> Vec<Value> {
        poll::until(TIMEOUT, "lines", || {
            self.text("access.log").matches('\n').count() >= number
        });
        let text = self.text("access.log");
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines.len(), number, "{text}");
        lines
    }
}

#[test]
fn a_line_has_the_decision_and_no_key_path_or_query() {
    let upstream = Upstream::text("hello");
    let logged = Logged::start(&upstream, &[]);
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let headers = [
        ("x-api-key", "s3cr3t-key"),
        ("x-request-id", "req-7"),
        ("traceparent", trace),
        ("authorization", "Bearer t0ken"),
    ];
    let statuses = [(); 3].map(|()| logged.get("/api/ann?password=hunter2", &headers));
    assert_eq!(statuses, [200, 200, 429]);
    // Not shown: it would have to be quoted.
    logged.get("/free?user=ann", &[("x-request-id", "a\"b")]);
    let posted = send(logged.server.gateway(), "POST", "/other", &[], "12345678");
    assert_eq!(posted.status, 200);
    let lines = logged.lines(5);
    let text = logged.text("access.log");
    for hidden in [
        "s3cr3t", "t0ken", "hunter2", "ann", "/api", "password", "a\\\"",
    ] {
        assert!(!text.contains(hidden), "{hidden}: {text}");
    }
    let first = &lines[0];
    for (name, value) in [
        ("listener", json!("gateway")),
        ("method", json!("GET")),
        ("status", json!(200)),
        ("rule", json!("api")),
        ("decision", json!("admitted")),
        ("upstream", json!(upstream.address.to_string())),
        ("bytes_sent", json!(5)),
        ("bytes_received", json!(0)),
        ("request_id", json!("req-7")),
        ("trace_id", json!("0af7651916cd43dd8448eb211c80319c")),
    ] {
        assert_eq!(first[name], value, "{name}: {first}");
    }
    assert_eq!(first["decisions"][0]["outcome"], "admitted");
    assert!(
        first["decisions"][0]["key"]
            .as_str()
            .unwrap()
            .starts_with('#')
    );
    assert!(first["duration_us"].as_u64() >= first["upstream_us"].as_u64());
    let refused = &lines[2];
    assert_eq!(
        (&refused["status"], &refused["decision"]),
        (&json!(429), &json!("refused"))
    );
    assert_eq!(refused["decisions"][0]["key"], first["decisions"][0]["key"]);
    assert!(refused.get("upstream").is_none() && refused["bytes_sent"].as_u64() > Some(0));
    assert!(lines[3].get("request_id").is_none());
    // No rule applies.
    let other = &lines[4];
    assert_eq!(
        (&other["rule"], &other["decision"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(
        (&other["method"], &other["bytes_received"]),
        (&json!("POST"), &json!(8))
    );
    assert_eq!(other["decisions"], json!([]));
    let written = "tallygate_access_log_lines_total{result=\"written\"}";
    assert_eq!(logged.server.metric(written), Some(5.0));
}

#[test]
fn show_keys_shows_keys_and_paths_but_no_query() {
    let upstream = Upstream::text("hello");
    let logged = Logged::start(&upstream, &["--show-keys"]);
    logged.get("/free?user=ann", &[]);
    logged.get("/api/x?user=ann", &[("x-api-key", "s3cr3t-key")]);
    let lines = logged.lines(2);
    assert_eq!(
        (&lines[0]["path"], &lines[1]["path"]),
        (&json!("/free"), &json!("/api/x"))
    );
    assert_eq!(lines[0]["decisions"][0]["key"], "ann");
    let text = logged.text("access.log");
    assert!(
        !text.contains("s3cr3t") && !text.contains("user="),
        "{text}"
    );
}

#[test]
fn errors_denials_and_clients_that_leave_are_logged() {
    let gone = Arc::new(AtomicBool::new(false));
    let leave = Arc::clone(&gone);
    // Breaks `/broken`, and does not answer `/slow` until its client has left.
    let upstream = Upstream::start(move |request| {
        let path = request.lines[0].split(' ').nth(1).unwrap();
        if path == "/slow" {
            poll::until(TIMEOUT, "the client leaves", || leave.load(SeqCst));
        }
        b"this is not HTTP\r\n\r\n".to_vec()
    });
    let logged = Logged::start(&upstream, &[]);
    assert_eq!(logged.get("/broken", &[]), 502);
    assert_eq!(
        logged.get("/banned", &[("x-forwarded-for", "192.0.2.66")]),
        403
    );
    let mut client = TcpStream::connect(logged.server.gateway()).unwrap();
    client
        .write_all(b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n")
        .unwrap();
    poll::until(TIMEOUT, "it is forwarded", || {
        let received = upstream.received();
        received
            .iter()
            .any(|request| request.lines[0].contains("/slow"))
    });
    drop(client);
    let lines = logged.lines(3);
    gone.store(true, SeqCst);
    assert_eq!(lines[0]["upstream_error"], "broken");
    assert_eq!(
        (&lines[0]["status"], &lines[0]["decision"]),
        (&json!(502), &Value::Null)
    );
    let banned = json!([{"rule": "banned", "outcome": "refused"}]);
    assert_eq!(
        (&lines[1]["status"], &lines[1]["decisions"]),
        (&json!(403), &banned)
    );
    assert_eq!(lines[2]["status"], Value::Null);
}

#[test]
fn the_check_api_and_forward_auth_are_logged_too() {
    let upstream = Upstream::text("hello");
    let logged = Logged::start(&upstream, &[]);
    let server = &logged.server;
    let checked = server.check(r#"{"rule":"api","attributes":{"ip":"192.0.2.1"}}"#);
    let batch = r#"[{"key":"a","quota":"1/h"},{"key":"a","quota":"1/h"},{"oops":1}]"#;
    assert_eq!(server.post("/v1/check/batch", batch).status, 200);
    let original = [
        ("x-original-method", "GET"),
        ("x-original-uri", "/api/x"),
        ("x-forwarded-for", "192.0.2.1"),
    ];
    assert_eq!(
        send(server.api, "GET", "/v1/auth", &original, "").status,
        200
    );
    assert_eq!(server.check("{").status, 400);
    let lines = logged.lines(4);
    assert!(lines.iter().all(|line| line["listener"] == "api"));
    assert_eq!(lines[0]["rule"], "api");
    assert_eq!(
        lines[0]["bytes_sent"].as_u64().unwrap(),
        checked.body.len() as u64
    );
    // One key, by the check API and by forward-auth.
    let key = |line: &Value| line["decisions"][0]["key"].clone();
    assert_eq!(key(&lines[0]), key(&lines[2]));
    assert_eq!(lines[1]["decision"], "refused");
    assert_eq!(lines[1]["decisions"].as_array().unwrap().len(), 2);
    assert_eq!(
        (&lines[3]["status"], &lines[3]["rule"]),
        (&json!(400), &Value::Null)
    );
}

#[test]
fn a_renamed_file_is_opened_again_on_sighup() {
    let upstream = Upstream::text("hello");
    let logged = Logged::start(&upstream, &[]);
    logged.get("/one", &[]);
    logged.lines(1);
    let path = logged.folder.path().join("access.log");
    fs::rename(&path, logged.folder.path().join("access.log.1")).unwrap();
    logged.server.signal("-HUP");
    poll::until(TIMEOUT, "the new file", || path.exists());
    logged.get("/two", &[]);
    logged.lines(1);
    assert_eq!(logged.text("access.log.1").matches('\n').count(), 1);
}

#[test]
fn a_writer_that_stalls_costs_lines_and_no_requests() {
    let folder = TempDir::new();
    let fifo = folder.path().join("fifo");
    assert!(
        Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    // For reading and writing: opening does not wait, and nothing is read yet.
    let reader = File::options().read(true).write(true).open(&fifo).unwrap();
    let server = Server::start(&["--access-log", fifo.to_str().unwrap()]);
    let result = |name: &str| {
        let series = format!("tallygate_access_log_lines_total{{result=\"{name}\"}}");
        server.metric(&series).unwrap()
    };
    let mut connection = Connection::open(server.api);
    let mut sent = 0;
    while result("dropped") < 10.0 {
        for _ in 0..500 {
            let body = r#"{"key":"a","quota":"1000000/h"}"#;
            assert_eq!(
                connection
                    .send("POST", "/v1/check", &[JSON], body)
                    .unwrap()
                    .status,
                200
            );
        }
        sent += 500;
        assert!(sent < 100_000, "nothing is dropped");
    }
    let dropped = result("dropped") as u64;
    let mut lines = BufReader::new(reader).lines();
    for _ in 0..sent - dropped {
        let line = lines.next().unwrap().unwrap();
        let line: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line["decision"], "admitted");
    }
    poll::until(TIMEOUT, "all are written or dropped", || {
        (result("written") + result("dropped")) as u64 == sent
    });
}

#[test]
fn a_full_disk_costs_lines_and_is_logged() {
    let server = Server::start(&["--access-log", "/dev/full"]);
    for _ in 0..3 {
        assert_eq!(server.check(r#"{"key":"a","quota":"5/h"}"#).status, 200);
    }
    let failed = "tallygate_access_log_lines_total{result=\"failed\"}";
    poll::until(TIMEOUT, "failures", || server.metric(failed) == Some(3.0));
    let message = "cannot write the access log";
    assert_eq!(server.stderr().matches(message).count(), 1);
}

#[test]
fn standard_output_has_the_lines_after_the_addresses_and_all_of_them_at_the_end() {
    let ports = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let mut child = tallygate(&[&ports[..], &["--access-log", "-"]].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    let api = first["api"].as_str().unwrap().parse().unwrap();
    for _ in 0..3 {
        send(
            api,
            "POST",
            "/v1/check",
            &[JSON],
            r#"{"key":"a","quota":"2/h"}"#,
        );
    }
    let id = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-TERM", &id])
            .status()
            .unwrap()
            .success()
    );
    let statuses: Vec<Value> = lines
        .map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap()["status"].clone())
        .collect();
    assert_eq!(statuses, [200, 200, 429]);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_file_that_cannot_be_opened_is_exit_1() {
    let ports = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let mut command = tallygate(&ports);
    let output = command
        .args(["--access-log", "/nowhere/log"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        stderr.contains("cannot open the access log /nowhere/log"),
        "{stderr}"
    );
}
