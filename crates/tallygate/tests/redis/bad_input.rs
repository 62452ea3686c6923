//! Whatever is wrong with a URL, an account, a certificate or a server is said when connecting,
//! with what to do about it, and without a password.

use tallygate::{RedisError, RedisStore, RedisStoreBuilder, StoreErrorKind};
use tallygate_testkit::ports;
use tallygate_testkit::proxy::{Mode, Proxy};
use tallygate_testkit::redis::{ClientCertificate, Cluster, Sentinel, Server, TlsServer, User};

use crate::fixtures::{UNHARMED, wait};

use StoreErrorKind::{Misconfigured, Unreachable};

#[track_caller]
fn refused(builder: RedisStoreBuilder) -> RedisError {
    let error = wait(builder.connect()).expect_err("it connects");
    let said = format!("{error} {error:?}");
    assert!(!said.contains("secret"), "a password is said: {said}");
    assert!(!error.advice().is_empty());
    assert!(error.to_string().contains(error.advice()), "{said}");
    error
}

/// Connecting fails in this way, and all of these words are said.
#[track_caller]
fn says(builder: RedisStoreBuilder, kind: StoreErrorKind, words: &[&str]) {
    let error = refused(builder);
    assert_eq!(error.kind(), kind, "{error}");
    for word in words {
        assert!(error.to_string().contains(word), "no {word}: {error}");
    }
}

fn at(url: &str) -> RedisStoreBuilder {
    RedisStore::builder(url)
}

#[test]
fn an_account_that_is_wrong_or_missing_is_said() {
    let server = Server::start_with(&["--requirepass", "secret"]);
    let port = server.port();
    let host = format!("127.0.0.1:{port}");
    says(
        at(&format!("redis://:not-secret@{host}")),
        Misconfigured,
        &["WRONGPASS", "URL"],
    );
    says(
        at(&format!("redis://secret-user:secret@{host}")),
        Misconfigured,
        &["WRONGPASS"],
    );
    says(
        at(&format!("redis://{host}")),
        Misconfigured,
        &["NOAUTH", "password", "redis://user"],
    );
    wait(at(&server.url()).connect()).unwrap();
}

#[test]
fn a_server_that_is_not_there_is_said() {
    let port = ports::free();
    let nobody = [
        format!("redis://127.0.0.1:{port}"),
        format!("rediss://127.0.0.1:{port}"),
        format!("redis-cluster://127.0.0.1:{port}"),
        format!("redis-sentinel://127.0.0.1:{port}/mymaster"),
        "unix:///nowhere/at/all.sock".to_owned(),
    ];
    for url in nobody {
        says(
            at(&url),
            Unreachable,
            &["no connection", "is the server up"],
        );
    }
    says(at("unix:///nowhere/at/all.sock"), Unreachable, &["socket"]);
    says(at("redis://no-such-host.invalid"), Unreachable, &["name"]);
}

#[test]
fn a_server_that_says_nothing_is_said() {
    let proxy = Proxy::to(UNHARMED.port());
    proxy.set(Mode::BlackHole);
    says(at(&proxy.url()), Unreachable, &["no reply"]);
    let cluster = proxy.url().replace("redis://", "redis-cluster://");
    refused(at(&cluster));
}

#[test]
fn the_wrong_scheme_is_said() {
    let tls = UNHARMED.url().replace("redis://", "rediss://");
    says(at(&tls), Unreachable, &["TLS", "redis://"]);
    let tls = TlsServer::start(ClientCertificate::NotRequested);
    let plain = tls.url(User::Limited).replace("rediss://", "redis://");
    says(at(&plain), Unreachable, &["TLS", "rediss://"]);
    let http = at("http://127.0.0.1");
    says(
        http,
        Misconfigured,
        &["scheme", "redis://user:password@host"],
    );
    let certified = at(&UNHARMED.url()).root_certificate("PEM");
    says(certified, Misconfigured, &["TLS"]);
}

