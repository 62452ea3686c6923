//! Coarse hash tags in a cluster: many keys in a few slots.

use std::time::Duration;

use futures_util::future::join_all;
use tallygate::store::{CounterState, StoreErrorKind};
use tallygate::{LeaseSettings, Limit, OnFailure, RedisStore, Request, Store, Verb};
use tallygate_testkit::poll;
use tallygate_testkit::redis::{Cluster, Server, start_single_node};
use tokio::runtime::Builder;

use crate::breaker::Log;
use crate::fixtures::{
    HEALTHY, LONG_DEADLINE, TIMEOUT, block_on, builder, calls, connected, every_key_expires, keys,
    limiter, namespace, patient_limiter, quota, runtime, used,
};
use crate::traffic::{Data, LARGE_QUOTA, Traffic};

fn tagged(cluster: &Cluster, name: &str, tags: u32) -> RedisStore {
    connected(builder(&cluster.url()).namespace(name).hash_tags(tags))
}

/// The keys of all counters in a namespace.
fn stored_keys(cluster: &Cluster, name: &str) -> Vec<String> {
    let of_master = |master: usize| keys(&mut cluster.node(master).connect().unwrap());
    let all = cluster.masters().into_iter().flat_map(of_master);
    let all = all.map(|key| String::from_utf8(key).unwrap());
    all.filter(|key| key.contains(&format!(":{name}:{{")))
        .collect()
}

/// The tag and the limited key in a stored key.
fn parts(stored: &str) -> (&str, &str) {
    let (_, rest) = stored.split_once('{').unwrap();
    let (tag, rest) = rest.split_once("}{").unwrap();
    (tag, rest.split_once('}').unwrap().0)
}

#[test]
fn keys_are_in_a_few_slots_on_all_masters_and_limits_of_a_key_together() {
    let cluster = Cluster::start();
    let name = namespace();
    let store = tagged(&cluster, &name, 64);
    let limits =
        ["fixed-window 5/d", "sliding-window-log 7/d"].map(|text| Limit::from(quota(text)));
    for key in 0..500 {
        let request = Request::with_limits(key.to_string(), &limits).unwrap();
        assert!(block_on(store.decide(&request)).unwrap().allowed());
    }
    let stored = stored_keys(&cluster, &name);
    assert_eq!(stored.len(), 1_000);
    assert!(stored.iter().all(|key| key.starts_with("tallygate:2:")));
    let mut tags: Vec<(&str, &str)> = stored.iter().map(|key| parts(key)).collect();
    tags.sort_unstable();
    tags.dedup();
    assert_eq!(tags.len(), 500, "a key has one tag");
    tags.dedup_by_key(|(tag, _)| *tag);
    assert!((50..=64).contains(&tags.len()), "{} tags", tags.len());
    for master in cluster.masters() {
        let owned = cluster.node(master).command(&["DBSIZE"]).integer();
        assert!((200..=480).contains(&owned), "{owned} keys on one of three");
    }
    cluster.nodes().iter().for_each(every_key_expires);
    // Another process finds them.
    let other = tagged(&cluster, &name, 64);
    let limiter = limiter(&other, "fixed-window 5/d").deadline(LONG_DEADLINE);
    assert_eq!(used(&limiter, "7"), 1);
    let snapshot = block_on(other.inspect(&"8".into(), &limits[1])).unwrap();
    assert!(matches!(snapshot.state, CounterState::Log { entries } if entries.len() == 1));
    block_on(other.clear()).unwrap();
    assert_eq!(stored_keys(&cluster, &name), [""; 0]);
}

#[test]
fn clear_deletes_counters_of_both_formats() {
    let cluster = Cluster::start();
    let name = namespace();
    let limit = Limit::from(quota("fixed-window 5/d"));
    let plain = connected(builder(&cluster.url()).namespace(&name));
    let stores = [
        plain,
        tagged(&cluster, &name, 64),
        tagged(&cluster, &name, 8),
    ];
    for clearing in &stores {
        for store in &stores {
            block_on(store.decide(&Request::new("k", &limit))).unwrap();
        }
        // Each counts alone.
        assert_eq!(stored_keys(&cluster, &name).len(), 3);
        block_on(clearing.clear()).unwrap();
        assert_eq!(stored_keys(&cluster, &name).len(), 0);
    }
}

