//! Requests that cost more than others, such as tokens of a language model: reserve an estimate,
//! then settle what it really was.
//!
//! `cargo run -p tallygate --example costs`

use tallygate::{Limiter, Quota};

#[expect(clippy::print_stdout, reason = "an example shows something")]
fn main() -> Result<(), tallygate::QuotaError> {
    let limiter = Limiter::new("token-bucket 10000/min burst 10000".parse::<Quota>()?);
    let key = "team:research";

    // The prompt is known, the answer is not: check the estimate.
    let estimate = 4_000;
    let decision = limiter.check_cost(key, estimate);
    println!("reserved {estimate}: {} left", decision.remaining());

    // It was shorter: give the rest back.
    let decision = limiter.refund(key, 2_500);
    println!("gave back 2500: {} left", decision.remaining());

    // Another one was longer than reserved: charge it whatever is left, debt and all.
    let decision = limiter.charge(key, 12_000);
    println!(
        "charged 12000 more: {} left, as new in {:?}",
        decision.remaining(),
        decision.reset_after()
    );

    // As much as there is, rather than all or nothing.
    let decision = limiter.take("team:batch", 25_000);
    println!(
        "another team asked for 25000 and got {}",
        decision.granted()
    );

    // Only looking costs nothing.
    let decision = limiter.peek(key, 1);
    println!(
        "one more would be told to wait: {:?}",
        decision.retry_after()
    );
    Ok(())
}
