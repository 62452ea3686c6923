//! One limit for many servers, in Redis.
//!
//! `cargo run -p tallygate --features redis --example shared_limit -- redis://127.0.0.1:6379`
#![allow(clippy::print_stdout)]

use std::error::Error;

use tallygate::{Limiter, OnFailure, Quota, RedisStore};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1);
    let url = url.unwrap_or_else(|| "redis://127.0.0.1:6379".into());
    let store = match RedisStore::connect(&url).await {
        Ok(store) => store,
        Err(error) => {
            println!("{error}");
            return Ok(());
        }
    };

    // Processes that run this at the same time share the five attempts.
    let login = Limiter::with_store(store, "sliding-window-log 5/min".parse::<Quota>()?)
        .on_failure(OnFailure::Closed);
    for attempt in 1..=7 {
        let decision = login.check("ann").await;
        if decision.unavailable() {
            println!("{attempt}: the store did not answer: refused");
        } else if decision.allowed() {
            println!("{attempt}: admitted, {} left", decision.remaining());
        } else if let Some(retry) = decision.retry_after() {
            println!("{attempt}: refused, retry after {retry}");
        }
    }
    Ok(())
}
