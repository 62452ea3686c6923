//! Failover of a master that fails or hangs.

use std::time::Duration;

use tallygate_testkit::poll;
use tallygate_testkit::redis::{Flavour, Sentinel};

use crate::fixtures::{TIMEOUT, builder, connected, every_key_expires};
use crate::traffic::{DEFAULT_DEADLINE, Data, Traffic};

#[test]
fn a_failover_is_followed() {
    for flavour in Flavour::ALL {
        let group = Sentinel::start_as(flavour, &["--requirepass", "secret"]);
        let store = connected(builder(&group.url()).response_timeout(Duration::from_secs(1)));
        let traffic = Traffic::start(&store, DEFAULT_DEADLINE);
        let new = group.fail_over();
        traffic.finish(Data::Lost);
        every_key_expires(new);
        group.rejoin();
    }
}

#[test]
fn a_hanging_master_is_replaced() {
    let group = Sentinel::start();
    let store = connected(builder(&group.url()).response_timeout(Duration::from_secs(1)));
    let traffic = Traffic::start(&store, DEFAULT_DEADLINE);
    let old = group.master();
    old.stop();
    poll::until(TIMEOUT, "another master is named", || {
        group.master().port() != old.port()
    });
    traffic.wait_healthy();
    // It returns as a master without replicas, and is demoted.
    old.resume();
    poll::until(TIMEOUT, "it is a replica", || {
        old.info("role").as_deref() == Some("slave")
    });
    traffic.finish(Data::Lost);
    group.nodes().iter().for_each(every_key_expires);
}

#[test]
fn a_demoted_master_is_replaced() {
    let group = Sentinel::start();
    let store = connected(builder(&group.url()).response_timeout(Duration::from_secs(1)));
    let traffic = Traffic::start(&store, DEFAULT_DEADLINE);
    let old = group.master().port();
    let sentinel = &group.sentinels()[0];
    let reply = sentinel.command(&["SENTINEL", "FAILOVER", Sentinel::NAME]);
    assert_eq!(reply.text(), "OK");
    poll::until(TIMEOUT, "another master is named", || {
        group.master().port() != old
    });
    traffic.finish(Data::Lost);
    group.nodes().iter().for_each(every_key_expires);
}
