//! Tiers: tenants with a better plan have a higher limit, and no tenant can use up the others' share.
//!
//! `cargo run -p tallygate --features tower --example tiers`

use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tallygate::http::Head;
use tallygate::rules::{Rule, Rules};
use tallygate::tower::RateLimitLayer;
use tallygate::{ManualClock, MemoryStore, Quota};
use tower::{Layer, Service, service_fn};

/// The number of requests that each tenant sends in the same minute.
const TENANTS: [(&str, u32); 3] = [("greedy", 100), ("acme", 30), ("small", 5)];

type Shop = RateLimitLayer<Rules, MemoryStore<Arc<ManualClock>>>;

/// The plan of a tenant. A real application would look it up on authentication.
fn plan(head: &Head<'_>) -> Option<&'static str> {
    match head.headers().get("x-tenant")?.to_str().ok()? {
        "acme" => Some("pro"),
        _ => Some("free"),
    }
}

/// One limit of 60 per minute for all tenants together: the capacity of the service.
fn together() -> Result<Shop, Box<dyn Error>> {
    let store = MemoryStore::builder()
        .clock(Arc::new(ManualClock::at(0)))
        .build();
    let all = Rule::new("all", "fixed-window 60/min".parse::<Quota>()?);
    Ok(RateLimitLayer::with_store(store, all))
}

/// The same, and a limit for each tenant by its plan.
fn by_tier() -> Result<Shop, Box<dyn Error>> {
    let tenant = Rule::new("tenant", "fixed-window 10/min".parse::<Quota>()?)
        .tier("pro", ["fixed-window 40/min".parse()?])
        .tier_by(plan)
        .by_header("x-tenant");
    Ok(together()?.and(tenant))
}

#[expect(clippy::print_stdout, reason = "an example prints its result")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    for (title, layer) in [
        ("one limit for all tenants", together()?),
        ("and one for each tenant, by tier", by_tier()?),
    ] {
        println!("{title}:");
        for (tenant, sent) in TENANTS {
            let admitted = send(&layer, tenant, sent).await?;
            println!("  {tenant:<7} {admitted:>3} of {sent:>3} admitted");
        }
    }
    Ok(())
}

/// Sends requests and returns how many were admitted.
async fn send(layer: &Shop, tenant: &str, times: u32) -> Result<u32, Box<dyn Error>> {
    let inner = service_fn(|_: Request<()>| async {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    });
    let mut service = layer.layer(inner);
    let mut admitted = 0;
    for _ in 0..times {
        let request = Request::builder().header("x-tenant", tenant).body(())?;
        admitted += u32::from(service.call(request).await?.status().is_success());
    }
    Ok(admitted)
}
