//! One request with several limits on several keys: all admit it, or none is charged.
//!
//! `cargo run -p tallygate --example composite_keys`

use std::error::Error;

use tallygate::{Key, Limit, Limiter, Quota, Request};

#[expect(clippy::print_stdout, reason = "an example prints its result")]
fn main() -> Result<(), Box<dyn Error>> {
    let per_user = Limit::named("user", "fixed-window 3/min".parse::<Quota>()?);
    let per_tenant = Limit::named("tenant", "fixed-window 5/min".parse::<Quota>()?);
    let per_route = Limit::named("route", "token-bucket 100/s".parse::<Quota>()?);
    let limiter = Limiter::new(per_user.clone());

    for user in ["ann", "ann", "ann", "ann", "bob", "bob", "bob"] {
        // Different lists of parts are different keys: ("ac", "meann") is not ("acme", "ann").
        let key = Key::from_parts(["acme", user]);
        let request = Request::new(&key, &per_user)
            .and("acme", &per_tenant)?
            .and(Key::from_parts(["acme", "/search"]), &per_route)?;
        let decision = limiter.decide_now(&request);

        let binding = request.entries()[decision.binding()].limit.name();
        let left: Vec<u32> = decision.verdicts().iter().map(|v| v.remaining).collect();
        if decision.allowed() {
            println!("{user}: admitted; remaining for user, tenant, route: {left:?}");
        } else {
            println!("{user}: refused by {binding}, nothing charged; remaining: {left:?}");
        }
    }
    Ok(())
}
