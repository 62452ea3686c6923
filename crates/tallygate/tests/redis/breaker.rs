//! The breaker opens when the store fails, and each change is logged once.

use std::fmt::Write as _;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tallygate::{Key, Limiter, RedisStore};
use tallygate_testkit::proxy::{Mode, Proxy};
use tallygate_testkit::redis::Server;
use tokio::runtime::Builder;
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber, span};

use crate::fixtures::{TIMEOUT, namespace, quota};
use crate::traffic::LARGE_QUOTA;

/// Collects all log lines.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

struct Line<'a>(&'a mut String);

impl Visit for Line<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("tallygate")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = event.metadata().level().to_string();
        event.record(&mut Line(&mut line));
        self.0.lock().unwrap().push(line);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

impl Log {
    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// Runs a test on one thread and returns its log.
pub(crate) fn logged<F: Future<Output = ()>>(test: impl FnOnce(Log) -> F) -> Vec<String> {
    let log = Log::default();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    tracing::subscriber::with_default(log.clone(), || runtime.block_on(test(log.clone())));
    log.lines()
}

/// Sends requests until a decision is degraded or not.
pub(crate) async fn until(limiter: &Limiter<RedisStore>, key: &Key<'_>, degraded: bool) {
    let start = Instant::now();
    while limiter.decide(&limiter.request(key)).await.degraded() != degraded {
        assert!(start.elapsed() < TIMEOUT, "degraded is never {degraded}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Sends requests for a while without the store. No probe runs after the last decision.
async fn stay_degraded(limiter: &Limiter<RedisStore>, key: &Key<'_>) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(1_200) {
        tokio::time::sleep(Duration::from_millis(2)).await;
        let decisions = (0..16).map(|_| async { limiter.decide(&limiter.request(key)).await });
        for decision in futures_util::future::join_all(decisions).await {
            assert!(decision.degraded());
        }
    }
}

/// Breaks and repairs a server twice; returns the log.
fn break_twice(server: &Server, breaks: impl Fn(), repairs: impl Fn()) -> Vec<String> {
    logged(|log| async move {
        let builder = RedisStore::builder(&server.url()).namespace(&namespace());
        let store = builder.connect().await.unwrap();
        let limiter = Limiter::with_store(store, quota(LARGE_QUOTA));
        let key = Key::from("hunter2").and_secret("hunter3");
        for times in 1..=2 {
            until(&limiter, &key, false).await;
            breaks();
            until(&limiter, &key, true).await;
            stay_degraded(&limiter, &key).await;
            assert!(limiter.store_is_down());
            assert_eq!(log.lines().len(), 2 * times - 1, "{:?}", log.lines());
            repairs();
            until(&limiter, &key, false).await;
        }
    })
}

#[track_caller]
fn check_each_change_logged_once(lines: &[String], word: &str) {
    assert_eq!(lines.len(), 4, "{lines:?}");
    for (lost, found) in [(&lines[0], &lines[1]), (&lines[2], &lines[3])] {
        assert!(lost.starts_with("WARN") && lost.contains(word), "{lost}");
        assert!(found.starts_with("INFO"), "{found}");
    }
    let all = lines.join("\n");
    assert!(!all.contains("hunter"), "a key is logged: {all}");
}

#[test]
fn an_outage_is_logged_once() {
    let server = Server::start();
    let lines = break_twice(&server, || server.kill(), || server.restart());
    check_each_change_logged_once(&lines, "unreachable");
    let lines = break_twice(&server, || server.stop(), || server.resume());
    check_each_change_logged_once(&lines, "timeout");
}

#[test]
fn a_refusing_server_is_logged_once() {
    let server = Server::start();
    let memory = |bytes: &str| {
        let reply = server.command(&["CONFIG", "SET", "maxmemory", bytes]);
        assert_eq!(reply.text(), "OK");
    };
    let lines = break_twice(&server, || memory("1"), || memory("0"));
    check_each_change_logged_once(&lines, "OOM");
}

#[test]
fn a_revoked_permission_is_logged_once() {
    // The probe may run its script, but scripts may not write.
    let server = Server::start();
    let right = |rule: &str| {
        let reply = server.command(&["ACL", "SETUSER", "default", rule]);
        assert_eq!(reply.text(), "OK");
    };
    let lines = break_twice(&server, || right("-setrange"), || right("+setrange"));
    check_each_change_logged_once(&lines, "NOPERM");
}

#[test]
fn a_flapping_store_is_logged_about_once_a_second() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let started = Instant::now();
    let mut outages = 0;
    let lines = logged(|_| async {
        let builder = RedisStore::builder(&proxy.url()).namespace(&namespace());
        let store = builder.connect().await.unwrap();
        let limiter = Limiter::with_store(store, quota(LARGE_QUOTA));
        let key = Key::from("flapping");
        while started.elapsed() < Duration::from_secs(3) {
            proxy.set(Mode::Refuse);
            until(&limiter, &key, true).await;
            proxy.set(Mode::Pass);
            until(&limiter, &key, false).await;
            outages += 1;
        }
    });
    let allowed = 3 + started.elapsed().as_secs() as usize;
    assert!(lines.len() <= allowed, "{outages} outages: {lines:?}");
    assert!(
        outages < 4 || lines.len() >= 2,
        "{outages} outages: {lines:?}"
    );
}
