//! The refusal cache against a real server: exact, and silent towards the server.

use std::time::{Duration, Instant};

use tallygate::store::{RefusalCacheSettings, StoreErrorKind};
use tallygate::{Key, Limit, Limiter, RedisStore, Request, Store, Verb};
use tallygate_testkit::redis::{Cluster, Server};

use crate::fixtures::{
    HEALTHY, TIMEOUT, block_on, builder, connected, namespace, patient_limiter, quota, runtime,
};

fn cached(url: &str, max_age: Duration) -> RedisStore {
    let mut settings = RefusalCacheSettings::default();
    settings.max_age = max_age;
    connected(builder(url).refusal_cache(settings))
}

fn check(limiter: &Limiter<RedisStore>, key: &str) -> bool {
    let decision = block_on(limiter.decide(&limiter.request(key)));
    assert!(!decision.degraded());
    decision.allowed()
}

/// The number of scripts that a server has run.
fn scripts_run(server: &Server) -> u64 {
    let info = server.command(&["INFO", "commandstats"]);
    let calls = |name: &str| {
        let line = info.text().lines().find(|line| line.starts_with(name));
        let calls = line.and_then(|line| line.split("calls=").nth(1));
        calls.map_or(0, |calls| calls.split(',').next().unwrap().parse().unwrap())
    };
    calls("cmdstat_evalsha:") + calls("cmdstat_eval:")
}

#[test]
fn the_server_hears_of_an_exhausted_key_once_per_age() {
    let server = Server::start();
    let max_age = Duration::from_millis(500);
    let store = cached(&server.url(), max_age);
    let limiter = patient_limiter(&store, "fixed-window 5/366d");
    let (before, started) = (scripts_run(&server), Instant::now());
    let admitted = (0..50_000).filter(|_| check(&limiter, "attacked")).count();
    let elapsed = started.elapsed();
    let ages = (elapsed.as_millis() / max_age.as_millis() + 1) as u64;
    let asked = scripts_run(&server) - before;
    assert_eq!(admitted, 5);
    let stats = store.refusal_cache_stats();
    assert_eq!(stats.hits + stats.misses, 50_000);
    assert!(stats.misses <= 5 + ages, "{stats:?} in {ages} ages");
    // The first call loads the script, and a heartbeat every 2 s counts replicas.
    assert!(
        asked <= stats.misses + 2 + elapsed.as_secs(),
        "asked {asked} times, {stats:?}"
    );
}

#[test]
fn requests_in_the_queue_are_refused_without_the_server_too() {
    let server = Server::start();
    let store = cached(&server.url(), Duration::from_secs(60));
    let limiter = patient_limiter(&store, "fixed-window 5/366d");
    let before = scripts_run(&server);
    let calls: Vec<_> = (0..5_000)
        .map(|_| {
            let limiter = limiter.clone();
            runtime().spawn(async move { limiter.decide(&limiter.request("queued")).await })
        })
        .collect();
    let decisions = calls.into_iter().map(|call| block_on(call).unwrap());
    assert_eq!(decisions.filter(tallygate::Decision::allowed).count(), 5);
    let misses = store.refusal_cache_stats().misses;
    assert!(misses < 2_500, "{misses} of 5,000 were sent");
    // The script is loaded, and heartbeats count replicas.
    assert!(scripts_run(&server) - before <= misses + 5);
}

/// Random traffic through stores with a cache; the counters must say the same as without.
#[test]
fn what_is_admitted_is_what_the_server_counted() {
    let seed = std::env::var("TALLYGATE_SEED").ok();
    let seed = seed.map_or_else(|| fastrand::u64(..), |text| text.parse().unwrap());
    println!("TALLYGATE_SEED={seed}");
    for (i, text) in [
        "fixed-window 40/366d",
        "sliding-window-log 40/366d",
        "sliding-window-counter 40/366d",
        "token-bucket 1/d burst 40",
        "leaky-bucket 1/d burst 40",
        "leaky-bucket 1/d queue 40",
    ]
    .into_iter()
    .enumerate()
    {
        let stores = [(); 2].map(|()| cached(&HEALTHY.url(), Duration::from_secs(60)));
        let namespace = namespace();
        let admitted: Vec<_> = (0..24)
            .map(|task| {
                let limiter = patient_limiter(&stores[task % 2], text);
                let key = Key::from(namespace.clone()).and((task % 2).to_string());
                let seed = seed.wrapping_add(100 * i as u64 + task as u64);
                runtime().spawn(async move {
                    let mut random = fastrand::Rng::with_seed(seed);
                    let mut units = 0;
                    for _ in 0..200 {
                        let request = limiter.request(&key).cost(random.u32(1..4));
                        let verb = [Verb::Check, Verb::Take][random.usize(..2)];
                        let decision = limiter.decide(&request.verb(verb)).await;
                        assert!(!decision.degraded());
                        units += decision.granted();
                    }
                    units
                })
            })
            .collect();
        let mut sums = [0; 2];
        for (task, units) in admitted.into_iter().enumerate() {
            sums[task % 2] += block_on(units).unwrap();
        }
        // Every key was asked for far more than its capacity, in units of 1 to 3.
        assert!(
            sums.iter().all(|sum| (40..=41).contains(sum)),
            "{text}: {sums:?}"
        );
        let hits: u64 = stores
            .iter()
            .map(|store| store.refusal_cache_stats().hits)
            .sum();
        assert!(hits > 1_000, "{text}: {hits}");
    }
}