#[test]
fn concurrent_requests_share_script_calls() {
    let cluster = Cluster::start();
    let limit = Limit::from(quota(LARGE_QUOTA));
    let requests: Vec<Request<'_>> = (0..1_000)
        .map(|key| Request::new(key.to_string(), &limit))
        .collect();
    let script_calls = || -> u64 {
        let masters = cluster.masters().into_iter();
        masters
            .map(|master| calls(cluster.node(master), "evalsha"))
            .sum()
    };
    // On one thread nothing is sent before all have asked.
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let counts = [None, Some(64)].map(|tags| {
        let builder = builder(&cluster.url());
        let builder = match tags {
            None => builder,
            Some(tags) => builder.hash_tags(tags),
        };
        runtime.block_on(async {
            let store = builder.connect().await.unwrap();
            let before = script_calls();
            for decision in join_all(requests.iter().map(|request| store.decide(request))).await {
                assert!(decision.unwrap().allowed());
            }
            script_calls() - before
        })
    });
    assert!(counts[0] > 900, "{counts:?}");
    assert!(counts[1] < 300, "{counts:?}");
}

/// Migrates the slot of a key's counter to the next master, one counter first; runs `between` during
/// the migration.
fn migrate(cluster: &Cluster, stored: &str, between: impl FnOnce()) {
    let slot = cluster.key_slot(stored);
    let from = cluster.node_for_slot(slot);
    let migration = cluster.start_migration(slot, (from + 1) % 3);
    assert!(migration.move_key(stored));
    between();
    migration.move_keys();
    migration.end();
}

#[test]
fn migration_under_load_loses_no_decision_and_no_unit() {
    let cluster = Cluster::start();
    let name = namespace();
    // So few that most keys share a slot.
    let store = tagged(&cluster, &name, 4);
    let limiter = patient_limiter(&store, LARGE_QUOTA)
        .and(quota("leaky-bucket 1/d burst 50000"))
        .unwrap();
    let kinds = vec![vec!["a"], vec!["b"], vec!["c"], vec!["a", "b", "c", "d"]];
    let traffic = Traffic::with_keys(limiter, kinds, LONG_DEADLINE);
    traffic.wait_healthy();
    for _ in 0..2 {
        for key in ["a", "d"] {
            let all = stored_keys(&cluster, &name);
            let stored = all.iter().find(|stored| parts(stored).1 == key).unwrap();
            migrate(&cluster, stored, || traffic.wait_healthy());
            traffic.wait_healthy();
        }
    }
    assert_eq!(traffic.finish(Data::KeptExact), 0, "calls failed");
    cluster.nodes().iter().for_each(every_key_expires);
}

#[test]
fn a_lost_master_costs_only_its_own_keys_and_is_replaced() {
    let cluster = Cluster::start();
    let name = namespace();
    let store = connected(
        builder(&cluster.url())
            .namespace(&name)
            .hash_tags(64)
            .response_timeout(Duration::from_secs(1)),
    );
    let limiter = limiter(&store, LARGE_QUOTA).on_failure(OnFailure::Closed);
    let limiter = limiter.deadline(Duration::from_millis(500));
    for key in 0..60 {
        assert!(block_on(limiter.decide(&limiter.request(key.to_string()))).allowed());
    }
    let all = stored_keys(&cluster, &name);
    let slot = cluster.key_slot(&all[0]);
    let lost = cluster.node_for_slot(slot);
    let (gone, there): (Vec<&String>, Vec<&String>) = all
        .iter()
        .partition(|stored| cluster.node_for_slot(cluster.key_slot(stored)) == lost);
    assert!(!gone.is_empty() && !there.is_empty());
    cluster.kill_master(slot);
    cluster.settle();
    for stored in gone.iter().chain(&there) {
        let key = parts(stored).1;
        poll::until(TIMEOUT, "its master decides", || {
            !block_on(limiter.decide(&limiter.request(key))).degraded()
        });
    }
}

