//! Masters fail, hang and are replaced, and slots migrate, under traffic.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tallygate::{Decision, Limit, Limiter, OnFailure, RedisStore, Request, Store};
use tallygate_testkit::poll;
use tallygate_testkit::redis::{Cluster, Flavour};
use tokio::task::JoinHandle;

use crate::fixtures::{
    LONG_DEADLINE, TIMEOUT, block_on, builder, connected, every_key_expires, limiter, namespace,
    patient_limiter, quota, runtime, store,
};
use crate::traffic::{DEFAULT_DEADLINE, Data, LARGE_QUOTA, Traffic};

/// Keys in slots of each of the three masters, in order.
const SPREAD: [&str; 3] = ["b", "c", "d"];

fn connect(cluster: &Cluster) -> RedisStore {
    connected(builder(&cluster.url()).response_timeout(Duration::from_secs(1)))
}

fn spread_traffic(store: &RedisStore, deadline: Duration) -> Traffic {
    let limiter = limiter(store, LARGE_QUOTA).deadline(deadline);
    let traffic = Traffic::with_keys(limiter, SPREAD.map(|key| vec![key]).to_vec(), deadline);
    traffic.wait_healthy();
    traffic
}

#[test]
fn the_keys_are_on_all_masters() {
    let cluster = Cluster::start();
    let owner = |key: &str| cluster.node_for_slot(cluster.key_slot(key));
    let mut owners = SPREAD.map(owner).to_vec();
    owners.sort_unstable();
    assert_eq!(owners, [0, 1, 2]);
}

#[test]
fn a_killed_master_is_replaced() {
    for flavour in Flavour::ALL {
        let cluster = Cluster::start_as(flavour, &[]);
        let traffic = spread_traffic(&connect(&cluster), DEFAULT_DEADLINE);
        cluster.kill_master(cluster.key_slot(SPREAD[1]));
        cluster.settle();
        traffic.finish(Data::Lost);
        let alive = cluster.nodes().iter().filter(|node| node.is_awake());
        alive.for_each(every_key_expires);
    }
}

#[test]
fn a_hanging_master_is_replaced() {
    let cluster = Cluster::start();
    let traffic = spread_traffic(&connect(&cluster), DEFAULT_DEADLINE);
    let hung = cluster.node_for_slot(cluster.key_slot(SPREAD[2]));
    cluster.node(hung).stop();
    cluster.settle();
    traffic.wait_healthy();
    cluster.node(hung).resume();
    poll::until(TIMEOUT, "it is a replica", || {
        cluster.node(hung).info("role").as_deref() == Some("slave")
    });
    traffic.finish(Data::Lost);
    cluster.nodes().iter().for_each(every_key_expires);
}

#[test]
fn keys_of_other_masters_are_counted_exactly_when_one_is_gone() {
    let cluster = Cluster::start();
    let store = connect(&cluster);
    let limiter = limiter(&store, LARGE_QUOTA).on_failure(OnFailure::Closed);
    let call = |key: &'static str| block_on(limiter.decide(&limiter.request(key)));
    assert!(SPREAD.iter().all(|key| call(key).allowed()));
    let (gone, there) = (SPREAD[0], SPREAD[1]);
    let slot = cluster.key_slot(gone);
    let master = cluster.kill_master(slot);
    // Its replica too, so that there is no failover.
    cluster.node((master + 3) % 6).kill();
    poll::until(TIMEOUT, "calls for it fail", || call(gone).degraded());
    for node in cluster.nodes().iter().filter(|node| node.is_awake()) {
        let whole = ["CONFIG", "SET", "cluster-require-full-coverage", "no"];
        assert_eq!(node.command(&whole).text(), "OK");
    }
    for _ in 0..20 {
        assert!(call(gone).degraded());
        poll::until(TIMEOUT, "others are answered", || !call(there).degraded());
    }
}

/// The replica has not received what its master admitted.
#[test]
fn a_failover_that_loses_writes_admits_the_limit_once_more() {
    let cluster = Cluster::start();
    let store = connect(&cluster);
    let limiter = limiter(&store, "fixed-window 5/366d").on_failure(OnFailure::Closed);
    let limiter = limiter.deadline(Duration::from_millis(500));
    let decide = || block_on(limiter.decide(&limiter.request(SPREAD[1])));
    let slot = cluster.key_slot(SPREAD[1]);
    let master = cluster.node_for_slot(slot);
    let replica = cluster.node((master + 3) % 6);
    replica.stop();
    let killed = cluster
        .node(master)
        .command(&["CLIENT", "KILL", "TYPE", "replica"]);
    assert_eq!(killed.integer(), 1);
    let mut admitted = 0;
    poll::until(TIMEOUT, "the limit is reached", || {
        let decision = decide();
        admitted += u32::from(decision.allowed());
        !decision.allowed() && !decision.degraded()
    });
    assert_eq!(admitted, 5);
    cluster.node(master).kill();
    replica.resume();
    cluster.settle();
    poll::until(TIMEOUT, "the limit is reached again", || {
        let decision = decide();
        admitted += u32::from(decision.allowed());
        !decision.allowed() && !decision.degraded()
    });
    assert_eq!(admitted, 10);
    every_key_expires(replica);
}

