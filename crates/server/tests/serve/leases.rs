//! Leased rules in `serve`: answers say so, metrics count, shutdown returns what is left.

use tallygate_testkit::poll;
use tallygate_testkit::redis::{Cluster, Server as Redis};

use super::{Server, TIMEOUT, TempDir};

#[test]
fn shutdown_returns_what_is_left_of_leases_to_one_server() {
    shutdown_returns_what_is_left_of_leases(&Redis::start().url());
}

#[test]
fn shutdown_returns_what_is_left_of_leases_to_shards() {
    let servers = [Redis::start(), Redis::start()];
    let hosts = servers.each_ref().map(|server| {
        let port = server.port();
        format!("127.0.0.1:{port}")
    });
    shutdown_returns_what_is_left_of_leases(&format!("redis+shards://{}", hosts.join(",")));
}

#[test]
fn shutdown_returns_what_is_left_of_leases_to_a_cluster() {
    shutdown_returns_what_is_left_of_leases(&Cluster::start().url());
}

/// The window never ends during a test, and the lease is not returned for idleness.
const RULES: &str = "\
version: 1
store: ${REDIS_URL}
rules:
  - name: api
    key: [ip]
    limits: fixed-window 40000/366d
    lease: { max: 500, hold: 1min }
    on_failure: { policy: closed, deadline: 10s }
";

fn body(verb: &str) -> String {
    format!(r#"{{"rule":"api","attributes":{{"ip":"192.0.2.1"}},"verb":"{verb}"}}"#)
}

fn shutdown_returns_what_is_left_of_leases(url: &str) {
    let folder = TempDir::new();
    let rules = folder.write("rules.yaml", RULES);
    let start = || Server::start_with_env(&["--config", &rules], &[("REDIS_URL", url)]);
    let mut server = start();
    let mut admitted = 0;
    poll::until(TIMEOUT, "decisions are leased", || {
        let answer = server.check(&body("check"));
        admitted += u32::from(answer.status == 200);
        answer.json()["leased"] == true
    });
    for _ in 0..5 {
        let answer = server.check(&body("check"));
        assert_eq!(
            (answer.status, &answer.json()["leased"]),
            (200, &true.into())
        );
        admitted += 1;
    }
    let metric = |series: &str| server.metric(series).unwrap();
    assert_eq!(metric("tallygate_leased_decisions_total"), 6.0);
    assert!(metric("tallygate_leases_total") >= 1.0);
    let outstanding = metric("tallygate_leased_units_outstanding");
    assert!(outstanding > 400.0, "{outstanding}");
    let remaining = |server: &Server| server.check(&body("peek")).json()["remaining"].clone();
    assert!(remaining(&server).as_u64().unwrap() < 40_000 - 400);
    server.signal("-TERM");
    assert!(server.wait().success());
    let next = start();
    poll::until(TIMEOUT, "ready", || {
        next.admin("GET", "/readyz", "").status == 200
    });
    assert_eq!(remaining(&next), 40_000 - admitted);
}
