//! Layers that share a store or an engine, written without type annotations.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use tallygate::rules::{Rule, Rules};
use tallygate::tower::RateLimitLayer;
use tallygate::{Engine, MemoryStore, Quota};
use tower::ServiceExt;

fn rule(name: &str) -> Rule {
    Rule::new(name, Quota::per_hour(1))
}

async fn status(app: &Router, path: &str) -> u16 {
    let request = http::Request::get(path).body(Body::empty()).unwrap();
    app.clone().oneshot(request).await.unwrap().status().into()
}

#[tokio::test]
async fn two_layers_share_a_store_in_an_arc() {
    let store = Arc::new(MemoryStore::new());
    let app = Router::new()
        .route(
            "/a",
            get(|| async {}).layer(RateLimitLayer::with_store(store.clone(), rule("shared"))),
        )
        .route(
            "/b",
            get(|| async {}).layer(RateLimitLayer::with_store(store, rule("shared"))),
        );
    assert_eq!(status(&app, "/a").await, 200);
    assert_eq!(status(&app, "/b").await, 429);
}

#[tokio::test]
async fn two_layers_and_a_limiter_share_an_engine() {
    let engine = Engine::new(MemoryStore::new());
    let layer =
        |name| RateLimitLayer::with_engine(engine.clone(), Rules::default().with_rule(rule(name)));
    let app = Router::new()
        .route("/a", get(|| async {}).layer(layer("shared")))
        .route("/b", get(|| async {}).layer(layer("shared")));
    assert_eq!(status(&app, "/a").await, 200);
    assert_eq!(status(&app, "/b").await, 429);
    assert!(engine.limiter(Quota::per_hour(1)).check("a").allowed());
    assert_eq!(engine.store().live_keys(), 2);
}

/// Compiles: a `RedisStore` is cloned or shared in an `Arc` like any other store.
#[cfg(feature = "redis")]
#[allow(dead_code)]
fn layers_share_a_redis_store(store: tallygate::RedisStore) -> Router {
    let shared = Arc::new(store.clone());
    Router::new()
        .layer(RateLimitLayer::with_store(store.clone(), rule("a")))
        .layer(RateLimitLayer::with_store(store, rule("b")))
        .layer(RateLimitLayer::with_store(shared.clone(), rule("c")))
        .layer(RateLimitLayer::with_store(shared, rule("d")))
}
