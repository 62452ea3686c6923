//! Network faults.

use std::sync::Arc;
use std::time::Duration;

use tallygate::RedisStore;
use tallygate_testkit::poll;
use tallygate_testkit::proxy::{Mode, Proxy};
use tallygate_testkit::redis::Server;

use crate::fixtures::{HEALTHY, TIMEOUT, builder, connected, every_key_expires, runtime};
use crate::traffic::{DEFAULT_DEADLINE, Data, Traffic};

/// The maximum number of connections during an outage of some seconds, however many calls fail.
const MAX_CONNECTIONS: u64 = 25;

fn through(proxy: &Proxy) -> RedisStore {
    connected(builder(&proxy.url()).response_timeout(Duration::from_secs(1)))
}

/// Applies a fault for a while.
fn survives(mode: Mode, data: Data) {
    let proxy = Proxy::to(HEALTHY.port());
    let store = through(&proxy);
    let traffic = Traffic::start(&store, DEFAULT_DEADLINE);
    let before = proxy.accepted();
    proxy.set(mode);
    traffic.wait_degraded(20);
    // Long enough to detect a reconnection storm.
    std::thread::sleep(Duration::from_millis(1_500));
    traffic.wait_degraded(20);
    proxy.set(Mode::Pass);
    let failed = traffic.finish(data);
    let connected = proxy.accepted() - before;
    assert!(
        connected <= MAX_CONNECTIONS,
        "{connected} connections for {failed} calls"
    );
    every_key_expires(&HEALTHY);
}

#[test]
fn a_black_hole_is_survived() {
    survives(Mode::BlackHole, Data::Kept);
}

#[test]
fn held_traffic_is_survived() {
    survives(Mode::Hold, Data::Kept);
}

#[test]
fn refused_connections_are_survived() {
    survives(Mode::Refuse, Data::Kept);
}

#[test]
fn resets_before_the_server_ran_the_call_are_survived() {
    survives(Mode::ResetBefore, Data::Kept);
}

#[test]
fn resets_after_the_server_ran_the_call_are_survived() {
    survives(Mode::ResetAfter, Data::Kept);
}

#[test]
fn garbage_is_survived() {
    survives(Mode::Garbage, Data::Kept);
}

#[test]
fn cut_replies_are_survived() {
    survives(Mode::Cut, Data::Kept);
}

#[test]
fn replies_that_come_too_late_are_survived() {
    survives(Mode::Delay(Duration::from_millis(400)), Data::Kept);
}

#[test]
fn a_dropped_store_closes_its_connections() {
    let proxy = Proxy::to(HEALTHY.port());
    let store = through(&proxy);
    Traffic::start(&store, DEFAULT_DEADLINE).finish(Data::Kept);
    // Dropped during an outage, with calls in flight.
    proxy.set(Mode::Hold);
    let traffic = Traffic::start_unchecked(&store, DEFAULT_DEADLINE);
    traffic.wait_degraded(5);
    traffic.abandon();
    drop(store);
    proxy.set(Mode::Pass);
    let gone = || proxy.open() == 0;
    poll::until(TIMEOUT, "connections end with their store", gone);
}

#[test]
fn a_store_opened_before_its_server_starts_connects_later() {
    let server = Server::start();
    let (url, port) = (server.url(), server.port());
    server.kill();
    let store = {
        let _in_runtime = runtime().enter();
        Arc::new(builder(&url).open().unwrap())
    };
    let traffic = Traffic::start_unchecked(&store, DEFAULT_DEADLINE);
    traffic.wait_degraded(20);
    server.restart();
    assert_eq!(server.port(), port);
    traffic.finish(Data::Kept);
    every_key_expires(&server);
}
