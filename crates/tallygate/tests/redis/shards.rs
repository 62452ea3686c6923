//! Several independent servers, each with a part of the keys.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use tallygate::store::StoreErrorKind;
use tallygate::{Engine, Limit, OnFailure, RedisStore, Request, Store, Verb};
use tallygate_testkit::poll;
use tallygate_testkit::proxy::{Mode, Proxy};
use tallygate_testkit::redis::Server;

use crate::fixtures::{TIMEOUT, block_on, builder, connected, namespace, quota};

const KEYS: usize = 60;

fn servers() -> [Server; 3] {
    [Server::start(), Server::start(), Server::start()]
}

fn address(server: &Server) -> String {
    format!("127.0.0.1:{}", server.port())
}

fn list<'s>(servers: impl IntoIterator<Item = &'s Server>) -> String {
    let addresses: Vec<String> = servers.into_iter().map(address).collect();
    addresses.join(",")
}

fn url<'s>(servers: impl IntoIterator<Item = &'s Server>) -> String {
    format!("redis+shards://{}", list(servers))
}

fn limit() -> Limit {
    Limit::from(quota("fixed-window 5/366d")).on_failure(OnFailure::Closed)
}

fn key(i: usize) -> String {
    format!("user:{i}")
}

fn used(store: &RedisStore, key: &str, limit: &Limit) -> u32 {
    let peek = Request::new(key, limit).verb(Verb::Peek);
    let decision = block_on(store.decide(&peek)).unwrap();
    limit.quota().capacity() - decision.remaining()
}

/// The number of keys on a server.
fn keys_on(server: &Server) -> usize {
    let size = server.command(&["DBSIZE"]);
    usize::try_from(size.integer()).unwrap()
}

/// Whether a server has a counter of a key.
fn has(server: &Server, key: &str) -> bool {
    let pattern = format!("*{{{key}}}*");
    let count = server.command(&["EVAL", "return #redis.call('KEYS', ARGV[1])", "0", &pattern]);
    count.integer() > 0
}

#[test]
fn every_key_is_on_one_server_and_all_servers_have_some() {
    let servers = servers();
    let limit = limit();
    let space = namespace();
    let store = store_in(&url(&servers), &space);
    // The order of the list does not matter.
    let other = store_in(&url(servers.iter().rev()), &space);
    for i in 0..KEYS {
        let key = key(i);
        block_on(store.decide(&Request::new(&key, &limit).cost(2))).unwrap();
        assert_eq!(used(&other, &key, &limit), 2);
    }
    let counts = servers.each_ref().map(keys_on);
    assert_eq!(counts.iter().sum::<usize>(), KEYS, "{counts:?}");
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    block_on(store.clear()).unwrap();
    assert_eq!(servers.each_ref().map(keys_on), [0; 3]);
}

fn store_in(url: &str, namespace: &str) -> RedisStore {
    connected(builder(url).namespace(namespace))
}

#[test]
fn a_lost_shard_costs_only_its_own_keys() {
    let servers = servers();
    let limit = limit();
    let store = connected(builder(&url(&servers)));
    let engine = Engine::new(store.clone()).deadline(Duration::from_secs(5));
    let decide = |key: &str| block_on(engine.decide(&Request::new(key, &limit)));
    let on_first: BTreeSet<String> = (0..KEYS)
        .map(key)
        .filter(|key| {
            assert!(decide(key).allowed());
            has(&servers[0], key)
        })
        .collect();
    assert!(!on_first.is_empty() && on_first.len() < KEYS);
    servers[0].kill();
    for i in 0..KEYS {
        let key = key(i);
        let decision = decide(&key);
        assert_eq!(decision.degraded(), on_first.contains(&key), "{key}");
        assert_eq!(decision.allowed(), !decision.degraded());
    }
    let open: Vec<bool> = store.breakers().into_iter().map(|(_, open)| open).collect();
    assert_eq!(open[1..], [false, false]);
    // A request over a lost and a healthy shard is decided by both policies.
    let lost = on_first.first().unwrap();
    let healthy = (0..KEYS)
        .map(key)
        .find(|key| !on_first.contains(key))
        .unwrap();
    let both = Request::new(lost, &limit).and(&*healthy, &limit).unwrap();
    let before = used(&store, &healthy, &limit);
    assert!(!block_on(engine.decide(&both)).allowed());
    poll::until(TIMEOUT, "what was taken is returned", || {
        used(&store, &healthy, &limit) == before
    });
}

