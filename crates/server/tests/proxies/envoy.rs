//! `ops/envoy.yaml` in a real Envoy.

use std::fs;
use std::net::SocketAddr;

use tallygate_testkit::program::{self, Program};
use tallygate_testkit::{poll, ports};

use super::{App, Client, SOON, Tallygate, ops_config};

fn start(tallygate: &Tallygate, app: &App) -> (Program, SocketAddr) {
    let address: SocketAddr = ([127, 0, 0, 1], ports::free()).into();
    let text = ops_config(
        "envoy.yaml",
        &[
            (
                "port_value: 8080",
                1,
                format!("port_value: {}", tallygate.api.port()),
            ),
            (
                "port_value: 3000",
                1,
                format!("port_value: {}", app.address.port()),
            ),
            (
                "port_value: 10000",
                1,
                format!("port_value: {}", address.port()),
            ),
            ("address: 0.0.0.0", 1, "address: 127.0.0.1".to_owned()),
        ],
    );
    let mut envoy = Program::start(&program::envoy(), |folder| {
        let file = folder.join("envoy.yaml");
        fs::write(&file, text).unwrap();
        let file = file.to_str().unwrap();
        // Tests run in parallel: no shared memory, one thread.
        let args = [
            "-c",
            file,
            "--concurrency",
            "1",
            "--use-dynamic-base-id",
            "-l",
            "warning",
        ];
        args.map(str::to_owned).to_vec()
    });
    poll::until(SOON, "Envoy answers", || {
        assert!(envoy.is_running(), "{}", envoy.log());
        let response = Client::at(1).try_send(address, "GET", "/", &[], "");
        response.is_some_and(|response| response.status == 200)
    });
    (envoy, address)
}

#[test]
fn envoy_forwards_admitted_requests_and_refusals() {
    let (mut tallygate, app) = (Tallygate::start(), App::start());
    let (_envoy, address) = start(&tallygate, &app);
    let log_in = |client: u8, headers: &[(&str, &str)]| {
        Client::at(client).send(address, "POST", "/login?next=/", headers, "name=ann")
    };
    let before = app.heads();
    let first = log_in(7, &[]);
    assert_eq!(
        (first.status, first.body.as_str()),
        (200, "hello"),
        "{first:?}"
    );
    let left = first.header("ratelimit").unwrap();
    assert!(
        left.starts_with("\"login sliding-window-log/h\";r=1;t=3"),
        "{left}"
    );
    assert_eq!(log_in(7, &[]).status, 200);
    let refused = log_in(7, &[]);
    assert_eq!(refused.status, 429, "{refused:?}");
    let retry_after: u32 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((3000..=3600).contains(&retry_after), "{refused:?}");
    assert_eq!(
        refused.header("content-type"),
        Some("application/problem+json")
    );
    assert_eq!(
        app.heads() - before,
        2,
        "the application saw a refused request"
    );
    for header in [
        ("x-forwarded-for", "192.0.2.1"),
        ("x-original-uri", "/free"),
        ("x-forwarded-method", "GET"),
    ] {
        assert_eq!(log_in(7, &[header]).status, 429, "{header:?}");
    }
    assert_eq!(log_in(8, &[]).status, 200);
    let get = |path: &str| Client::at(1).send(address, "GET", path, &[], "");
    assert_eq!(
        Client::at(66)
            .send(address, "POST", "/login", &[], "")
            .status,
        403
    );
    assert_eq!(get("/strict").status, 400);
    assert_eq!(get("/status/401").status, 401);
    tallygate.set_kill_switch("closed");
    assert_eq!(get("/").status, 503);
    tallygate.set_kill_switch("off");
    assert_eq!(get("/").status, 200);
    tallygate.stop();
    assert_eq!(get("/").status, 503);
}
