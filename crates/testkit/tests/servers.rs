//! Real servers: each kind starts, replies, fails on demand and recovers.
#![cfg(feature = "servers")]
#![allow(clippy::unwrap_used)]

use std::process::Command;
use std::time::Duration;

use tallygate_testkit::poll;
use tallygate_testkit::redis::{
    ClientCertificate, Cluster, Flavour, Sentinel, Server, TlsServer, User,
};
use tallygate_testkit::resp::{Connection, Reply};

const TIMEOUT: Duration = Duration::from_secs(30);

fn is_alive(pid: u32) -> bool {
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn a_server_starts_replies_and_ends_on_drop() {
    for flavour in Flavour::ALL {
        let server = Server::start_as(flavour, &["--maxmemory", "64mb"]);
        assert_eq!(server.command(&["SET", "k", "v"]).text(), "OK");
        let mut connection = Connection::to_port(server.port()).unwrap();
        assert_eq!(connection.command(&["GET", "k"]).unwrap().text(), "v");
        assert_eq!(server.info("maxmemory").unwrap(), "67108864");
        assert_eq!(server.command(&["DEBUG", "SLEEP", "0"]).text(), "OK");
        assert_eq!(server.command(&["TTL", "k"]), Reply::Integer(-1));
        assert!(server.command(&["NONSENSE"]).error().is_some());
        let pid = server.pid().unwrap();
        drop(server);
        assert!(!is_alive(pid));
    }
}

#[test]
fn each_flavour_reports_its_own_version() {
    for (flavour, field) in [
        (Flavour::Redis, "redis_version"),
        (Flavour::Valkey, "valkey_version"),
    ] {
        let (major, minor, patch) = flavour.version();
        let server = Server::start_as(flavour, &[]);
        let version = server.info(field).unwrap();
        assert_eq!(version, format!("{major}.{minor}.{patch}"));
    }
}

#[test]
fn a_server_ends_when_the_test_panics() {
    let pid = std::panic::catch_unwind(|| {
        let server = Server::start();
        std::panic::resume_unwind(Box::new(server.pid().unwrap()));
    })
    .unwrap_err();
    assert!(!is_alive(*pid.downcast::<u32>().unwrap()));
}

#[test]
fn a_server_restarts_on_its_port_with_or_without_its_data() {
    for flavour in Flavour::ALL {
        let server = Server::start_as(flavour, &[]);
        let url = server.url();
        server.command(&["SET", "k", "v"]);
        server.restart_with_data();
        assert_eq!(server.command(&["GET", "k"]).text(), "v");
        server.kill();
        assert!(!server.is_running());
        assert!(server.try_command(&["PING"]).is_err());
        server.restart();
        assert_eq!(server.command(&["GET", "k"]), Reply::Nil);
        assert_eq!(server.url(), url);
    }
}

#[test]
fn a_frozen_server_replies_after_it_is_resumed() {
    let server = Server::start();
    let mut connection = server.connect().unwrap();
    server.stop();
    connection.send(&["PING"]).unwrap();
    assert!(server.is_running() && !server.is_awake());
    server.resume();
    assert_eq!(connection.receive().unwrap().text(), "PONG");
    server.stop();
    server.kill();
    assert!(!server.is_running());
}

#[test]
fn a_loading_server_replies_with_an_error() {
    let server = Server::start_with(&[
        "--key-load-delay",
        "1000",
        "--loading-process-events-interval-bytes",
        "1024",
    ]);
    server.command(&["DEBUG", "POPULATE", "2000"]);
    server.restart_loading();
    let reply = server.command(&["GET", "key:1"]);
    assert!(reply.error().unwrap().starts_with("LOADING"), "{reply:?}");
    poll::until(TIMEOUT, "it has loaded", || {
        server.command(&["PING"]).error().is_none()
    });
    assert_eq!(server.command(&["DBSIZE"]), Reply::Integer(2000));
}

#[test]
fn a_server_can_be_made_busy_and_freed() {
    let server = Server::start_with(&["--busy-reply-threshold", "1"]);
    let mut busy = server.connect().unwrap();
    busy.send(&["EVAL", "while true do end", "0"]).unwrap();
    poll::until(TIMEOUT, "it is busy", || {
        let reply = server.command(&["PING"]);
        reply.error().is_some_and(|error| error.starts_with("BUSY"))
    });
    assert_eq!(server.command(&["SCRIPT", "KILL"]).text(), "OK");
    assert!(busy.receive().unwrap().error().is_some());
}

#[test]
fn the_url_contains_the_password() {
    let server = Server::start_with(&["--requirepass", "secret"]);
    assert!(server.url().starts_with("redis://:secret@127.0.0.1:"));
    assert_eq!(server.command(&["PING"]).text(), "PONG");
    let mut anonymous = Connection::to_port(server.port()).unwrap();
    let reply = anonymous.command(&["PING"]).unwrap();
    assert!(reply.error().unwrap().starts_with("NOAUTH"));
}

#[test]
fn users_have_the_expected_permissions() {
    let server = Server::start();
    User::ALL.iter().for_each(|&user| server.add_user(user));
    let try_as = |user: User, command: &[&str]| {
        let mut connection = Connection::to_port(server.port()).unwrap();
        let login = ["AUTH", user.name(), user.password()];
        assert_eq!(connection.command(&login).unwrap().text(), "OK");
        connection.command(command).unwrap()
    };
    let script = "return redis.call('SET', KEYS[1], 'v', 'PX', 1000)";
    let own = ["EVAL", script, "1", "tallygate:1:k"];
    let other = ["EVAL", script, "1", "other"];
    assert_eq!(try_as(User::Limited, &own).text(), "OK");
    for refused in [
        try_as(User::Limited, &other),
        try_as(User::Powerless, &own),
        try_as(User::Limited, &["FLUSHALL"]),
    ] {
        let error = refused.error().unwrap();
        assert!(error.contains("NOPERM"), "{error}");
    }
    assert_eq!(try_as(User::Admin, &other).text(), "OK");
}

/// Sends a PING with redis-cli, which verifies certificates.
fn tls_ping(tls: &TlsServer, more: &[&str]) -> String {
    let port = tls.server().port().to_string();
    let user = User::Limited;
    let output = Command::new("redis-cli")
        .args(["-h", "127.0.0.1", "-p", &port, "--tls", "--no-auth-warning"])
        .args(["--user", user.name(), "--pass", user.password()])
        .args(more)
        .arg("PING")
        .output()
        .unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    out + &err
}

#[test]
fn a_tls_server_requires_mutual_authentication() {
    let tls = TlsServer::start(ClientCertificate::Required);
    assert_eq!(tls.server().command(&["PING"]).text(), "PONG");
    let certificates = tls.certificates();
    let [ca, other_authority, certificate, key] = [
        certificates.authority(),
        certificates.other_authority(),
        certificates.client().certificate,
        certificates.client().key,
    ]
    .map(|path| path.display().to_string());
    let client_pair = ["--cert", &certificate, "--key", &key];
    let with = |ca| [&["--cacert", ca], &client_pair[..]].concat();
    assert_eq!(tls_ping(&tls, &with(&ca)), "PONG\n");
    let reply = tls_ping(&tls, &with(&other_authority));
    assert!(reply.contains("certificate verify failed"), "{reply}");
    let reply = tls_ping(&tls, &["--cacert", &ca]);
    assert!(!reply.contains("PONG"), "{reply}");

    let tls = TlsServer::start(ClientCertificate::Optional);
    let ca = tls.certificates().authority().display().to_string();
    assert_eq!(tls_ping(&tls, &["--cacert", &ca]), "PONG\n");
}

#[test]
fn an_expired_certificate_is_rejected() {
    let tls = TlsServer::start_expired();
    let ca = tls.certificates().authority().display().to_string();
    let reply = tls_ping(&tls, &["--cacert", &ca]);
    assert!(reply.contains("certificate verify failed"), "{reply}");
}

#[test]
fn sentinels_replace_a_killed_master() {
    for flavour in Flavour::ALL {
        let group = Sentinel::start_as(flavour, &["--requirepass", "secret"]);
        assert!(
            group
                .url()
                .starts_with("redis-sentinel://:secret@127.0.0.1:")
        );
        assert!(group.url().ends_with("/mymaster"));
        let old = group.master();
        old.command(&["SET", "k", "v"]);
        assert_eq!(old.command(&["WAIT", "2", "10000"]), Reply::Integer(2));
        let new = group.fail_over();
        assert_ne!(new.port(), old.port());
        assert_eq!(new.command(&["GET", "k"]).text(), "v");
        group.rejoin();
        let reply = old.command(&["SET", "k", "w"]);
        assert!(reply.error().unwrap().starts_with("READONLY"), "{reply:?}");
        assert_eq!(group.replicas().len(), 2);
    }
}

#[test]
fn a_cluster_moves_a_slot_and_replaces_a_master() {
    for flavour in Flavour::ALL {
        let cluster = Cluster::start_as(flavour, &[]);
        let slot = cluster.key_slot("{tag}1");
        let from = cluster.node_for_slot(slot);
        let to = (from + 1) % 3;
        for key in ["{tag}1", "{tag}2", "{tag}3"] {
            cluster.node(from).command(&["SET", key, "v"]);
        }
        let reply = cluster.node(to).command(&["GET", "{tag}1"]);
        assert!(reply.error().unwrap().starts_with("MOVED"), "{reply:?}");

        let migration = cluster.start_migration(slot, to);
        assert!(migration.move_key("{tag}1"));
        assert!(!migration.move_key("{tag}1"));
        let reply = cluster.node(from).command(&["GET", "{tag}1"]);
        assert!(reply.error().unwrap().starts_with("ASK"), "{reply:?}");
        let several = ["EVAL", "return 1", "2", "{tag}1", "{tag}2"];
        let reply = cluster.node(from).command(&several);
        assert!(reply.error().unwrap().starts_with("TRYAGAIN"), "{reply:?}");
        assert_eq!(migration.move_keys(), 2);
        migration.end();
        assert_eq!(cluster.node_for_slot(slot), to);
        assert_eq!(cluster.node(to).command(&["GET", "{tag}3"]).text(), "v");

        cluster.node(to).command(&["WAIT", "1", "10000"]);
        assert_eq!(cluster.kill_master(slot), to);
        cluster.settle();
        let new_master = cluster.node_for_slot(slot);
        assert_eq!(new_master, to + 3);
        assert_eq!(
            cluster.node(new_master).command(&["GET", "{tag}3"]).text(),
            "v"
        );
        cluster.rejoin();
        assert_eq!(cluster.masters().len(), 3);
    }
}
