//! Partitions: the keys of one take no slots and no budgets of another.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use tallygate::{
    Decision, Limit, Limiter, ManualClock, MemoryStore, Partition, Quota, Request, Verb,
};

use crate::fixtures::{Store, T0, quotas_per_minute, race, seeded};

const FIRST: Partition = Partition::new(1);
const SECOND: Partition = Partition::new(2);

/// A store whose partitions 1, 2, … hold that many keys, and the common one 100.
fn store(partitions: &[usize]) -> Arc<Store> {
    let builder = MemoryStore::builder()
        .capacity(partitions.iter().sum::<usize>() + 100)
        .partitions(partitions.iter().copied());
    Arc::new(builder.clock(Arc::new(ManualClock::at(T0))).build())
}

fn limit(name: &str, quota: Quota, partition: Partition) -> Limit {
    Limit::named(name, quota).partition(partition)
}

fn decide(store: &Store, key: &str, limit: &Limit, verb: Verb, cost: u32) -> Decision {
    store.decide(&Request::new(key, limit).verb(verb).cost(cost))
}

fn check(store: &Store, key: &str, limit: &Limit) -> Decision {
    decide(store, key, limit, Verb::Check, 1)
}

/// Sends requests with invented keys until a partition is full for both kinds of counters.
fn flood(store: &Store, partition: Partition) {
    for text in ["fixed-window 1/366d", "sliding-window-log 1/366d"] {
        let limit = limit("flood", text.parse().unwrap(), partition);
        for n in 0..2 * store.partition_capacity(partition) + 2_000 {
            let _ = check(store, &format!("invented {n}"), &limit);
        }
    }
}

#[test]
fn invented_keys_leave_newcomers_of_another_partition_their_own_counters() {
    const NEWCOMERS: usize = 3_000;
    for quota in quotas_per_minute(2) {
        let store = store(&[5_000, NEWCOMERS]);
        flood(&store, FIRST);
        assert!(store.partition_shared_decisions(FIRST) > 5_000);
        let sharing: Vec<Partition> = store.sharing_partitions().collect();
        assert_eq!(sharing, [FIRST], "{quota}");
        for partition in [SECOND, Partition::default()] {
            let limit = limit("honest", quota, partition);
            let keys = store.partition_capacity(partition);
            for round in 0..=2 {
                for n in 0..keys {
                    let decision = check(&store, &n.to_string(), &limit);
                    assert!(!decision.shared(), "{quota}: {n} of {keys}");
                    assert_eq!(decision.allowed(), round < 2, "{quota}: {n} of {keys}");
                }
            }
            assert_eq!(store.partition_live_keys(partition), keys, "{quota}");
            assert_eq!(store.partition_shared_decisions(partition), 0, "{quota}");
        }
        assert_eq!(
            store.shared_decisions(),
            store.partition_shared_decisions(FIRST)
        );
    }
}

#[test]
fn a_partition_of_n_keys_holds_n_keys_each_its_own() {
    for keys in [1, 7, 1_000] {
        for quota in quotas_per_minute(2) {
            let store = store(&[keys, keys, keys]);
            let partitions = [FIRST, SECOND, Partition::new(3)];
            for (round, partition) in (0..=2).flat_map(|round| partitions.map(|p| (round, p))) {
                let limit = limit("each", quota, partition);
                for n in 0..keys {
                    let decision = check(&store, &n.to_string(), &limit);
                    assert!(!decision.shared(), "{quota}: {n} of {keys}");
                    assert_eq!(decision.allowed(), round < 2, "{quota}: {n} of {keys}");
                }
            }
            for partition in partitions {
                assert_eq!(store.partition_capacity(partition), keys);
                assert_eq!(store.partition_live_keys(partition), keys, "{quota}");
            }
            assert_eq!(store.live_keys(), 3 * keys, "{quota}");
            assert_eq!(store.shared_decisions(), 0, "{quota}");
            assert_eq!(store.sharing_partitions().count(), 0, "{quota}");
        }
    }
}

#[test]
fn the_common_partition_has_the_rest_of_the_capacity() {
    let capacities = |capacity: usize, partitions: &[usize]| -> (usize, Vec<usize>) {
        let builder = MemoryStore::builder().capacity(capacity);
        let store = builder.partitions(partitions.iter().copied()).build();
        let each = (0..=partitions.len() as u16).map(Partition::new);
        let each = each.map(|partition| store.partition_capacity(partition));
        (store.capacity(), each.collect())
    };
    assert_eq!(capacities(1_000, &[]), (1_000, vec![1_000]));
    assert_eq!(capacities(1_000, &[300, 0]), (1_000, vec![699, 300, 1]));
    assert_eq!(capacities(1_000, &[1_000]), (1_001, vec![1, 1_000]));
    assert_eq!(capacities(10, &[20, 30]), (51, vec![1, 20, 30]));
}

