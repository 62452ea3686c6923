//! An axum application with the limits of a rules file.
//!
//! `cargo run -p tallygate --features axum,config --example rules_file`

use std::error::Error;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::Request;
use tallygate::config;
use tallygate::rules::Rules;
use tallygate::tower::RateLimitLayer;
use tallygate::{Engine, MemoryStore};
use tower::ServiceExt;

const RULES: &str = "
version: 1
rules:
  - name: search
    match: { path: /search }
    key: [{ header: x-api-key, or: ip }]
    limits: fixed-window 3/min
  - name: everything
    limits: 1000/min
";

#[expect(clippy::print_stdout, reason = "an example prints its result")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    // `config::load(path)` reads a file; all its mistakes are in one report.
    let config = config::load_bytes("rules.yaml", RULES.as_bytes(), &|_| None)?;
    let rules = Rules::new(config.rules)?;
    let engine = Engine::new(MemoryStore::new());
    let app = Router::new()
        .route("/search", get(|| async { "found" }))
        .layer(RateLimitLayer::with_engine(engine, rules));
    for number in 1..=4 {
        let request = Request::get("/search").header("x-api-key", "ann");
        let response = app.clone().oneshot(request.body(Body::empty())?).await?;
        println!("request {number}: {}", response.status());
    }
    Ok(())
}
