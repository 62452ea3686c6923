//! Counters in Redis: shared by servers, and the failure policies during an outage.

use serde_json::json;
use tallygate_testkit::poll;
use tallygate_testkit::proxy::{Mode, Proxy};
use tallygate_testkit::redis::{Cluster, Server as Redis};

use super::{Server, TIMEOUT, TempDir};

const RULES: &str = "\
version: 1
store: ${REDIS_URL}
rules:
  - { name: open, key: [ip], limits: sliding-window-log 2/h, on_failure: open }
  - { name: closed, key: [ip], limits: sliding-window-log 2/h, on_failure: closed }
  - { name: local, key: [ip], limits: sliding-window-log 2/h, on_failure: local }
";

fn start(url: &str, args: &[&str]) -> (TempDir, Server) {
    let folder = TempDir::new();
    let rules = folder.write("rules.yaml", RULES);
    let all = [&["--config", &rules][..], args].concat();
    let server = Server::start_with_env(&all, &[("REDIS_URL", url)]);
    (folder, server)
}

fn breaker(port: u16) -> String {
    format!("tallygate_breaker_state{{server=\"127.0.0.1:{port}\"}}")
}

fn wait_until_ready(server: &Server) {
    poll::until(TIMEOUT, "ready", || {
        server.admin("GET", "/readyz", "").status == 200
    });
}

