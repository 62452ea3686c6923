//! Budgets: what is left, the rate and the forecast, over all services with the same store.

use serde_json::Value;
use tallygate_testkit::poll;
use tallygate_testkit::redis::Server as Redis;

use super::{Server, TIMEOUT, TempDir, send};

const RULES: &str = "
version: 1
budgets:
  openai-daily: { limits: [fixed-window 1000000/366d, token-bucket 1/h burst 100000] }
  team: { key: [{ header: x-team }], limits: fixed-window 5000/366d }
rules:
  - { name: chat, budget: openai-daily, match: { path: /chat }, cost: 100 }
  - { name: images, budget: openai-daily, match: { path: /images }, cost: 900 }
  - { name: teams, budget: team }
";

fn start(directory: &TempDir, store: &str) -> Server {
    let path = directory.write("rules.yaml", RULES);
    let server = Server::start(&["--config", &path, "--store", store]);
    poll::until(TIMEOUT, "ready", || {
        server.admin("GET", "/readyz", "").status == 200
    });
    server
}

fn budget(server: &Server, target: &str) -> (u16, Value) {
    let response = send(server.api, "GET", &format!("/v1/budgets/{target}"), &[], "");
    (response.status, response.json())
}

fn spend(server: &Server, rule: &str, cost: u32, headers: &str) {
    let body =
        format!(r#"{{"rule":"{rule}","cost":{cost},"attributes":{{"headers":{{{headers}}}}}}}"#);
    assert_eq!(server.check(&body).status, 200);
}

#[test]
fn what_is_left_and_when_it_ends_is_told() {
    let directory = TempDir::new();
    let server = start(&directory, "memory");
    let (status, new) = budget(&server, "openai-daily");
    assert_eq!(status, 200);
    assert_eq!(new["budget"], "openai-daily");
    assert_eq!(
        (&new["limit"], &new["remaining"]),
        (&1_000_000.into(), &1_000_000.into())
    );
    assert_eq!(new["ends_in_us"], Value::Null);
    spend(&server, "chat", 100, "");
    spend(&server, "images", 900, "");
    let (_, spent) = budget(&server, "openai-daily");
    let limits = spent["limits"].as_array().unwrap();
    let remaining: Vec<u64> = limits
        .iter()
        .map(|limit| limit["remaining"].as_u64().unwrap())
        .collect();
    assert_eq!(remaining, [999_000, 99_000]);
    assert_eq!(limits[1]["quota"], "token-bucket 1/h burst 100000");
    assert_eq!(
        limits[1]["limit_name"],
        "budget:openai-daily token-bucket/h"
    );
    // A thousand within the time of this test: 99,000 more are gone in less than a hundred times that.
    let rate = &limits[1]["rate"];
    assert_eq!(rate["units"], 1_000);
    let ends = limits[1]["ends_in_us"].as_u64().unwrap();
    assert!(ends <= 100 * rate["over_us"].as_u64().unwrap(), "{spent}");
    assert_eq!(spent["ends_in_us"], ends);
    assert_eq!(spent["remaining"], 99_000);
}

#[test]
fn a_budget_by_key_needs_the_key_and_wrong_questions_are_told_apart() {
    let directory = TempDir::new();
    let server = start(&directory, "memory");
    spend(&server, "teams", 700, r#""x-team":"a,b""#);
    assert_eq!(budget(&server, "team?key=a%2Cb").1["remaining"], 4_300);
    assert_eq!(budget(&server, "team?key=other").1["remaining"], 5_000);
    for (target, status, code) in [
        ("team", 404, "unknown-budget"),
        ("team?key=a,b", 404, "unknown-budget"),
        ("team?who=a", 400, "bad-query"),
        ("team?key=%ff", 400, "bad-query"),
        ("openai-daily?key=a", 404, "unknown-budget"),
        ("nobodys", 404, "unknown-budget"),
        ("", 404, "unknown-budget"),
    ] {
        let (found, problem) = budget(&server, target);
        assert_eq!(
            (found, &problem["code"]),
            (status, &code.into()),
            "{target}"
        );
    }
    let posted = server.post("/v1/budgets/team?key=a", "{}");
    assert_eq!((posted.status, posted.header("allow")), (405, Some("GET")));
}

#[test]
fn budgets_that_all_clients_share_are_metrics() {
    let directory = TempDir::new();
    let server = start(&directory, "memory");
    let labels = r#"{budget="openai-daily",limit="token-bucket/h"}"#;
    let metric = |name: &str| server.metric(&format!("tallygate_budget_{name}{labels}"));
    assert_eq!(metric("limit"), Some(100_000.0));
    assert_eq!(metric("remaining"), Some(100_000.0));
    assert_eq!(metric("ends_seconds"), None);
    spend(&server, "chat", 60_000, "");
    assert_eq!(metric("remaining"), Some(40_000.0));
    assert!(metric("ends_seconds").is_some());
    let text = server.admin("GET", "/metrics", "").body;
    assert!(!text.contains(r#"budget="team""#), "a budget by key");
}

#[test]
fn services_with_one_store_spend_one_budget() {
    let redis = Redis::start();
    let directory = TempDir::new();
    let (one, other) = (
        start(&directory, &redis.url()),
        start(&directory, &redis.url()),
    );
    spend(&one, "chat", 1_000, "");
    spend(&other, "images", 2_000, "");
    for server in [&one, &other] {
        let (status, spent) = budget(server, "openai-daily");
        assert_eq!(
            (status, &spent["remaining"]),
            (200, &97_000.into()),
            "{spent}"
        );
    }
}
