//! The smallest example: one limit and one key.
//!
//! `cargo run -p tallygate --example minimal`

use tallygate::{Limiter, Quota};

#[expect(clippy::print_stdout, reason = "an example prints its result")]
fn main() -> Result<(), tallygate::QuotaError> {
    let limiter = Limiter::new("token-bucket 1/s burst 3".parse::<Quota>()?);

    for request in 1..=5 {
        let decision = limiter.check("user:42");
        match decision.retry_after() {
            None => println!("request {request}: admitted, {} left", decision.remaining()),
            Some(retry) => println!("request {request}: refused, retry after {retry}"),
        }
    }
    Ok(())
}
