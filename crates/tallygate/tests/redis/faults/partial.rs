//! One master of a cluster is gone, without a fail-over: it costs only its own keys.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tallygate::{
    Decision, Engine, LeaseSettings, Limit, OnFailure, RedisStore, Replicas, Request, Retry, Verb,
};
use tallygate_testkit::poll;
use tallygate_testkit::redis::Cluster;

use crate::fixtures::{LONG_DEADLINE, TIMEOUT, block_on, builder, connected, quota, runtime};

/// Keys in slots of each of the three masters, in order.
const SPREAD: [&str; 3] = ["b", "c", "d"];
/// Enough for a healthy server on a loaded machine, and passed before a silent one counts as lost.
const DEADLINE: Duration = Duration::from_millis(200);
/// How many decisions say what share is made by the servers.
const DECISIONS: u64 = 5_000;
const LOCAL: OnFailure = OnFailure::Local(Replicas::Fixed(NonZeroU32::MIN));

const POLICIES: [(&str, OnFailure); 3] = [
    ("open", OnFailure::Open),
    ("local", LOCAL),
    ("closed", OnFailure::Closed),
];

/// How a master is lost.
#[derive(Clone, Copy, Debug)]
enum Loss {
    Killed,
    Stopped,
}

/// A cluster that serves its other slots when a master is gone, and whose replicas do not take
/// over.
fn cluster() -> Cluster {
    let cluster = Cluster::start();
    for node in cluster.nodes() {
        for (name, value) in [
            // Servers of a loaded machine must not take each other for dead.
            ("cluster-node-timeout", "60000"),
            ("cluster-require-full-coverage", "no"),
            ("cluster-replica-no-failover", "yes"),
        ] {
            let reply = node.command(&["CONFIG", "SET", name, value]);
            assert_eq!(reply.text(), "OK");
        }
    }
    cluster
}

fn lose(cluster: &Cluster, key: &str, loss: Loss) {
    let node = cluster.node(cluster.node_for_slot(cluster.key_slot(key)));
    match loss {
        Loss::Killed => node.kill(),
        Loss::Stopped => node.stop(),
    }
}

fn engine(store: &RedisStore) -> Engine<RedisStore> {
    Engine::new(store.clone())
}

fn connect(cluster: &Cluster) -> RedisStore {
    connected(builder(&cluster.url()).response_timeout(Duration::from_secs(1)))
}

fn limit(name: &str, policy: OnFailure) -> Limit {
    Limit::named(name, quota("fixed-window 5/366d")).on_failure(policy)
}

fn decide(engine: &Engine<RedisStore>, request: &Request<'_>) -> Decision {
    block_on(engine.decide(request))
}

#[test]
fn a_known_refusal_stands_whatever_happens_to_other_servers() {
    for loss in [Loss::Killed, Loss::Stopped] {
        let cluster = cluster();
        let store = connect(&cluster);
        let engine = engine(&store);
        for (name, policy) in POLICIES {
            let patient = limit(name, policy).deadline(LONG_DEADLINE);
            while decide(&engine, &Request::new(SPREAD[1], &patient)).allowed() {}
        }
        lose(&cluster, SPREAD[0], loss);
        let started = Instant::now();
        let mut wrong = Vec::new();
        // From the first moment, and until long after the breaker has opened.
        while started.elapsed() < Duration::from_secs(2) {
            for (name, policy) in POLICIES {
                let exhausted = limit(name, policy).deadline(DEADLINE);
                for key in [SPREAD[0], SPREAD[2]] {
                    let both = Request::new(SPREAD[1], &exhausted)
                        .and(key, &exhausted)
                        .unwrap();
                    let decision = decide(&engine, &both);
                    let stands = !decision.allowed()
                        && !decision.degraded()
                        && decision.binding() == 0
                        && matches!(decision.retry_after(), Some(Retry::After(_)));
                    if !stands {
                        wrong.push(format!("{name} {key} {decision:?}"));
                    }
                }
            }
        }
        assert!(
            wrong.is_empty(),
            "{loss:?}: {} wrong, {:?}",
            wrong.len(),
            wrong.first()
        );
    }
}

