//! The playground with Redis: stored keys, and outages.

use serde_json::json;
use tallygate_testkit::poll;
use tallygate_testkit::proxy::{Mode, Proxy};
use tallygate_testkit::redis::Server as Redis;

use super::super::{Server, TIMEOUT};
use super::{Visitor, play};

fn reachable(visitor: &Visitor<'_>) -> bool {
    visitor.get("/api/play").json()["reachable"] == true
}

#[test]
fn cards_count_in_redis_under_their_own_keys_and_expire() {
    let redis = Redis::start();
    let server = Server::start(&["--store", &redis.url()]);
    let (ann, bob) = (Visitor::new(&server), Visitor::new(&server));
    poll::until(TIMEOUT, "the store is reachable", || reachable(&ann));
    assert_eq!(ann.get("/api/play").json()["store"], "redis");
    let quotas = [
        "fixed-window 3/h",
        "sliding-window-log 3/h",
        "sliding-window-counter 3/h",
        "token-bucket 3/h",
        "leaky-bucket 3/h",
        "leaky-bucket 3/h queue 3",
    ];
    for quota in quotas {
        let step = json!({"card": "c", "quota": quota});
        let answers = ann.play("real", &[step.clone(), step.clone(), step]);
        assert_eq!(answers[2]["remaining"], 0, "{quota}");
        assert_eq!(answers[2]["degraded"], false);
        let state = &answers[2]["state"];
        match state["kind"].as_str().unwrap() {
            "fixed-window" => assert_eq!(state["used"], 3),
            "sliding-window-log" => {
                assert_eq!(state["used"], 3);
                let entries = state["entries"].as_array().unwrap();
                let units = entries.iter().map(|entry| entry["units"].as_u64().unwrap());
                assert_eq!(units.sum::<u64>(), 3);
            }
            "sliding-window-counter" => assert_eq!(state["current"], 3),
            "token-bucket" => assert!(state["level_milli"].as_u64().unwrap() < 1_000),
            "leaky-bucket" | "leaky-bucket-shaping" => {
                assert!(state["level_milli"].as_u64().unwrap() > 2_000);
            }
            other => panic!("{other}"),
        }
        assert_eq!(bob.step("c", quota, "check")["remaining"], 2, "{quota}");
    }
    let cookie = ann.cookie.borrow().clone().unwrap();
    let secret = cookie.split('=').nth(1).unwrap();
    let names = redis.command(&["KEYS", "*"]);
    let names = names.array().iter().map(|name| name.text());
    let names: Vec<&str> = names.filter(|name| !is_replica_count(name)).collect();
    assert_eq!(names.len(), 12);
    for name in names {
        assert!(name.starts_with("tallygate:1:playground:{play|"), "{name}");
        assert!(!name.contains(secret), "the cookie is in a key");
        let lives = redis.command(&["PTTL", name]).integer();
        assert!(lives > 0 && lives <= 7_200_000, "{name} {lives}");
    }
}

/// Whether a key counts the servers that share the store.
fn is_replica_count(name: &str) -> bool {
    name.ends_with("replicas")
}

#[test]
fn a_long_log_is_read_from_redis() {
    let redis = Redis::start();
    let server = Server::start(&["--store", &redis.url()]);
    let visitor = Visitor::new(&server);
    poll::until(TIMEOUT, "the store is reachable", || reachable(&visitor));
    let step = json!({"card": "long", "quota": "sliding-window-log 150/h"});
    let answers = visitor.play("real", &vec![step; 200]);
    let admitted = answers.iter().filter(|answer| answer["allowed"] == true);
    assert_eq!(admitted.count(), 150);
    let state = &answers[199]["state"];
    assert_eq!(state["used"], 150);
    let entries = state["entries"].as_array().unwrap();
    let times: Vec<u64> = entries
        .iter()
        .map(|e| e["t_us"].as_u64().unwrap())
        .collect();
    assert!(times.is_sorted());
    let units: u64 = entries.iter().map(|e| e["units"].as_u64().unwrap()).sum();
    assert_eq!(units, 150);
}

#[test]
fn the_demo_api_and_the_race_run_on_redis_too() {
    let redis = Redis::start();
    let server = Server::start(&["--store", &redis.url()]);
    let visitor = Visitor::new(&server);
    poll::until(TIMEOUT, "the store is reachable", || reachable(&visitor));
    let body = r#"{"config":{"maxRequests":3,"windowSeconds":3600},"count":4}"#;
    let burst = visitor.post("/api/rate-limit/sliding-window-log/burst", body);
    let burst = burst.json();
    let allowed = burst.as_array().unwrap().iter();
    let allowed: Vec<bool> = allowed.map(|a| a["allowed"] == true).collect();
    assert_eq!(allowed, [true, true, true, false]);
    assert_eq!(visitor.post("/api/rate-limit/reset", "").status, 200);
    assert_eq!(counters(&redis), 0);
    let race = visitor.post("/api/lab/race", "{}").json();
    assert_eq!(race["store"], "redis");
    assert_eq!(race["atomic"], json!({"admitted": 10, "over": 0}));
    assert!(race["naive"]["admitted"].as_u64() >= Some(10));
    assert_eq!(counters(&redis), 0);
}

fn counters(redis: &Redis) -> usize {
    let names = redis.command(&["KEYS", "*"]);
    let names = names.array().iter().map(|name| name.text());
    names.filter(|name| !is_replica_count(name)).count()
}

/// Interrupts the store and restores it.
fn outage(policy: &str, status: u16) {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.port());
    let server = Server::start(&["--store", &proxy.url(), "--on-failure", policy]);
    let visitor = Visitor::new(&server);
    poll::until(TIMEOUT, "the store is reachable", || reachable(&visitor));
    let quota = "sliding-window-log 5/h";
    assert_eq!(visitor.step("c", quota, "check")["remaining"], 4);

    proxy.set(Mode::Refuse);
    poll::until(TIMEOUT, "the outage is reported", || !reachable(&visitor));
    let body = play("real", &vec![json!({"card": "c", "quota": quota}); 20]);
    let played = visitor.post("/api/play", &body);
    assert_eq!(played.status, 200);
    let played = played.json();
    assert_eq!(played["reachable"], false);
    for answer in played["answers"].as_array().unwrap() {
        assert_eq!(answer["degraded"], true);
        assert_eq!(answer["status"], status);
        assert_eq!(answer["allowed"], status == 200);
        assert_eq!(answer["state"], serde_json::Value::Null);
        assert_eq!(answer["retry_after_us"], serde_json::Value::Null);
    }
    // Supplied time needs no store.
    let step = json!({"card": "c", "quota": quota, "t_us": 1});
    assert_eq!(visitor.play("supplied", &[step])[0]["remaining"], 4);
    let demo = visitor.post("/api/rate-limit/fixed-window", "");
    assert_eq!(demo.status, status);

    proxy.set(Mode::Pass);
    poll::until(TIMEOUT, "the recovery is reported", || reachable(&visitor));
    // Decisions without the store were not counted.
    let after = visitor.step("c", quota, "check");
    assert_eq!(
        (&after["remaining"], &after["degraded"]),
        (&json!(3), &json!(false))
    );
    assert_eq!(after["state"]["used"], 2);
}

#[test]
fn an_outage_and_the_recovery_are_reported() {
    outage("open", 200);
}

#[test]
fn a_closed_policy_answers_503_and_never_429() {
    outage("closed", 503);
}
