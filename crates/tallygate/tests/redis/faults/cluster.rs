//! Masters die, hang and are replaced; slots move, with keys in them, under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tallygate::{Decision, Limit, Limiter, OnFailure, RedisStore, Request, Store};
use tallygate_testkit::poll;
use tallygate_testkit::redis::{Cluster, Flavour};
use tokio::task::JoinHandle;

use crate::fixtures::{
    LONG, PATIENCE, builder, connected, every_key_expires, limiter, namespace, patient, quota,
    runtime, store, wait,
};
use crate::traffic::{Data, Load, PLENTY, SHORT};

/// Keys in slots of different masters: in order, of each of the three.
const SPREAD: [&str; 3] = ["b", "c", "d"];

fn impatient(cluster: &Cluster) -> Arc<RedisStore> {
    connected(builder(&cluster.url()).response_timeout(Duration::from_secs(1)))
}

fn spread(store: &Arc<RedisStore>, deadline: Duration) -> Load {
    let limiter = limiter(store, PLENTY).deadline(deadline);
    let load = Load::of(limiter, SPREAD.map(|key| vec![key]).to_vec(), deadline);
    load.flows();
    load
}

#[test]
fn keys_are_spread_over_all_masters() {
    let cluster = Cluster::start();
    let owner = |key: &str| cluster.node_for_slot(cluster.slot_of(key));
    let mut owners = SPREAD.map(owner).to_vec();
    owners.sort_unstable();
    assert_eq!(owners, [0, 1, 2]);
}

#[test]
fn a_killed_master_is_replaced() {
    for flavour in Flavour::ALL {
        let cluster = Cluster::start_as(flavour, &[]);
        let load = spread(&impatient(&cluster), SHORT);
        cluster.kill_master(cluster.slot_of(SPREAD[1]));
        cluster.settle();
        load.end(Data::Lost);
        let alive = cluster.nodes().iter().filter(|node| node.is_awake());
        alive.for_each(every_key_expires);
    }
}

#[test]
fn a_master_that_hangs_is_replaced() {
    let cluster = Cluster::start();
    let load = spread(&impatient(&cluster), SHORT);
    let hung = cluster.node_for_slot(cluster.slot_of(SPREAD[2]));
    cluster.node(hung).stop();
    cluster.settle();
    load.flows();
    cluster.node(hung).resume();
    poll::until(PATIENCE, "it is a replica", || {
        cluster.node(hung).info("role").as_deref() == Some("slave")
    });
    load.end(Data::Lost);
    cluster.nodes().iter().for_each(every_key_expires);
}

#[test]
fn keys_of_other_masters_are_still_counted_exactly_when_one_is_gone() {
    let cluster = Cluster::start();
    let store = impatient(&cluster);
    let limiter = limiter(&store, PLENTY).on_failure(OnFailure::Closed);
    let call = |key: &'static str| wait(limiter.decide(&limiter.request(key)));
    assert!(SPREAD.iter().all(|key| call(key).allowed()));
    let (gone, there) = (SPREAD[0], SPREAD[1]);
    let slot = cluster.slot_of(gone);
    let master = cluster.kill_master(slot);
    // Its replica too, so that nobody takes over.
    cluster.node((master + 3) % 6).kill();
    poll::until(PATIENCE, "calls for it fail", || call(gone).degraded());
    for node in cluster.nodes().iter().filter(|node| node.is_awake()) {
        let whole = ["CONFIG", "SET", "cluster-require-full-coverage", "no"];
        assert_eq!(node.command(&whole).text(), "OK");
    }
    for _ in 0..20 {
        assert!(call(gone).degraded());
        poll::until(PATIENCE, "others are answered", || !call(there).degraded());
    }
}

