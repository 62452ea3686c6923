//! Shared by the tests: a runtime, a healthy server, namespaces, and access to stored keys.

use std::future::Future;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tallygate::store::RedisStoreBuilder;
use tallygate::{Limiter, Quota, RedisStore, Verb};
use tallygate_testkit::poll;
use tallygate_testkit::redis::Server;
use tallygate_testkit::resp::{Connection, Reply};
use tokio::runtime::{Builder, Runtime};

/// Generous, for a loaded machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// A deadline that is missed only if the store never replies.
pub(crate) const LONG_DEADLINE: Duration = Duration::from_secs(10);

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
});

/// A server for tests that do not break it.
pub(crate) static HEALTHY: LazyLock<Server> = LazyLock::new(Server::start);

/// The runtime that stores run on.
pub(crate) fn runtime() -> &'static Runtime {
    &RUNTIME
}

pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    RUNTIME.block_on(future)
}

/// A unique namespace.
pub(crate) fn namespace() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A builder with a unique namespace and a long timeout.
pub(crate) fn builder(url: &str) -> RedisStoreBuilder {
    RedisStore::builder(url)
        .namespace(&namespace())
        .response_timeout(LONG_DEADLINE)
}

/// A connected store with a unique namespace.
pub(crate) fn store(url: &str) -> RedisStore {
    connected(builder(url))
}

/// A connected store. On a loaded machine a server may miss the first deadlines.
#[track_caller]
pub(crate) fn connected(builder: RedisStoreBuilder) -> RedisStore {
    let store = poll::first(TIMEOUT, || {
        let connected = block_on(async {
            let store = builder.clone().open()?;
            store.check().await.map(|()| store)
        });
        connected.inspect_err(|error| eprintln!("{error}")).ok()
    });
    store.expect("the server answers")
}

pub(crate) fn quota(text: &str) -> Quota {
    text.parse().unwrap()
}

pub(crate) fn limiter(store: &RedisStore, text: &str) -> Limiter<RedisStore> {
    Limiter::with_store(store.clone(), quota(text))
}

/// A limiter with a long deadline.
pub(crate) fn patient_limiter(store: &RedisStore, text: &str) -> Limiter<RedisStore> {
    limiter(store, text).deadline(LONG_DEADLINE)
}

/// How many units of a limiter's capacity are used.
#[track_caller]
pub(crate) fn used(limiter: &Limiter<RedisStore>, key: &str) -> u64 {
    let limiter = limiter.clone().deadline(LONG_DEADLINE);
    let peek = limiter.request(key).verb(Verb::Peek);
    let decision = block_on(limiter.decide(&peek));
    assert!(!decision.degraded(), "the store fails");
    u64::from(decision.limit() - decision.remaining())
}

/// The number of calls of a command, also by scripts.
pub(crate) fn calls(server: &Server, command: &str) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]);
    let prefix = format!("cmdstat_{command}:calls=");
    let text = stats.text();
    let line = text.lines().find_map(|line| line.strip_prefix(&prefix));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}

/// All keys of a server.
pub(crate) fn keys(connection: &mut Connection) -> Vec<Vec<u8>> {
    let mut cursor = "0".to_owned();
    let mut keys = Vec::new();
    loop {
        let reply = connection
            .command(&["SCAN", &cursor, "COUNT", "1000"])
            .unwrap();
        let [next, found] = reply.array() else {
            panic!("not a SCAN reply: {reply:?}");
        };
        cursor = next.text().to_owned();
        keys.extend(found.array().iter().map(|key| match key {
            Reply::Bulk(key) => key.clone(),
            other => panic!("not a key: {other:?}"),
        }));
        if cursor == "0" {
            return keys;
        }
    }
}

/// Checks that every Tallygate key expires.
#[track_caller]
pub(crate) fn every_key_expires(server: &Server) {
    let mut connection = server.connect().unwrap();
    // Needed for a replica in a cluster; an error elsewhere.
    connection.command(&["READONLY"]).unwrap();
    for key in keys(&mut connection) {
        if key.starts_with(b"tallygate:") {
            let ttl = connection.command(&[&b"PTTL"[..], &key]).unwrap().integer();
            // -2: it has just expired.
            let key = String::from_utf8_lossy(&key).into_owned();
            assert!(ttl >= 0 || ttl == -2, "{key} never expires");
        }
    }
}

/// Checks that a limit is exact.
#[track_caller]
pub(crate) fn limits_are_exact(store: &RedisStore) {
    let limiter = patient_limiter(store, "sliding-window-log 25/d");
    let key = namespace();
    let calls: Vec<_> = (0..40)
        .map(|_| {
            let (limiter, key) = (limiter.clone(), key.clone());
            runtime().spawn(async move { limiter.decide(&limiter.request(&key)).await })
        })
        .collect();
    let mut admitted = 0;
    for decision in calls {
        let decision = block_on(decision).unwrap();
        assert!(!decision.degraded(), "the store fails");
        admitted += u32::from(decision.allowed());
    }
    assert_eq!(admitted, 25, "admitted of 25");
}