#[test]
fn an_unknown_partition_is_the_common_one() {
    for quota in quotas_per_minute(2) {
        let store = store(&[50]);
        let known = Limit::named("same", quota);
        for index in [2, 3, u16::MAX] {
            let unknown = known.clone().partition(Partition::new(index));
            assert_eq!(store.partition_capacity(unknown.own_partition()), 100);
            assert!(check(&store, "k", &unknown).allowed(), "{quota}");
            assert_eq!(check(&store, "k", &known).remaining(), 0, "{quota}");
            assert!(!check(&store, "k", &unknown).allowed(), "{quota}");
            assert_eq!(decide(&store, "k", &known, Verb::Reset, 0).remaining(), 2);
        }
        assert_eq!(store.partition_live_keys(FIRST), 0, "{quota}");
    }
}

/// Every verb and every way to ask.
#[test]
fn counters_of_a_partition_answer_as_those_of_the_common_one() {
    for quota in quotas_per_minute(9) {
        let (parted, plain) = (store(&[3, 3]), store(&[]));
        let limits = [quota; 2].map(|quota| limit("same", quota, SECOND));
        let steps = [
            (Verb::Check, 4),
            (Verb::Peek, 6),
            (Verb::Take, 3),
            (Verb::Refund, 2),
            (Verb::Charge, 5),
            (Verb::Check, 1),
            (Verb::Reset, 0),
            (Verb::Check, 2),
        ];
        for (verb, cost) in steps {
            let [parted, plain] =
                [&parted, &plain].map(|store| decide(store, "k", &limits[0], verb, cost));
            assert_eq!(parted, plain, "{quota}: {verb:?} {cost}");
        }
        let key = "k".into();
        let inspected = parted.inspect(&key, &limits[0]);
        assert_eq!(inspected, plain.inspect(&key, &limits[1]), "{quota}");
        let request = Request::new("k", &limits[0]).cost(3);
        let taken = parted.decide(&request);
        parted.undo_at(&request, &taken, T0);
        assert_eq!(parted.inspect(&key, &limits[0]), inspected, "{quota}");
        let limiter = Limiter::with_store(Arc::clone(&parted), limits[0].clone());
        let many = limiter.check_many(["k", "l"]);
        let left: Vec<u32> = many.iter().map(Decision::remaining).collect();
        assert_eq!(left, [6, 8], "{quota}");
        let requests = ["k", "l"].map(|key| Request::new(key, &limits[0]));
        let many = parted.decide_many(&requests);
        let left: Vec<u32> = many.iter().map(Decision::remaining).collect();
        assert_eq!(left, [5, 7], "{quota}");
    }
}

/// Threads take from counters of three partitions, in any order, some of them shared: whoever
/// reads both sides of a transfer sees all of it or nothing, and nobody waits for ever.
#[test]
fn a_request_over_limits_of_several_partitions_is_atomic() {
    const KEYS: [&str; 4] = ["a", "b", "c", "d"];
    for full in [false, true] {
        let store = store(&[40, 40]);
        if full {
            flood(&store, FIRST);
        }
        let partitions = [Partition::default(), FIRST, SECOND];
        let limits: Vec<Limit> = partitions
            .into_iter()
            .flat_map(|partition| {
                let limits = quotas_per_minute(300).into_iter().enumerate();
                limits.map(move |(n, quota)| {
                    limit(&format!("{n} in {}", partition.index()), quota, partition)
                })
            })
            .collect();
        let took: Vec<AtomicU32> = (0..KEYS.len() * limits.len())
            .map(|_| AtomicU32::new(0))
            .collect();
        race(6, |thread| {
            let mut rng = seeded(thread);
            for _ in 0..400 {
                let mut counters: Vec<usize> = (0..took.len()).collect();
                rng.shuffle(&mut counters);
                counters.truncate(rng.usize(2..=8));
                let entry = |&at: &usize| (KEYS[at % KEYS.len()], &limits[at / KEYS.len()]);
                let (key, limit) = entry(&counters[0]);
                let verb = if rng.bool() { Verb::Check } else { Verb::Take };
                let mut request = Request::new(key, limit).verb(verb).cost(rng.u32(1..=4));
                for (key, limit) in counters[1..].iter().map(entry) {
                    request = request.and(key, limit).unwrap();
                }
                let decision = store.decide(&request);
                for (&at, verdict) in counters.iter().zip(decision.verdicts()) {
                    let right = if decision.allowed() {
                        decision.granted()
                    } else {
                        0
                    };
                    assert_eq!(verdict.granted(), right, "all or nothing");
                    took[at].fetch_add(verdict.granted(), SeqCst);
                }
            }
        });
        let mut own = 0;
        for (at, took) in took.iter().enumerate() {
            let (key, limit) = (KEYS[at % KEYS.len()], &limits[at / KEYS.len()]);
            let took = took.load(SeqCst);
            assert!(took <= 300, "{key}, {}", limit.name());
            let left = decide(&store, key, limit, Verb::Peek, 1);
            if !left.shared() {
                own += 1;
                assert_eq!(left.remaining(), 300 - took, "{key}, {}", limit.name());
            }
        }
        let of_full = KEYS.len() * quotas_per_minute(1).len();
        let right = if full { 2 * of_full } else { 3 * of_full };
        assert_eq!(own, right);
    }
}

