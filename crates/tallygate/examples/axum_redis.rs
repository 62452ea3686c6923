//! An axum application whose limits are shared with other servers through Redis.
//!
//! ```text
//! cargo run --example axum_redis --features axum,redis -- redis://127.0.0.1:6379
//! ```
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::net::SocketAddr;

use axum::Router;
use axum::routing::{get, post};
use tallygate::rules::{Rule, Rules};
use tallygate::tower::RateLimitLayer;
use tallygate::{Engine, OnFailure, Quota, RedisStore};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1);
    let url = url.as_deref().unwrap_or("redis://127.0.0.1:6379");
    let store = RedisStore::connect(url).await?;

    // Layers with the same engine share its connections and its circuit breaker.
    let engine = Engine::new(store);
    let login = Rule::new("login", "sliding-window-log 5/min".parse::<Quota>()?)
        .by_ip()
        .on_failure(OnFailure::Closed);
    let search = Rule::new("search", "token-bucket 10/s burst 50".parse::<Quota>()?).by_ip();
    let app = Router::new()
        .route("/login", post(|| async { "welcome\n" }))
        .layer(RateLimitLayer::with_engine(
            engine.clone(),
            Rules::default().with_rule(login),
        ))
        .route("/search", get(|| async { "found\n" }))
        .layer(RateLimitLayer::with_engine(
            engine,
            Rules::default().with_rule(search),
        ));

    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    println!("listening on http://{}", listener.local_addr()?);
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).await?;
    Ok(())
}
