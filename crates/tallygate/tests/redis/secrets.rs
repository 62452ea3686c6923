//! Secrets are stored as hashes and never printed.

use std::fmt::{Debug, Display};

use tallygate::{Key, Limit, Limiter, RedisStore, Request, Store};
use tallygate_testkit::redis::Server;
use tallygate_testkit::resp::Reply;

use crate::fixtures::{block_on, builder, connected, keys, quota, runtime};

const SECRET: &str = "hunter2";
const PASSWORD: &str = "pass-phrase";

#[track_caller]
fn check_debug(value: &(impl Debug + ?Sized)) {
    for shown in [format!("{value:?}"), format!("{value:#?}")] {
        assert!(!shown.contains(SECRET), "{shown}");
        assert!(!shown.contains(PASSWORD), "{shown}");
    }
}

#[track_caller]
fn check_text(value: &(impl Debug + Display + ?Sized)) {
    check_debug(value);
    let text = value.to_string();
    assert!(!text.contains(SECRET) && !text.contains(PASSWORD), "{text}");
}

#[test]
fn a_secret_is_never_sent_or_stored_in_clear_text() {
    let server = Server::start_with(&["--requirepass", PASSWORD]);
    let store = connected(builder(&server.url()));
    check_debug(&builder(&server.url()));
    check_debug(&store);
    let mut monitor = server.connect().unwrap();
    assert_eq!(monitor.command(&["MONITOR"]).unwrap().text(), "OK");
    let limit = Limit::from(quota("10/h"));
    let log = Limit::from(quota("sliding-window-log 10/h"));
    for key in [
        Key::secret(SECRET),
        Key::from("tenant").and_secret(SECRET),
        Key::secret(SECRET).and("tenant"),
    ] {
        let request = Request::with_limits(&key, [&limit, &log]).unwrap();
        let decision = block_on(store.decide(&request)).unwrap();
        check_debug(&request);
        check_debug(&decision);
        assert!(decision.allowed());
        assert_eq!(decision.remaining(), 9, "two secrets share a counter");
    }
    let stored = keys(&mut server.connect().unwrap());
    assert_eq!(stored.len(), 6);
    let shown: Vec<String> = stored
        .iter()
        .map(|key| String::from_utf8_lossy(key).into_owned())
        .collect();
    check_debug(&shown);
    let mut seen = 0;
    while seen < 3 {
        let Reply::Status(line) = monitor.receive().unwrap() else {
            panic!("MONITOR sends lines");
        };
        check_debug(&line);
        seen += usize::from(line.contains("] \"EVAL"));
    }
}

#[test]
fn stores_share_the_counters_of_secrets_if_their_hmac_secrets_agree() {
    const HMAC_SECRET: &str = "correct horse battery";
    let server = Server::start();
    let shared = || builder(&server.url()).namespace("shared");
    let keyed = |secret: &str| connected(shared().hmac_secret(secret));
    let limit = Limit::from(quota("10/h"));
    let remaining = |store: &RedisStore, key: Key<'_>| {
        let request = Request::new(key, &limit);
        block_on(store.decide(&request)).unwrap().remaining()
    };
    let (one, two, other) = (
        keyed(HMAC_SECRET),
        keyed(HMAC_SECRET),
        keyed(&HMAC_SECRET[1..]),
    );
    let plain = connected(shared());
    assert_eq!(remaining(&one, Key::secret(SECRET)), 9);
    assert_eq!(remaining(&two, Key::secret(SECRET)), 8);
    assert_eq!(remaining(&other, Key::secret(SECRET)), 9);
    assert_eq!(remaining(&plain, Key::secret(SECRET)), 9);
    // Keys without a secret are the same with any setting.
    assert_eq!(remaining(&one, Key::from("ann")), 9);
    assert_eq!(remaining(&plain, Key::from("ann")), 8);
    for debug in [
        format!("{one:?}"),
        format!("{:?}", builder("x").hmac_secret(HMAC_SECRET)),
    ] {
        assert!(!debug.contains(HMAC_SECRET), "{debug}");
    }
    let short = shared().hmac_secret("0123456789abcde").open();
    let error = short.unwrap_err().to_string();
    assert!(
        error.contains("15 bytes") && error.contains("16"),
        "{error}"
    );
    assert!(!error.contains("0123"), "{error}");
}

#[test]
fn no_error_shows_a_secret() {
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
        let error = block_on(store.decide(&request)).unwrap_err();
        check_text(&error);
        check_text(std::error::Error::source(&error).unwrap());
    }
    server.kill();
    check_text(&block_on(store.decide(&request)).unwrap_err());
    let stopped = block_on(builder(&server.url()).connect()).unwrap();
    check_text(&block_on(stopped.check()).unwrap_err());
    let wrong = server.url().replace(PASSWORD, "hunter9");
    server.restart();
    check_text(&block_on(builder(&wrong).connect()).unwrap_err());
    let _in_runtime = runtime().enter();
    let limiter = Limiter::with_store(builder(&server.url()).open().unwrap(), limit.clone());
    check_debug(&limiter);
}
