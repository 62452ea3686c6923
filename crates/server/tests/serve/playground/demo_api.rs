//! The assertions of the demo redis-developer/redis-ratelimiting-js about its HTTP API, and the
//! meaning of its fields.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::super::Server;
use super::Visitor;

/// Repeats an attempt until it took place within one window and less than a second, so that the
/// result depends on nothing but the requests.
fn quickly<T>(mut attempt: impl FnMut() -> T) -> T {
    let window = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs()
            / 10
    };
    for _ in 0..50 {
        let (started, before) = (Instant::now(), window());
        let done = attempt();
        if started.elapsed() < Duration::from_millis(900) && window() == before {
            return done;
        }
    }
    panic!("this machine is too slow for a dozen requests within a second");
}

/// The answers to several requests of a new visitor.
fn several(server: &Server, algorithm: &str, times: usize) -> Vec<Value> {
    quickly(|| {
        let visitor = Visitor::new(server);
        let path = format!("/api/rate-limit/{algorithm}");
        let once = |_| {
            let answer = visitor.send("POST", &path, &[], "");
            assert_eq!(answer.status, 200);
            answer.json()
        };
        (0..times).map(once).collect()
    })
}

const ALGORITHMS: [&str; 5] = [
    "fixed-window",
    "sliding-window-log",
    "sliding-window-counter",
    "token-bucket",
    "leaky-bucket",
];

#[test]
fn requests_under_the_limit_are_allowed_and_the_eleventh_is_not() {
    let server = Server::start(&[]);
    for algorithm in ALGORITHMS {
        let answers = several(&server, algorithm, 11);
        let first = &answers[0];
        assert_eq!(first["allowed"], true, "{algorithm}");
        assert_eq!(first["remaining"], 9, "{algorithm}");
        assert_eq!(first["limit"], 10, "{algorithm}");
        assert_eq!(first["retryAfter"], Value::Null);
        assert_eq!(first["delay"], Value::Null);
        let last = &answers[10];
        assert_eq!(last["allowed"], false, "{algorithm}");
        assert_eq!(last["remaining"], 0, "{algorithm}");
        assert_eq!(last["limit"], 10, "{algorithm}");
        let retry = last["retryAfter"].as_f64().unwrap();
        let longest = match algorithm {
            "sliding-window-counter" => 20.0,
            "token-bucket" | "leaky-bucket" => 1.0,
            _ => 10.0,
        };
        assert!(retry > 0.0 && retry <= longest, "{algorithm} {retry}");
        let names: Vec<&String> = last.as_object().unwrap().keys().collect();
        let fields = ["allowed", "delay", "limit", "remaining", "retryAfter"];
        assert_eq!(names, fields);
    }
}

#[test]
fn a_burst_is_ten_requests_in_order() {
    let server = Server::start(&[]);
    let answers = quickly(|| {
        let visitor = Visitor::new(&server);
        let burst = visitor.send("POST", "/api/rate-limit/fixed-window/burst", &[], "");
        assert_eq!(burst.status, 200);
        burst.json()
    });
    let answers = answers.as_array().unwrap();
    assert_eq!(answers.len(), 10);
    for (i, answer) in answers.iter().enumerate() {
        assert_eq!(answer["allowed"], true);
        assert_eq!(answer["remaining"], 9 - i);
        assert_eq!(answer["limit"], 10);
    }
}

#[test]
fn the_length_of_a_burst_is_bounded() {
    let server = Server::start(&[]);
    let visitor = Visitor::new(&server);
    for (count, answers) in [(1, 1), (7, 7), (50, 50), (51, 50), (1_000_000, 50), (0, 10)] {
        let body = json!({"count": count, "config": {"maxRequests": 1000}});
        let burst = visitor.post(
            "/api/rate-limit/sliding-window-log/burst",
            &body.to_string(),
        );
        assert_eq!(burst.json().as_array().unwrap().len(), answers, "{count}");
    }
    for count in ["-1", "1.5", "\"ten\""] {
        let body = format!("{{\"count\":{count}}}");
        let burst = visitor.post("/api/rate-limit/fixed-window/burst", &body);
        assert_eq!(burst.status, 400, "{count}");
    }
}