#[test]
fn certificates_that_are_wrong_are_said() {
    let expired = TlsServer::start_expired();
    let ca = |tls: &TlsServer| std::fs::read(tls.certificates().authority()).unwrap();
    let url = expired.url(User::Limited);
    says(
        at(&url).root_certificate(ca(&expired)),
        Unreachable,
        &["expired"],
    );

    let tls = TlsServer::start(ClientCertificate::Required);
    let url = tls.url(User::Limited);
    let stranger = std::fs::read(tls.certificates().stranger()).unwrap();
    says(at(&url).root_certificate(stranger), Unreachable, &["CA"]);
    says(at(&url), Unreachable, &["CA"]);
    says(
        at(&url).root_certificate(ca(&tls)),
        Unreachable,
        &["client certificate"],
    );
    says(at(&url).root_certificate("no PEM"), Misconfigured, &["PEM"]);
    let garbled = at(&url)
        .root_certificate(ca(&tls))
        .client_certificate("no", "PEM");
    says(garbled, Misconfigured, &["PEM"]);
}

#[test]
fn the_wrong_arrangement_is_said() {
    let to = |scheme: &str| UNHARMED.url().replace("redis://", scheme);
    says(
        at(&to("redis-cluster://")),
        Misconfigured,
        &["not part of a cluster", "redis://"],
    );
    let none = to("redis-sentinel://") + "/mymaster";
    says(at(&none), Misconfigured, &["sentinel"]);

    let cluster = Cluster::start();
    says(
        at(&cluster.node(0).url()),
        Misconfigured,
        &["cluster", "redis-cluster://"],
    );

    let group = Sentinel::start();
    let other = group.url().replace(Sentinel::NAME, "other");
    says(at(&other), Misconfigured, &["no master with that name"]);
    let replica = group.replicas()[0].url();
    says(
        at(&replica),
        StoreErrorKind::Refused,
        &["READONLY", "redis-sentinel://"],
    );
}

#[test]
fn a_server_that_is_too_old_is_said() {
    let proxy = Proxy::to(UNHARMED.port());
    let version = UNHARMED.info("redis_version").unwrap();
    let these: &'static [u8] = format!("redis_version:{version}").leak().as_bytes();
    let old = "redis_version:6.0.".to_owned() + &"9".repeat(version.len().saturating_sub(4));
    assert_eq!(old.len(), these.len());
    proxy.set(Mode::Replace(these, old.leak().as_bytes()));
    says(at(&proxy.url()), Misconfigured, &["6.0.", "6.2", "upgrade"]);
    // Before version 6 it does not know how to begin.
    let unknown = b"-ERR unknown command `HELLO`, with args beginning with: `3`, \r\n";
    proxy.set(Mode::Answer(unknown.repeat(3)));
    says(at(&proxy.url()), Misconfigured, &["6.2", "upgrade"]);
}

#[test]
fn missing_rights_are_said() {
    let server = Server::start();
    server.add_user(User::Powerless);
    let user = User::Powerless;
    let account = format!("//{}:{}@", user.name(), user.password());
    let url = server.url().replace("//", &account);
    says(
        at(&url),
        Misconfigured,
        &["NOPERM", "ACL SETUSER", "+evalsha"],
    );
    // What the advice says is enough.
    let error = refused(at(&url));
    let (rules, _) = error.advice().split_once(',').unwrap();
    let rules = rules.strip_prefix("ACL SETUSER name ").unwrap();
    let mut command = vec!["ACL", "SETUSER", user.name(), "resetkeys", "-@all"];
    command.extend(rules.split_whitespace());
    assert_eq!(server.command(&command).text(), "OK");
    let store = std::sync::Arc::new(wait(at(&url).connect()).unwrap());
    crate::fixtures::limits_are_exact(&store);
}

#[test]
fn something_else_than_redis_is_said() {
    let proxy = Proxy::to(UNHARMED.port());
    for mode in [
        Mode::Garbage,
        Mode::Cut,
        Mode::Answer(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()),
    ] {
        proxy.set(mode);
        refused(at(&proxy.url()));
    }
}

#[test]
fn a_missing_runtime_is_said() {
    let error = at("redis://127.0.0.1").open().unwrap_err();
    assert_eq!(error.kind(), Misconfigured);
    assert!(error.to_string().contains("runtime"), "{error}");
}
