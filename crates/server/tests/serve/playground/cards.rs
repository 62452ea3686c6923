//! Cards: the same decisions as a replay, and their state.

use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};
use tallygate_testkit::{any, with_each_seed};

use super::super::{Server, tallygate};
use super::{Visitor, play};

const QUOTAS: [&str; 6] = [
    "fixed-window 10/10s",
    "sliding-window-log 10/10s",
    "sliding-window-counter 10/10s",
    "token-bucket 10/10s burst 10",
    "leaky-bucket 10/10s burst 10",
    "leaky-bucket 10/10s queue 10",
];

/// The output of `tallygate replay` for the same steps.
fn replay(quota: &str, steps: &[Value]) -> Vec<Value> {
    let mut child = tallygate(&["replay", "--quota", quota])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = String::new();
    for step in steps {
        let line = json!({
            "t_us": step["t_us"],
            "key": step["card"],
            "cost": step["cost"],
            "verb": step["verb"],
        });
        lines += &format!("{line}\n");
    }
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(lines.as_bytes()).unwrap();
    drop(stdin);
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success());
    let text = String::from_utf8(out.stdout).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn every_card_decides_as_a_replay_does() {
    let server = Server::start(&[]);
    with_each_seed(|rng| {
        let visitor = Visitor::new(&server);
        for quota in QUOTAS {
            let mut t_us = 1_700_000_000_000_000_u64;
            let mut step = || {
                t_us += any(rng, &[0, 1, 1_000, 300_000, 999_999, 1_000_000, 9_000_000]);
                // Clocks step back.
                let at = t_us - any(rng, &[0, 0, 0, 1, 2_000_000]);
                let often = any(rng, &["check", "check", "check", "peek", "take", "charge"]);
                let verb = any(rng, &[often, often, often, "refund", "reset"]);
                let cost = any(rng, &[1, 1, 1, 2, 5, 10, 11, 0]);
                json!({"card": "c", "quota": quota, "verb": verb, "cost": cost, "t_us": at})
            };
            let steps: Vec<Value> = (0..400).map(|_| step()).collect();
            // In several requests, as a page sends them.
            let played = steps
                .chunks(150)
                .flat_map(|some| visitor.play("supplied", some));
            let played: Vec<Value> = played.collect();
            for ((played, expected), step) in played.iter().zip(replay(quota, &steps)).zip(&steps) {
                for field in ["allowed", "granted", "limit", "remaining", "delay_us"] {
                    assert_eq!(played[field], expected[field], "{field} {quota} {step}");
                }
                assert_eq!(played["reset_after_us"], expected["reset_after_us"]);
                let never = played["retry_after_us"] == "never";
                match never {
                    true => assert_eq!(expected["retry_after_us"], Value::Null),
                    false => assert_eq!(played["retry_after_us"], expected["retry_after_us"]),
                }
                let allowed = played["allowed"] == true;
                assert_eq!(never, !allowed && expected["retry_after_us"].is_null());
                let status = if allowed { 200 } else { 429 };
                assert_eq!(played["status"], status, "{quota} {step}");
                assert_eq!(played["degraded"], false);
            }
        }
    });
}

/// Takes 3 at 1 s and 1 at 4 s, and returns the state then.
fn state(visitor: &Visitor<'_>, quota: &str) -> Value {
    let step =
        |t_us: u64, cost: u32| json!({"card": "s", "quota": quota, "cost": cost, "t_us": t_us});
    let steps = [step(1_000_000, 3), step(4_000_000, 1)];
    let mut answers = visitor.play("supplied", &steps);
    assert_eq!(
        answers[0]["state"],
        Value::Null,
        "only the last step has a state"
    );
    answers.remove(1)["state"].take()
}

#[test]
fn every_card_shows_its_state() {
    let server = Server::start(&[]);
    let visitor = Visitor::new(&server);
    let shown = |quota| state(&visitor, quota);
    assert_eq!(
        shown("fixed-window 10/10s"),
        json!({"kind": "fixed-window", "start_us": 0, "end_us": 10_000_000, "used": 4})
    );
    assert_eq!(
        shown("sliding-window-log 10/10s"),
        json!({
            "kind": "sliding-window-log",
            "entries": [{"t_us": 1_000_000, "units": 3}, {"t_us": 4_000_000, "units": 1}],
            "used": 4,
        })
    );
    assert_eq!(
        shown("sliding-window-counter 10/2s"),
        json!({
            "kind": "sliding-window-counter",
            "start_us": 4_000_000,
            "end_us": 6_000_000,
            "previous": 0,
            "current": 1,
        })
    );
    assert_eq!(
        shown("token-bucket 1/2s burst 10"),
        json!({"kind": "token-bucket", "level_milli": 7_500, "capacity": 10})
    );
    assert_eq!(
        shown("leaky-bucket 1/2s burst 10"),
        json!({"kind": "leaky-bucket", "level_milli": 2_500, "capacity": 10})
    );
    assert_eq!(
        shown("leaky-bucket 1/2s queue 10"),
        json!({"kind": "leaky-bucket-shaping", "level_milli": 2_500, "capacity": 10})
    );
}

