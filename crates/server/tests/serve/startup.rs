//! Startup: output and errors.

use std::net::TcpListener;
use std::process::Output;

use tallygate_testkit::poll;
use tallygate_testkit::redis::{ClientCertificate, Server as Redis, TlsServer, User};

use super::{Server, TIMEOUT, TempDir, tallygate};

fn run(args: &[&str]) -> Output {
    tallygate(args).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_first_line_has_the_bound_addresses() {
    let server = Server::start(&[]);
    let (api, admin) = (server.api, server.admin);
    let line = format!("{{\"api\":\"{api}\",\"gateway\":null,\"admin\":\"{admin}\"}}\n");
    assert_eq!(server.first_line, line);
    assert_ne!(api.port(), 0);
    assert_eq!(server.admin("GET", "/healthz", "").status, 200);
}

#[test]
fn off_a_terminal_the_banner_is_one_log_event() {
    let server = Server::start(&[]);
    poll::until(TIMEOUT, "a log event", || {
        server.stderr().contains("\"message\":\"listening\"")
    });
    let stderr = server.stderr();
    let events = stderr
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let events: Vec<_> = events
        .filter(|event| event["message"] == "listening")
        .collect();
    let [event] = &events[..] else {
        panic!("{stderr}");
    };
    assert_eq!(event["rules"], "the built-in sample");
    assert_eq!(
        event["check_api"],
        format!("http://{}/v1/check", server.api)
    );
    assert_eq!(event["live_view"], format!("http://{}/live", server.admin));
    assert!(event.get("gateway").is_none(), "{event}");
    let limits = event["limits"].as_str().unwrap();
    assert!(limits.starts_with("login POST /login: "), "{limits}");
    assert!(event["store"].as_str().unwrap().starts_with("in memory"));
}

#[test]
fn without_a_file_the_sample_rules_are_active() {
    let server = Server::start(&[]);
    let rules = server.admin("GET", "/admin/rules", "").json();
    assert_eq!(rules["origin"], "the built-in sample");
    let names: Vec<_> = rules["rules"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rule| &rule["name"])
        .collect();
    assert_eq!(names, ["login", "api"]);
}

#[test]
fn an_address_in_use_is_exit_1() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for flag in ["--listen", "--admin"] {
        let other = if flag == "--listen" {
            "--admin"
        } else {
            "--listen"
        };
        let output = run(&["serve", flag, &address, other, "127.0.0.1:0"]);
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stdout.is_empty());
        let stderr = stderr(&output);
        assert!(
            stderr.contains(&address) && stderr.contains(flag),
            "{stderr}"
        );
    }
}

#[test]
fn invalid_input_is_exit_2_before_anything_listens() {
    let folder = TempDir::new();
    let wrong = folder.write(
        "wrong.yaml",
        "version: 1\nrules:\n  - name: a\n    limits: 5/blink\n",
    );
    let short = folder.write("short", "secret\n");
    let missing = folder.path().join("none.yaml");
    let missing = missing.to_str().unwrap();
    for (args, word) in [
        (&["--config", &wrong][..], "5/blink"),
        (&["--config", missing], "none.yaml"),
        (&["--config", &wrong, "--check"], "5/blink"),
        (&["--store", "http://localhost"], "store"),
        (&["--listen", "localhost"], "--listen"),
        (&["--gateway", "127.0.0.1:0"], "--upstream"),
        (&["--upstream", "http://ann:secret@localhost"], "--upstream"),
        (&["--admin-token-file", &short], "16"),
        (&["--admin-token-file", missing], "none.yaml"),
        (&["--on-failure", "sometimes"], "open"),
    ] {
        let ports = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        // A flag given twice is an error too.
        let ports = if args[0] == "--listen" {
            &ports[..1]
        } else {
            &ports[..]
        };
        let output = run(&[ports, args].concat());
        let stderr = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(output.stdout.is_empty(), "{args:?}");
        assert!(stderr.contains(word), "{args:?}: {stderr}");
        assert!(!stderr.contains("secret"), "{stderr}");
    }
}

#[test]
fn check_validates_and_exits() {
    let folder = TempDir::new();
    let good = folder.write(
        "good.yaml",
        "version: 1\nrules:\n  - name: a\n    key: [ip]\n    limits: 5/s\n",
    );
    let output = run(&["serve", "--check", "--config", &good]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(output.stdout, b"good: 1 rule\n");
    // An empty variable counts as unset.
    let mut checks = tallygate(&["serve", "--check"]);
    let output = checks.env("TALLYGATE_ADMIN_TOKEN", "").output().unwrap();
    assert_eq!(output.stdout, b"good: 2 rules\n");
    assert!(output.stderr.is_empty(), "{}", stderr(&output));
}

#[test]
fn a_store_that_needs_another_configuration_is_exit_1() {
    let protected = Redis::start_with(&["--requirepass", "hunter2"]);
    let port = protected.port();
    let restricted = Redis::start();
    restricted.add_user(User::Powerless);
    let powerless = format!(
        "redis://{}:{}@127.0.0.1:{}",
        User::Powerless.name(),
        User::Powerless.password(),
        restricted.port()
    );
    let tls = TlsServer::start(ClientCertificate::NotRequested);
    let encrypted = tls.url(User::Limited);
    for (url, problem) in [
        (format!("redis://:hunter3@127.0.0.1:{port}"), "WRONGPASS"),
        (format!("redis://127.0.0.1:{port}"), "NOAUTH"),
        (powerless, "NOPERM"),
        (encrypted.clone(), "not signed by a trusted CA"),
        (encrypted.replace("rediss://", "redis://"), "use rediss://"),
        (
            restricted.url().replace("redis://", "rediss://"),
            "use redis://",
        ),
    ] {
        let ports = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let output = run(&[&["serve", "--store", &url], &ports[..]].concat());
        let error = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{problem}: {error}");
        assert!(output.stdout.is_empty(), "nothing listens");
        assert!(error.contains("cannot use the store: "), "{error}");
        assert!(error.contains(problem), "{problem}: {error}");
        let secret = ["hunter", "secret"].iter().any(|word| error.contains(word));
        assert!(!secret, "{error}");
    }
}
