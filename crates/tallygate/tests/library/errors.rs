//! Errors print one readable line, also with `Debug`, as `main` prints them.

use std::error::Error;

use tallygate::store::StoreErrorKind;
use tallygate::{Limit, Limiter, Quota, Request, StoreError, Verb};

#[track_caller]
fn prints(error: impl Into<Box<dyn Error>>, expected: &str) {
    let error = error.into();
    assert_eq!(format!("{error:?}"), expected);
    assert_eq!(error.to_string(), expected);
}

#[test]
fn every_error_prints_its_text() {
    prints(
        "10/s burst 5".parse::<Quota>().unwrap_err(),
        "sliding-window-counter takes no burst (column 6 of `10/s burst 5`); did you mean \
         `token-bucket 10/s burst 5`?",
    );
    let limit = Limit::named("user", Quota::per_minute(60));
    prints(
        Request::new("ann", &limit).and("ann", &limit).unwrap_err(),
        "the same key has two limits named `user`; rename one of them",
    );
    prints(
        Limiter::new(limit.clone()).and(limit).unwrap_err(),
        "the same key has two limits named `user`; rename one of them",
    );
    let unknown = "borrow".parse::<Verb>().unwrap_err();
    prints(unknown, &unknown.to_string());
    let down = "down for maintenance";
    prints(
        StoreError::with_kind(StoreErrorKind::Unreachable, down),
        "the store did not answer: down for maintenance",
    );
}

#[cfg(feature = "tokio")]
#[tokio::test(flavor = "current_thread")]
async fn a_wait_that_never_ends_prints_why() {
    let limiter = Limiter::new(Quota::per_minute(60));
    let error = limiter.acquire_cost("ann", 61).await.unwrap_err();
    prints(
        error,
        "the cost is above the capacity and never fits: lower it, or raise the limit",
    );
}

#[cfg(feature = "redis")]
#[test]
fn a_wrong_url_prints_what_to_write_and_no_password() {
    let url = tallygate::RedisStore::builder("postgres://ann:hunter2@localhost");
    let error = url.check_url().unwrap_err();
    let printed = format!("{error:?}");
    assert_eq!(printed, error.to_string());
    assert!(
        printed.contains("redis://user:password@host:6379/0"),
        "{printed}"
    );
    assert!(
        !printed.contains("hunter2") && !printed.contains('\n'),
        "{printed}"
    );
}

#[cfg(feature = "rules")]
#[test]
fn errors_of_rules_print_the_value_and_an_example() {
    use tallygate::rules::{Name, PathPattern, Rule, RuleSet, Rules};

    let rule = || Rule::new("login", Quota::per_minute(5));
    prints(
        Rules::new(RuleSet::from([rule(), rule()])).unwrap_err(),
        "two rules are named `login`",
    );
    for error in [
        "login".parse::<PathPattern>().map(drop).unwrap_err(),
        "".parse::<Name>().map(drop).unwrap_err(),
    ] {
        let printed = format!("{error:?}");
        assert_eq!(printed, error.to_string());
        assert!(printed.contains("; write it like "), "{printed}");
    }
}
