//! Workers that wait instead of being refused, first come, first served.
//!
//! `cargo run -p tallygate --example waiting_worker --features tokio`

use std::error::Error;
use std::time::{Duration, Instant};

use tallygate::{AcquireError, Limiter, Quota, Wait};

#[tokio::main]
#[expect(clippy::print_stdout, reason = "an example prints its result")]
async fn main() -> Result<(), Box<dyn Error>> {
    // A mail provider accepts one message every 50 ms. Ten may wait.
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

    // Fails immediately and takes nothing, because the wait would be longer than 20 ms.
    let short = Wait::at_most(Duration::from_millis(20));
    match limiter.acquire_with(&limiter.request("mail"), short).await {
        Ok(_) => println!("the impatient worker sends"),
        Err(error) => println!("the impatient worker gives up: {error}"),
    }
    for worker in workers {
        worker.await??;
    }
    Ok(())
}
