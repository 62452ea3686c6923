//! Keys never show, whatever is printed.

use std::fmt::Debug;

use tallygate::{Key, Limit, Limiter, Quota, Request, RequestError, StoreError};

use crate::behaviours::limiter;

const SECRET: &str = "hunter2";

fn shows_no_key(thing: &impl Debug) {
    let bytes = format!("{:?}", SECRET.as_bytes());
    let bytes = bytes.trim_matches(['[', ']']);
    for shown in [format!("{thing:?}"), format!("{thing:#?}")] {
        assert!(!shown.contains(SECRET), "{shown}");
        assert!(!shown.contains(bytes), "{shown}");
        assert!(!shown.contains("104,\n"), "{shown}");
    }
}

#[test]
fn no_debug_form_shows_a_key() {
    let (_, limiter) = limiter(Quota::per_minute(1));
    let (other, _) = crate::behaviours::store(10);
    shows_no_key(&other);
    for key in [
        Key::from(SECRET),
        Key::from(SECRET.as_bytes()),
        Key::from_parts([SECRET, "x"]),
        Key::from("x").and(SECRET),
    ] {
        shows_no_key(&key);
        shows_no_key(&key.clone().into_owned());
        let request = limiter.request(&key).cost(2);
        shows_no_key(&request);
        shows_no_key(&request.entries()[0]);
        shows_no_key(&limiter.check(&key));
        shows_no_key(&limiter.check(&key));
        shows_no_key(&limiter.check_many([&key, &key]));
        shows_no_key(&limiter);
        shows_no_key(limiter.store());
    }
}

#[test]
fn no_error_shows_a_key() {
    let limit = Limit::from(Quota::per_minute(1));
    let twice = Request::new(SECRET, &limit)
        .and(SECRET, &limit)
        .unwrap_err();
    shows_no_key(&twice);
    assert!(!twice.to_string().contains(SECRET));
    assert!(matches!(twice, RequestError::SameCounterTwice { .. }));
    let lost = StoreError::new("connection refused");
    shows_no_key(&lost);
    assert!(lost.to_string().contains("connection refused"));
}

#[test]
fn a_short_key_of_one_letter_does_not_show_either() {
    let limiter = Limiter::new(Quota::per_minute(1));
    let shown = format!("{:?}", limiter.request("Ω"));
    assert!(!shown.contains('Ω'), "{shown}");
    assert!(!shown.contains("206, 169"), "{shown}");
}