#[test]
fn leases_and_undo_work_over_tagged_keys() {
    let cluster = Cluster::start();
    let name = namespace();
    let store = tagged(&cluster, &name, 64);
    let settings = LeaseSettings::default();
    let limit = Limit::named("leased", quota("token-bucket 1/d burst 10000"));
    let leased = limit.clone().lease(settings).unwrap();
    store.prepare(&leased);
    poll::until(TIMEOUT, "it is counted", || store.replicas() == Some(1));
    let request = Request::new("hot", &leased);
    let mut decided = 0;
    poll::until(TIMEOUT, "a lease is spent", || {
        let decision = store.try_decide(&request);
        let decision = decision.unwrap_or_else(|| block_on(store.decide(&request)).unwrap());
        assert!(decision.allowed());
        decided += 1;
        decision.leased()
    });
    block_on(store.close());
    let limiter = tallygate::Limiter::with_store(store.clone(), limit.clone());
    assert_eq!(used(&limiter, "hot"), decided);
    // Over several slots.
    let request = ["x", "y", "z"]
        .iter()
        .try_fold(Request::new("w", &limit), |request, key| {
            request.and(*key, &limit)
        });
    let request = request.unwrap().cost(3);
    let decision = block_on(store.decide(&request)).unwrap();
    assert_eq!(used(&limiter, "y"), 3);
    runtime().block_on(async { store.undo(&request, &decision) });
    poll::until(TIMEOUT, "it is undone", || {
        ["w", "x", "y", "z"]
            .iter()
            .all(|key| used(&limiter, key) == 0)
    });
}

#[test]
fn processes_with_different_numbers_say_so_once_each() {
    let server = start_single_node();
    let url = format!("redis-cluster://127.0.0.1:{}", server.port());
    for (other, tagged) in [(None, 2), (Some(32), 3)] {
        let name = namespace();
        let log = Log::default();
        let open = |tags: Option<u32>| {
            let builder = builder(&url).namespace(&name).own_thread(true);
            let builder = match tags {
                None => builder,
                Some(tags) => builder.hash_tags(tags),
            };
            let store = tracing::subscriber::with_default(log.clone(), || connected(builder));
            store.count_replicas();
            store
        };
        let same = [Some(64), Some(64)].map(open);
        poll::until(TIMEOUT, "both count both", || {
            same.each_ref().map(|store| store.replicas()) == [Some(2); 2]
        });
        assert_eq!(log.lines(), [""; 0]);
        let different = open(other);
        poll::until(TIMEOUT, "all have said so", || log.lines().len() >= tagged);
        // Until the next heartbeat of all.
        let another = open(other);
        poll::until(TIMEOUT, "all count all", || {
            let stores = [&same[0], &same[1], &different];
            stores.map(Store::replicas) == [Some(4); 3] && another.replicas() == Some(4)
        });
        let lines = log.lines();
        let more = usize::from(other.is_some());
        assert_eq!(lines.len(), tagged + more, "{lines:?}");
        assert!(lines.iter().all(|line| line.contains("hash tags")));
    }
}

#[test]
fn a_number_that_is_no_power_of_two_is_an_error_that_names_it_and_its_bound() {
    let _in_runtime = runtime().enter();
    for tags in [0, 3, 100, 32_768, u32::MAX] {
        let builder = RedisStore::builder("redis-cluster://localhost").hash_tags(tags);
        let error = builder.open().unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
        let text = error.to_string();
        for part in [&*tags.to_string(), "power of two", "16384"] {
            assert!(text.contains(part), "{text}");
        }
    }
    for tags in [1, 64, 16_384] {
        let builder = RedisStore::builder("redis-cluster://localhost").hash_tags(tags);
        assert!(builder.open().is_ok());
    }
}

#[test]
fn other_stores_ignore_hash_tags() {
    let name = namespace();
    let plain = connected(builder(&HEALTHY.url()).namespace(&name));
    let tagged = connected(builder(&HEALTHY.url()).namespace(&name).hash_tags(64));
    let limit = Limit::from(quota("fixed-window 5/d"));
    block_on(plain.decide(&Request::new("k", &limit))).unwrap();
    let peek = Request::new("k", &limit).verb(Verb::Peek);
    assert_eq!(block_on(tagged.decide(&peek)).unwrap().remaining(), 4);
    let servers = [Server::start(), Server::start()];
    let hosts = servers
        .each_ref()
        .map(|server| format!("127.0.0.1:{}", server.port()));
    let shards = format!("redis+shards://{}", hosts.join(","));
    let store = connected(builder(&shards).hash_tags(2));
    for key in 0..40 {
        block_on(store.decide(&Request::new(key.to_string(), &limit))).unwrap();
    }
    let sizes = servers
        .each_ref()
        .map(|server| server.command(&["DBSIZE"]).integer());
    assert!(sizes.iter().all(|size| *size > 5), "{sizes:?}");
}
