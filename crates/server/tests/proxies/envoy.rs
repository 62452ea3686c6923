//! `ops/envoy.yaml` in a real Envoy.

use std::fs;
use std::net::SocketAddr;

use tallygate_testkit::program::{self, Program};
use tallygate_testkit::{poll, ports};

use super::{App, Client, TIMEOUT, Tallygate, assert_login_is_limited, ops_config};

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
    poll::until(TIMEOUT, "Envoy answers", || {
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
    let ignored_headers = [
        ("x-forwarded-for", "192.0.2.1"),
        ("x-original-uri", "/free"),
        ("x-forwarded-method", "GET"),
    ];
    assert_login_is_limited(address, &app, &ignored_headers);
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
