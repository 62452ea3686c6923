//! Errors about URLs, credentials, certificates and servers when connecting: with advice, without
//! passwords.

use tallygate::store::{RedisStoreBuilder, StoreErrorKind};
use tallygate::{Limit, RedisError, RedisStore, Request, Store, Verb};
use tallygate_testkit::ports;
use tallygate_testkit::proxy::{Mode, Proxy};
use tallygate_testkit::redis::{ClientCertificate, Cluster, Sentinel, Server, TlsServer, User};

use crate::fixtures::{HEALTHY, block_on, quota};

use StoreErrorKind::{Misconfigured, Unreachable};

#[track_caller]
fn connect_error(builder: RedisStoreBuilder) -> RedisError {
    let check = async { builder.open()?.check().await };
    let error = block_on(check).expect_err("the server can be used");
    let message = format!("{error} {error:?}");
    assert!(
        !message.contains("secret"),
        "a password is shown: {message}"
    );
    assert!(!error.advice().is_empty());
    assert!(error.to_string().contains(error.advice()), "{message}");
    error
}

/// Checks that connecting fails with this kind and that the message contains all words.
#[track_caller]
fn fails_with(builder: RedisStoreBuilder, kind: StoreErrorKind, words: &[&str]) {
    let error = connect_error(builder);
    assert_eq!(error.kind(), kind, "{error}");
    for word in words {
        assert!(error.to_string().contains(word), "no {word}: {error}");
    }
}

fn at(url: &str) -> RedisStoreBuilder {
    RedisStore::builder(url)
}

#[test]
fn wrong_or_missing_credentials_are_reported() {
    let server = Server::start_with(&["--requirepass", "secret"]);
    let port = server.port();
    let host = format!("127.0.0.1:{port}");
    fails_with(
        at(&format!("redis://:not-secret@{host}")),
        Misconfigured,
        &["WRONGPASS", "URL"],
    );
    fails_with(
        at(&format!("redis://secret-user:secret@{host}")),
        Misconfigured,
        &["WRONGPASS"],
    );
    fails_with(
        at(&format!("redis://{host}")),
        Misconfigured,
        &["NOAUTH", "password", "redis://user"],
    );
    block_on(at(&server.url()).connect()).unwrap();
}

#[test]
fn an_unreachable_server_is_reported() {
    let port = ports::free();
    let unreachable = [
        format!("redis://127.0.0.1:{port}"),
        format!("rediss://127.0.0.1:{port}"),
        format!("redis-cluster://127.0.0.1:{port}"),
        format!("redis-sentinel://127.0.0.1:{port}/mymaster"),
        "unix:///nowhere/at/all.sock".to_owned(),
    ];
    for url in unreachable {
        fails_with(
            at(&url),
            Unreachable,
            &["no connection", "is the server up"],
        );
    }
    fails_with(at("unix:///nowhere/at/all.sock"), Unreachable, &["socket"]);
    fails_with(at("redis://no-such-host.invalid"), Unreachable, &["name"]);
}

#[test]
fn a_silent_server_is_reported() {
    let proxy = Proxy::to(HEALTHY.port());
    proxy.set(Mode::BlackHole);
    fails_with(at(&proxy.url()), Unreachable, &["no reply"]);
    let cluster = proxy.url().replace("redis://", "redis-cluster://");
    connect_error(at(&cluster));
}

#[test]
fn a_wrong_scheme_is_reported() {
    let tls = HEALTHY.url().replace("redis://", "rediss://");
    fails_with(at(&tls), Misconfigured, &["TLS", "redis://"]);
    let tls = TlsServer::start(ClientCertificate::NotRequested);
    let plain = tls.url(User::Limited).replace("rediss://", "redis://");
    fails_with(at(&plain), Misconfigured, &["requires TLS", "rediss://"]);
    let http = at("http://127.0.0.1");
    fails_with(
        http,
        Misconfigured,
        &["scheme", "redis://user:password@host"],
    );
    let certified = at(&HEALTHY.url()).root_certificate("PEM");
    fails_with(certified, Misconfigured, &["TLS"]);
}

#[test]
fn invalid_certificates_are_reported() {
    let expired = TlsServer::start_expired();
    let ca = |tls: &TlsServer| std::fs::read(tls.certificates().authority()).unwrap();
    let url = expired.url(User::Limited);
    fails_with(
        at(&url).root_certificate(ca(&expired)),
        Misconfigured,
        &["expired"],
    );

    let tls = TlsServer::start(ClientCertificate::Required);
    let url = tls.url(User::Limited);
    let other_authority = std::fs::read(tls.certificates().other_authority()).unwrap();
    fails_with(
        at(&url).root_certificate(other_authority),
        Misconfigured,
        &["CA"],
    );
    fails_with(at(&url), Misconfigured, &["CA"]);
    fails_with(
        at(&url).root_certificate(ca(&tls)),
        Misconfigured,
        &["client certificate"],
    );
    fails_with(at(&url).root_certificate("no PEM"), Misconfigured, &["PEM"]);
    let garbled = at(&url)
        .root_certificate(ca(&tls))
        .client_certificate("no", "PEM");
    fails_with(garbled, Misconfigured, &["PEM"]);
}

