//! Stores that cannot be used: replay, race and doctor report the problem and advice, without
//! secrets.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::thread;

use tallygate_testkit::redis::{ClientCertificate, Cluster, Sentinel, Server, TlsServer, User};

use crate::run;

/// Checks the message of all three commands, and the failed check of doctor.
#[track_caller]
fn assert_reported(url: &str, more: &[&str], check: &str, messages: &[&str]) {
    let replay = ["replay", "--quota", "10/s", "--store", url];
    for (command, code) in [
        (&replay[..], 1),
        (&["race", "--clients", "2", "--store", url][..], 1),
        (&["doctor", "--store", url][..], 1),
    ] {
        let args = [command, more].concat();
        let output = run(&args, "{\"t_us\":0,\"key\":\"a\"}\n");
        let text = match command[0] {
            "doctor" => {
                let failed = format!("fail  {check:<14}  ");
                assert!(
                    output.stdout.contains(&failed),
                    "{check} did not fail:\n{}",
                    output.stdout
                );
                assert!(output.stdout.ends_with(".\n") && output.stdout.contains("Not healthy: "));
                &output.stdout
            }
            _ => &output.stderr,
        };
        assert_eq!(output.code, code, "{}: {text}", command[0]);
        let words: Vec<&str> = text.split_whitespace().collect();
        let words = words.join(" ");
        for message in messages {
            assert!(
                words.contains(message),
                "no {message} in {}: {text}",
                command[0]
            );
        }
        for secret in ["hunter2", "-secret"] {
            assert!(!text.contains(secret), "{text}");
        }
    }
}

#[test]
fn an_invalid_url_is_reported() {
    for url in [
        "postgres://:hunter2@localhost",
        "hunter2",
        "redis://a,hunter2",
    ] {
        for command in [&["replay", "--quota", "10/s"][..], &["race"]] {
            let output = run(&[command, &["--store", url]].concat(), "");
            assert_eq!(output.code, 2, "{}", output.stderr);
            assert!(
                output.stderr.contains("invalid store URL"),
                "{}",
                output.stderr
            );
            assert!(!output.stderr.contains("hunter2"), "{}", output.stderr);
        }
        let output = run(&["doctor", "--store", url], "");
        assert_eq!(output.code, 1);
        assert!(output.stdout.contains("fail  url") && !output.stdout.contains("hunter2"));
    }
}

#[test]
fn unreadable_certificates_are_reported() {
    let output = run(
        &[
            "doctor",
            "--store",
            "rediss://localhost",
            "--ca-cert",
            "/no/such",
        ],
        "",
    );
    assert_eq!(output.code, 2);
    assert!(
        output.stderr.contains("cannot read /no/such"),
        "{}",
        output.stderr
    );
}

#[test]
fn an_unreachable_server_is_reported() {
    let server = Server::start();
    let url = server.url();
    server.kill();
    assert_reported(
        &url,
        &[],
        "connection",
        &["connection refused", "is the server up"],
    );
    let hidden = "redis://:hunter2@tallygate.invalid";
    assert_reported(
        hidden,
        &[],
        "connection",
        &["the host name cannot be resolved"],
    );
    assert_reported(
        "unix:///no/such.sock",
        &[],
        "connection",
        &["no such socket"],
    );
}

#[test]
fn a_wrong_or_missing_password_is_reported() {
    let server = Server::start_with(&["--requirepass", "hunter2"]);
    let port = server.port();
    let wrong = format!("redis://:hunter2x@127.0.0.1:{port}");
    assert_reported(
        &wrong,
        &[],
        "sign-in",
        &["WRONGPASS", "correct it in the URL"],
    );
    let missing = format!("redis://127.0.0.1:{port}");
    assert_reported(&missing, &[], "sign-in", &["NOAUTH", "add it to the URL"]);
    let database = format!("redis://:hunter2@127.0.0.1:{port}/99");
    assert_reported(&database, &[], "sign-in", &["no database with that number"]);
}

#[test]
fn a_wrong_topology_is_reported() {
    let server = Server::start();
    let port = server.port();
    let cluster = format!("redis-cluster://127.0.0.1:{port}");
    assert_reported(
        &cluster,
        &[],
        "arrangement",
        &["not part of a cluster", "use redis://"],
    );
    let sentinel = format!("redis-sentinel://127.0.0.1:{port}/mymaster");
    assert_reported(&sentinel, &[], "arrangement", &["not a sentinel"]);
    let cluster = Cluster::start();
    let url = cluster.node(0).url();
    assert_reported(
        &url,
        &[],
        "arrangement",
        &["is part of a cluster", "use redis-cluster://"],
    );
    let group = Sentinel::start();
    let sentinel = &group.sentinels()[0];
    assert_reported(
        &sentinel.url(),
        &[],
        "arrangement",
        &["is a sentinel", "redis-sentinel://"],
    );
    let url = group.url().replace(Sentinel::NAME, "other");
    assert_reported(&url, &[], "arrangement", &["know no master with that name"]);
    let replica = group.replicas()[0].url();
    let output = run(&["doctor", "--store", &replica], "");
    assert_eq!(output.code, 1);
    assert!(
        output.stdout.contains("fail  role            a replica"),
        "{}",
        output.stdout
    );
}

