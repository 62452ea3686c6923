//! The library as applications write it: type inference, sharing, statics and state.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{Request, StatusCode};
use axum::routing::{get, post};
use tallygate::http::Peer;
use tallygate::rules::{Rule, RuleSet, Rules};
use tallygate::tower::RateLimitLayer;
use tallygate::{
    Decision, Engine, Key, Limit, Limiter, MemoryStore, OnFailure, Quota, RedisStore, Store, quota,
};
use tallygate_testkit::redis::Server;
use tower::{ServiceBuilder, ServiceExt};

static SERVER: LazyLock<Server> = LazyLock::new(Server::start);

/// A limiter for the whole program.
static MAILS: LazyLock<Limiter> = LazyLock::new(|| Limiter::new(quota!("fixed-window 2/366d")));
/// A deadline that is missed only if the store never replies.
const PATIENT: Duration = Duration::from_secs(10);
const LOGINS: Quota = quota!("sliding-window-log 2/d");
const SEARCHES: Quota = Quota::token_bucket(10)
    .per(Duration::from_secs(86_400))
    .burst(2);

async fn status(app: &Router, method: &str, path: &str, peer: u8) -> StatusCode {
    let request = Request::builder().method(method).uri(path);
    let mut request = request.body(Body::empty()).unwrap();
    let peer = SocketAddr::from(([192, 0, 2, peer], 40_000));
    request.extensions_mut().insert(Peer(peer));
    app.clone().oneshot(request).await.unwrap().status()
}

/// Two routes with limits of their own, over stores of any type.
fn shop<S: Store>(logins: S, searches: S) -> Router {
    Router::new()
        .route("/search", get(|| async { "found" }))
        .layer(RateLimitLayer::with_store(
            searches,
            Rule::new("search", SEARCHES)
                .by_header("x-api-key")
                .or_ip()
                .deadline(PATIENT),
        ))
        .merge(
            Router::new()
                .route("/login", post(|| async { "welcome" }))
                .layer(RateLimitLayer::with_store(
                    logins,
                    Rule::new("login", LOGINS)
                        .by_ip()
                        .on_failure(OnFailure::Closed)
                        .deadline(PATIENT),
                )),
        )
}

async fn assert_limits(app: &Router) {
    for (method, path) in [("POST", "/login"), ("GET", "/search")] {
        for (peer, expected) in [(1, 200), (1, 200), (1, 429), (2, 200)] {
            assert_eq!(
                status(app, method, path, peer).await,
                expected,
                "{path} {peer}"
            );
        }
    }
}

#[tokio::test]
async fn two_layers_share_one_redis_store() -> Result<(), Box<dyn Error>> {
    let builder = RedisStore::builder(&SERVER.url()).namespace("two layers");
    let store = builder.connect().await?;
    assert_limits(&shop(store.clone(), store.clone())).await;
    // Another process has the same counters.
    let other = RedisStore::builder(&SERVER.url()).namespace("two layers");
    let other = other.connect().await?;
    let app = shop(other.clone(), other);
    assert_eq!(status(&app, "POST", "/login", 1).await, 429);
    assert_eq!(status(&app, "GET", "/search", 1).await, 429);
    Ok(())
}

#[tokio::test]
async fn two_layers_share_one_memory_store() {
    let store = Arc::new(MemoryStore::new());
    assert_limits(&shop(Arc::clone(&store), store)).await;
}

#[tokio::test]
async fn two_layers_share_one_engine() -> Result<(), Box<dyn Error>> {
    let engine = Engine::new(RedisStore::connect(&SERVER.url()).await?).deadline(PATIENT);
    let rule = |name: &str| Rule::new(name, LOGINS).by_ip();
    let layer = |name: &str| {
        RateLimitLayer::with_engine(engine.clone(), Rules::default().with_rule(rule(name)))
    };
    let both = ServiceBuilder::new()
        .layer(layer("engine first"))
        .layer(layer("engine second"));
    let app = Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(both);
    for expected in [200, 200, 429] {
        assert_eq!(status(&app, "GET", "/", 1).await, expected);
    }
    let set = RuleSet::from([rule("engine third")]);
    let named = RateLimitLayer::with_engine(engine, Rules::new(set)?);
    let app = Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(named);
    assert_eq!(status(&app, "GET", "/", 1).await, 200);
    Ok(())
}

/// The state of an application with a limiter in it.
#[derive(Clone)]
struct App {
    exports: Limiter<RedisStore>,
}

async fn export(State(app): State<App>, Path(user): Path<u64>) -> Result<String, StatusCode> {
    let decision = app.exports.check(user.to_string()).await;
    match decision.retry_after() {
        None if decision.allowed() => Ok(format!("{} left", decision.remaining())),
        Some(_) => Err(StatusCode::TOO_MANY_REQUESTS),
        None => Err(StatusCode::SERVICE_UNAVAILABLE),
    }
}

#[tokio::test]
async fn a_handler_asks_a_limiter_in_its_state() -> Result<(), Box<dyn Error>> {
    let builder = RedisStore::builder(&SERVER.url()).namespace("state");
    let exports = Limiter::with_store(builder.connect().await?, Limit::named("exports", LOGINS));
    let state = App {
        exports: exports.deadline(PATIENT),
    };
    let app = Router::new()
        .route("/export/{user}", get(export))
        .with_state(state);
    for (path, expected) in [
        ("/export/1", 200),
        ("/export/1", 200),
        ("/export/1", 429),
        ("/export/2", 200),
    ] {
        assert_eq!(status(&app, "GET", path, 1).await, expected, "{path}");
    }
    Ok(())
}

/// A function over any store.
async fn admit<S: Store>(limiter: &Limiter<S>, user: &str, units: u32) -> Decision {
    limiter.decide(&limiter.request(user).cost(units)).await
}

#[tokio::test]
async fn limiters_are_statics_fields_and_arguments() -> Result<(), Box<dyn Error>> {
    assert!(MAILS.check("ann").allowed());
    assert!(admit(&MAILS, "ann", 1).await.allowed());
    assert!(!MAILS.check(Key::from_parts(["ann"])).allowed());
    let store = RedisStore::builder(&SERVER.url()).namespace("fields");
    let limiter = Limiter::with_store(store.connect().await?, LOGINS).and(SEARCHES)?;
    let limiter = limiter.deadline(PATIENT);
    let tasks = (0..4).map(|_| {
        let limiter = limiter.clone();
        tokio::spawn(async move { limiter.check("ann").await })
    });
    let mut admitted = 0;
    for task in tasks.collect::<Vec<_>>() {
        admitted += u32::from(task.await?.allowed());
    }
    assert_eq!(admitted, 2);
    Ok(())
}
