//! A program starts without its store, but not with a store that it is configured wrongly for.

use tallygate::{Key, Limiter, RedisStore};
use tallygate_testkit::proxy::{Mode, Proxy};
use tallygate_testkit::redis::{ClientCertificate, Server, TlsServer, User};

use crate::breaker::{logged, until};
use crate::fixtures::{HEALTHY, block_on, namespace, quota};

/// Starts without the store, counts locally, and goes on with the store once it answers.
#[track_caller]
fn starts_without(url: &str, answers: impl Fn()) {
    let builder = RedisStore::builder(url).namespace(&namespace());
    let lines = logged(|_| async {
        let store = builder.connect().await.unwrap();
        let limiter = Limiter::with_store(store, quota("fixed-window 1000000/366d"));
        let key = Key::from("hunter2");
        assert!(limiter.check(&key).await.degraded());
        answers();
        until(&limiter, &key, false).await;
        limiter.store().check().await.unwrap();
    });
    let warning = &lines[0];
    assert!(warning.starts_with("WARN"), "{lines:?}");
    assert!(warning.contains("until it answers"), "{lines:?}");
    assert!(!lines.concat().contains("hunter2"), "{lines:?}");
}

#[test]
fn a_store_that_cannot_be_reached_does_not_stop_the_program() {
    for mode in [Mode::Refuse, Mode::BlackHole, Mode::ResetBefore] {
        let proxy = Proxy::to(HEALTHY.port());
        proxy.set(mode);
        starts_without(&proxy.url(), || proxy.set(Mode::Pass));
    }
}

#[test]
fn a_server_that_is_started_later_is_used() {
    let server = Server::start();
    server.kill();
    starts_without(&server.url(), || server.restart());
}

#[test]
fn without_a_store_the_failure_policy_decides() {
    use tallygate::OnFailure::{Closed, Open};

    let proxy = Proxy::to(HEALTHY.port());
    proxy.set(Mode::Refuse);
    let store = block_on(RedisStore::connect(&proxy.url())).unwrap();
    let limiter = Limiter::with_store(store, quota("fixed-window 1/366d"));
    let allowed = |limiter: &Limiter<RedisStore>| {
        let checks = [limiter.check("a"), limiter.check("a")];
        checks.map(|check| block_on(check).allowed())
    };
    assert_eq!(allowed(&limiter), [true, false], "counted in this process");
    assert_eq!(allowed(&limiter.clone().on_failure(Open)), [true, true]);
    assert_eq!(allowed(&limiter.on_failure(Closed)), [false, false]);
}

#[test]
fn a_store_that_needs_another_configuration_stops_the_program() {
    let protected = Server::start_with(&["--requirepass", "secret"]);
    let restricted = Server::start();
    restricted.add_user(User::Powerless);
    let powerless = format!(
        "redis://{}:{}@127.0.0.1:{}",
        User::Powerless.name(),
        User::Powerless.password(),
        restricted.port()
    );
    let tls = TlsServer::start(ClientCertificate::NotRequested);
    let encrypted = tls.url(User::Limited);
    let port = protected.port();
    for (url, problem) in [
        (
            format!("redis://:wrong-secret@127.0.0.1:{port}"),
            "WRONGPASS",
        ),
        (format!("redis://127.0.0.1:{port}"), "NOAUTH"),
        (powerless, "NOPERM"),
        (encrypted.clone(), "not signed by a trusted CA"),
        (
            encrypted.replace("rediss://", "redis://"),
            "requires TLS; use rediss://",
        ),
        (
            HEALTHY.url().replace("redis://", "rediss://"),
            "does not support TLS",
        ),
        (
            HEALTHY.url().replace("redis://", "redis-cluster://"),
            "not part of a cluster",
        ),
        (format!("{}/9999", HEALTHY.url()), "no database"),
        ("redis:/localhost".to_owned(), "invalid store URL"),
    ] {
        let error = block_on(RedisStore::connect(&url)).expect_err("connected");
        // As `main` prints it.
        let printed = format!("{error:?}");
        assert!(printed.contains(problem), "{problem}: {printed}");
        assert!(error.is_permanent() && !printed.contains('\n'), "{printed}");
        assert!(!printed.contains("secret"), "{printed}");
    }
}