#[test]
fn a_card_on_the_real_clock_counts_in_the_store() {
    let server = Server::start(&[]);
    let visitor = Visitor::new(&server);
    for quota in QUOTAS {
        // An hour, so that nothing expires meanwhile.
        let quota = quota.replace("10/10s", "3/h").replace(" 10", " 3");
        let steps: Vec<Value> = (0..5)
            .map(|_| json!({"card": "r", "quota": quota}))
            .collect();
        let answers = visitor.play("real", &steps);
        let allowed: Vec<bool> = answers.iter().map(|a| a["allowed"] == true).collect();
        assert_eq!(allowed, [true, true, true, false, false], "{quota}");
        let last = &answers[4];
        assert_eq!(last["status"], 429);
        let retry = last["headers"]["Retry-After"].as_str().unwrap();
        assert!(retry.parse::<u64>().unwrap() > 0);
        assert_eq!(last["headers"]["X-RateLimit-Limit"], "3");
        assert_eq!(last["headers"]["X-RateLimit-Remaining"], "0");
        let policy = last["headers"]["RateLimit-Policy"].as_str().unwrap();
        assert!(policy.contains(";q=3;w="), "{policy}");
        let state = &last["state"];
        let used = match state["kind"].as_str().unwrap() {
            "fixed-window" | "sliding-window-log" => state["used"].as_u64(),
            "sliding-window-counter" => state["current"].as_u64(),
            // A few thousandths may have drained meanwhile.
            "token-bucket" => state["level_milli"].as_u64().map(|level| 3 - level / 1_000),
            _ => state["level_milli"]
                .as_u64()
                .map(|used| used.div_ceil(1_000)),
        };
        assert_eq!(used, Some(3), "{quota} {state}");
        assert_eq!(visitor.step("r", &quota, "reset")["remaining"], 3);
        assert_eq!(visitor.step("r", &quota, "check")["remaining"], 2);
    }
    // None of it is in the server's own store.
    assert_eq!(server.metric("tallygate_keys"), Some(0.0));
}

#[test]
fn every_answer_has_the_time_of_its_decision() {
    let server = Server::start(&[]);
    let visitor = Visitor::new(&server);
    let step = json!({"card": "log", "quota": "sliding-window-log 100/h"});
    let steps = vec![step; 20];
    let body = visitor.post("/api/play", &play("real", &steps)).json();
    let times = body["answers"].as_array().unwrap().iter();
    let times: Vec<u64> = times
        .map(|answer| answer["now_us"].as_u64().unwrap())
        .collect();
    assert!(times.is_sorted(), "{times:?}");
    assert!(times.last().unwrap() <= &body["now_us"].as_u64().unwrap());
    let supplied = [json!({"card": "log", "quota": "5/s", "t_us": 7})];
    assert_eq!(visitor.play("supplied", &supplied)[0]["now_us"], 7);
}

#[test]
fn an_answer_says_when_the_next_request_fits() {
    let server = Server::start(&[]);
    let visitor = Visitor::new(&server);
    let steps = |quota: &str, count: usize, t_us: u64| -> Vec<Value> {
        let step = json!({"card": quota, "quota": quota, "t_us": t_us});
        vec![step; count]
    };
    let next = |quota: &str, count: usize, t_us: u64| {
        let answers = visitor.play("supplied", &steps(quota, count, t_us));
        answers.last().unwrap()["next"].clone()
    };
    let times = |fits: u64, delay: u64| json!({"fits_us": fits, "delay_us": delay});
    assert_eq!(next("fixed-window 3/10s", 2, 4_000_000), times(0, 0));
    assert_eq!(
        next("fixed-window 3/10s", 1, 4_000_000),
        times(6_000_000, 0)
    );
    assert_eq!(next("sliding-window-log 3/10s", 3, 5), times(10_000_000, 0));
    // Admitted, and yet nothing is left.
    assert_eq!(
        next("token-bucket 3/10s burst 1", 1, 5),
        times(3_333_334, 0)
    );
    assert_eq!(next("leaky-bucket 1/s queue 3", 1, 5), times(0, 1_000_000));
    assert_eq!(
        next("leaky-bucket 1/s queue 3", 2, 5),
        times(1_000_000, 3_000_000)
    );
    let real = visitor.step("r", "sliding-window-log 1/h", "check");
    let fits = real["next"]["fits_us"].as_u64().unwrap();
    assert!((3_500_000_000..=3_600_000_000).contains(&fits), "{real}");
}

