//! Workers that wait for their turn instead of being refused, in order of arrival.
//!
//! `cargo run -p tallygate --example waiting_worker --features tokio`

use std::error::Error;
use std::time::{Duration, Instant};

use tallygate::{AcquireError, Limiter, Quota, Wait};

#[tokio::main]
#[expect(clippy::print_stdout, reason = "an example shows something")]
async fn main() -> Result<(), Box<dyn Error>> {
    // A mail provider takes one message every 50 ms; ten may wait.
    let limiter = Limiter::new("leaky-bucket 20/s queue 10".parse::<Quota>()?);
    let started = Instant::now();

    let mut workers = Vec::new();
    for worker in 1..=5 {
        let limiter = limiter.clone();
        workers.push(tokio::spawn(async move {
            limiter.acquire("mail").await?;
            println!("worker {worker} sends after {:?}", started.elapsed());
            Ok::<(), AcquireError>(())
        }));
        tokio::task::yield_now().await;
    }

    // Whoever has no time to wait is told so at once, and takes nobody's place.
    let hurry = Wait::at_most(Duration::from_millis(20));
    match limiter.acquire_with(&limiter.request("mail"), hurry).await {
        Ok(_) => println!("the hasty one sends"),
        Err(error) => println!("the hasty one gives up: {error}"),
    }
    for worker in workers {
        worker.await??;
    }
    Ok(())
}
