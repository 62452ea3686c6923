//! `RedisStore::inspect` on one server and in a cluster.

use std::time::Duration;

use tallygate::store::{CounterState, StoreErrorKind};
use tallygate::{Algorithm, Key, Limit, Limiter, Quota, RedisStore, Request, Verb};
use tallygate_testkit::proxy::{Mode, Proxy};
use tallygate_testkit::redis::Cluster;

use crate::fixtures::{HEALTHY, LONG_DEADLINE, block_on, builder, connected, store};

const DAY_US: u64 = 86_400_000_000;

fn limits() -> impl Iterator<Item = Limit> {
    Algorithm::BASIC.into_iter().map(|algorithm| {
        let quota = Quota::new(algorithm, 20, Duration::from_micros(DAY_US));
        Limit::from(quota.unwrap())
    })
}

/// The used units of a state; less than one drains during a test.
fn used(state: &CounterState) -> u64 {
    match state {
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

fn check_inspect(store: RedisStore) {
    let limiter: Limiter<RedisStore> =
        Limiter::with_store(store, Quota::per_minute(1)).deadline(LONG_DEADLINE);
    for (i, limit) in limits().enumerate() {
        let key = Key::from(format!("key {i}"));
        let inspect = || block_on(limiter.store().inspect(&key, &limit)).unwrap();
        assert_eq!(used(&inspect().state), 0, "{}", limit.name());
        for (cost, sum) in [(3, 3), (2, 5), (30, 5)] {
            let request = Request::new(&key, &limit).cost(cost);
            let decision = block_on(limiter.decide(&request));
            assert!(!decision.degraded(), "the store fails");
            let shown = inspect();
            assert_eq!(used(&shown.state), sum, "{}", limit.name());
            assert!(inspect().now_us >= shown.now_us);
            let peek = block_on(limiter.decide(&request.verb(Verb::Peek)));
            assert_eq!(
                u64::from(peek.remaining()),
                20 - sum,
                "inspect changed the counter"
            );
        }
    }
}

#[test]
fn inspect_shows_the_units_taken() {
    check_inspect(store(&HEALTHY.url()));
}

#[test]
fn inspect_finds_the_cluster_node_of_a_counter() {
    let cluster = Cluster::start();
    check_inspect(connected(builder(&cluster.url())));
}

#[test]
fn inspect_fails_if_the_server_is_unreachable() {
    let proxy = Proxy::to(HEALTHY.port());
    let store = store(&proxy.url());
    proxy.set(Mode::Refuse);
    let limit = limits().next().unwrap();
    let error = block_on(store.inspect(&"a".into(), &limit)).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unreachable);
}