#[test]
fn a_failed_tls_handshake_is_reported() {
    let expired = TlsServer::start_expired();
    let authority = expired.certificates().authority();
    let trust = ["--ca-cert", authority.to_str().unwrap()];
    assert_reported(
        &expired.url(User::Admin),
        &trust,
        "tls",
        &["has expired", "renew it"],
    );
    let tls = TlsServer::start(ClientCertificate::Required);
    let url = tls.url(User::Admin);
    let certificates = tls.certificates();
    let authority = certificates.authority();
    let trust = ["--ca-cert", authority.to_str().unwrap()];
    assert_reported(
        &url,
        &[],
        "tls",
        &["not signed by a trusted CA", "--ca-cert"],
    );
    let other_authority = certificates.other_authority();
    let other_authority = ["--ca-cert", other_authority.to_str().unwrap()];
    assert_reported(&url, &other_authority, "tls", &["certificate"]);
    assert_reported(
        &url,
        &trust,
        "tls",
        &["client certificate", "--client-cert"],
    );
    let plain = url.replace("rediss://", "redis://");
    assert_reported(&plain, &[], "tls", &["requires TLS", "use rediss://"]);
    let server = Server::start();
    let url = server.url().replace("redis://", "rediss://");
    assert_reported(&url, &[], "tls", &["does not support TLS", "use redis://"]);
}

#[test]
fn missing_permissions_are_reported() {
    let server = Server::start();
    server.add_user(User::Powerless);
    let (name, password) = (User::Powerless.name(), User::Powerless.password());
    let url = format!("redis://{name}:{password}@127.0.0.1:{}", server.port());
    assert_reported(&url, &[], "rights", &["ACL SETUSER"]);
    let output = run(&["doctor", "--store", &url], "");
    let words: Vec<&str> = output.stdout.split_whitespace().collect();
    let line = "ACL SETUSER powerless ~tallygate:* +eval +evalsha +script|load +set";
    assert!(words.join(" ").contains(line), "{}", output.stdout);
}

#[test]
fn an_old_server_is_reported() {
    let server = Server::start();
    let version = server.info("redis_version").unwrap();
    // The same server with an older version of the same length.
    let older = format!("6.0.{}", "9".repeat(version.len() - 4));
    let message = format!("version {older} is older than 6.2");
    let url = start_version_proxy(server.port(), &version, &older);
    for command in [&["replay", "--quota", "10/s"][..], &["race"]] {
        let output = run(&[command, &["--store", &url]].concat(), "");
        assert_eq!(output.code, 1);
        assert!(
            output.stderr.contains(&message) && output.stderr.contains("upgrade"),
            "{}",
            output.stderr
        );
    }
    let output = run(&["doctor", "--store", &url], "");
    assert_eq!(output.code, 1);
    let message = format!("fail  version         Redis {older} is older than 6.2");
    assert!(output.stdout.contains(&message), "{}", output.stdout);
    // Before version 6 there was no HELLO.
    let ancient = Server::start_with(&["--rename-command", "HELLO", ""]);
    assert_reported(
        &ancient.url(),
        &[],
        "version",
        &["HELLO", "upgrade it to Redis 6.2"],
    );
}

/// Starts a proxy that replaces the version, and returns its URL.
fn start_version_proxy(port: u16, version: &str, older: &str) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let (version, older) = (version.to_owned(), older.to_owned());
    thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.unwrap();
            let server = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
            forward(
                client.try_clone().unwrap(),
                server.try_clone().unwrap(),
                |text| text,
            );
            let (version, older) = (version.clone(), older.clone());
            forward(server, client, move |text| text.replace(&version, &older));
        }
    });
    url
}

fn forward(
    mut from: TcpStream,
    mut to: TcpStream,
    change: impl Fn(String) -> String + Send + 'static,
) {
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(n @ 1..) = from.read(&mut buffer) {
            // All traffic is text.
            let text = String::from_utf8(buffer[..n].to_vec()).unwrap();
            if to.write_all(change(text).as_bytes()).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}