fn send(server: &Server, rule: &str) -> super::client::Response {
    let body = format!(r#"{{"rule":"{rule}","attributes":{{"ip":"192.0.2.1"}}}}"#);
    server.check(&body)
}

#[test]
fn two_servers_share_one_count() {
    let redis = Redis::start();
    let (_one, first) = start(&redis.url(), &[]);
    let (_two, second) = start(&redis.url(), &[]);
    wait_until_ready(&first);
    wait_until_ready(&second);
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
    // The refusal cache of the other server may not have noticed for a second.
    poll::until(TIMEOUT, "the reset", || {
        second.check(own).json()["remaining"] == 2
    });
    assert!(second.metric("tallygate_store_duration_seconds_count{store=\"redis\"}") >= Some(3.0));
    assert_eq!(second.metric(&breaker(redis.port())), Some(0.0));
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
fn counters_under_hash_tags_are_shared_inspected_and_reset() {
    let cluster = Cluster::start();
    let rules = format!(
        "version: 1\nstore: {{ url: \"{}\", hash_tags: true }}\nrules:\n  \
         - {{ name: open, key: [ip], limits: sliding-window-log 2/h }}\n",
        cluster.url()
    );
    let folder = TempDir::new();
    let path = folder.write("rules.yaml", &rules);
    let servers = [0, 1].map(|_| Server::start(&["--config", &path]));
    servers.iter().for_each(wait_until_ready);
    let [first, second] = &servers;
    assert_eq!(send(first, "open").json()["remaining"], 1);
    assert_eq!(send(second, "open").json()["remaining"], 0);
    let key = first.admin("GET", "/admin/keys/192.0.2.1", "").json();
    assert_eq!(key["counters"][0]["remaining"], 0, "{key}");
    let reset = second.admin("DELETE", "/admin/keys/192.0.2.1", "");
    assert_eq!(reset.status, 200);
    poll::until(TIMEOUT, "the reset", || {
        send(first, "open").json()["allowed"] == true
    });
    let stored: Vec<String> = (0..3)
        .flat_map(|node| {
            let keys = cluster.node(node).command(&["KEYS", "tallygate:2:*"]);
            let texts = keys.array().iter().map(|key| key.text().to_owned());
            texts.collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(stored.len(), 1, "{stored:?}");
    assert!(stored[0].contains("}{192.0.2.1}"), "{stored:?}");
}

#[test]
fn an_outage_is_handled_by_policy_and_never_by_429() {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.port());
    let (_folder, server) = start(&proxy.url(), &["--on-failure", "open"]);
    wait_until_ready(&server);
    assert_eq!(send(&server, "closed").status, 200);
    let breaker = breaker(proxy.port());
    for mode in [Mode::Refuse, Mode::BlackHole] {
        proxy.set(mode);
        // Until the server counts as down, a missed deadline is overload.
        poll::until(TIMEOUT, "the breaker", || {
            let _ = send(&server, "open");
            server.metric(&breaker) == Some(1.0)
        });
        for _ in 0..8 {
            let open = send(&server, "open");
            assert_eq!(open.status, 200);
            assert_eq!(open.json()["degraded"], true);
            let closed = send(&server, "closed");
            assert_eq!(
                (closed.status, closed.code().as_str()),
                (503, "store-unavailable")
            );
            let own = server.check(r#"{"key":"a","quota":"sliding-window-log 1/h"}"#);
            assert_eq!((own.status, &own.json()["degraded"]), (200, &true.into()));
        }
        let always_200 = server.post(
            "/v1/check?status=200",
            r#"{"rule":"closed","attributes":{"ip":"192.0.2.1"}}"#,
        );
        assert_eq!(always_200.status, 200);
        assert_eq!(
            (
                &always_200.json()["allowed"],
                &always_200.json()["degraded"]
            ),
            (&false.into(), &true.into())
        );
        // Still ready: other servers have lost the store too.
        assert_eq!(server.admin("GET", "/readyz", "").status, 200);
        assert_eq!(
            server.admin("GET", "/admin/keys/a", "").code(),
            "store-unavailable"
        );
        proxy.set(Mode::Pass);
        poll::until(TIMEOUT, "recovery", || {
            send(&server, "open").json()["degraded"] == false
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
fn the_local_policy_counts_in_this_process() {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.port());
    let (_folder, server) = start(&proxy.url(), &[]);
    wait_until_ready(&server);
    proxy.set(Mode::Refuse);
    poll::until(TIMEOUT, "the outage", || {
        send(&server, "open").json()["degraded"] == true
    });
    let statuses: Vec<u16> = (0..4).map(|_| send(&server, "local").status).collect();
    assert_eq!(statuses, [200, 200, 429, 429]);
    assert_eq!(send(&server, "local").json()["degraded"], true);
}

#[test]
fn a_server_without_its_store_starts_but_is_not_ready() {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.port());
    proxy.set(Mode::Refuse);
    let (_folder, server) = start(&proxy.url(), &["--on-failure", "closed"]);
    let not_ready = server.admin("GET", "/readyz", "");
    assert_eq!(not_ready.status, 503);
    let body = not_ready.json();
    assert_eq!(body["status"], "not ready");
    assert_eq!(body["store"], "unreached");
    assert_eq!(body["why"], "the store has not answered yet");
    poll::until(TIMEOUT, "the reason", || {
        server.admin("GET", "/readyz", "").json()["error"] == "unreachable"
    });
    // For those who would rather serve without the store.
    let optional = server.admin("GET", "/readyz?store=optional", "");
    assert_eq!(
        (optional.status, &optional.json()["store"]),
        (200, &"unreached".into())
    );
    for query in [
        "?store=required",
        "?shop=optional",
        "?store=optional&store=optional",
    ] {
        let wrong = server.admin("GET", &format!("/readyz{query}"), "");
        assert_eq!(
            (wrong.status, wrong.code().as_str()),
            (400, "bad-query"),
            "{query}"
        );
    }
    assert_eq!(server.admin("GET", "/healthz", "").status, 200);
    let own = r#"{"key":"a","quota":"5/h"}"#;
    assert_eq!(server.check(own).code(), "store-unavailable");
    assert_eq!(send(&server, "open").status, 200);
    proxy.set(Mode::Pass);
    wait_until_ready(&server);
    poll::until(TIMEOUT, "the store", || server.check(own).status == 200);
}

#[test]
fn readiness_reports_a_lost_store_without_any_traffic() {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.port());
    let (_folder, server) = start(&proxy.url(), &[]);
    wait_until_ready(&server);
    let store = || {
        let ready = server.admin("GET", "/readyz", "");
        assert_eq!(ready.status, 200);
        ready.json()
    };
    poll::until(TIMEOUT, "up", || {
        store() == json!({"status": "ready", "store": "up"})
    });
    proxy.set(Mode::Refuse);
    poll::until(TIMEOUT, "down", || {
        store() == json!({"status": "ready", "store": "down", "error": "unreachable"})
    });
    proxy.set(Mode::Pass);
    poll::until(TIMEOUT, "up again", || store()["store"] == "up");
}

#[test]
fn the_store_flag_overrides_the_file() {
    let (_folder, server) = start("redis://nowhere.invalid", &["--store", "memory"]);
    assert_eq!(
        server.admin("GET", "/admin/rules", "").json()["store"],
        "memory"
    );
    assert_eq!(send(&server, "closed").json()["degraded"], false);
}

#[test]
fn a_password_is_never_shown() {
    let url = "redis://ann:s3cr3t@127.0.0.1:1/0";
    let folder = TempDir::new();
    let rules = folder.write("rules.yaml", RULES);
    let args = ["--config", rules.as_str()];
    let server = Server::start_with_env(&args, &[("REDIS_URL", url), ("TALLYGATE_LOG", "trace")]);
    poll::until(TIMEOUT, "the warning", || {
        server.stderr().contains("not ready")
    });
    send(&server, "closed");
    let shown = server.admin("GET", "/admin/rules", "").body;
    assert!(!server.stderr().contains("s3cr3t") && !shown.contains("s3cr3t"));
}

#[test]
fn a_server_that_may_evict_counters_is_reported() {
    let redis = Redis::start();
    let set = |name: &str, value: &str| {
        let reply = redis.command(&["CONFIG", "SET", name, value]);
        assert_eq!(reply.text(), "OK");
    };
    let evicts = format!(
        "tallygate_store_evicts{{server=\"127.0.0.1:{}\"}}",
        redis.port()
    );
    let warning = "may evict counters";
    let (_folder, server) = start(&redis.url(), &[]);
    poll::until(TIMEOUT, "the metric", || {
        server.metric(&evicts) == Some(0.0)
    });
    assert!(!server.stderr().contains(warning));
    set("maxmemory", "100mb");
    set("maxmemory-policy", "allkeys-lru");
    let (_folder, server) = start(&redis.url(), &[]);
    poll::until(TIMEOUT, "the metric", || {
        server.metric(&evicts) == Some(1.0)
    });
    poll::until(TIMEOUT, "the warning", || server.stderr().contains(warning));
}

#[test]
fn rules_without_a_number_of_replicas_are_reported() {
    let redis = Redis::start();
    let (_folder, server) = start(&redis.url(), &[]);
    poll::until(TIMEOUT, "the warning", || {
        server.stderr().contains("\"rules\":\"local\"")
    });
}