/// Migrates the slot of a key to the next master, one key first; runs `between` during the
/// migration.
fn migrate(cluster: &Cluster, key: &str, between: impl FnOnce()) {
    let slot = cluster.key_slot(key);
    let from = cluster.node_for_slot(slot);
    let migration = cluster.start_migration(slot, (from + 1) % 3);
    let first = ["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "1"];
    if let Some(first) = cluster.node(from).command(&first).array().first() {
        assert!(migration.move_key(first.text()));
    }
    between();
    migration.move_keys();
    migration.end();
}

/// Traffic on one limit, on several of one slot, and on several of different slots.
fn mixed_traffic(store: &RedisStore, keys: Vec<Vec<&'static str>>) -> Traffic {
    let limiter = patient_limiter(store, LARGE_QUOTA)
        .and(quota("leaky-bucket 1/d burst 50000"))
        .unwrap();
    let traffic = Traffic::with_keys(limiter, keys, LONG_DEADLINE);
    traffic.wait_healthy();
    traffic
}

#[test]
fn migration_under_load_loses_no_decision_and_no_unit() {
    for flavour in Flavour::ALL {
        let cluster = Cluster::start_as(flavour, &[]);
        let one_limit = Traffic::start(&store(&cluster.url()), LONG_DEADLINE);
        let [b, c, d] = SPREAD;
        let keys = vec![vec![b], vec![b, c], vec![c, d]];
        let several = mixed_traffic(&store(&cluster.url()), keys);
        for _ in 0..3 {
            for key in [b, c, "load"] {
                migrate(&cluster, key, || {
                    one_limit.wait_healthy();
                    several.wait_healthy();
                });
                several.wait_healthy();
            }
        }
        for traffic in [one_limit, several] {
            assert_eq!(traffic.finish(Data::KeptExact), 0, "calls failed");
        }
        cluster.nodes().iter().for_each(every_key_expires);
    }
}

#[test]
fn all_keys_of_a_migrating_slot_are_decided() {
    // They share one script call until it fails because of the migration.
    let cluster = Cluster::start();
    let store = store(&cluster.url());
    let limiter = patient_limiter(&store, LARGE_QUOTA);
    let more = [
        "10/h",
        "20/d",
        "fixed-window 30/h",
        "leaky-bucket 1/h burst 5",
    ];
    let limits: Vec<Limiter<RedisStore>> =
        more.map(|text| limiter.with_limit(quota(text))).to_vec();
    let decide_concurrently = || {
        let calls: Vec<_> = (0..64)
            .map(|i| {
                let limiter = limits[i % limits.len()].clone();
                let peek = tallygate::Verb::Peek;
                let call = async move { limiter.decide(&limiter.request("b").verb(peek)).await };
                runtime().spawn(call)
            })
            .collect();
        let answered = |decision: JoinHandle<Decision>| !block_on(decision).unwrap().degraded();
        assert!(calls.into_iter().all(answered));
    };
    for limiter in &limits {
        assert!(block_on(limiter.decide(&limiter.request("b"))).allowed());
    }
    // New counters are created on the target of the migration.
    let new = || {
        let limits = ["token-bucket 1/d burst 5", "leaky-bucket 1/d burst 5"]
            .map(|text| Limit::named(namespace(), quota(text)));
        for left in (0..5).rev() {
            let request = Request::with_limits("b", &limits).unwrap();
            let decision = block_on(store.decide(&request)).unwrap();
            assert_eq!((decision.allowed(), decision.remaining()), (true, left));
        }
    };
    for _ in 0..3 {
        migrate(&cluster, "b", || {
            decide_concurrently();
            new();
        });
        decide_concurrently();
    }
}

#[test]
fn migration_admits_nothing_above_the_limit() {
    const LIMIT: u32 = 400;
    let cluster = Cluster::start();
    let store = store(&cluster.url());
    let log = format!("sliding-window-log {LIMIT}/d");
    let bucket = quota(&format!("token-bucket 1/d burst {LIMIT}"));
    let limiter = patient_limiter(&store, &log).and(bucket).unwrap();
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
                    assert!(!decision.degraded(), "the store fails");
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
            migrate(&cluster, key, || {});
        }
    }
    stop.store(true, Ordering::Relaxed);
    let admitted: u32 = tasks.into_iter().map(|task| block_on(task).unwrap()).sum();
    assert_eq!(admitted, LIMIT);
    for limit in limiter.limits() {
        let used = crate::fixtures::used(&limiter.with_limit(limit.clone()), "b");
        assert_eq!(used, u64::from(LIMIT), "units were not rolled back");
    }
    let request = Request::with_limits("b", limiter.limits()).unwrap();
    assert!(!block_on(limiter.decide(&request)).allowed());
}
