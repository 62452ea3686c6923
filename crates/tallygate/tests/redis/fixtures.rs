//! What the tests stand on: a runtime, a server that nobody breaks, namespaces, and a look at what
//! is stored.

use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tallygate::{Limiter, Quota, RedisStore, RedisStoreBuilder, Verb};
use tallygate_testkit::redis::Server;
use tallygate_testkit::resp::{Connection, Reply};
use tokio::runtime::{Builder, Runtime};

/// How long anything may take before a test is given up: for a busy machine, not for this code.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A deadline that only a store that never answers misses.
pub(crate) const LONG: Duration = Duration::from_secs(10);

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
});

/// A server for tests that do it no harm. It ends with the process.
pub(crate) static UNHARMED: LazyLock<Server> = LazyLock::new(Server::start);

/// The runtime on which stores live, also while a test waits for something else.
pub(crate) fn runtime() -> &'static Runtime {
    &RUNTIME
}

pub(crate) fn wait<F: Future>(future: F) -> F::Output {
    RUNTIME.block_on(future)
}

/// A name that no other test has.
pub(crate) fn namespace() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A builder with a namespace of its own and patience for a busy machine.
pub(crate) fn builder(url: &str) -> RedisStoreBuilder {
    RedisStore::builder(url)
        .namespace(&namespace())
        .response_timeout(LONG)
}

/// A connected store with a namespace of its own.
pub(crate) fn store(url: &str) -> Arc<RedisStore> {
    connected(builder(url))
}

#[track_caller]
pub(crate) fn connected(builder: RedisStoreBuilder) -> Arc<RedisStore> {
    match wait(builder.connect()) {
        Ok(store) => Arc::new(store),
        Err(error) => panic!("{error}"),
    }
}

pub(crate) fn quota(text: &str) -> Quota {
    text.parse().unwrap()
}

pub(crate) fn limiter(store: &Arc<RedisStore>, text: &str) -> Limiter<RedisStore> {
    Limiter::over(Arc::clone(store), quota(text))
}

/// A limiter with a deadline that nothing misses.
pub(crate) fn patient(store: &Arc<RedisStore>, text: &str) -> Limiter<RedisStore> {
    limiter(store, text).deadline(LONG)
}

/// How much of a limiter's capacity is gone.
#[track_caller]
pub(crate) fn used(limiter: &Limiter<RedisStore>, key: &str) -> u64 {
    let limiter = limiter.deadline(LONG);
    let peek = limiter.request(key).verb(Verb::Peek);
    let decision = wait(limiter.decide(&peek));
    assert!(!decision.degraded(), "the store does not answer");
    u64::from(decision.limit() - decision.remaining())
}

/// Every key of a server.
pub(crate) fn keys(connection: &mut Connection) -> Vec<Vec<u8>> {
    let mut cursor = "0".to_owned();
    let mut keys = Vec::new();
    loop {
        let reply = connection
            .command(&["SCAN", &cursor, "COUNT", "1000"])
            .unwrap();
        let [next, found] = reply.array() else {
            panic!("no scan: {reply:?}");
        };
        cursor = next.text().to_owned();
        keys.extend(found.array().iter().map(|key| match key {
            Reply::Bulk(key) => key.clone(),
            other => panic!("no key: {other:?}"),
        }));
        if cursor == "0" {
            return keys;
        }
    }
}

/// No key of ours lives for ever.
#[track_caller]
pub(crate) fn every_key_expires(server: &Server) {
    let mut connection = server.connect().unwrap();
    // A replica in a cluster answers only if asked to; others do not know the question.
    connection.command(&["READONLY"]).unwrap();
    for key in keys(&mut connection) {
        if key.starts_with(b"tallygate:") {
            let ttl = connection.command(&[&b"PTTL"[..], &key]).unwrap().integer();
            // -2: it has just gone.
            let key = String::from_utf8_lossy(&key).into_owned();
            assert!(ttl >= 0 || ttl == -2, "{key} lives for ever");
        }
    }
}

/// After whatever happened, a limit is kept to the unit, neither more nor less.
#[track_caller]
pub(crate) fn limits_are_exact(store: &Arc<RedisStore>) {
    let limiter = patient(store, "sliding-window-log 25/d");
    let key = namespace();
    let asked: Vec<_> = (0..40)
        .map(|_| {
            let (limiter, key) = (limiter.clone(), key.clone());
            runtime().spawn(async move { limiter.decide(&limiter.request(&key)).await })
        })
        .collect();
    let mut admitted = 0;
    for decision in asked {
        let decision = wait(decision).unwrap();
        assert!(!decision.degraded(), "the store does not answer");
        admitted += u32::from(decision.allowed());
    }
    assert_eq!(admitted, 25, "of 25");
}
