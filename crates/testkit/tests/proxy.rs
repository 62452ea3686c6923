//! Every mode of the proxy, in front of a real server.
#![cfg(feature = "servers")]
#![allow(clippy::unwrap_used)]

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use tallygate_testkit::poll;
use tallygate_testkit::proxy::{Mode, Proxy};
use tallygate_testkit::redis::Server;
use tallygate_testkit::resp::{Connection, Reply};

const TIMEOUT: Duration = Duration::from_secs(10);

fn server_and_proxy() -> (Server, Proxy) {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    (server, proxy)
}

fn connect(proxy: &Proxy) -> Connection {
    Connection::to_port(proxy.port()).unwrap()
}

fn incr(connection: &mut Connection) -> Result<i64, ErrorKind> {
    let reply = connection.command(&["INCR", "n"]);
    reply.map(|n| n.integer()).map_err(|error| error.kind())
}

/// The server's counter, read without the proxy.
fn counted(server: &Server) -> i64 {
    match server.command(&["GET", "n"]) {
        Reply::Nil => 0,
        number => number.integer(),
    }
}

#[test]
fn forwarded_bytes_are_unchanged_and_connections_are_counted() {
    let (server, proxy) = server_and_proxy();
    let mut first = connect(&proxy);
    assert_eq!(incr(&mut first), Ok(1));
    let big = "x".repeat(1 << 20);
    first.command(&["SET", "big", &big]).unwrap();
    assert_eq!(first.command(&["GET", "big"]).unwrap().text(), big);
    assert_eq!(incr(&mut connect(&proxy)), Ok(2));
    assert_eq!(counted(&server), 2);
    assert_eq!(proxy.accepted(), 2);
    drop(first);
    poll::until(TIMEOUT, "both close", || proxy.open() == 0);
}

#[test]
fn a_reset_before_the_call_does_not_reach_the_server() {
    let (server, proxy) = server_and_proxy();
    let mut connection = connect(&proxy);
    assert_eq!(incr(&mut connection), Ok(1));
    proxy.set(Mode::ResetBefore);
    assert_eq!(incr(&mut connection), Err(ErrorKind::ConnectionReset));
    proxy.set(Mode::Pass);
    assert_eq!(counted(&server), 1);
}

#[test]
fn a_reset_after_the_call_happens_after_the_server_ran_it() {
    let (server, proxy) = server_and_proxy();
    let mut connection = connect(&proxy);
    assert_eq!(incr(&mut connection), Ok(1));
    proxy.set(Mode::ResetAfter);
    assert_eq!(incr(&mut connection), Err(ErrorKind::ConnectionReset));
    assert_eq!(counted(&server), 2);
}

#[test]
fn a_one_shot_mode_waits_for_its_word() {
    let (server, proxy) = server_and_proxy();
    let mut connection = connect(&proxy);
    proxy.once("INCR", Mode::ResetAfter);
    assert_eq!(connection.command(&["PING"]).unwrap().text(), "PONG");
    assert!(proxy.is_waiting());
    assert_eq!(incr(&mut connection), Err(ErrorKind::ConnectionReset));
    assert!(!proxy.is_waiting());
    assert_eq!(incr(&mut connect(&proxy)), Ok(2));

    let mut connection = connect(&proxy);
    proxy.once("", Mode::Answer(b":77\r\n".to_vec()));
    assert_eq!(incr(&mut connection), Ok(77));
    assert_eq!(incr(&mut connection), Ok(4));
    assert_eq!(counted(&server), 4);
}

