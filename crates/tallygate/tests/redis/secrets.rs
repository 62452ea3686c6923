//! Secrets are stored hashed, and nothing that can be printed shows them.

use std::fmt::{Debug, Display};

use tallygate::{Key, Limit, Limiter, Request, Store};
use tallygate_testkit::redis::Server;
use tallygate_testkit::resp::Reply;

use crate::fixtures::{builder, connected, keys, quota, runtime, wait};

const SECRET: &str = "hunter2";
const PASSWORD: &str = "pass-phrase";

#[track_caller]
fn shows_nothing(thing: &(impl Debug + ?Sized)) {
    for shown in [format!("{thing:?}"), format!("{thing:#?}")] {
        assert!(!shown.contains(SECRET), "{shown}");
        assert!(!shown.contains(PASSWORD), "{shown}");
    }
}

#[track_caller]
fn says_nothing(thing: &(impl Debug + Display + ?Sized)) {
    shows_nothing(thing);
    let said = thing.to_string();
    assert!(!said.contains(SECRET) && !said.contains(PASSWORD), "{said}");
}

#[test]
fn a_secret_is_never_sent_or_stored_in_clear() {
    let server = Server::start_with(&["--requirepass", PASSWORD]);
    let store = connected(builder(&server.url()));
    shows_nothing(&builder(&server.url()));
    shows_nothing(&*store);
    let mut monitor = server.connect().unwrap();
    assert_eq!(monitor.command(&["MONITOR"]).unwrap().text(), "OK");
    let limit = Limit::from(quota("10/h"));
    let log = Limit::from(quota("sliding-window-log 10/h"));
    for key in [
        Key::secret(SECRET),
        Key::from("tenant").and_secret(SECRET),
        Key::secret(SECRET).and("tenant"),
    ] {
        let request = Request::of(&key, [&limit, &log]).unwrap();
        let decision = wait(store.decide(&request)).unwrap();
        shows_nothing(&request);
        shows_nothing(&decision);
        assert!(decision.allowed());
        assert_eq!(decision.remaining(), 9, "two secrets share a counter");
    }
    let stored = keys(&mut server.connect().unwrap());
    assert_eq!(stored.len(), 6);
    let shown: Vec<String> = stored
        .iter()
        .map(|key| String::from_utf8_lossy(key).into_owned())
        .collect();
    shows_nothing(&shown);
    let mut seen = 0;
    while seen < 3 {
        let Reply::Status(line) = monitor.receive().unwrap() else {
            panic!("MONITOR says lines");
        };
        shows_nothing(&line);
        seen += usize::from(line.contains("] \"EVAL"));
    }
}

#[test]
fn no_error_says_a_secret() {
    let server = Server::start_with(&["--requirepass", PASSWORD]);
    let store = connected(builder(&server.url()));
    let limit = Limit::from(quota("10/h"));
    let request = Request::new(SECRET, &limit);
    let commands: [&[&str]; 3] = [
        &["CONFIG", "SET", "maxmemory", "1"],
        &["REPLICAOF", "127.0.0.1", "1"],
        &["ACL", "SETUSER", "default", "-eval", "-evalsha"],
    ];
    for command in commands {
        server.command(command);
        let error = wait(store.decide(&request)).unwrap_err();
        says_nothing(&error);
        says_nothing(std::error::Error::source(&error).unwrap());
    }
    server.kill();
    says_nothing(&wait(store.decide(&request)).unwrap_err());
    says_nothing(&wait(builder(&server.url()).connect()).unwrap_err());
    let _in_runtime = runtime().enter();
    let limiter = Limiter::over(builder(&server.url()).open().unwrap(), limit.clone());
    shows_nothing(&limiter);
}