#[test]
fn a_quota_being_typed_is_checked_without_an_error() {
    let server = Server::start(&[]);
    let visitor = Visitor::new(&server);
    let check = |quota: &str| {
        let body = json!({"quota": quota}).to_string();
        let checked = visitor.post("/api/play/quota", &body);
        assert_eq!(checked.status, 200);
        checked.json()
    };
    let good = check("10/10s");
    assert_eq!(
        good,
        json!({"quota": "sliding-window-counter 10/10s", "problem": null})
    );
    let wrong = check("tokenbucket 7/s");
    assert_eq!(wrong["suggestion"], "token-bucket 7/s");
    let problem = wrong["problem"].as_str().unwrap();
    let reason = wrong["reason"].as_str().unwrap();
    assert!(
        problem.starts_with(reason) && problem.len() > reason.len(),
        "{wrong}"
    );
    assert_eq!(check("2000/s")["suggestion"], Value::Null);
    for quota in ["", "fixed-window 1", "5/blink", "100000000/s"] {
        let wrong = check(quota);
        assert!(
            wrong["quota"].is_null() && wrong["problem"].is_string(),
            "{quota}: {wrong}"
        );
    }
    assert_eq!(visitor.post("/api/play/quota", "{}").status, 400);
    assert_eq!(visitor.get("/api/play/quota").status, 405);
}

#[test]
fn bad_steps_are_rejected() {
    let server = Server::start(&[]);
    let visitor = Visitor::new(&server);
    let real = |step: Value| play("real", &[step]);
    let many = vec![json!({"card": "c", "quota": "1/s"}); 501];
    for (body, status, code) in [
        (String::new(), 400, "malformed-json"),
        ("{}".to_owned(), 400, "bad-field"),
        ("[]".to_owned(), 400, "bad-field"),
        (play("sundial", &many[..1]), 400, "bad-field"),
        (play("real", &[]), 400, "too-many-items"),
        (play("real", &many), 400, "too-many-items"),
        (real(json!({"card": "c"})), 400, "bad-field"),
        (real(json!({"card": "c", "quota": "x"})), 400, "bad-quota"),
        (
            real(json!({"card": "c", "quota": "1001/s"})),
            400,
            "bad-quota",
        ),
        (
            real(json!({"card": "c", "quota": "token-bucket 1/s burst 1001"})),
            400,
            "bad-quota",
        ),
        (
            real(json!({"card": "c", "quota": "1/2h"})),
            400,
            "bad-quota",
        ),
        (
            real(json!({"card": "c", "quota": "token-bucket 1/h burst 1000"})),
            400,
            "bad-quota",
        ),
        (real(json!({"card": "", "quota": "1/s"})), 400, "bad-field"),
        (
            real(json!({"card": "c".repeat(33), "quota": "1/s"})),
            400,
            "bad-field",
        ),
        (
            real(json!({"card": "c", "quota": "1/s", "cost": 1_000_001})),
            400,
            "bad-field",
        ),
        (
            real(json!({"card": "c", "quota": "1/s", "cost": -1})),
            400,
            "bad-field",
        ),
        (
            real(json!({"card": "c", "quota": "1/s", "verb": "steal"})),
            400,
            "bad-field",
        ),
        (
            real(json!({"card": "c", "quota": "1/s", "t_us": 1})),
            400,
            "bad-field",
        ),
        (
            real(json!({"card": "c", "quota": "1/s", "key": "x"})),
            400,
            "bad-field",
        ),
        (play("supplied", &many[..1]), 400, "bad-field"),
        (
            play(
                "supplied",
                &[json!({"card": "c", "quota": "1/s", "t_us": 1_u64 << 53})],
            ),
            400,
            "bad-field",
        ),
        (
            real(json!({"card": "c", "quota": "concurrent 2 for 1s", "owner": 0})),
            400,
            "bad-field",
        ),
        (
            real(json!({"card": "c", "quota": "concurrent 2 for 1s", "owner": 33})),
            400,
            "bad-field",
        ),
        (
            real(json!({"card": "c", "quota": "1/s", "verb": "reserve"})),
            400,
            "bad-field",
        ),
        (
            real(json!({"card": "c", "quota": "1/s", "id": 1})),
            400,
            "bad-field",
        ),
        (
            play(
                "supplied",
                &[json!({"card": "c", "quota": "1/s", "t_us": 1, "id": 1})],
            ),
            400,
            "bad-field",
        ),
        (" ".repeat(300_000), 413, "body-too-large"),
    ] {
        let answer = visitor.post("/api/play", &body);
        let shown: String = body.chars().take(100).collect();
        assert_eq!((answer.status, &*answer.code()), (status, code), "{shown}");
    }
    let typed = [("content-type", "text/plain")];
    let body = play("real", &many[..1]);
    let answer = visitor.send("POST", "/api/play", &typed, &body);
    assert_eq!(answer.status, 415);
    // Nothing was counted.
    assert_eq!(visitor.step("c", "1/s", "peek")["remaining"], 1);
}

#[test]
fn debt_is_bounded() {
    let server = Server::start(&[]);
    let visitor = Visitor::new(&server);
    let charge = |cost: u32| {
        let step =
            json!({"card": "d", "quota": "token-bucket 1/h", "verb": "charge", "cost": cost});
        visitor.post("/api/play", &play("real", &[step]))
    };
    assert_eq!(charge(1_000_000).code(), "bad-field");
    let owed = charge(40).json();
    assert_eq!(owed["answers"][0]["state"]["level_milli"], -39_000);
    assert_eq!(charge(40).status, 400);
    assert_eq!(
        visitor.step("d", "token-bucket 1/h", "reset")["remaining"],
        1
    );
    assert_eq!(charge(40).status, 200);
}
