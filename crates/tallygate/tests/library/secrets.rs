//! No `Debug` output and no error contains a key.

use std::fmt::Debug;

use tallygate::{Key, Limit, Limiter, Quota, Request, RequestError, StoreError};

use crate::fixtures::limiter;

const SECRET: &str = "hunter2";

fn assert_no_key(value: &impl Debug) {
    let bytes = format!("{:?}", SECRET.as_bytes());
    let bytes = bytes.trim_matches(['[', ']']);
    for shown in [format!("{value:?}"), format!("{value:#?}")] {
        assert!(!shown.contains(SECRET), "{shown}");
        assert!(!shown.contains(bytes), "{shown}");
        assert!(!shown.contains("104,\n"), "{shown}");
    }
}

#[test]
fn no_debug_output_shows_a_key() {
    let (_, limiter) = limiter(Quota::per_minute(1));
    let (other, _) = crate::fixtures::store(10);
    assert_no_key(&other);
    for key in [
        Key::from(SECRET),
        Key::from(SECRET.as_bytes()),
        Key::from_parts([SECRET, "x"]),
        Key::from("x").and(SECRET),
    ] {
        assert_no_key(&key);
        assert_no_key(&key.clone().into_owned());
        let request = limiter.request(&key).cost(2);
        assert_no_key(&request);
        assert_no_key(&request.entries()[0]);
        assert_no_key(&limiter.check(&key));
        assert_no_key(&limiter.check(&key));
        assert_no_key(&limiter.check_many([&key, &key]));
        assert_no_key(&limiter);
        assert_no_key(limiter.store());
    }
}

#[test]
fn no_error_shows_a_key() {
    let limit = Limit::from(Quota::per_minute(1));
    let twice = Request::new(SECRET, &limit)
        .and(SECRET, &limit)
        .unwrap_err();
    assert_no_key(&twice);
    assert!(!twice.to_string().contains(SECRET));
    assert!(matches!(twice, RequestError::SameCounterTwice { .. }));
    let error = StoreError::new("connection refused");
    assert_no_key(&error);
    assert!(error.to_string().contains("connection refused"));
}

#[test]
fn a_key_of_one_character_is_not_shown_either() {
    let limiter = Limiter::new(Quota::per_minute(1));
    let shown = format!("{:?}", limiter.request("Ω"));
    assert!(!shown.contains('Ω'), "{shown}");
    assert!(!shown.contains("206, 169"), "{shown}");
}
