//! Stores that cannot be used: replay, race and doctor report the problem and advice, without
//! secrets.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::thread;

use tallygate_testkit::redis::{ClientCertificate, Cluster, Sentinel, Server, TlsServer, User};

use crate::run;

/// Checks the message of all three commands, and the failed check of doctor.
#[track_caller]
fn refused(url: &str, more: &[&str], check: &str, says: &[&str]) {
    let replay = ["replay", "--quota", "10/s", "--store", url];
    for (command, code) in [
        (&replay[..], 1),
        (&["race", "--clients", "2", "--store", url][..], 1),
        (&["doctor", "--store", url][..], 1),
    ] {
        let args = [command, more].concat();
        let ran = run(&args, "{\"t_us\":0,\"key\":\"a\"}\n");
        let output = match command[0] {
            "doctor" => {
                let failed = format!("fail  {check:<14}  ");
                assert!(
                    ran.out.contains(&failed),
                    "{check} did not fail:\n{}",
                    ran.out
                );
                assert!(ran.out.ends_with(".\n") && ran.out.contains("Not healthy: "));
                &ran.out
            }
            _ => &ran.err,
        };
        assert_eq!(ran.code, code, "{}: {output}", command[0]);
        let words: Vec<&str> = output.split_whitespace().collect();
        let words = words.join(" ");
        for says in says {
            assert!(words.contains(says), "{} says: {output}", command[0]);
        }
        for secret in ["hunter2", "-secret"] {
            assert!(!output.contains(secret), "{output}");
        }
    }
}

#[test]
fn an_invalid_url() {
    for url in [
        "postgres://:hunter2@localhost",
        "hunter2",
        "redis://a,hunter2",
    ] {
        for command in [&["replay", "--quota", "10/s"][..], &["race"]] {
            let ran = run(&[command, &["--store", url]].concat(), "");
            assert_eq!(ran.code, 2, "{}", ran.err);
            assert!(ran.err.contains("invalid store URL"), "{}", ran.err);
            assert!(!ran.err.contains("hunter2"), "{}", ran.err);
        }
        let ran = run(&["doctor", "--store", url], "");
        assert_eq!(ran.code, 1);
        assert!(ran.out.contains("fail  url") && !ran.out.contains("hunter2"));
    }
}

#[test]
fn unreadable_certificates() {
    let ran = run(
        &[
            "doctor",
            "--store",
            "rediss://localhost",
            "--ca-cert",
            "/no/such",
        ],
        "",
    );
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("cannot read /no/such"), "{}", ran.err);
}

#[test]
fn an_unreachable_server() {
    let server = Server::start();
    let url = server.url();
    server.kill();
    refused(
        &url,
        &[],
        "connection",
        &["connection refused", "is the server up"],
    );
    let hidden = "redis://:hunter2@tallygate.invalid";
    refused(
        hidden,
        &[],
        "connection",
        &["the host name cannot be resolved"],
    );
    refused(
        "unix:///no/such.sock",
        &[],
        "connection",
        &["no such socket"],
    );
}

#[test]
fn a_wrong_or_missing_password() {
    let server = Server::start_with(&["--requirepass", "hunter2"]);
    let port = server.port();
    let wrong = format!("redis://:hunter2x@127.0.0.1:{port}");
    refused(
        &wrong,
        &[],
        "sign-in",
        &["WRONGPASS", "correct it in the URL"],
    );
    let missing = format!("redis://127.0.0.1:{port}");
    refused(&missing, &[], "sign-in", &["NOAUTH", "add it to the URL"]);
    let database = format!("redis://:hunter2@127.0.0.1:{port}/99");
    refused(&database, &[], "sign-in", &["no database with that number"]);
}

