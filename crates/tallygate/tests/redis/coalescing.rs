//! Equal checks that wait for the same batch are decided in one step, and answered as single ones.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use tallygate::{Decision, Key, Limit, RedisStore, Request, Retry, Store, Verb};
use tallygate_testkit::poll;
use tallygate_testkit::redis::Server;

use tokio::runtime::Builder;

use crate::fixtures::{HEALTHY, TIMEOUT, block_on, builder, calls, connected, quota, store};

const QUOTAS: [&str; 6] = [
    "fixed-window 100/h",
    "sliding-window-log 100/h",
    "100/h",
    "token-bucket 100/h burst 100",
    "leaky-bucket 100/h burst 100",
    "leaky-bucket 100/h queue 100",
];

/// Decides requests that are all queued before the first is answered.
async fn decide_together(store: &RedisStore, requests: Vec<Request<'_>>) -> Vec<Decision> {
    let decisions = requests.iter().map(|request| store.decide(request));
    let decisions = join_all(decisions).await;
    decisions.into_iter().map(Result::unwrap).collect()
}

#[test]
fn equal_checks_are_admitted_in_the_order_they_asked() {
    // On one thread nothing is sent before all have asked, and batches are sent in their order.
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let store = runtime.block_on(builder(&HEALTHY.url()).connect()).unwrap();
    for text in QUOTAS {
        for cost in [1, 3, 7] {
            let limit = Limit::from(quota(text));
            let key = format!("hot {cost}");
            let request = || Request::new(Key::from(&*key), &limit).cost(cost);
            let requests = (0..500).map(|_| request()).collect();
            let decisions = runtime.block_on(decide_together(&store, requests));
            let fitting = (100 / cost) as usize;
            for (i, decision) in decisions.iter().enumerate() {
                // A bucket may gain a unit during the test.
                let allowed = decision.allowed();
                assert!(allowed || i >= fitting, "{text} {cost}: {i} refused");
                assert!(!allowed || i <= fitting, "{text} {cost}: {i} admitted");
                if i < fitting {
                    let left = 100 - cost * (u32::try_from(i).unwrap() + 1);
                    let more = decision.remaining() - left;
                    assert!(more <= 1, "{text} {cost}: {i} has {more} more");
                }
                if !allowed {
                    let retry = decision.retry_after().and_then(Retry::duration);
                    let waits =
                        |wait: Duration| wait > Duration::ZERO && wait.as_secs() <= 2 * 3_600;
                    assert!(retry.is_some_and(waits));
                }
            }
        }
    }
}

/// The server decides a few steps instead of hundreds.
#[test]
fn equal_checks_are_one_write() {
    let server = Server::start();
    let store = store(&server.url());
    let limit = Limit::from(quota("fixed-window 1000/h"));
    let writes = || calls(&server, "set") + calls(&server, "setrange");
    let before = writes();
    let requests = (0..800)
        .map(|_| Request::new("one write", &limit))
        .collect();
    let decisions = block_on(decide_together(&store, requests));
    assert!(decisions.iter().all(Decision::allowed));
    let written = writes() - before;
    assert!(written <= 100, "{written} writes");
    let peek = Request::new("one write", &limit).verb(Verb::Peek);
    assert_eq!(block_on(store.decide(&peek)).unwrap().remaining(), 200);
}

/// Each decision is one that the requests, one by one, could have got.
#[test]
fn checks_of_several_costs_and_limits_are_counted_once_each() {
    let store = store(&HEALTHY.url());
    let limits: Vec<Limit> = ["fixed-window 300/h", "sliding-window-log 250/2h"]
        .map(|text| Limit::from(quota(text)))
        .into();
    let request = |i: usize| {
        let key = ["a", "b"][i % 2];
        let request = Request::new(key, &limits[0]);
        match i % 5 {
            0 => request.cost(2),
            1 => request.cost(2).and(key, &limits[1]).unwrap(),
            2 => request.verb(Verb::Take).cost(3),
            3 => request.verb(Verb::Peek),
            _ => request,
        }
    };
    let requests = (0..400).map(request).collect();
    let decisions = block_on(decide_together(&store, requests));
    let mut granted: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
    for (i, decision) in decisions.iter().enumerate() {
        let taken = granted.entry(["a", "b"][i % 2]).or_default();
        let units = u64::from(decision.granted());
        taken[0] += units;
        taken[1] += units * u64::from(i % 5 == 1);
    }
    for (key, taken) in granted {
        for (limit, units) in limits.iter().zip(taken) {
            let peek = Request::new(key, limit).verb(Verb::Peek);
            let decision = block_on(store.decide(&peek)).unwrap();
            let used = limit.quota().capacity() - decision.remaining();
            assert_eq!(u64::from(used), units);
        }
    }
}

#[test]
fn an_undone_check_returns_its_own_units() {
    let store = store(&HEALTHY.url());
    let limit = Limit::from(quota("sliding-window-log 50/h"));
    let requests: Vec<Request<'_>> = (0..100).map(|_| Request::new("undo", &limit)).collect();
    let decisions = block_on(decide_together(&store, requests.clone()));
    let admitted = decisions.iter().filter(|decision| decision.allowed());
    assert_eq!(admitted.count(), 50);
    for (request, decision) in requests.iter().zip(&decisions).step_by(5) {
        store.undo(request, decision);
    }
    let peek = Request::new("undo", &limit).verb(Verb::Peek);
    poll::until(TIMEOUT, "10 are returned", || {
        block_on(store.decide(&peek)).unwrap().remaining() == 10
    });
}

#[test]
fn nothing_is_coalesced_without_batches() {
    let store = connected(builder(&HEALTHY.url()).batching(false));
    let limit = Limit::from(quota("fixed-window 10/h"));
    let requests = (0..40).map(|_| Request::new("single", &limit)).collect();
    let decisions = block_on(decide_together(&store, requests));
    assert_eq!(decisions.iter().filter(|one| one.allowed()).count(), 10);
}
