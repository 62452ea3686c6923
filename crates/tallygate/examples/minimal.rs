//! The least there is: one limit, one key, one question.
//!
//! `cargo run -p tallygate --example minimal`

use tallygate::{Limiter, Quota, RetryAfter};

#[expect(clippy::print_stdout, reason = "an example shows something")]
fn main() -> Result<(), tallygate::QuotaError> {
    let limiter = Limiter::new("token-bucket 1/s burst 3".parse::<Quota>()?);

    for request in 1..=5 {
        let decision = limiter.check("user:42");
        match decision.retry_after() {
            None => println!("request {request}: go ahead, {} left", decision.remaining()),
            Some(RetryAfter::After(wait)) => println!("request {request}: wait {wait:?}"),
            Some(RetryAfter::Never) => println!("request {request}: never"),
        }
    }
    Ok(())
}