/// Moves the slot of a key to the next master, one key first; runs something while the slot is in
/// both places.
fn moves(cluster: &Cluster, key: &str, between: impl FnOnce()) {
    let slot = cluster.slot_of(key);
    let from = cluster.node_for_slot(slot);
    let moving = cluster.start_migration(slot, (from + 1) % 3);
    let first = ["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "1"];
    if let Some(first) = cluster.node(from).command(&first).array().first() {
        assert!(moving.move_key(first.text()));
    }
    between();
    moving.move_keys();
    moving.end();
}

/// Load on one limit, on several of one slot, and on several of different slots.
fn every_kind(store: &Arc<RedisStore>, asks: Vec<Vec<&'static str>>) -> Load {
    let limiter = patient(store, PLENTY)
        .and(quota("leaky-bucket 1/d burst 50000"))
        .unwrap();
    let load = Load::of(limiter, asks, LONG);
    load.flows();
    load
}

#[test]
fn slots_that_move_under_load_cost_no_answer_and_no_unit() {
    for flavour in Flavour::ALL {
        let cluster = Cluster::start_as(flavour, &[]);
        let one_limit = Load::start(&store(&cluster.url()), LONG);
        let [b, c, d] = SPREAD;
        let asks = vec![vec![b], vec![b, c], vec![c, d]];
        let several = every_kind(&store(&cluster.url()), asks);
        for _ in 0..3 {
            for key in [b, c, "load"] {
                moves(&cluster, key, || {
                    one_limit.flows();
                    several.flows();
                });
                several.flows();
            }
        }
        for load in [one_limit, several] {
            assert_eq!(load.end(Data::NothingElse), 0, "calls failed");
        }
        cluster.nodes().iter().for_each(every_key_expires);
    }
}

#[test]
fn many_keys_of_a_slot_that_moves_are_all_answered() {
    // They travel together in one call until it turns out that they are in two places.
    let cluster = Cluster::start();
    let store = store(&cluster.url());
    let limiter = patient(&store, PLENTY);
    let more = [
        "10/h",
        "20/d",
        "fixed-window 30/h",
        "leaky-bucket 1/h burst 5",
    ];
    let limits: Vec<Limiter<RedisStore>> = more.map(|text| limiter.with(quota(text))).to_vec();
    let all_at_once = || {
        let asked: Vec<_> = (0..64)
            .map(|i| {
                let limiter = limits[i % limits.len()].clone();
                let peek = tallygate::Verb::Peek;
                let ask = async move { limiter.decide(&limiter.request("b").verb(peek)).await };
                runtime().spawn(ask)
            })
            .collect();
        let answered = |decision: JoinHandle<Decision>| !wait(decision).unwrap().degraded();
        assert!(asked.into_iter().all(answered));
    };
    for limiter in &limits {
        assert!(wait(limiter.decide(&limiter.request("b"))).allowed());
    }
    // Counters that are nowhere yet are made where the slot is going.
    let new = || {
        let limits = ["token-bucket 1/d burst 5", "leaky-bucket 1/d burst 5"]
            .map(|text| Limit::named(namespace(), quota(text)));
        for left in (0..5).rev() {
            let request = Request::of("b", &limits).unwrap();
            let decision = wait(store.decide(&request)).unwrap();
            assert_eq!((decision.allowed(), decision.remaining()), (true, left));
        }
    };
    for _ in 0..3 {
        moves(&cluster, "b", || {
            all_at_once();
            new();
        });
        all_at_once();
    }
}

#[test]
fn slots_that_move_admit_nobody_above_the_limit() {
    const LIMIT: u32 = 400;
    let cluster = Cluster::start();
    let store = store(&cluster.url());
    let log = format!("sliding-window-log {LIMIT}/d");
    let bucket = quota(&format!("token-bucket 1/d burst {LIMIT}"));
    let limiter = patient(&store, &log).and(bucket).unwrap();
    let limiter = limiter.on_failure(OnFailure::Closed);
    let stop = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..8)
        .map(|task| {
            let (limiter, stop) = (limiter.clone(), Arc::clone(&stop));
            runtime().spawn(async move {
                let (mut admitted, mut refused) = (0, 0);
                while !stop.load(Ordering::Relaxed) || refused < 20 {
                    let mut request = limiter.request("b");
                    if task % 2 == 0 {
                        for limit in limiter.limits() {
                            request = request.and("c", limit).unwrap();
                        }
                    }
                    let decision = limiter.decide(&request).await;
                    assert!(!decision.degraded(), "no answer");
                    admitted += u32::from(decision.allowed());
                    refused += u32::from(!decision.allowed());
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                admitted
            })
        })
        .collect();
    for _ in 0..3 {
        for key in ["b", "c"] {
            moves(&cluster, key, || {});
        }
    }
    stop.store(true, Ordering::Relaxed);
    let admitted: u32 = tasks.into_iter().map(|task| wait(task).unwrap()).sum();
    assert_eq!(admitted, LIMIT);
    for limit in limiter.limits() {
        let used = crate::fixtures::used(&limiter.with(limit.clone()), "b");
        assert_eq!(
            used,
            u64::from(LIMIT),
            "what was taken back is not given back"
        );
    }
    let request = Request::of("b", limiter.limits()).unwrap();
    assert!(!wait(limiter.decide(&request)).allowed());
}
