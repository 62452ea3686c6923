//! Counters in Redis: shared by servers, and each policy when it is gone.

use tallygate_testkit::poll;
use tallygate_testkit::proxy::{Mode, Proxy};
use tallygate_testkit::redis::Server as Redis;

use super::{Folder, SOON, Server};

const RULES: &str = "\
version: 1
store: ${REDIS_URL}
rules:
  - { name: open, key: [ip], limits: sliding-window-log 2/h, on_failure: open }
  - { name: closed, key: [ip], limits: sliding-window-log 2/h, on_failure: closed }
  - { name: local, key: [ip], limits: sliding-window-log 2/h, on_failure: local }
";

fn start(url: &str, args: &[&str]) -> (Folder, Server) {
    let folder = Folder::new();
    let rules = folder.write("rules.yaml", RULES);
    let all = [&["--config", &rules][..], args].concat();
    let server = Server::start_as(&all, &[("REDIS_URL", url)]);
    (folder, server)
}

fn ready(server: &Server) {
    poll::until(SOON, "ready", || {
        server.admin("GET", "/readyz", "").status == 200
    });
}

fn ask(server: &Server, rule: &str) -> super::client::Answer {
    let body = format!(r#"{{"rule":"{rule}","attributes":{{"ip":"192.0.2.1"}}}}"#);
    server.check(&body)
}

#[test]
fn two_servers_share_one_count() {
    let redis = Redis::start();
    let (_one, first) = start(&redis.url(), &[]);
    let (_two, second) = start(&redis.url(), &[]);
    ready(&first);
    ready(&second);
    let own = r#"{"key":"ann","quota":"sliding-window-log 3/h"}"#;
    assert_eq!(first.check(own).json()["remaining"], 2);
    assert_eq!(second.check(own).json()["remaining"], 1);
    assert_eq!(first.check(own).json()["remaining"], 0);
    assert_eq!(second.check(own).status, 429);
    assert_eq!(
        first.admin("GET", "/admin/rules", "").json()["store"],
        "redis"
    );
    let path = "/admin/keys/ann?quota=sliding-window-log%203/h";
    first.admin("DELETE", path, "");
    assert_eq!(second.check(own).json()["remaining"], 2);
    assert!(second.metric("tallygate_store_duration_seconds_count{store=\"redis\"}") >= Some(3.0));
    assert_eq!(
        second.metric("tallygate_breaker_state{server=\"redis\"}"),
        Some(0.0)
    );
    let batch = format!("[{own},{own},{own}]");
    let statuses: Vec<_> = second
        .post("/v1/check/batch", &batch)
        .json()
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["status"].as_u64().unwrap())
        .collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 2);
}

#[test]
fn a_store_that_is_gone_is_met_by_policy_and_never_by_429() {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.port());
    let (_folder, server) = start(&proxy.url(), &[]);
    ready(&server);
    assert_eq!(ask(&server, "closed").status, 200);
    for mode in [Mode::Refuse, Mode::BlackHole] {
        proxy.set(mode);
        poll::until(SOON, "it is noticed", || {
            ask(&server, "open").json()["degraded"] == true
        });
        for _ in 0..8 {
            let open = ask(&server, "open");
            assert_eq!(open.status, 200);
            assert_eq!(open.json()["degraded"], true);
            let closed = ask(&server, "closed");
            assert_eq!(
                (closed.status, closed.code().as_str()),
                (503, "store-unavailable")
            );
            let own = server.check(r#"{"key":"a","quota":"sliding-window-log 1/h"}"#);
            assert_eq!((own.status, &own.json()["degraded"]), (200, &true.into()));
        }
        let told = server.post(
            "/v1/check?status=200",
            r#"{"rule":"closed","attributes":{"ip":"192.0.2.1"}}"#,
        );
        assert_eq!(told.status, 200);
        assert_eq!(
            (&told.json()["allowed"], &told.json()["degraded"]),
            (&false.into(), &true.into())
        );
        poll::until(SOON, "the breaker", || {
            let _ = ask(&server, "open");
            server.metric("tallygate_breaker_state{server=\"redis\"}") == Some(1.0)
        });
        // It serves by policy: taking it out of rotation would help nobody.
        assert_eq!(server.admin("GET", "/readyz", "").status, 200);
        assert_eq!(
            server.admin("GET", "/admin/keys/a", "").code(),
            "store-unavailable"
        );
        proxy.set(Mode::Pass);
        poll::until(SOON, "it is back", || {
            ask(&server, "open").json()["degraded"] == false
        });
    }
    let text = server.admin("GET", "/metrics", "").body;
    let errors: f64 = text
        .lines()
        .filter(|line| line.starts_with("tallygate_store_errors_total"))
        .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
        .sum();
    assert!(errors >= 1.0);
    for outcome in ["degraded_admitted", "degraded_refused"] {
        let rule = if outcome.ends_with("refused") {
            "closed"
        } else {
            "open"
        };
        let series = format!("tallygate_decisions_total{{outcome=\"{outcome}\",rule=\"{rule}\"}}");
        assert!(server.metric(&series) >= Some(8.0), "{outcome}");
    }
}

#[test]
fn counts_of_this_process_stand_in_where_the_policy_is_local() {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.port());
    let (_folder, server) = start(&proxy.url(), &[]);
    ready(&server);
    proxy.set(Mode::Refuse);
    poll::until(SOON, "it is noticed", || {
        ask(&server, "open").json()["degraded"] == true
    });
    let statuses: Vec<u16> = (0..4).map(|_| ask(&server, "local").status).collect();
    assert_eq!(statuses, [200, 200, 429, 429]);
    assert_eq!(ask(&server, "local").json()["degraded"], true);
}

#[test]
fn it_starts_without_its_store_and_says_so() {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.port());
    proxy.set(Mode::Refuse);
    let (_folder, server) = start(&proxy.url(), &["--on-failure", "closed"]);
    let not_ready = server.admin("GET", "/readyz", "");
    assert_eq!(not_ready.status, 503);
    assert_eq!(server.admin("GET", "/healthz", "").status, 200);
    let own = r#"{"key":"a","quota":"5/h"}"#;
    assert_eq!(server.check(own).code(), "store-unavailable");
    assert_eq!(ask(&server, "open").status, 200);
    proxy.set(Mode::Pass);
    ready(&server);
    poll::until(SOON, "it counts", || server.check(own).status == 200);
}

#[test]
fn the_flag_goes_before_the_file() {
    let (_folder, server) = start("redis://nowhere.invalid", &["--store", "memory"]);
    assert_eq!(
        server.admin("GET", "/admin/rules", "").json()["store"],
        "memory"
    );
    assert_eq!(ask(&server, "closed").json()["degraded"], false);
}

#[test]
fn a_password_is_said_nowhere() {
    let url = "redis://ann:s3cr3t@127.0.0.1:1/0";
    let folder = Folder::new();
    let rules = folder.write("rules.yaml", RULES);
    let args = ["--config", rules.as_str()];
    let server = Server::start_as(&args, &[("REDIS_URL", url), ("TALLYGATE_LOG", "trace")]);
    poll::until(SOON, "it complains", || server.said().contains("not ready"));
    ask(&server, "closed");
    let shown = server.admin("GET", "/admin/rules", "").body;
    assert!(!server.said().contains("s3cr3t") && !shown.contains("s3cr3t"));
}