#[test]
fn a_black_hole_drops_bytes_and_then_resets() {
    let (server, proxy) = server_and_proxy();
    let (mut old, mut idle) = (connect(&proxy), connect(&proxy));
    assert_eq!(incr(&mut old), Ok(1));
    assert_eq!(incr(&mut idle), Ok(2));
    proxy.set(Mode::BlackHole);
    let mut new = connect(&proxy);
    for connection in [&mut old, &mut new] {
        connection.send(&["INCR", "n"]).unwrap();
    }
    poll::until(TIMEOUT, "both are dropped", || proxy.dropped() == 2);
    proxy.set(Mode::Pass);
    for connection in [&mut old, &mut new] {
        let error = connection.receive().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
    assert_eq!(incr(&mut idle), Ok(3));
    assert_eq!(counted(&server), 3);
}

#[test]
fn held_requests_arrive_later() {
    let (server, proxy) = server_and_proxy();
    let (mut first, mut second) = (connect(&proxy), connect(&proxy));
    proxy.set(Mode::Hold);
    first.send(&["INCR", "n"]).unwrap();
    assert_eq!(counted(&server), 0);
    proxy.set(Mode::Pass);
    assert_eq!(first.receive().unwrap(), Reply::Integer(1));
    proxy.once("INCR", Mode::Hold);
    second.send(&["INCR", "n"]).unwrap();
    poll::until(TIMEOUT, "it is held", || !proxy.is_waiting());
    assert_eq!(incr(&mut first), Ok(2));
    proxy.set(Mode::Pass);
    assert_eq!(second.receive().unwrap(), Reply::Integer(3));
}

#[test]
fn refuse_closes_open_connections_until_the_mode_changes() {
    let (_server, proxy) = server_and_proxy();
    let mut connection = connect(&proxy);
    assert_eq!(incr(&mut connection), Ok(1));
    proxy.set(Mode::Refuse);
    assert_eq!(proxy.open(), 0);
    assert!(incr(&mut connection).is_err());
    let refused = Connection::to_port(proxy.port()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    proxy.set(Mode::Pass);
    assert_eq!(incr(&mut connect(&proxy)), Ok(2));
    assert_eq!(proxy.accepted(), 2);
}

#[test]
fn garbage_is_sent_after_the_server_ran_the_call() {
    let (server, proxy) = server_and_proxy();
    let mut connection = connect(&proxy);
    proxy.set(Mode::Garbage);
    assert_eq!(incr(&mut connection), Err(ErrorKind::InvalidData));
    assert_eq!(counted(&server), 1);
}

#[test]
fn cut_sends_half_a_reply_and_closes() {
    let (server, proxy) = server_and_proxy();
    let mut connection = connect(&proxy);
    proxy.set(Mode::Cut);
    assert_eq!(incr(&mut connection), Err(ErrorKind::UnexpectedEof));
    assert_eq!(counted(&server), 1);
}

#[test]
fn delayed_replies_arrive_in_order_and_concurrently() {
    let (_server, proxy) = server_and_proxy();
    let mut connection = connect(&proxy);
    let delay = Duration::from_millis(200);
    proxy.set(Mode::Delay(delay));
    let start = Instant::now();
    for _ in 0..20 {
        connection.send(&["INCR", "n"]).unwrap();
    }
    for n in 1..=20 {
        assert_eq!(connection.receive().unwrap(), Reply::Integer(n));
    }
    assert!(start.elapsed() >= delay, "a reply is too early");
}

#[test]
fn replace_changes_the_reported_version() {
    let (server, proxy) = server_and_proxy();
    let version = server.info("redis_version").unwrap();
    let mut connection = connect(&proxy);
    proxy.set(Mode::Replace(b"redis_version:7", b"redis_version:5"));
    let info = connection.command(&["INFO", "server"]).unwrap();
    let older = version.replacen('7', "5", 1);
    assert!(info.text().contains(&format!("redis_version:{older}")));
}

#[test]
fn a_client_is_disconnected_when_its_server_ends() {
    let (server, proxy) = server_and_proxy();
    let mut connection = connect(&proxy);
    assert_eq!(incr(&mut connection), Ok(1));
    server.kill();
    assert!(incr(&mut connection).is_err());
    server.restart();
    assert_eq!(incr(&mut connect(&proxy)), Ok(1));
}