#[test]
fn a_failed_part_goes_to_its_own_policy_and_a_refusal_gives_back_the_rest() {
    let cluster = cluster();
    let store = connect(&cluster);
    let engine = engine(&store);
    // Nobody waits for the lost server; a healthy one may be slow on a loaded machine.
    let limit = |name, policy| limit(name, policy).deadline(LONG_DEADLINE);
    let healthy = limit("healthy", OnFailure::Closed);
    let used = |key: &str| {
        let peek = Request::new(key, &healthy).verb(Verb::Peek);
        let decision = decide(&engine, &peek);
        assert!(!decision.degraded());
        5 - decision.remaining()
    };
    lose(&cluster, SPREAD[0], Loss::Killed);
    let (open, closed, local) = (
        limit("open", OnFailure::Open),
        limit("closed", OnFailure::Closed),
        limit("local", LOCAL),
    );
    poll::until(TIMEOUT, "the breaker opens", || {
        decide(&engine, &Request::new(SPREAD[0], &open));
        engine.store_is_down()
    });
    // Admitted: counted where the server answers, degraded because one did not.
    let request = Request::new(SPREAD[1], &healthy)
        .and(SPREAD[0], &open)
        .unwrap();
    let decision = decide(&engine, &request);
    assert!(decision.allowed() && decision.degraded());
    assert_eq!(used(SPREAD[1]), 1);
    // Refused by the policy of the failed part: the other part is taken back.
    let request = Request::new(SPREAD[1], &healthy)
        .and(SPREAD[0], &closed)
        .unwrap();
    let decision = decide(&engine, &request);
    assert!(decision.unavailable() && decision.binding() == 1);
    poll::until(TIMEOUT, "the unit is returned", || used(SPREAD[1]) == 1);
    // Counted in this process, until the local share is used up.
    let request = || {
        Request::new(SPREAD[2], &healthy)
            .and(SPREAD[0], &local)
            .unwrap()
    };
    for taken in 1..=5 {
        assert!(decide(&engine, &request()).allowed(), "{taken}");
    }
    let refused = decide(&engine, &request());
    assert!(!refused.allowed() && refused.degraded() || refused.binding() == 0);
    assert_eq!(used(SPREAD[2]), 5);
    // A take grants what both grant.
    let local = limit("take", LOCAL);
    let spread = ["b2", "c2", "d2", "e2", "f2", "g2"];
    let lost_slot = cluster.key_slot(SPREAD[0]);
    let is_healthy = |key: &&&str| {
        let slot = cluster.key_slot(key);
        cluster.node_for_slot(slot) != cluster.node_for_slot(lost_slot)
    };
    let key = spread.iter().find(is_healthy).unwrap();
    let used_up = Request::new(SPREAD[0], &local).cost(3).verb(Verb::Take);
    assert_eq!(decide(&engine, &used_up).granted(), 3);
    let both = Request::new(*key, &healthy).and(SPREAD[0], &local).unwrap();
    let decision = decide(&engine, &both.cost(4).verb(Verb::Take));
    assert_eq!(decision.granted(), 2);
    poll::until(TIMEOUT, "the surplus is returned", || used(key) == 2);
}

/// A key on another server than the first of [`SPREAD`].
fn healthy_key(cluster: &Cluster) -> &'static str {
    let node = |key: &str| cluster.node_for_slot(cluster.key_slot(key));
    let mut others = SPREAD.into_iter().skip(1);
    others
        .find(|key| node(key) != node(SPREAD[0]))
        .expect("each server has one of the keys")
}

/// Loses the server of the first key of [`SPREAD`], and waits until nobody asks it.
fn lose_first(cluster: &Cluster, engine: &Engine<RedisStore>) {
    lose(cluster, SPREAD[0], Loss::Killed);
    let open = limit("open", OnFailure::Open).deadline(LONG_DEADLINE);
    poll::until(TIMEOUT, "the breaker opens", || {
        decide(engine, &Request::new(SPREAD[0], &open));
        engine.store_is_down()
    });
}

