//! Leases on real servers: what is spent was debited before, what is left goes back.

mod faults;

use std::time::Duration;

use futures_util::future::join_all;
use tallygate::{Decision, LeaseSettings, Limit, RedisStore, Request, Store, Verb};
use tallygate_testkit::poll;
use tallygate_testkit::redis::Server;

use crate::fixtures::{HEALTHY, TIMEOUT, block_on, quota, store};

/// Never refilled during a test.
const LARGE: &str = "token-bucket 3/d burst 100000";

fn leased(text: &str, hold: Duration) -> Limit {
    let settings = LeaseSettings::default().hold(hold).max(5_000);
    Limit::from(quota(text)).lease(settings).unwrap()
}

fn check(store: &RedisStore, request: &Request<'_>) -> Decision {
    match store.try_decide(request) {
        Some(decision) => decision,
        None => block_on(store.decide(request)).unwrap(),
    }
}

/// The units that the server has counted.
fn counted(store: &RedisStore, key: &str, limit: &Limit) -> u32 {
    let peek = Request::new(key, limit).verb(Verb::Peek);
    let decision = block_on(store.decide(&peek)).unwrap();
    limit.quota().capacity() - decision.remaining()
}

/// Checks until a lease is spent. Returns the units that were granted.
fn spend_a_lease(store: &RedisStore, key: &str, limit: &Limit) -> u32 {
    let mut granted = 0;
    store.prepare(limit);
    poll::until(TIMEOUT, "a lease is spent", || {
        let decision = check(store, &Request::new(key, limit));
        granted += decision.granted();
        decision.leased()
    });
    granted
}

#[test]
fn what_is_spent_from_leases_was_counted_before() {
    let store = store(&HEALTHY.url());
    let limit = leased(LARGE, Duration::from_secs(60));
    let mut granted = spend_a_lease(&store, "spend", &limit);
    for _ in 0..20_000 {
        let decision = check(&store, &Request::new("spend", &limit));
        granted += decision.granted();
    }
    let stats = store.lease_stats();
    assert!(stats.saved > 10_000, "{stats:?}");
    let charged = counted(&store, "spend", &limit);
    assert!(charged >= granted, "{granted} of {charged}");
    // A lease may still be on its way from the server.
    poll::until(TIMEOUT, "what was counted is spent or outstanding", || {
        u64::from(charged - granted) <= store.lease_stats().outstanding
    });
    block_on(store.close());
    let left = counted(&store, "spend", &limit);
    // A bucket may have drained a unit's part meanwhile.
    assert!(
        left == granted || left == granted + 1,
        "{granted} of {left}"
    );
    assert_eq!(store.lease_stats().outstanding, 0);
}

#[test]
fn the_end_of_a_limit_is_exact() {
    let store = store(&HEALTHY.url());
    for text in [
        "fixed-window 5000/d",
        "sliding-window-log 5000/d",
        "5000/d",
        "token-bucket 1/d burst 5000",
        "leaky-bucket 1/d burst 5000",
    ] {
        let limit = leased(text, Duration::from_millis(300));
        store.prepare(&limit);
        let mut granted = 0;
        // What is leased by others, or on its way, comes back: refused requests may fit later.
        poll::until(TIMEOUT, "everything is granted", || {
            let requests: Vec<_> = (0..200).map(|_| Request::new("end", &limit)).collect();
            let decisions = block_on(join_all(requests.iter().map(async |request| {
                match store.try_decide(request) {
                    Some(decision) => decision,
                    None => store.decide(request).await.unwrap(),
                }
            })));
            granted += decisions.iter().map(Decision::granted).sum::<u32>();
            granted >= 5_000
        });
        assert_eq!(granted, 5_000, "{text}");
    }
}

#[test]
fn unused_units_go_back_after_the_hold() {
    let store = store(&HEALTHY.url());
    let limit = leased(LARGE, Duration::from_millis(200));
    let granted = spend_a_lease(&store, "idle", &limit);
    poll::until(TIMEOUT, "the lease is returned", || {
        counted(&store, "idle", &limit) <= granted + 1
    });
    let stats = store.lease_stats();
    assert_eq!((stats.outstanding, stats.stranded), (0, 0));
    assert!(stats.returned > 0);
}

#[test]
fn a_leased_and_an_exact_limit_are_all_or_nothing() {
    let store = store(&HEALTHY.url());
    let tenant = leased(LARGE, Duration::from_secs(60));
    let user = Limit::named("user", quota("fixed-window 10/d"));
    spend_a_lease(&store, "tenant", &tenant);
    let before = store.lease_stats();
    let request = Request::new("tenant", &tenant).and("user", &user).unwrap();
    let decisions: Vec<Decision> = (0..30).map(|_| check(&store, &request)).collect();
    assert!(decisions.iter().take(10).all(Decision::allowed));
    assert!(
        decisions
            .iter()
            .skip(10)
            .all(|one| !one.allowed() && one.binding() == 1)
    );
    assert!(
        decisions
            .iter()
            .all(|one| one.leased() && one.verdicts().len() == 2)
    );
    assert_eq!(counted(&store, "user", &user), 10);
    // The refused ones put their units back.
    let after = store.lease_stats();
    assert_eq!(before.outstanding - after.outstanding, 10);
}

#[test]
fn an_undone_unit_can_be_spent_again() {
    let store = store(&HEALTHY.url());
    let limit = leased(LARGE, Duration::from_secs(60));
    spend_a_lease(&store, "undo", &limit);
    let before = store.lease_stats().outstanding;
    let request = Request::new("undo", &limit).cost(3);
    let decision = check(&store, &request);
    assert!(decision.leased());
    assert_eq!(store.lease_stats().outstanding, before - 3);
    store.undo(&request, &decision);
    assert_eq!(store.lease_stats().outstanding, before);
}

/// `Limiter::undo` does not know the cost.
#[test]
fn an_undo_puts_back_what_was_taken_whatever_its_cost() {
    let store = store(&HEALTHY.url());
    let limit = leased(LARGE, Duration::from_secs(60));
    spend_a_lease(&store, "undo cost", &limit);
    let request = |cost| Request::new("undo cost", &limit).cost(cost);
    assert!(check(&store, &request(10)).leased());
    for undone in [5, u32::MAX] {
        let before = store.lease_stats().outstanding;
        let decision = check(&store, &request(3));
        assert!(decision.leased());
        store.undo(&request(undone), &decision);
        assert_eq!(store.lease_stats().outstanding, before, "cost {undone}");
    }
}

#[test]
fn a_reset_forgets_leases() {
    let store = store(&HEALTHY.url());
    let limit = leased(LARGE, Duration::from_secs(60));
    spend_a_lease(&store, "reset", &limit);
    let reset = Request::new("reset", &limit).verb(Verb::Reset);
    block_on(store.decide(&reset)).unwrap();
    assert_eq!(store.lease_stats().outstanding, 0);
    assert_eq!(counted(&store, "reset", &limit), 0);
}

/// The server forgets the counters, and later ends: leases are lost with it, and nothing hangs.
#[test]
fn a_server_that_ends_strands_what_was_leased() {
    let server = Server::start();
    let store = store(&server.url());
    let limit = leased(LARGE, Duration::from_millis(200));
    spend_a_lease(&store, "lost", &limit);
    server.kill();
    poll::until(TIMEOUT, "leases end", || {
        store.lease_stats().outstanding == 0
    });
    let stats = store.lease_stats();
    assert!(stats.stranded > 0, "{stats:?}");
    assert!(store.try_decide(&Request::new("lost", &limit)).is_none());
}
