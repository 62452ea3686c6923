//! Real servers: each kind starts, answers, breaks as asked and comes back.
#![cfg(feature = "servers")]
#![allow(clippy::unwrap_used)]

use std::process::Command;
use std::time::Duration;

use tallygate_testkit::poll;
use tallygate_testkit::redis::{
    ClientCertificate, Cluster, Flavour, Sentinel, Server, TlsServer, User,
};
use tallygate_testkit::resp::{Connection, Reply};

const PATIENCE: Duration = Duration::from_secs(30);

fn is_alive(pid: u32) -> bool {
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn a_server_starts_answers_and_ends_with_its_value() {
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
fn the_flavours_are_what_they_say() {
    for (flavour, field) in [
        (Flavour::Redis, "redis_version"),
        (Flavour::Valkey, "valkey_version"),
    ] {
        let (major, minor, patch) = flavour.version();
        let server = Server::start_as(flavour, &[]);
        let said = server.info(field).unwrap();
        assert_eq!(said, format!("{major}.{minor}.{patch}"));
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
fn a_server_comes_back_on_its_port_with_or_without_its_data() {
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
fn a_frozen_server_answers_later() {
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
fn a_server_can_be_met_while_it_loads() {
    let server = Server::start_with(&[
        "--key-load-delay",
        "1000",
        "--loading-process-events-interval-bytes",
        "1024",
    ]);
    server.command(&["DEBUG", "POPULATE", "2000"]);
    server.restart_loading();
    let said = server.command(&["GET", "key:1"]);
    assert!(said.error().unwrap().starts_with("LOADING"), "{said:?}");
    poll::until(PATIENCE, "it has loaded", || {
        server.command(&["PING"]).error().is_none()
    });
    assert_eq!(server.command(&["DBSIZE"]), Reply::Integer(2000));
}

#[test]
fn a_busy_server_can_be_made_and_freed() {
    let server = Server::start_with(&["--busy-reply-threshold", "1"]);
    let mut busy = server.connect().unwrap();
    busy.send(&["EVAL", "while true do end", "0"]).unwrap();
    poll::until(PATIENCE, "it is busy", || {
        let said = server.command(&["PING"]);
        said.error().is_some_and(|said| said.starts_with("BUSY"))
    });
    assert_eq!(server.command(&["SCRIPT", "KILL"]).text(), "OK");
    assert!(busy.receive().unwrap().error().is_some());
}

#[test]
fn a_password_is_in_the_url() {
    let server = Server::start_with(&["--requirepass", "secret"]);
    assert!(server.url().starts_with("redis://:secret@127.0.0.1:"));
    assert_eq!(server.command(&["PING"]).text(), "PONG");
    let mut stranger = Connection::to_port(server.port()).unwrap();
    let said = stranger.command(&["PING"]).unwrap();
    assert!(said.error().unwrap().starts_with("NOAUTH"));
}

#[test]
fn users_have_the_rights_they_should() {
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
        let said = refused.error().unwrap();
        assert!(said.contains("NOPERM"), "{said}");
    }
    assert_eq!(try_as(User::Admin, &other).text(), "OK");
}

/// Asks through the system's own client, which checks certificates.
fn ask_securely(tls: &TlsServer, more: &[&str]) -> String {
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
fn a_secured_server_wants_trust_both_ways() {
    let tls = TlsServer::start(ClientCertificate::Required);
    assert_eq!(tls.server().command(&["PING"]).text(), "PONG");
    let certificates = tls.certificates();
    let [ca, stranger, certificate, key] = [
        certificates.authority(),
        certificates.stranger(),
        certificates.client().certificate,
        certificates.client().key,
    ]
    .map(|path| path.display().to_string());
    let shown = ["--cert", &certificate, "--key", &key];
    let with = |ca| [&["--cacert", ca], &shown[..]].concat();
    assert_eq!(ask_securely(&tls, &with(&ca)), "PONG\n");
    let said = ask_securely(&tls, &with(&stranger));
    assert!(said.contains("certificate verify failed"), "{said}");
    let said = ask_securely(&tls, &["--cacert", &ca]);
    assert!(!said.contains("PONG"), "{said}");

    let tls = TlsServer::start(ClientCertificate::Optional);
    let ca = tls.certificates().authority().display().to_string();
    assert_eq!(ask_securely(&tls, &["--cacert", &ca]), "PONG\n");
}

#[test]
fn an_expired_certificate_is_shown_as_such() {
    let tls = TlsServer::start_expired();
    let ca = tls.certificates().authority().display().to_string();
    let said = ask_securely(&tls, &["--cacert", &ca]);
    assert!(said.contains("certificate verify failed"), "{said}");
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
        let said = old.command(&["SET", "k", "w"]);
        assert!(said.error().unwrap().starts_with("READONLY"), "{said:?}");
        assert_eq!(group.replicas().len(), 2);
    }
}

#[test]
fn a_cluster_moves_a_slot_and_replaces_a_master() {
    for flavour in Flavour::ALL {
        let cluster = Cluster::start_as(flavour, &[]);
        let slot = cluster.slot_of("{tag}1");
        let from = cluster.node_for_slot(slot);
        let to = (from + 1) % 3;
        for key in ["{tag}1", "{tag}2", "{tag}3"] {
            cluster.node(from).command(&["SET", key, "v"]);
        }
        let said = cluster.node(to).command(&["GET", "{tag}1"]);
        assert!(said.error().unwrap().starts_with("MOVED"), "{said:?}");

        let moving = cluster.start_migration(slot, to);
        assert!(moving.move_key("{tag}1"));
        assert!(!moving.move_key("{tag}1"));
        let said = cluster.node(from).command(&["GET", "{tag}1"]);
        assert!(said.error().unwrap().starts_with("ASK"), "{said:?}");
        let several = ["EVAL", "return 1", "2", "{tag}1", "{tag}2"];
        let said = cluster.node(from).command(&several);
        assert!(said.error().unwrap().starts_with("TRYAGAIN"), "{said:?}");
        assert_eq!(moving.move_keys(), 2);
        moving.end();
        assert_eq!(cluster.node_for_slot(slot), to);
        assert_eq!(cluster.node(to).command(&["GET", "{tag}3"]).text(), "v");

        cluster.node(to).command(&["WAIT", "1", "10000"]);
        assert_eq!(cluster.kill_master(slot), to);
        cluster.settle();
        let heir = cluster.node_for_slot(slot);
        assert_eq!(heir, to + 3);
        assert_eq!(cluster.node(heir).command(&["GET", "{tag}3"]).text(), "v");
        cluster.rejoin();
        assert_eq!(cluster.masters().len(), 3);
    }
}