#[test]
fn a_wrong_topology_is_reported() {
    let to = |scheme: &str| HEALTHY.url().replace("redis://", scheme);
    fails_with(
        at(&to("redis-cluster://")),
        Misconfigured,
        &["not part of a cluster", "redis://"],
    );
    let none = to("redis-sentinel://") + "/mymaster";
    fails_with(at(&none), Misconfigured, &["sentinel"]);

    let cluster = Cluster::start();
    fails_with(
        at(&cluster.node(0).url()),
        Misconfigured,
        &["cluster", "redis-cluster://"],
    );

    let group = Sentinel::start();
    let other = group.url().replace(Sentinel::NAME, "other");
    fails_with(at(&other), Misconfigured, &["no master with that name"]);
    let replica = group.replicas()[0].url();
    fails_with(
        at(&replica),
        StoreErrorKind::Refused,
        &["READONLY", "redis-sentinel://"],
    );
}

#[test]
fn an_old_server_is_reported() {
    let proxy = Proxy::to(HEALTHY.port());
    let version = HEALTHY.info("redis_version").unwrap();
    let original: &'static [u8] = format!("redis_version:{version}").leak().as_bytes();
    let old = "redis_version:6.0.".to_owned() + &"9".repeat(version.len().saturating_sub(4));
    assert_eq!(old.len(), original.len());
    proxy.set(Mode::Replace(original, old.leak().as_bytes()));
    fails_with(at(&proxy.url()), Misconfigured, &["6.0.", "6.2", "upgrade"]);
    // Before version 6 there is no HELLO.
    let unknown = b"-ERR unknown command `HELLO`, with args beginning with: `3`, \r\n";
    proxy.set(Mode::Answer(unknown.repeat(3)));
    fails_with(at(&proxy.url()), Misconfigured, &["6.2", "upgrade"]);
}

#[test]
fn missing_permissions_are_reported() {
    let server = Server::start();
    server.add_user(User::Powerless);
    let user = User::Powerless;
    let account = format!("//{}:{}@", user.name(), user.password());
    let url = server.url().replace("//", &account);
    fails_with(
        at(&url),
        Misconfigured,
        &["NOPERM", "ACL SETUSER", "+evalsha"],
    );
    // The advice is sufficient.
    let error = connect_error(at(&url));
    let (rules, _) = error.advice().split_once(',').unwrap();
    let rules = rules.strip_prefix("ACL SETUSER name ").unwrap();
    let mut command = vec!["ACL", "SETUSER", user.name(), "resetkeys", "-@all"];
    command.extend(rules.split_whitespace());
    assert_eq!(server.command(&command).text(), "OK");
    let store = std::sync::Arc::new(block_on(at(&url).connect()).unwrap());
    crate::fixtures::limits_are_exact(&store);
}

/// Its errors must not be taken for keys of another type, which hold nothing.
#[test]
fn a_missing_permission_admits_nobody_twice() {
    let server = Server::start();
    let url = server.url().replace("//", "//narrow:pw@");
    for (text, cost) in [
        ("fixed-window 1/h", 1),
        ("sliding-window-log 1/h", 1),
        ("concurrent 1 for 1h", 1),
        ("token-bucket 4/h burst 4 shared 1", 4),
    ] {
        let limit = Limit::from(quota(text));
        let mut denied = 0;
        for command in [
            "get", "mget", "getrange", "set", "setrange", "hmget", "hset", "hlen", "zrange",
            "zcard", "zadd",
        ] {
            let forbid = format!("-{command}");
            let rules = ["reset", "on", ">pw", "~*", "+@all", &forbid];
            let command = [&["ACL", "SETUSER", "narrow"][..], &rules].concat();
            assert_eq!(server.command(&command).text(), "OK");
            let store = block_on(async { at(&url).open() }).unwrap();
            for verb in [Verb::Check, Verb::Reserve] {
                let mut admitted = 0;
                for name in ["a", "b", "c"] {
                    let request = Request::new("k", &limit).cost(cost).verb(verb);
                    let request = request.owner(name).member("m").id(name);
                    match block_on(store.decide(&request)) {
                        Ok(decision) => admitted += u32::from(decision.allowed()),
                        // After some failures the breaker opens.
                        Err(error) => denied += u32::from(error.kind() == Misconfigured),
                    }
                }
                assert!(admitted <= 1, "{text} {forbid} {verb:?}: {admitted}");
            }
            server.command(&["FLUSHALL"]);
        }
        assert!(denied > 0, "{text}");
    }
}

#[test]
fn a_server_other_than_redis_is_reported() {
    let proxy = Proxy::to(HEALTHY.port());
    for mode in [
        Mode::Garbage,
        Mode::Cut,
        Mode::Answer(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()),
    ] {
        proxy.set(mode);
        connect_error(at(&proxy.url()));
    }
}
