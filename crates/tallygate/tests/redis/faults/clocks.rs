//! Clocks: only the server's counts, and it is asked for it in the very step that decides.

use std::time::Duration;

use tallygate_testkit::poll;
use tallygate_testkit::resp::Reply;

use crate::fixtures::{PATIENCE, UNHARMED, builder, connected, namespace, patient, wait};
use crate::traffic::PLENTY;

#[test]
fn no_time_of_the_application_is_sent() {
    // With nothing sent that depends on it, an application's clock may show what it likes.
    let store = connected(builder(&UNHARMED.url()));
    let limiter = patient(&store, PLENTY)
        .and(crate::fixtures::quota("9/min"))
        .unwrap();
    let mut monitor = UNHARMED.connect().unwrap();
    assert_eq!(monitor.command(&["MONITOR"]).unwrap().text(), "OK");
    let key = namespace() + "clock";
    let mut sent = Vec::new();
    while sent.len() < 3 {
        assert!(!wait(limiter.decide(&limiter.request(&key))).degraded());
        let seen = poll::first(PATIENCE, || match monitor.receive().unwrap() {
            Reply::Status(line) if line.contains(&key) && line.contains("\"EVAL") => Some(line),
            _ => None,
        });
        // After the time of the server and the address of the client.
        let line = seen.unwrap();
        let (_, call) = line.split_once("] ").unwrap();
        if call.starts_with("\"EVALSHA\"") {
            sent.push(call.to_owned());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    for call in &sent {
        // The script, the two counters and what is asked of them, and nothing after that.
        assert_eq!(call.split("\" \"").count(), 6, "a time is sent: {call}");
        assert_eq!(call, &sent[0], "what is sent depends on the time");
    }
}

#[test]
fn what_is_left_to_wait_is_by_the_servers_clock() {
    let store = connected(builder(&UNHARMED.url()));
    let limiter = patient(&store, "fixed-window 5/h");
    let seconds = || UNHARMED.command(&["TIME"]).array()[0].integer();
    let key = namespace();
    let before = seconds();
    let decision = wait(limiter.decide(&limiter.request(&key)));
    let after = seconds();
    let ends = |now: i64| Duration::from_secs((3_600 - now % 3_600).try_into().unwrap());
    let left = decision.reset_after();
    // Unless the hour ended in between.
    if before / 3_600 == after / 3_600 {
        assert!(left <= ends(before), "{left:?} at {before}");
        assert!(
            left + Duration::from_secs(1) >= ends(after),
            "{left:?} at {after}"
        );
    }
}