#[test]
fn equal_quotas_of_two_partitions_share_no_budget() {
    for quota in quotas_per_minute(3) {
        let store = store(&[10, 10]);
        flood(&store, FIRST);
        flood(&store, SECOND);
        let [first, second] = [FIRST, SECOND].map(|partition| limit("equal", quota, partition));
        // Until every budget of the first partition is used up.
        for n in 0..2_000 {
            let decision = decide(&store, &n.to_string(), &first, Verb::Take, 3);
            assert!(decision.shared(), "{quota}");
        }
        assert!(!check(&store, "k", &first).allowed(), "{quota}");
        let decision = check(&store, "k", &second);
        assert!(decision.shared() && decision.allowed(), "{quota}");
        assert_eq!(decision.remaining(), 2, "{quota}");
    }
}

#[test]
fn many_quotas_of_one_partition_leave_another_its_budgets() {
    let store = store(&[1, 1]);
    flood(&store, FIRST);
    flood(&store, SECOND);
    let mut refused = 0;
    for n in 1..1_500 {
        let quota = Quota::per_hour(n);
        let decision = check(&store, "k", &limit(&format!("{n}"), quota, FIRST));
        assert!(decision.shared());
        refused += u32::from(!decision.allowed());
    }
    assert!(
        refused > 0,
        "the budgets of the first partition are used up"
    );
    let fresh = limit("fresh", Quota::per_hour(9), SECOND);
    let decision = check(&store, "k", &fresh);
    assert!(decision.allowed() && decision.shared());
    assert_eq!(decision.remaining(), 8);
}

#[test]
fn refund_and_reset_change_nothing_on_a_shared_budget_of_a_partition() {
    for quota in quotas_per_minute(6) {
        let store = store(&[1, 1]);
        flood(&store, FIRST);
        let [shared, own] = [FIRST, SECOND].map(|partition| limit("l", quota, partition));
        let steps = [(Verb::Check, 4), (Verb::Refund, 3), (Verb::Reset, 0)];
        let left = |limit: &Limit, is_shared: bool| {
            steps.map(|(verb, cost)| {
                let decision = decide(&store, "k", limit, verb, cost);
                assert!(decision.allowed(), "{quota}: {verb:?}");
                assert_eq!(decision.shared(), is_shared, "{quota}: {verb:?}");
                decision.remaining()
            })
        };
        assert_eq!(left(&shared, true), [2, 2, 2], "{quota}");
        assert_eq!(left(&own, false), [2, 5, 6], "{quota}");
    }
}

#[test]
fn a_decision_shared_in_two_partitions_counts_in_both() {
    let store = store(&[1, 1]);
    flood(&store, FIRST);
    flood(&store, SECOND);
    let before = [FIRST, SECOND].map(|partition| store.partition_shared_decisions(partition));
    let quota = Quota::per_minute(5);
    let limits = [("a", FIRST), ("b", FIRST), ("c", SECOND)]
        .map(|(name, partition)| limit(name, quota, partition));
    let request = Request::with_limits("k", &limits).unwrap();
    assert!(store.decide(&request).shared());
    let after = [FIRST, SECOND].map(|partition| store.partition_shared_decisions(partition));
    assert_eq!(after, before.map(|count| count + 1));
    assert_eq!(store.shared_decisions(), after.iter().sum::<u64>());
    let sharing: Vec<Partition> = store.sharing_partitions().collect();
    assert_eq!(sharing, [FIRST, SECOND]);
}

#[test]
fn a_partition_is_no_part_of_a_limits_name() {
    let limit = Limit::named("login", Quota::per_minute(5));
    assert_eq!(limit.own_partition(), Partition::default());
    let moved = limit.clone().partition(SECOND);
    assert_eq!(moved.own_partition(), SECOND);
    assert_eq!(moved.name(), limit.name());
    let twice = Request::new("k", &limit).and("k", &moved);
    assert!(twice.is_err(), "one counter twice");
}
