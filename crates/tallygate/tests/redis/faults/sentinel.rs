//! The master dies, or hangs, and the sentinels name another.

use std::time::Duration;

use tallygate_testkit::poll;
use tallygate_testkit::redis::{Flavour, Sentinel};

use crate::fixtures::{PATIENCE, builder, connected, every_key_expires};
use crate::traffic::{Data, Load, SHORT};

#[test]
fn a_fail_over_is_followed() {
    for flavour in Flavour::ALL {
        let group = Sentinel::start_as(flavour, &["--requirepass", "secret"]);
        let store = connected(builder(&group.url()).response_timeout(Duration::from_secs(1)));
        let load = Load::start(&store, SHORT);
        let new = group.fail_over();
        load.end(Data::Lost);
        every_key_expires(new);
        group.rejoin();
    }
}

#[test]
fn a_master_that_hangs_is_left_for_the_new_one() {
    let group = Sentinel::start();
    let store = connected(builder(&group.url()).response_timeout(Duration::from_secs(1)));
    let load = Load::start(&store, SHORT);
    let old = group.master();
    old.stop();
    poll::until(PATIENCE, "another is named", || {
        group.master().port() != old.port()
    });
    load.flows();
    // It comes back as a master that nobody follows, and is made a replica.
    old.resume();
    poll::until(PATIENCE, "it is a replica", || {
        old.info("role").as_deref() == Some("slave")
    });
    load.end(Data::Lost);
    group.nodes().iter().for_each(every_key_expires);
}

#[test]
fn a_master_made_a_replica_by_hand_is_left_for_the_new_one() {
    let group = Sentinel::start();
    let store = connected(builder(&group.url()).response_timeout(Duration::from_secs(1)));
    let load = Load::start(&store, SHORT);
    let old = group.master().port();
    let sentinel = &group.sentinels()[0];
    let reply = sentinel.command(&["SENTINEL", "FAILOVER", Sentinel::NAME]);
    assert_eq!(reply.text(), "OK");
    poll::until(PATIENCE, "another is named", || {
        group.master().port() != old
    });
    load.end(Data::Lost);
    group.nodes().iter().for_each(every_key_expires);
}
