//! Slots migrate key by key while counters of several keys (shares, concurrency limits, reservations)
//! are used. All keys of a counter are in one slot, so that a call for some on the source and some on
//! the target cannot be divided: it waits, and is counted once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use tallygate::store::CounterState;
use tallygate::{
    Decision, Engine, Key, Limit, MemoryStore, OnFailure, RedisStore, Request, StoreError, Verb,
};
use tallygate_testkit::poll;
use tallygate_testkit::redis::{Cluster, Flavour, Migration};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::fixtures::{
    LONG_DEADLINE, TIMEOUT, block_on, builder, connected, every_key_expires, keys, quota, runtime,
    store,
};

const T0: u64 = 1_700_000_000_000_000;
/// Between two calls of a task.
const PAUSE: Duration = Duration::from_millis(3);

/// How many calls a server has answered with TRYAGAIN.
fn try_agains(cluster: &Cluster) -> u64 {
    let of_node = |node: usize| {
        let stats = cluster.node(node).command(&["INFO", "errorstats"]);
        let prefix = "errorstat_TRYAGAIN:count=";
        let mut lines = stats.text().lines();
        let count = lines.find_map(|line| line.strip_prefix(prefix)?.trim().parse::<u64>().ok());
        count.unwrap_or(0)
    };
    (0..3).map(of_node).sum()
}

/// The keys of a slot.
fn keys_in_slot(cluster: &Cluster, migration: &Migration<'_>, slot: u16) -> Vec<String> {
    let slot = slot.to_string();
    let command = ["CLUSTER", "GETKEYSINSLOT", &slot, "100"];
    let keys = cluster.node(migration.from()).command(&command);
    let keys = keys.array().iter();
    keys.map(|key| key.text().to_owned()).collect()
}

fn start_migration(cluster: &Cluster, slot: u16) -> Migration<'_> {
    cluster.start_migration(slot, (cluster.node_for_slot(slot) + 1) % 3)
}

/// The slot of the counters of the only key.
fn used_slot(cluster: &Cluster) -> u16 {
    let is_counter = |key: &String| key.contains('{');
    let mut counters = (0..3).flat_map(|node| {
        let mut connection = cluster.node(node).connect().unwrap();
        let keys = keys(&mut connection).into_iter();
        keys.map(|key| String::from_utf8(key).unwrap())
            .filter(is_counter)
    });
    let first = counters.next().unwrap();
    cluster.key_slot(&first)
}

fn limits(texts: [&str; 3]) -> [Limit; 3] {
    texts.map(|text| Limit::from(quota(text)).on_failure(OnFailure::Closed))
}

/// The calls that are sent while `stage` keys have been migrated. Those of all stages have the same
/// effect in any order.
fn calls(stage: usize, limits: &[Limit; 3]) -> [Request<'_>; 4] {
    let [share, window, holds] = limits;
    [
        Request::new("k", share).member("b"),
        Request::new("k", holds).owner(format!("owner {stage}")),
        Request::with_limits("k", limits)
            .unwrap()
            .member("a")
            .owner(format!("owner of all {stage}")),
        // The key of a new reservation is on neither server.
        Request::new("k", window)
            .id(format!("new {stage}"))
            .verb(Verb::Reserve)
            .cost(7),
    ]
}

