//! Requests with different costs, such as tokens of a language model: reserve an estimate, then
//! settle the actual cost.
//!
//! `cargo run -p tallygate --example costs`

use tallygate::{Limiter, Quota};

#[expect(clippy::print_stdout, reason = "an example prints its result")]
fn main() -> Result<(), tallygate::QuotaError> {
    let limiter = Limiter::new("token-bucket 10000/min burst 10000".parse::<Quota>()?);
    let key = "team:research";

    // The length of the answer is unknown: reserve an estimate.
    let estimate = 4_000;
    let decision = limiter.check_cost(key, estimate);
    println!("reserved {estimate}: {} left", decision.remaining());

    // It was shorter: refund the rest.
    let decision = limiter.refund(key, 2_500);
    println!("refunded 2500: {} left", decision.remaining());

    // Another one was longer than reserved: charge the difference, even into debt.
    let decision = limiter.charge(key, 12_000);
    println!(
        "charged 12000 more: {} left, full again in {:?}",
        decision.remaining(),
        decision.reset_after()
    );

    // Take what fits instead of all or nothing.
    let decision = limiter.take("team:batch", 25_000);
    println!(
        "another team requested 25000 and got {}",
        decision.granted()
    );

    // A peek takes nothing.
    let decision = limiter.peek(key, 1);
    println!("one more would have to wait: {:?}", decision.retry_after());
    Ok(())
}
