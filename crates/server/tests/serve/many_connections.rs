//! More connections than file descriptors.

use std::fs;
use std::net::TcpStream;

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use tallygate_testkit::poll;

use super::client::send;
use super::{JSON, Server, TIMEOUT};

#[test]
fn a_server_recovers_from_running_out_of_files() {
    let server = Server::start(&[]);
    let pid = Pid::from_raw(i32::try_from(server.child.id()).unwrap());
    let open = fs::read_dir(format!("/proc/{}/fd", server.child.id()))
        .unwrap()
        .count() as u64;
    let limit = Rlimit {
        current: Some(open + 20),
        maximum: Some(open + 20),
    };
    prlimit(pid, Resource::Nofile, limit).unwrap();
    // They wait in the accept queue: the server has no descriptors.
    let connections: Vec<TcpStream> = (0..100)
        .map(|_| TcpStream::connect(server.api).unwrap())
        .collect();
    let logged = || server.stderr().contains("cannot accept connections");
    poll::until(TIMEOUT, "a warning", logged);
    drop(connections);
    let body = r#"{"key":"a","quota":"1000/s"}"#;
    for _ in 0..50 {
        assert_eq!(
            send(server.api, "POST", "/v1/check", &[JSON], body).status,
            200
        );
    }
    assert_eq!(server.admin("GET", "/healthz", "").status, 200);
    // Not logged for every attempt.
    let lines = server.stderr().matches("cannot accept connections").count();
    assert!(lines < 200, "{lines} lines");
}
