//! `ops/Caddyfile` in a real Caddy.

use std::fs;
use std::net::SocketAddr;

use tallygate_testkit::program::{self, Program};
use tallygate_testkit::{poll, ports};

use super::{App, Client, TIMEOUT, Tallygate, assert_login_is_limited, ops_config};

/// No admin endpoint and no certificates, and everything it stores in its own folder.
const GLOBAL_OPTIONS: &str = "{\n\tadmin off\n\tauto_https off\n\tstorage file_system .\n}\n";

fn start(tallygate: &Tallygate, app: &App) -> (Program, SocketAddr) {
    let address: SocketAddr = ([127, 0, 0, 1], ports::free()).into();
    let site = format!("http://:{} {{\n\tbind 127.0.0.1", address.port());
    let text = ops_config(
        "Caddyfile",
        &[
            ("127.0.0.1:8080", 1, tallygate.api.to_string()),
            ("127.0.0.1:3000", 1, app.address.to_string()),
            (":80 {", 1, site),
        ],
    );
    let mut caddy = Program::start(&program::caddy(), |folder| {
        let file = folder.join("Caddyfile");
        fs::write(&file, format!("{GLOBAL_OPTIONS}{text}")).unwrap();
        let file = file.to_str().unwrap();
        ["run", "--adapter", "caddyfile", "--config", file]
            .map(str::to_owned)
            .to_vec()
    });
    poll::until(TIMEOUT, "Caddy answers", || {
        assert!(caddy.is_running(), "{}", caddy.log());
        let response = Client::at(1).try_send(address, "GET", "/", &[], "");
        response.is_some_and(|response| response.status == 200)
    });
    (caddy, address)
}

#[test]
fn caddy_forwards_admitted_requests_and_refusals() {
    let (mut tallygate, app) = (Tallygate::start(), App::start());
    let (_caddy, address) = start(&tallygate, &app);
    let ignored_headers = [
        ("x-forwarded-for", "192.0.2.1"),
        ("x-original-uri", "/free"),
        ("x-original-method", "GET"),
        ("x-forwarded-uri", "/free"),
        ("x-forwarded-method", "GET"),
    ];
    let [_, refused] = assert_login_is_limited(address, &app, &ignored_headers);
    let problem: serde_json::Value = serde_json::from_str(&refused.body).unwrap();
    assert_eq!(problem["violated-policies"], serde_json::json!(["login"]));
    let get = |path: &str| Client::at(1).send(address, "GET", path, &[], "");
    let denied = Client::at(66).send(address, "POST", "/login", &[], "");
    assert_eq!(denied.status, 403);
    let unlimited = get("/");
    assert_eq!(unlimited.status, 200);
    assert_eq!(unlimited.header("ratelimit"), None, "{unlimited:?}");
    assert_eq!(get("/strict").status, 400);
    assert_eq!(get("/status/401").status, 401);
    tallygate.set_kill_switch("closed");
    assert_eq!(get("/").status, 503);
    tallygate.set_kill_switch("off");
    assert_eq!(get("/").status, 200);
    tallygate.stop();
    assert_eq!(get("/").status, 502);
}
