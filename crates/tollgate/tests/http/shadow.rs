//! A rule in shadow counts and refuses nobody.

use tollgate::Quota;
use tollgate::http::{Missing, Outcome, Rule};
use tollgate::tower::Gate;

use crate::support::{call, from, header, manual};

#[tokio::test]
async fn what_it_would_refuse_passes_and_is_seen() {
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let heard = std::sync::Arc::clone(&seen);
    let (_, store) = manual();
    let gate =
        Gate::over(store, Rule::new("new", Quota::per_hour(1)).shadow()).observe(move |passage| {
            heard
                .lock()
                .unwrap()
                .extend(passage.outcomes().map(|(_, outcome)| outcome));
        });
    for _ in 0..3 {
        let response = call(&gate, from("192.0.2.1")).await;
        assert_eq!(response.status(), 200);
        assert_eq!(
            header(&response, "ratelimit"),
            None,
            "clients hear nothing of it"
        );
    }
    let expected = [
        Outcome::Admitted,
        Outcome::ShadowRefused,
        Outcome::ShadowRefused,
    ];
    assert_eq!(*seen.lock().unwrap(), expected);
}

#[tokio::test]
async fn it_is_asked_only_what_the_others_let_through() {
    let (_, store) = manual();
    let gate = Gate::over(store, Rule::new("old", Quota::per_hour(1)))
        .and(Rule::new("new", Quota::per_hour(2)).shadow());
    for _ in 0..5 {
        call(&gate, from("192.0.2.1")).await;
    }
    // One passed: the rule in shadow has counted one.
    let limiter = gate.limiter();
    let limit = tollgate::Limit::named("new sliding-window-counter/h", Quota::per_hour(2));
    let peek = tollgate::Request::new("all", &limit).verb(tollgate::Verb::Peek);
    assert_eq!(limiter.decide(&peek).await.remaining(), 1);
}

#[tokio::test]
async fn a_missing_key_stops_nobody() {
    let (_, store) = manual();
    let rule = Rule::new("new", Quota::per_hour(1))
        .by_header("x-user")
        .missing(Missing::Refuse);
    let gate = Gate::over(store, rule.shadow());
    assert_eq!(call(&gate, from("192.0.2.1")).await.status(), 200);
}
