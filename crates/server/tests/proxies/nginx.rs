//! `ops/nginx.conf` in a real nginx.

use std::fs;
use std::net::SocketAddr;

use tallygate_testkit::program::{self, Program};
use tallygate_testkit::{poll, ports};

use super::{App, Client, TIMEOUT, Tallygate, assert_login_is_limited, ops_config};

/// The main configuration: one process, temporary files in its own folder.
const MAIN_CONFIG: &str = "\
daemon off;
master_process off;
worker_processes 1;
pid nginx.pid;
error_log stderr notice;
events {}
http {
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    include tallygate.conf;
}
";

fn start(tallygate: &Tallygate, app: &App) -> (Program, SocketAddr) {
    let address: SocketAddr = ([127, 0, 0, 1], ports::free()).into();
    let text = ops_config(
        "nginx.conf",
        &[
            (
                "server 127.0.0.1:8080;",
                1,
                format!("server {};", tallygate.api),
            ),
            (
                "server 127.0.0.1:3000;",
                1,
                format!("server {};", app.address),
            ),
            ("listen 80;", 1, format!("listen {address};")),
        ],
    );
    let mut nginx = Program::start(&program::nginx(), |folder| {
        fs::write(folder.join("nginx.conf"), MAIN_CONFIG).unwrap();
        fs::write(folder.join("tallygate.conf"), text).unwrap();
        let folder = folder.to_str().unwrap();
        let args = ["-p", folder, "-c", "nginx.conf", "-e", "stderr"];
        args.map(str::to_owned).to_vec()
    });
    poll::until(TIMEOUT, "nginx answers", || {
        assert!(nginx.is_running(), "{}", nginx.log());
        Client::at(1)
            .try_send(address, "GET", "/", &[], "")
            .is_some()
    });
    (nginx, address)
}

#[test]
fn refusals_reach_the_client_as_429_with_retry_after() {
    let (tallygate, app) = (Tallygate::start(), App::start());
    let (_nginx, address) = start(&tallygate, &app);
    let ignored_headers = [
        ("x-forwarded-for", "192.0.2.1"),
        ("x-original-uri", "/free"),
        ("x-original-method", "GET"),
        ("x-forwarded-uri", "/free"),
        ("x-forwarded-method", "GET"),
    ];
    let [first, refused] = assert_login_is_limited(address, &app, &ignored_headers);
    let policy = first.header("ratelimit-policy");
    assert_eq!(policy, Some("\"login\";q=2;w=3600"));
    assert!(refused.header("ratelimit").is_some(), "{refused:?}");
    assert!(refused.header("www-authenticate").is_none());
    let problem: serde_json::Value = serde_json::from_str(&refused.body).unwrap();
    assert_eq!(problem["status"], 429);
    assert_eq!(
        Client::at(7).send(address, "GET", "/login", &[], "").status,
        200
    );
}

#[test]
fn only_quota_refusals_are_429() {
    let (mut tallygate, app) = (Tallygate::start(), App::start());
    let (_nginx, address) = start(&tallygate, &app);
    let get = |path: &str| Client::at(1).send(address, "GET", path, &[], "");
    // Denied, without a key, and the application's own statuses.
    assert_eq!(
        Client::at(66)
            .send(address, "POST", "/login", &[], "")
            .status,
        403
    );
    assert_eq!(get("/strict").status, 400);
    for status in [401, 403, 404, 500, 503] {
        assert_eq!(get(&format!("/status/{status}")).status, status);
    }
    tallygate.set_kill_switch("closed");
    let closed = get("/");
    assert_eq!(closed.status, 503);
    assert!(closed.body.contains("unavailable"), "{closed:?}");
    tallygate.set_kill_switch("off");
    assert_eq!(get("/").status, 200);
    // Without Tallygate requests are admitted.
    tallygate.stop();
    let open = get("/");
    assert_eq!((open.status, open.body.as_str()), (200, "hello"));
}