#[test]
fn a_changed_file_moves_only_the_keys_of_the_new_shard() {
    let servers = servers();
    let limit = limit();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shards");
    fs::write(&path, list(&servers[..2])).unwrap();
    let url = format!("redis+shards://?file={}", path.display());
    let store = connected(builder(&url));
    for i in 0..KEYS {
        block_on(store.decide(&Request::new(key(i), &limit))).unwrap();
    }
    let before = servers.each_ref().map(keys_on);
    assert_eq!(before[0] + before[1], KEYS);
    // An invalid list changes nothing.
    fs::write(&path, "a b:x").unwrap();
    fs::write(&path, list(&servers)).unwrap();
    poll::until(TIMEOUT, "the new shard is used", || {
        store.breakers().len() == 3
    });
    for i in 0..KEYS {
        block_on(store.decide(&Request::new(key(i), &limit))).unwrap();
    }
    let moved = keys_on(&servers[2]);
    assert!(moved > 0 && moved < KEYS / 2, "{moved}");
    // Keys that moved start anew, all others go on.
    let used: Vec<u32> = (0..KEYS).map(|i| used(&store, &key(i), &limit)).collect();
    assert_eq!(used.iter().filter(|used| **used == 1).count(), moved);
    assert_eq!(used.iter().filter(|used| **used == 2).count(), KEYS - moved);
}

#[test]
fn an_unreachable_or_wrong_member_is_reported() {
    let server = Server::start();
    let gone = Server::start();
    gone.kill();
    let url = url([&server, &gone]);
    // The service starts all the same, and decides by policy for the keys of that shard.
    let store = block_on(builder(&url).connect()).unwrap();
    let error = block_on(store.check()).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unreachable, "{error}");
    let limit = limit();
    let engine = Engine::new(store).deadline(Duration::from_secs(5));
    let decisions: Vec<bool> = (0..KEYS)
        .map(|i| block_on(engine.decide(&Request::new(key(i), &limit))).allowed())
        .collect();
    assert!(decisions.contains(&true) && decisions.contains(&false));

    for (url, problem) in [
        ("redis+shards://", "a host is not"),
        ("redis+shards://a:1,b:2,a:1", "the shard a:1 is there twice"),
        ("redis+shards://a:1?file=/x", "either listed or read"),
        ("redis+shards://?file=x", "absolute path"),
        ("redis+shards://?list=/x", "not `file`"),
        ("redis+shards://a:1/x", "not a number"),
    ] {
        let error = RedisStore::builder(url).check_url().unwrap_err();
        assert!(error.to_string().contains(problem), "{url}: {error}");
    }
    let missing = block_on(async { RedisStore::builder("redis+shards://?file=/none").open() });
    assert!(missing.unwrap_err().to_string().contains("/none"));
}

/// A server that answers too late is overloaded, also if another one is lost.
#[test]
fn a_lost_shard_does_not_make_the_overload_of_another_a_failure() {
    let servers = [Server::start(), Server::start()];
    let proxies = servers.each_ref().map(|server| Proxy::to(server.port()));
    let ports = proxies.each_ref().map(Proxy::port);
    let url = format!(
        "redis+shards://127.0.0.1:{},127.0.0.1:{}",
        ports[0], ports[1]
    );
    let store = connected(builder(&url));
    let engine = Engine::new(store.clone());
    let open = Limit::named("open", quota("fixed-window 5/366d")).on_failure(OnFailure::Open);
    let late = Duration::from_millis(10);
    let closed = Limit::named("closed", *open.quota()).on_failure(OnFailure::Closed);
    let (open, closed) = (open.deadline(late), closed.deadline(late));
    let patient = open.clone().deadline(TIMEOUT);
    let key_on = |server: &Server| {
        let mut keys = (0..KEYS).map(key);
        let found = keys.find(|key| {
            block_on(engine.decide(&Request::new(key, &patient)));
            has(server, key)
        });
        found.unwrap()
    };
    let [lost, slow] = servers.each_ref().map(key_on);
    // The counter is used up, but its server says so too late.
    while block_on(engine.decide(&Request::new(&slow, &patient))).allowed() {}
    proxies[0].set(Mode::Refuse);
    poll::until(TIMEOUT, "the breaker opens", || {
        block_on(engine.decide(&Request::new(&lost, &open)));
        engine.store_is_down()
    });
    proxies[1].set(Mode::Delay(Duration::from_millis(60)));
    let both = Request::new(&slow, &open).and(&lost, &open).unwrap();
    let mut admitted = 0;
    for _ in 0..20 {
        let decision = block_on(engine.decide(&both));
        assert!(decision.degraded());
        admitted += u32::from(decision.allowed());
    }
    assert_eq!(admitted, 5, "the local share of the overloaded one");
    // Closed limits refuse for the reason of their own server.
    for (is_slow, other, own) in [(false, &slow, &lost), (true, &lost, &slow)] {
        let request = Request::new(other, &open).and(own, &closed).unwrap();
        let decision = block_on(engine.decide(&request));
        assert!(decision.unavailable() && decision.binding() == 1);
        assert_eq!(decision.shed(), is_slow);
    }
}
