//! Failover of a master that fails or hangs.

use std::time::Duration;

use tallygate_testkit::poll;
use tallygate_testkit::redis::{FakeNode, Flavour, Sentinel, Server};

use crate::fixtures::{TIMEOUT, block_on, builder, connected, every_key_expires, limits_are_exact};
use crate::traffic::{DEFAULT_DEADLINE, Data, Traffic};

#[test]
fn a_failover_is_followed() {
    for flavour in Flavour::ALL {
        let group = Sentinel::start_as(flavour, &["--requirepass", "secret"]);
        let store = connected(builder(&group.url()).response_timeout(Duration::from_secs(1)));
        let traffic = Traffic::start(&store, DEFAULT_DEADLINE);
        let new = group.fail_over();
        traffic.finish(Data::Lost);
        every_key_expires(new);
        group.rejoin();
    }
}

#[test]
fn a_hanging_master_is_replaced() {
    let group = Sentinel::start();
    let store = connected(builder(&group.url()).response_timeout(Duration::from_secs(1)));
    let traffic = Traffic::start(&store, DEFAULT_DEADLINE);
    let old = group.master();
    old.stop();
    poll::until(TIMEOUT, "another master is named", || {
        group.master().port() != old.port()
    });
    traffic.wait_healthy();
    // It returns as a master without replicas, and is demoted.
    old.resume();
    poll::until(TIMEOUT, "it is a replica", || {
        old.info("role").as_deref() == Some("slave")
    });
    traffic.finish(Data::Lost);
    group.nodes().iter().for_each(every_key_expires);
}

#[test]
fn a_demoted_master_is_replaced() {
    let group = Sentinel::start();
    let store = connected(builder(&group.url()).response_timeout(Duration::from_secs(1)));
    let traffic = Traffic::start(&store, DEFAULT_DEADLINE);
    let old = group.master().port();
    let sentinel = &group.sentinels()[0];
    let reply = sentinel.command(&["SENTINEL", "FAILOVER", Sentinel::NAME]);
    assert_eq!(reply.text(), "OK");
    poll::until(TIMEOUT, "another master is named", || {
        group.master().port() != old
    });
    traffic.finish(Data::Lost);
    group.nodes().iter().for_each(every_key_expires);
}

#[test]
fn sentinels_with_a_password_are_asked_and_followed() {
    for flavour in Flavour::ALL {
        let master = ["--requirepass", "master-secret"];
        let group = Sentinel::start_protected(flavour, &master, Some("sentinel-secret"));
        let store = connected(builder(&group.url()).response_timeout(Duration::from_secs(1)));
        let url = group.url();
        let (without, _) = url.split_once('?').unwrap();
        let wrong = format!("{without}?sentinel_password=not-secret");
        for url in [without, &wrong] {
            let error = block_on(builder(url).connect()).unwrap_err();
            let shown = format!("{error} {error:?}");
            assert!(
                matches!(error.code(), Some("NOAUTH" | "WRONGPASS")),
                "{shown}"
            );
            assert!(!shown.contains("secret"), "{shown}");
        }
        let traffic = Traffic::start(&store, DEFAULT_DEADLINE);
        group.fail_over();
        traffic.finish(Data::Lost);
    }
}

/// A sentinel that names a port as the master.
fn naming(port: u16) -> FakeNode {
    let node = FakeNode::to(port);
    node.reply(move |command| {
        let digits = port.to_string();
        let len = digits.len();
        command
            .starts_with("SENTINEL")
            .then(|| format!("*2\r\n$9\r\n127.0.0.1\r\n${len}\r\n{digits}\r\n"))
    });
    node
}

#[test]
fn sentinels_that_disagree_are_outvoted_or_verified() {
    let master = Server::start();
    let port = master.port().to_string();
    let replica = Server::start_with(&["--replicaof", "127.0.0.1", &port]);
    let (right, wrong) = (master.port(), replica.port());
    // Accepts connections and never replies.
    let hanging = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let hanging = hanging.local_addr().unwrap().port();
    for named in [
        &[wrong, right, right][..],
        &[wrong, right],
        &[wrong, 1, right],
    ] {
        let sentinels: Vec<FakeNode> = named.iter().map(|&port| naming(port)).collect();
        let ports = sentinels.iter().map(FakeNode::port).chain([hanging]);
        let hosts: Vec<String> = ports.map(|port| format!("127.0.0.1:{port}")).collect();
        let url = format!("redis-sentinel://{}/main", hosts.join(","));
        let store = connected(builder(&url));
        limits_are_exact(&store);
    }
}