/// Neither is the id known afterwards, nor does a retry return what others took.
#[test]
fn a_reserve_that_a_policy_refuses_is_returned_once_and_forgotten() {
    let cluster = cluster();
    let store = connect(&cluster);
    let engine = engine(&store);
    let key = healthy_key(&cluster);
    let healthy = Limit::named("healthy", quota("fixed-window 1000/366d"));
    let healthy = healthy
        .on_failure(OnFailure::Closed)
        .deadline(LONG_DEADLINE);
    let closed = limit("closed", OnFailure::Closed).deadline(LONG_DEADLINE);
    let used = || {
        let peek = Request::new(key, &healthy).verb(Verb::Peek);
        1_000 - decide(&engine, &peek).remaining()
    };
    let reserve = |cost| {
        let request = Request::new(key, &healthy).id("x").verb(Verb::Reserve);
        request.cost(cost)
    };
    assert!(decide(&engine, &Request::new(key, &healthy).cost(900)).allowed());
    lose_first(&cluster, &engine);
    for _ in 0..3 {
        let both = reserve(100).and_cost(SPREAD[0], &closed, 1).unwrap();
        let refused = decide(&engine, &both);
        assert!(refused.unavailable());
        poll::until(TIMEOUT, "the units are returned", || used() == 900);
        // The id is unknown, and the other estimate is charged.
        let other = reserve(7);
        assert_eq!(decide(&engine, &other).granted(), 7);
        assert_eq!(used(), 907);
        // One that is known charges nothing, and nothing is returned.
        assert!(decide(&engine, &both.cost(7)).unavailable());
        let settled = decide(&engine, &other.verb(Verb::Settle).cost(3));
        assert_eq!(settled.remaining(), 97);
        let returned = Request::new(key, &healthy).verb(Verb::Refund).cost(3);
        assert_eq!(decide(&engine, &returned).remaining(), 100);
    }
}

#[test]
fn a_take_surplus_leaves_the_owner_what_was_granted() {
    let cluster = cluster();
    let store = connect(&cluster);
    let engine = engine(&store);
    let key = healthy_key(&cluster);
    let holds = Limit::named("holds", quota("concurrent 8 for 1h"));
    let holds = holds.on_failure(OnFailure::Closed).deadline(LONG_DEADLINE);
    let locals = ["old", "new"].map(|name| limit(name, LOCAL).deadline(LONG_DEADLINE));
    let held = || {
        let peek = Request::new(key, &holds).verb(Verb::Peek);
        8 - decide(&engine, &peek).remaining()
    };
    let hold = |owner: &'static str, cost| Request::new(key, &holds).owner(owner).cost(cost);
    assert!(decide(&engine, &hold("old", 1)).allowed());
    lose_first(&cluster, &engine);
    for (owner, local) in ["old", "new"].into_iter().zip(&locals) {
        // The local share has 5 units.
        let used = Request::new(SPREAD[0], local).cost(3);
        assert!(decide(&engine, &used).allowed());
        let before = held() - u32::from(owner == "old");
        let take = hold(owner, 5).verb(Verb::Take);
        let both = take.and(SPREAD[0], local).unwrap();
        let decision = decide(&engine, &both);
        assert_eq!(decision.granted(), 2, "{owner}");
        poll::until(TIMEOUT, "the surplus is returned", || held() == before + 2);
        let renewed = decide(&engine, &hold(owner, 1).verb(Verb::Renew));
        assert_eq!(renewed.granted(), 2, "{owner}");
    }
}

/// Also with a limit that was decided from a lease.
#[test]
fn a_refusal_by_policy_restores_the_former_hold() {
    let cluster = cluster();
    let store = connect(&cluster);
    let engine = engine(&store);
    let key = healthy_key(&cluster);
    let settings = LeaseSettings::default().hold(Duration::from_secs(60));
    let leased = Limit::named("leased", quota("token-bucket 3/d burst 100000"));
    let leased = leased.deadline(LONG_DEADLINE).lease(settings).unwrap();
    engine.prepare(&leased);
    poll::until(TIMEOUT, "a lease is spent", || {
        decide(&engine, &Request::new(key, &leased)).leased()
    });
    let holds = Limit::named("holds", quota("concurrent 8 for 1h"));
    let holds = holds.on_failure(OnFailure::Closed).deadline(LONG_DEADLINE);
    let closed = limit("closed", OnFailure::Closed).deadline(LONG_DEADLINE);
    let hold = |cost| Request::new(key, &holds).owner("o").cost(cost);
    assert!(decide(&engine, &hold(3)).allowed());
    lose_first(&cluster, &engine);
    for with_lease in [false, true] {
        let mut request = hold(1).and(SPREAD[0], &closed).unwrap();
        if with_lease {
            request = request.and(key, &leased).unwrap();
        }
        assert!(decide(&engine, &request).unavailable());
        poll::until(TIMEOUT, "the hold is restored", || {
            let peek = Request::new(key, &holds).verb(Verb::Peek);
            decide(&engine, &peek).remaining() == 5
        });
        let renewed = decide(&engine, &hold(1).verb(Verb::Renew));
        assert_eq!(renewed.granted(), 3, "{with_lease}");
    }
}