#[test]
fn a_wrong_topology() {
    let server = Server::start();
    let port = server.port();
    let cluster = format!("redis-cluster://127.0.0.1:{port}");
    refused(
        &cluster,
        &[],
        "arrangement",
        &["not part of a cluster", "use redis://"],
    );
    let sentinel = format!("redis-sentinel://127.0.0.1:{port}/mymaster");
    refused(&sentinel, &[], "arrangement", &["not a sentinel"]);
    let cluster = Cluster::start();
    let url = cluster.node(0).url();
    refused(
        &url,
        &[],
        "arrangement",
        &["is part of a cluster", "use redis-cluster://"],
    );
    let group = Sentinel::start();
    let sentinel = &group.sentinels()[0];
    refused(
        &sentinel.url(),
        &[],
        "arrangement",
        &["is a sentinel", "redis-sentinel://"],
    );
    let url = group.url().replace(Sentinel::NAME, "other");
    refused(&url, &[], "arrangement", &["know no master with that name"]);
    let replica = group.replicas()[0].url();
    let ran = run(&["doctor", "--store", &replica], "");
    assert_eq!(ran.code, 1);
    assert!(
        ran.out.contains("fail  role            a replica"),
        "{}",
        ran.out
    );
}

#[test]
fn a_failed_tls_handshake() {
    let expired = TlsServer::start_expired();
    let authority = expired.certificates().authority();
    let trust = ["--ca-cert", authority.to_str().unwrap()];
    refused(
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
    refused(
        &url,
        &[],
        "tls",
        &["not signed by a trusted CA", "--ca-cert"],
    );
    let stranger = certificates.stranger();
    let stranger = ["--ca-cert", stranger.to_str().unwrap()];
    refused(&url, &stranger, "tls", &["certificate"]);
    refused(
        &url,
        &trust,
        "tls",
        &["client certificate", "--client-cert"],
    );
    let plain = url.replace("rediss://", "redis://");
    refused(&plain, &[], "tls", &["TLS (rediss://)"]);
    let server = Server::start();
    let url = server.url().replace("redis://", "rediss://");
    refused(&url, &[], "tls", &["TLS", "redis://"]);
}

#[test]
fn a_user_without_permissions() {
    let server = Server::start();
    server.add_user(User::Powerless);
    let (name, password) = (User::Powerless.name(), User::Powerless.password());
    let url = format!("redis://{name}:{password}@127.0.0.1:{}", server.port());
    refused(&url, &[], "rights", &["ACL SETUSER"]);
    let ran = run(&["doctor", "--store", &url], "");
    let words: Vec<&str> = ran.out.split_whitespace().collect();
    let line = "ACL SETUSER powerless ~tallygate:* +eval +evalsha +set";
    assert!(words.join(" ").contains(line), "{}", ran.out);
}

#[test]
fn an_old_server() {
    let server = Server::start();
    let version = server.info("redis_version").unwrap();
    // The same server with an older version of the same length.
    let older = format!("6.0.{}", "9".repeat(version.len() - 4));
    let says = format!("version {older} is older than 6.2");
    let url = older_version(server.port(), &version, &older);
    for command in [&["replay", "--quota", "10/s"][..], &["race"]] {
        let ran = run(&[command, &["--store", &url]].concat(), "");
        assert_eq!(ran.code, 1);
        assert!(
            ran.err.contains(&says) && ran.err.contains("upgrade"),
            "{}",
            ran.err
        );
    }
    let ran = run(&["doctor", "--store", &url], "");
    assert_eq!(ran.code, 1);
    let says = format!("fail  version         Redis {older} is older than 6.2");
    assert!(ran.out.contains(&says), "{}", ran.out);
    // Before version 6 there was no HELLO.
    let ancient = Server::start_with(&["--rename-command", "HELLO", ""]);
    refused(
        &ancient.url(),
        &[],
        "version",
        &["HELLO", "upgrade it to Redis 6.2"],
    );
}

/// Forwards everything, but replaces the version.
fn older_version(port: u16, version: &str, older: &str) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let (version, older) = (version.to_owned(), older.to_owned());
    thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.unwrap();
            let server = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
            pass(
                client.try_clone().unwrap(),
                server.try_clone().unwrap(),
                |text| text,
            );
            let (version, older) = (version.clone(), older.clone());
            pass(server, client, move |text| text.replace(&version, &older));
        }
    });
    url
}

fn pass(
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
