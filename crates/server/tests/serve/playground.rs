//! The playground over HTTP: its files, sessions and API.

mod callers;
mod cards;
mod demo_api;
mod labs;
mod sessions;
mod stores;

use std::cell::RefCell;

use serde_json::{Value, json};

use super::client::{Response, send};
use super::{JSON, Server};

/// A client that keeps its cookie.
struct Visitor<'s> {
    server: &'s Server,
    cookie: RefCell<Option<String>>,
}

impl<'s> Visitor<'s> {
    fn new(server: &'s Server) -> Self {
        let cookie = RefCell::default();
        Visitor { server, cookie }
    }

    fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Response {
        let cookie = self.cookie.borrow().clone();
        let mut headers = headers.to_vec();
        if let Some(cookie) = &cookie {
            headers.push(("cookie", cookie));
        }
        let answer = send(self.server.api, method, path, &headers, body);
        if let Some(set) = answer.header("set-cookie") {
            let pair = set.split(';').next().unwrap();
            self.cookie.replace(Some(pair.to_owned()));
        }
        answer
    }

    fn post(&self, path: &str, body: &str) -> Response {
        self.send("POST", path, &[JSON], body)
    }

    fn get(&self, path: &str) -> Response {
        self.send("GET", path, &[], "")
    }

    /// Takes steps and returns their answers.
    fn play(&self, clock: &str, steps: &[Value]) -> Vec<Value> {
        let played = self.post("/api/play", &play(clock, steps));
        assert_eq!(played.status, 200, "{played:?}");
        let answers = played.json()["answers"].as_array().unwrap().clone();
        assert_eq!(answers.len(), steps.len());
        answers
    }

    /// Takes one step of cost 1 on the real clock.
    fn step(&self, card: &str, quota: &str, verb: &str) -> Value {
        let step = json!({"card": card, "quota": quota, "verb": verb});
        self.play("real", &[step]).remove(0)
    }
}

fn play(clock: &str, steps: &[Value]) -> String {
    json!({"clock": clock, "steps": steps}).to_string()
}

#[test]
fn the_page_is_embedded_and_restricted_to_its_own_origin() {
    let server = Server::start(&[]);
    let visitor = Visitor::new(&server);
    let page = visitor.get("/");
    assert_eq!(page.status, 200);
    assert_eq!(
        page.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    assert!(page.body.starts_with("<!doctype html>"));
    assert!(page.header("set-cookie").is_none());
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'self';"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(page.header("cache-control"), Some("no-cache"));

    let tag = page.header("etag").unwrap();
    let again = visitor.send("GET", "/", &[("if-none-match", tag)], "");
    assert_eq!((again.status, again.body.as_str()), (304, ""));

    // Every file that the page refers to exists.
    let names = page.body.split('"').filter(|text| text.starts_with("/ui/"));
    let names: Vec<&str> = names.collect();
    assert!(!names.is_empty());
    for name in names {
        let file = visitor.get(name);
        assert_eq!(file.status, 200, "{name}");
        assert_eq!(file.header("x-content-type-options"), Some("nosniff"));
    }
    for (method, path, status) in [
        ("GET", "/ui/none.js", 404),
        ("GET", "/ui/../Cargo.toml", 404),
        ("GET", "/ui/", 404),
        ("POST", "/", 405),
        ("DELETE", "/ui/playground.js", 405),
        ("GET", "/api/", 404),
        ("GET", "/api/none", 404),
        ("PUT", "/api/play", 405),
        ("GET", "/api/lab/race", 405),
        ("GET", "/api/rate-limit/fixed-window", 405),
        ("POST", "/api/rate-limit/fixed-window/none", 404),
    ] {
        assert_eq!(
            visitor.send(method, path, &[], "").status,
            status,
            "{method} {path}"
        );
    }
}

#[test]
fn the_live_view_is_on_the_admin_listener() {
    let server = Server::start(&[]);
    let page = send(server.admin, "GET", "/live", &[], "");
    assert_eq!(page.status, 200);
    assert!(page.body.starts_with("<!doctype html>"));
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'self';"), "{policy}");
    let names = page.body.split('"');
    let names = names.filter(|text| text.starts_with("/live/"));
    for name in names.collect::<Vec<&str>>() {
        assert_eq!(send(server.admin, "GET", name, &[], "").status, 200);
    }
    assert_eq!(send(server.admin, "GET", "/live/none", &[], "").status, 404);
    assert_eq!(send(server.admin, "POST", "/live", &[], "").status, 405);
}

#[test]
fn the_page_gets_the_store_and_the_bounds() {
    let server = Server::start(&[]);
    let about = Visitor::new(&server).get("/api/play");
    assert_eq!(about.status, 200);
    assert_eq!(about.header("cache-control"), Some("no-store"));
    let about = about.json();
    assert_eq!(about["store"], "memory");
    assert_eq!(about["reachable"], true);
    assert_eq!(about["version"], env!("CARGO_PKG_VERSION"));
    for (name, value) in [
        ("limit", 1_000),
        ("burst", 1_000),
        ("period_s", 3_600),
        ("steps", 500),
    ] {
        assert_eq!(about["bounds"][name], value, "{name}");
    }
}