/// Uses all counters at supplied times, so that each of their keys exists.
async fn prepare(limits: &[Limit; 3], decide: impl AsyncFn(&Request<'_>, u64) -> Decision) {
    // The last one in the next epoch.
    for (member, at) in [("a", 0), ("z", 0), ("b", 1_500_000)] {
        let request = Request::with_limits("k", limits).unwrap().member(member);
        let request = request.owner(member).id(member).verb(Verb::Reserve).cost(3);
        assert!(decide(&request, T0 + at).await.allowed());
    }
}

/// What is left of all counters, by who asks.
async fn left(
    limits: &[Limit; 3],
    at: u64,
    decide: impl AsyncFn(&Request<'_>, u64) -> Decision,
) -> Vec<Vec<u32>> {
    let mut left = Vec::new();
    for member in ["a", "b", "c"] {
        let peek = Request::with_limits("k", limits).unwrap();
        let peek = peek.member(member).owner("nobody").verb(Verb::Peek);
        let decision = decide(&peek, at).await;
        let verdicts = decision.verdicts().iter();
        left.push(verdicts.map(|verdict| verdict.remaining).collect());
    }
    left
}

#[test]
fn a_call_that_finds_its_keys_on_two_servers_is_decided_exactly_once() {
    for flavour in Flavour::ALL {
        let cluster = Cluster::start_as(flavour, &[]);
        let store = store(&cluster.url());
        let limits = limits([
            "token-bucket 100/s burst 100 shared 4",
            "fixed-window 1000/h",
            "concurrent 100 for 1h",
        ]);
        let memory = MemoryStore::new();
        let by_memory = async |request: &Request<'_>, at| memory.decide_at(request, at);
        let by_redis =
            async |request: &Request<'_>, at| store.decide_at(request, at).await.unwrap();
        block_on(prepare(&limits, by_redis));
        block_on(prepare(&limits, by_memory));
        let at = T0 + 1_900_000;
        let slot = used_slot(&cluster);
        let migration = start_migration(&cluster, slot);
        let keys = keys_in_slot(&cluster, &migration, slot);
        // The bucket and members of two epochs, the window, two of the holds, and three reservations
        // of the bucket and of the window.
        assert_eq!(keys.len(), 3 + 1 + 2 + 2 * 3, "{keys:?}");
        let mut waiting: Vec<JoinHandle<Result<Decision, StoreError>>> = Vec::new();
        for (stage, key) in keys.iter().enumerate() {
            let before = try_agains(&cluster);
            for call in 0..4 {
                let (store, limits) = (store.clone(), limits.clone());
                waiting.push(
                    runtime().spawn(async move {
                        store.decide_at(&calls(stage, &limits)[call], at).await
                    }),
                );
            }
            for call in &calls(stage, &limits) {
                assert!(memory.decide_at(call, at).allowed());
            }
            // The one with a new reservation at least.
            poll::until(TIMEOUT, "a call is told to try again", || {
                try_agains(&cluster) > before
            });
            assert!(migration.move_key(key), "{key}");
        }
        migration.end();
        for call in waiting {
            let decision = block_on(call).unwrap().unwrap();
            assert!(decision.allowed(), "{decision:?}");
        }
        assert_eq!(
            block_on(left(&limits, at, by_redis)),
            block_on(left(&limits, at, by_memory))
        );
        // Old and new reservations are settled once.
        for (id, returned) in [("a", 2), ("b", 2), ("new 0", 6), ("new 5", 6)] {
            let window = || {
                let peek = Request::new("k", &limits[1]).verb(Verb::Peek);
                block_on(by_redis(&peek, at)).remaining()
            };
            let before = window();
            for _ in 0..2 {
                let settle = Request::new("k", &limits[1]).id(id).verb(Verb::Settle);
                block_on(by_redis(&settle.cost(1), at));
                assert_eq!(window(), before + returned, "{id}");
            }
        }
        cluster.nodes().iter().for_each(every_key_expires);
    }
}

/// What tasks did.
#[derive(Default)]
struct Work {
    stop: AtomicBool,
    admitted: AtomicU32,
    settled: AtomicU32,
    in_flight: AtomicU32,
    max_in_flight: AtomicU32,
}

async fn take_from_share(engine: Engine<RedisStore>, share: Limit, member: usize, work: Arc<Work>) {
    while !work.stop.load(Relaxed) {
        let request = Request::new("k", &share).member(format!("member {member}"));
        let decision = engine.decide(&request).await;
        assert!(!decision.degraded(), "{decision:?}");
        work.admitted.fetch_add(decision.granted(), Relaxed);
        sleep(PAUSE).await;
    }
}

async fn hold_and_release(engine: Engine<RedisStore>, holds: Limit, work: Arc<Work>) {
    while !work.stop.load(Relaxed) {
        match engine.hold(&Request::new("k", &holds)).await {
            Ok(hold) => {
                let in_flight = work.in_flight.fetch_add(1, Relaxed) + 1;
                work.max_in_flight.fetch_max(in_flight, Relaxed);
                sleep(PAUSE).await;
                work.in_flight.fetch_sub(1, Relaxed);
                hold.release().await;
            }
            Err(refused) => assert!(!refused.decision().degraded(), "{refused:?}"),
        }
        sleep(PAUSE).await;
    }
}

async fn reserve_and_settle(engine: Engine<RedisStore>, window: Limit, work: Arc<Work>) {
    while !work.stop.load(Relaxed) {
        let request = Request::new("k", &window).cost(5);
        let reservation = engine.reserve(&request).await.unwrap();
        let settled = reservation.settle(3).await;
        assert!(!settled.degraded(), "{settled:?}");
        work.settled.fetch_add(1, Relaxed);
        sleep(PAUSE).await;
    }
}

#[test]
fn migrations_under_load_lose_and_double_no_unit_of_shares_holds_and_reservations() {
    for hash_tags in [None, Some(64)] {
        let cluster = Cluster::start();
        let builder = builder(&cluster.url());
        let builder = match hash_tags {
            // All counters are in one script call until it fails because of the migration.
            Some(count) => builder.hash_tags(count),
            None => builder,
        };
        let store = connected(builder);
        let limits = limits([
            "token-bucket 2/d burst 300 shared 4",
            "fixed-window 1000000/366d",
            "concurrent 3 for 1h",
        ]);
        let [share, window, holds] = limits.clone();
        let engine = Engine::new(store.clone()).deadline(LONG_DEADLINE);
        let work = Arc::new(Work::default());
        let mut tasks = Vec::new();
        for task in 0..4 {
            let (engine, work) = (engine.clone(), Arc::clone(&work));
            tasks.extend([
                runtime().spawn(take_from_share(
                    engine.clone(),
                    share.clone(),
                    task,
                    work.clone(),
                )),
                runtime().spawn(hold_and_release(
                    engine.clone(),
                    holds.clone(),
                    work.clone(),
                )),
                runtime().spawn(reserve_and_settle(engine, window.clone(), work)),
            ]);
        }
        let has_progressed = |before: u32| {
            let settled = || work.settled.load(Relaxed);
            poll::until(TIMEOUT, "reservations are settled", || {
                settled() > before + 20 || tasks.iter().any(JoinHandle::is_finished)
            });
            settled()
        };
        let mut settled = has_progressed(0);
        for _ in 0..3 {
            let slot = used_slot(&cluster);
            let migration = start_migration(&cluster, slot);
            for key in keys_in_slot(&cluster, &migration, slot) {
                // It may have been deleted: of a reservation that was settled.
                migration.move_key(&key);
            }
            migration.move_keys();
            migration.end();
            settled = has_progressed(settled);
        }
        work.stop.store(true, Relaxed);
        for task in tasks {
            block_on(task).unwrap();
        }
        assert!(try_agains(&cluster) > 0, "no call met a migration half way");
        assert!(work.max_in_flight.load(Relaxed) <= 3);
        let state = |limit| {
            block_on(store.inspect(&Key::from("k"), limit))
                .unwrap()
                .state
        };
        let CounterState::Shared { used_milli, .. } = state(&share) else {
            panic!("{:?}", state(&share));
        };
        let admitted = work.admitted.load(Relaxed);
        assert_eq!(used_milli.div_ceil(1_000), u64::from(admitted));
        assert!((1..=300).contains(&admitted), "{admitted}");
        assert_eq!(state(&holds), CounterState::Holds { holds: Vec::new() });
        let peek = Request::new("k", &window).verb(Verb::Peek);
        let left = block_on(engine.decide(&peek)).remaining();
        assert_eq!(1_000_000 - left, 3 * work.settled.load(Relaxed));
        cluster.nodes().iter().for_each(every_key_expires);
    }
}

/// The members of a share's second epoch have no key yet: until the migration ends, no server decides.
#[test]
fn a_deadline_during_a_migration_is_overload_and_no_call_is_sent_after_it() {
    let cluster = Cluster::start();
    let store = store(&cluster.url());
    let share = Limit::from(quota("token-bucket 2/d burst 8 shared 2")).on_failure(OnFailure::Open);
    let holds = Limit::from(quota("concurrent 30 for 1h"));
    let other = Limit::from(quota("fixed-window 100000/366d")).on_failure(OnFailure::Closed);
    let engine = Engine::new(store.clone()).deadline(Duration::from_millis(50));
    let patient = Engine::new(store.clone()).deadline(LONG_DEADLINE);
    let request = |owner: u32| {
        let request = Request::new("k", &share).and("k", &holds).unwrap();
        request.member("m").owner(format!("owner {owner}"))
    };
    assert!(!block_on(patient.decide(&request(20))).degraded());
    let slot = used_slot(&cluster);
    let owner = cluster.node_for_slot(slot);
    // Keys in other slots of the same server.
    let elsewhere = |key: &String| {
        let other_slot = cluster.key_slot(key);
        other_slot != slot && cluster.node_for_slot(other_slot) == owner
    };
    let neighbour = (0..).map(|i| format!("n{i}")).find(elsewhere).unwrap();
    let use_others = |times: u32| {
        for _ in 0..times {
            let decision = block_on(patient.decide(&Request::new(&neighbour, &other)));
            assert!(decision.allowed(), "{decision:?}");
        }
    };
    use_others(1);
    let migration = start_migration(&cluster, slot);
    let before = try_agains(&cluster);
    let decide = |owner| block_on(engine.decide(&request(owner)));
    let decisions: Vec<Decision> = (0..20).map(decide).collect();
    assert!(decisions.iter().all(Decision::degraded));
    assert!(!decide(20).allowed());
    assert!(try_agains(&cluster) > before);
    // A server that replies is not down: `open` admits what is counted in this process, and no more.
    let admitted = decisions.iter().filter(|decision| decision.allowed());
    assert_eq!(admitted.count(), 8);
    assert!(store.breakers().iter().all(|(_, open)| !open));
    assert_eq!(engine.overload().local, 21);
    use_others(20);
    let at_deadline = try_agains(&cluster);
    use_others(100);
    assert_eq!(try_agains(&cluster), at_deadline);
    migration.move_keys();
    migration.end();
    // The units that no server decided were not taken, and those that were refused hold nothing.
    let left = || {
        let peek = request(21).verb(Verb::Peek);
        let decision = block_on(patient.decide(&peek));
        assert!(!decision.degraded());
        let verdicts = decision.verdicts().iter();
        verdicts
            .map(|verdict| verdict.remaining)
            .collect::<Vec<u32>>()
    };
    poll::until(TIMEOUT, "holds are taken back", || {
        let left = left();
        // Of the 8 that were counted in this process, some may have missed the deadline altogether.
        left[0] == 7 && left[1] >= 30 - 9
    });
    // It held before it was refused.
    let renew = Request::new("k", &holds)
        .owner("owner 20")
        .verb(Verb::Renew);
    assert!(block_on(patient.decide(&renew)).allowed());
}