#[test]
fn a_reset_a_refund_and_an_undo_take_effect_immediately() {
    let store = cached(&HEALTHY.url(), Duration::from_secs(60));
    let limiter = patient_limiter(&store, "fixed-window 1/366d");
    let exhaust = |key: &str| {
        let request = limiter.request(key);
        let decision = block_on(limiter.decide(&request));
        assert!(decision.allowed(), "{key}");
        assert!(!check(&limiter, key) && !check(&limiter, key));
        decision
    };
    exhaust("reset");
    block_on(limiter.decide(&limiter.request("reset").verb(Verb::Reset)));
    assert!(check(&limiter, "reset"));
    exhaust("refund");
    block_on(limiter.decide(&limiter.request("refund").verb(Verb::Refund)));
    assert!(check(&limiter, "refund"));
    let decision = exhaust("undo");
    limiter.undo("undo", &decision);
    tallygate_testkit::poll::until(TIMEOUT, "the undo runs", || check(&limiter, "undo"));
    exhaust("submitted");
    store.submit(&limiter.request("submitted").verb(Verb::Reset));
    tallygate_testkit::poll::until(TIMEOUT, "the reset runs", || check(&limiter, "submitted"));
    exhaust("raised");
    assert!(check(
        &limiter.with_limit(quota("fixed-window 2/366d")),
        "raised"
    ));
}

#[test]
fn one_exhausted_limit_refuses_a_request_with_several() {
    let store = cached(&HEALTHY.url(), Duration::from_secs(60));
    let limiter = patient_limiter(&store, "fixed-window 1/366d");
    let limiter = limiter.and(quota("token-bucket 1/d burst 9")).unwrap();
    let key = namespace();
    assert!(check(&limiter, &key) && !check(&limiter, &key));
    let hits = store.refusal_cache_stats().hits;
    let decision = block_on(limiter.decide(&limiter.request(&key)));
    assert_eq!(store.refusal_cache_stats().hits, hits + 1);
    assert_eq!(decision.binding(), 0);
    assert!(!decision.degraded() && !decision.allowed());
    let verdicts = decision.verdicts();
    assert_eq!([verdicts[0].remaining, verdicts[1].remaining], [0, 8]);
    // Peeks, charges and calls with a supplied time are not answered by the cache.
    let peek = limiter.request(&key).verb(Verb::Peek);
    assert!(!block_on(limiter.decide(&peek)).allowed());
    assert!(block_on(limiter.decide(&peek.verb(Verb::Charge))).allowed());
    assert_eq!(store.refusal_cache_stats().hits, hits + 1);
}

#[test]
fn units_held_by_a_cross_slot_request_are_not_taken_for_exhaustion() {
    let cluster = Cluster::start();
    let store = cached(&cluster.url(), Duration::from_secs(60));
    let free = Limit::named("free", quota("fixed-window 1/366d"));
    let spent = Limit::named("spent", quota("fixed-window 1/366d"));
    let engine = tallygate::Engine::new(store).deadline(TIMEOUT);
    let alone = |key: &str, limit: &Limit| block_on(engine.decide(&Request::new(key, limit)));
    for i in 0..50 {
        let (a, b) = (format!("a{i}"), format!("b{i}"));
        assert!(alone(&b, &spent).allowed());
        // Takes from `a` and gives it back, because `b` is exhausted.
        let both = Request::new(&a, &free).and(&b, &spent).unwrap();
        let (both, first) = block_on(async {
            let single = Request::new(&a, &free);
            tokio::join!(engine.decide(&both), engine.decide(&single))
        });
        assert!(!both.allowed() && !both.degraded() && !first.degraded());
        if !first.allowed() {
            let until = Instant::now() + TIMEOUT;
            while !alone(&a, &free).allowed() {
                assert!(Instant::now() < until, "a held unit is cached as exhausted");
            }
        }
    }
}

#[test]
fn invalid_settings_are_errors_that_name_the_bound() {
    for (max_age, keys, word) in [(61, 10, "61s"), (1, 0, "0 keys")] {
        let mut settings = RefusalCacheSettings::default();
        (settings.max_age, settings.keys) = (Duration::from_secs(max_age), keys);
        let error = builder(&HEALTHY.url()).refusal_cache(settings).open();
        let error = error.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
        let text = error.to_string();
        assert!(text.contains(word) && text.contains("60s"), "{text}");
    }
}
