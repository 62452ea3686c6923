//! Only the server's clock counts, and the deciding script reads it.

use std::time::Duration;

use tallygate_testkit::poll;
use tallygate_testkit::resp::Reply;

use crate::fixtures::{HEALTHY, TIMEOUT, block_on, builder, connected, namespace, patient_limiter};
use crate::traffic::LARGE_QUOTA;

#[test]
fn no_local_time_is_sent() {
    // The local clock has no influence if nothing that depends on it is sent.
    let store = connected(builder(&HEALTHY.url()));
    let limiter = patient_limiter(&store, LARGE_QUOTA)
        .and(crate::fixtures::quota("9/min"))
        .unwrap();
    let mut monitor = HEALTHY.connect().unwrap();
    assert_eq!(monitor.command(&["MONITOR"]).unwrap().text(), "OK");
    let key = namespace() + "clock";
    let mut sent = Vec::new();
    while sent.len() < 3 {
        assert!(!block_on(limiter.decide(&limiter.request(&key))).degraded());
        let seen = poll::first(TIMEOUT, || match monitor.receive().unwrap() {
            Reply::Status(line) if line.contains(&key) && line.contains("\"EVAL") => Some(line),
            _ => None,
        });
        // After the server time and the client address.
        let line = seen.unwrap();
        let (_, call) = line.split_once("] ").unwrap();
        if call.starts_with("\"EVALSHA\"") {
            sent.push(call.to_owned());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    for call in &sent {
        // The script, the two keys and the arguments, and nothing else.
        assert_eq!(call.split("\" \"").count(), 6, "a time is sent: {call}");
        assert_eq!(call, &sent[0], "what is sent depends on the time");
    }
}

#[test]
fn waits_are_by_the_servers_clock() {
    let store = connected(builder(&HEALTHY.url()));
    let limiter = patient_limiter(&store, "fixed-window 5/h");
    let seconds = || HEALTHY.command(&["TIME"]).array()[0].integer();
    let key = namespace();
    let before = seconds();
    let decision = block_on(limiter.decide(&limiter.request(&key)));
    let after = seconds();
    let ends = |now: i64| Duration::from_secs((3_600 - now % 3_600).try_into().unwrap());
    let left = decision.reset_after();
    // Unless a new hour started in between.
    if before / 3_600 == after / 3_600 {
        assert!(left <= ends(before), "{left:?} at {before}");
        assert!(
            left + Duration::from_secs(1) >= ends(after),
            "{left:?} at {after}"
        );
    }
}