#[test]
fn a_reset_clears_the_counters_of_its_session_only() {
    let server = Server::start(&[]);
    let remaining = quickly(|| {
        let (ann, bob) = (Visitor::new(&server), Visitor::new(&server));
        let fixed = |visitor: &Visitor<'_>| {
            let answer = visitor.post("/api/rate-limit/fixed-window", "{}");
            answer.json()["remaining"].as_u64().unwrap()
        };
        fixed(&ann);
        fixed(&bob);
        ann.post("/api/rate-limit/token-bucket", "{}");
        let reset = ann.post("/api/rate-limit/reset", "");
        assert_eq!((reset.status, reset.json()), (200, json!({"ok": true})));
        let bucket = ann.post("/api/rate-limit/token-bucket", "{}").json();
        assert_eq!(bucket["remaining"], 9);
        (fixed(&ann), fixed(&bob))
    });
    assert_eq!(remaining, (9, 8));
}

#[test]
fn an_unknown_algorithm_and_a_bad_config_are_errors() {
    let server = Server::start(&[]);
    let visitor = Visitor::new(&server);
    let unknown = visitor.post("/api/rate-limit/unknown-algo", "");
    assert_eq!(
        (unknown.status, &*unknown.code()),
        (400, "unknown-algorithm")
    );
    let unknown = visitor.post("/api/rate-limit/unknown-algo/burst", "");
    assert_eq!(unknown.status, 400);
    for (algorithm, config) in [
        ("fixed-window", json!({"maxRequests": 0})),
        ("fixed-window", json!({"maxRequests": "ten"})),
        ("fixed-window", json!({"windowSeconds": -1})),
        ("sliding-window-log", json!({"maxRequests": 2.5})),
        ("token-bucket", json!({"refillRate": 0})),
        ("token-bucket", json!({"maxTokens": 1e9})),
        ("leaky-bucket", json!({"mode": "other"})),
        ("leaky-bucket", json!([1])),
    ] {
        let body = json!({"config": config}).to_string();
        let path = format!("/api/rate-limit/{algorithm}");
        assert_eq!(visitor.post(&path, &body).status, 400, "{body}");
    }
    // Unknown fields are ignored, as in the demo.
    let body = r#"{"config":{"leakrate":1},"note":"x"}"#;
    assert_eq!(
        visitor.post("/api/rate-limit/leaky-bucket", body).status,
        200
    );
}

#[test]
fn seconds_are_exact_and_rates_may_be_fractions() {
    let server = Server::start(&[]);
    let visitor = Visitor::new(&server);
    let burst = |algorithm: &str, config: Value| {
        let body = json!({"config": config, "count": 4}).to_string();
        let path = format!("/api/rate-limit/{algorithm}/burst");
        let answers = visitor.post(&path, &body).json();
        answers.as_array().unwrap().clone()
    };
    // One per ten seconds: each waits for those before it, less the time already passed.
    let shaped = burst(
        "leaky-bucket",
        json!({"capacity": 3, "leakRate": 0.1, "mode": "shaping"}),
    );
    assert_eq!(shaped[0]["delay"], Value::Null);
    for (i, most) in [(1, 10.0), (2, 20.0)] {
        let delay = shaped[i]["delay"].as_f64().unwrap();
        assert!(delay <= most && delay > most - 5.0, "{delay}");
        assert_eq!(shaped[i]["allowed"], true);
    }
    assert_eq!(shaped[3]["allowed"], false);
    assert_eq!(shaped[3]["delay"], Value::Null);
    let retry = shaped[3]["retryAfter"].as_f64().unwrap();
    assert!(retry <= 10.0 && retry > 5.0, "{retry}");
    // To the microsecond.
    let text = retry.to_string();
    let digits = text.split_once('.').map_or(0, |(_, digits)| digits.len());
    assert!(digits <= 6, "{text}");

    let slow = burst("token-bucket", json!({"maxTokens": 2, "refillRate": 0.1}));
    let allowed: Vec<bool> = slow.iter().map(|a| a["allowed"] == true).collect();
    assert_eq!(allowed, [true, true, false, false]);
    let retry = slow[2]["retryAfter"].as_f64().unwrap();
    assert!(retry <= 10.0 && retry > 5.0, "{retry}");
}
