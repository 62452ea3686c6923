//! Sessions: separate counters, cookies and CSRF protection.

use serde_json::json;

use super::super::{JSON, Server};
use super::{Visitor, play};

const QUOTA: &str = "sliding-window-log 3/h";

#[test]
fn visitors_have_separate_counters() {
    let server = Server::start(&[]);
    let (ann, bob) = (Visitor::new(&server), Visitor::new(&server));
    assert_eq!(ann.step("log", QUOTA, "check")["remaining"], 2);
    assert_eq!(ann.step("log", QUOTA, "check")["remaining"], 1);
    assert_eq!(bob.step("log", QUOTA, "check")["remaining"], 2);
    assert_eq!(bob.step("log", QUOTA, "reset")["remaining"], 3);
    assert_eq!(ann.step("log", QUOTA, "check")["remaining"], 0);
    let steps = [json!({"card": "log", "quota": QUOTA, "t_us": 5})];
    assert_eq!(ann.play("supplied", &steps)[0]["remaining"], 2);
    assert_eq!(bob.play("supplied", &steps)[0]["remaining"], 2);
    assert_eq!(ann.play("supplied", &steps)[0]["remaining"], 1);
    // A reload keeps the counters.
    assert_eq!(ann.get("/").status, 200);
    assert_eq!(ann.step("log", QUOTA, "peek")["remaining"], 0);
    // The check API has other counters, whatever the key.
    for key in ["log", "play", "play|log"] {
        let body = format!(r#"{{"key":"{key}","quota":"{QUOTA}"}}"#);
        assert_eq!(server.check(&body).json()["remaining"], 2);
    }
}

#[test]
fn a_session_has_an_http_only_cookie() {
    let server = Server::start(&[]);
    let visitor = Visitor::new(&server);
    let first = visitor.get("/api/play");
    let cookie = first.header("set-cookie").unwrap();
    assert!(cookie.starts_with("tallygate_visitor="), "{cookie}");
    for part in ["HttpOnly", "SameSite=Lax", "Path=/"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert!(visitor.get("/api/play").header("set-cookie").is_none());
    // Without the cookie, every request starts a new session.
    let answer = |body: &str| server.post("/api/play", body).json();
    let body = play("real", &[json!({"card": "log", "quota": QUOTA})]);
    assert_eq!(answer(&body)["answers"][0]["remaining"], 2);
    assert_eq!(answer(&body)["answers"][0]["remaining"], 2);
}

#[test]
fn requests_from_pages_of_other_sites_are_refused() {
    let server = Server::start(&[]);
    let visitor = Visitor::new(&server);
    let own = format!("http://{}", server.api);
    let body = play("real", &[json!({"card": "log", "quota": QUOTA})]);
    for (name, value, status) in [
        ("origin", "http://evil.example", 403),
        ("origin", "null", 403),
        ("sec-fetch-site", "cross-site", 403),
        ("sec-fetch-site", "same-site", 403),
        ("origin", &*own, 200),
        ("sec-fetch-site", "same-origin", 200),
        ("sec-fetch-site", "none", 200),
    ] {
        for (path, body) in [
            ("/api/play", &*body),
            ("/api/lab/boundary", "{}"),
            ("/api/rate-limit/reset", "{}"),
        ] {
            let answer = visitor.send("POST", path, &[JSON, (name, value)], body);
            assert_eq!(answer.status, status, "{name}: {value} {path}");
        }
    }
    assert_eq!(visitor.step("log", QUOTA, "peek")["remaining"], 0);
}

#[test]
fn the_card_idle_longest_is_evicted() {
    let server = Server::start(&[]);
    let visitor = Visitor::new(&server);
    let quota = "fixed-window 3/h";
    let cards: Vec<String> = (0..33).map(|i| format!("card {i}")).collect();
    let step = |card: &String| json!({"card": card, "quota": quota});
    let steps: Vec<_> = cards.iter().map(step).collect();
    let answers = visitor.play("real", &steps);
    assert!(answers.iter().all(|answer| answer["state"]["used"] == 1));
    // The first was evicted, and starting it again evicts the second.
    assert_eq!(visitor.step(&cards[0], quota, "check")["remaining"], 2);
    assert_eq!(visitor.step(&cards[2], quota, "check")["remaining"], 1);
    assert_eq!(visitor.step(&cards[1], quota, "check")["remaining"], 2);
}

#[test]
fn the_session_idle_longest_is_evicted() {
    let server = Server::start(&[]);
    let first = Visitor::new(&server);
    first.step("log", QUOTA, "check");
    let body = play("real", &[json!({"card": "log", "quota": QUOTA})]);
    let mut connection = super::super::client::Connection::open(server.api);
    for _ in 0..1_000 {
        let answer = connection
            .send("POST", "/api/play", &[JSON], &body)
            .unwrap();
        assert_eq!(answer.json()["answers"][0]["remaining"], 2);
    }
    // The first was idle longest, so its counters start again.
    assert_eq!(first.step("log", QUOTA, "check")["remaining"], 2);
    assert_eq!(first.step("log", QUOTA, "check")["remaining"], 1);
}
