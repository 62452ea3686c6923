//! A look at counters as servers store them, on one server and in a cluster.

use std::time::Duration;

use tallygate::{
    Algorithm, CounterState, Key, Limit, Limiter, Quota, RedisStore, Request, StoreErrorKind, Verb,
};
use tallygate_testkit::proxy::{Mode, Proxy};
use tallygate_testkit::redis::Cluster;

use crate::fixtures::{HEALTHY, LONG_DEADLINE, block_on, builder, connected, store};

const DAY_US: u64 = 86_400_000_000;

fn limits() -> impl Iterator<Item = Limit> {
    Algorithm::ALL.into_iter().map(|algorithm| {
        let quota = Quota::new(algorithm, 20, Duration::from_micros(DAY_US));
        Limit::from(quota.unwrap())
    })
}

/// The units that a view shows; what drained in a moment of a day is less than one.
fn used(view: &CounterState) -> u64 {
    match view {
        CounterState::Window {
            start_us,
            end_us,
            used,
        } => {
            assert_eq!(end_us - start_us, DAY_US);
            *used
        }
        CounterState::Windows {
            start_us,
            end_us,
            previous,
            current,
        } => {
            assert_eq!((end_us - start_us, *previous), (DAY_US, 0));
            *current
        }
        CounterState::Log { entries } => {
            assert!(entries.is_sorted_by_key(|(time, _)| time));
            entries.iter().map(|(_, units)| units).sum()
        }
        CounterState::Level { used_milli } => used_milli.div_ceil(1_000),
        other => panic!("{other:?}"),
    }
}

fn shows_what_was_taken(store: RedisStore) {
    let limiter: Limiter<RedisStore> =
        Limiter::with_store(store, Quota::per_minute(1)).deadline(LONG_DEADLINE);
    for (i, limit) in limits().enumerate() {
        let key = Key::from(format!("key {i}"));
        let look = || block_on(limiter.store().inspect(&key, &limit)).unwrap();
        assert_eq!(used(&look().state), 0, "{}", limit.name());
        for (cost, sum) in [(3, 3), (2, 5), (30, 5)] {
            let request = Request::new(&key, &limit).cost(cost);
            let decision = block_on(limiter.decide(&request));
            assert!(!decision.degraded(), "the store does not answer");
            let shown = look();
            assert_eq!(used(&shown.state), sum, "{}", limit.name());
            assert!(look().now_us >= shown.now_us);
            let peek = block_on(limiter.decide(&request.verb(Verb::Peek)));
            assert_eq!(u64::from(peek.remaining()), 20 - sum, "it changed nothing");
        }
    }
}

#[test]
fn a_look_at_a_counter_shows_what_was_taken() {
    shows_what_was_taken(store(&HEALTHY.url()));
}

#[test]
fn a_look_finds_whoever_of_a_cluster_holds_the_counter() {
    let cluster = Cluster::start();
    shows_what_was_taken(connected(builder(&cluster.url())));
}

#[test]
fn a_look_at_a_server_that_is_gone_is_an_error() {
    let proxy = Proxy::to(HEALTHY.port());
    let store = store(&proxy.url());
    proxy.set(Mode::Refuse);
    let limit = limits().next().unwrap();
    let error = block_on(store.inspect(&"a".into(), &limit)).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unreachable);
}
