//! Tenants that pay more get more, and one that is greedy takes nothing from the others.
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

/// How many requests each tenant sends in the same minute.
const TENANTS: [(&str, u32); 3] = [("greedy", 100), ("acme", 30), ("small", 5)];

type Shop = RateLimitLayer<Rules, MemoryStore<Arc<ManualClock>>>;

/// What a tenant has paid for; a real one is looked up by whatever checks the login.
fn plan(head: &Head<'_>) -> Option<&'static str> {
    match head.headers().get("x-tenant")?.to_str().ok()? {
        "acme" => Some("pro"),
        _ => Some("free"),
    }
}

/// Everybody together may have 60 a minute: that is what the machines behind can do.
fn together() -> Result<Shop, Box<dyn Error>> {
    let store = MemoryStore::builder()
        .clock(Arc::new(ManualClock::at(0)))
        .build();
    let everybody = Rule::new("everybody", "fixed-window 60/min".parse::<Quota>()?);
    Ok(RateLimitLayer::with_store(store, everybody))
}

/// The same, and each tenant no more than its plan.
fn by_tier() -> Result<Shop, Box<dyn Error>> {
    let tenant = Rule::new("tenant", "fixed-window 10/min".parse::<Quota>()?)
        .tier("pro", ["fixed-window 40/min".parse()?])
        .tier_by(plan)
        .by_header("x-tenant");
    Ok(together()?.and(tenant))
}

#[expect(clippy::print_stdout, reason = "an example shows something")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    for (title, layer) in [
        ("one limit for all", together()?),
        ("and one by tier", by_tier()?),
    ] {
        println!("{title}:");
        for (tenant, sent) in TENANTS {
            let admitted = send(&layer, tenant, sent).await?;
            println!("  {tenant:<7} {admitted:>3} of {sent:>3} admitted");
        }
    }
    Ok(())
}

/// Sends so many requests and says how many were admitted.
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
