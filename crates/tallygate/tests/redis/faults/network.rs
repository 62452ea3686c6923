//! The way to the server is cut.

use std::sync::Arc;
use std::time::Duration;

use tallygate::RedisStore;
use tallygate_testkit::poll;
use tallygate_testkit::proxy::{Mode, Proxy};
use tallygate_testkit::redis::Server;

use crate::fixtures::{PATIENCE, UNHARMED, builder, connected, every_key_expires, runtime};
use crate::traffic::{Data, Load, SHORT};

/// How many connections an outage of some seconds may cost: a few, however many calls fail.
const FEW: u64 = 25;

fn through(proxy: &Proxy) -> Arc<RedisStore> {
    connected(builder(&proxy.url()).response_timeout(Duration::from_secs(1)))
}

/// Breaks the way in one manner for a while.
fn broken_by(mode: Mode, data: Data) {
    let proxy = Proxy::to(UNHARMED.port());
    let store = through(&proxy);
    let load = Load::start(&store, SHORT);
    let before = proxy.accepted();
    proxy.set(mode);
    load.does_without(20);
    // Long enough for a storm to show.
    std::thread::sleep(Duration::from_millis(1_500));
    load.does_without(20);
    proxy.set(Mode::Pass);
    let failed = load.end(data);
    let connected = proxy.accepted() - before;
    assert!(
        connected <= FEW,
        "{connected} connections for {failed} calls"
    );
    every_key_expires(&UNHARMED);
}

#[test]
fn a_black_hole_is_survived() {
    broken_by(Mode::BlackHole, Data::Kept);
}

#[test]
fn a_hold_up_is_survived() {
    broken_by(Mode::Hold, Data::Kept);
}

#[test]
fn refused_connections_are_survived() {
    broken_by(Mode::Refuse, Data::Kept);
}

#[test]
fn resets_before_the_server_ran_the_call_are_survived() {
    broken_by(Mode::ResetBefore, Data::Kept);
}

#[test]
fn resets_after_the_server_ran_the_call_are_survived() {
    broken_by(Mode::ResetAfter, Data::Kept);
}

#[test]
fn garbage_is_survived() {
    broken_by(Mode::Garbage, Data::Kept);
}

#[test]
fn cut_replies_are_survived() {
    broken_by(Mode::Cut, Data::Kept);
}

#[test]
fn replies_that_come_too_late_are_survived() {
    broken_by(Mode::Delay(Duration::from_millis(400)), Data::Kept);
}

#[test]
fn a_store_that_is_dropped_leaves_no_connection_behind() {
    let proxy = Proxy::to(UNHARMED.port());
    let store = through(&proxy);
    Load::start(&store, SHORT).end(Data::Kept);
    // Dropped in the middle of an outage, with calls under way.
    proxy.set(Mode::Hold);
    let load = Load::begin(&store, SHORT);
    load.does_without(5);
    load.abandon();
    drop(store);
    proxy.set(Mode::Pass);
    let gone = || proxy.open() == 0;
    poll::until(PATIENCE, "connections end with their store", gone);
}

#[test]
fn a_store_opened_before_its_server_is_there_uses_it_when_it_comes() {
    let server = Server::start();
    let (url, port) = (server.url(), server.port());
    server.kill();
    let store = {
        let _in_runtime = runtime().enter();
        Arc::new(builder(&url).open().unwrap())
    };
    let load = Load::begin(&store, SHORT);
    load.does_without(20);
    server.restart();
    assert_eq!(server.port(), port);
    load.end(Data::Kept);
    every_key_expires(&server);
}