#[test]
fn requests_to_a_lost_server_fail_at_once() {
    for loss in [Loss::Killed, Loss::Stopped] {
        let cluster = cluster();
        let store = connect(&cluster);
        let engine = engine(&store);
        let (one, both) = (
            limit("one", OnFailure::Open),
            limit("both", OnFailure::Open),
        );
        assert!(!decide(&engine, &Request::new(SPREAD[0], &one)).degraded());
        lose(&cluster, SPREAD[0], loss);
        poll::until(TIMEOUT, "the breaker opens", || {
            decide(&engine, &Request::new(SPREAD[0], &one));
            engine.store_is_down()
        });
        let timeouts = engine.timeouts();
        for _ in 0..200 {
            assert!(decide(&engine, &Request::new(SPREAD[0], &one)).degraded());
        }
        assert_eq!(
            engine.timeouts(),
            timeouts,
            "{loss:?}: they wait for an answer"
        );
        // With another server: nobody waits for the lost one.
        let patient = Limit::clone(&both).deadline(LONG_DEADLINE);
        let started = Instant::now();
        for _ in 0..5 {
            let both = Request::new(SPREAD[1], &patient)
                .and(SPREAD[0], &patient)
                .unwrap();
            let decision = decide(&engine, &both);
            assert!(decision.degraded() && decision.allowed());
        }
        assert!(started.elapsed() < LONG_DEADLINE, "{loss:?}");
    }
}

#[test]
fn nearly_all_decisions_on_healthy_servers_are_made_by_them() {
    for loss in [Loss::Killed, Loss::Stopped] {
        let cluster = cluster();
        let store = connect(&cluster);
        let engine = Arc::new(engine(&store));
        let limit = Arc::new(
            Limit::named("large", quota("token-bucket 1000000/s burst 1000000"))
                .on_failure(OnFailure::Open)
                // Far longer than the default: a loaded machine is no failure of the store.
                .deadline(Duration::from_secs(2)),
        );
        for key in SPREAD {
            assert!(!decide(&engine, &Request::new(key, &limit)).degraded());
        }
        lose(&cluster, SPREAD[0], loss);
        let counts: Arc<[AtomicU64; 2]> = Arc::default();
        let started = Instant::now();
        let is_enough = move |counts: &[AtomicU64; 2]| {
            let decided: u64 = counts.iter().map(|count| count.load(Relaxed)).sum();
            started.elapsed() > Duration::from_secs(3) && decided >= DECISIONS
        };
        let tasks: Vec<_> = (0..48)
            .map(|task| {
                let (engine, limit) = (Arc::clone(&engine), Arc::clone(&limit));
                let counts = Arc::clone(&counts);
                runtime().spawn(async move {
                    let key = SPREAD[task % 3];
                    while !is_enough(&counts) && started.elapsed() < TIMEOUT {
                        let decision = engine.decide(&Request::new(key, &limit)).await;
                        if key != SPREAD[0] {
                            counts[usize::from(decision.degraded())].fetch_add(1, Relaxed);
                        }
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                })
            })
            .collect();
        for task in tasks {
            block_on(task).unwrap();
        }
        let [exact, degraded] = counts.each_ref().map(|count| count.load(Relaxed));
        assert!(
            degraded * 1_000 <= exact + degraded,
            "{loss:?}: {degraded} of {} degraded",
            exact + degraded
        );
        assert!(is_enough(&counts), "{loss:?}: {exact} in {TIMEOUT:?}");
    }
}
