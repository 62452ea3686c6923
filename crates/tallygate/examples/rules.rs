//! Builds a rule set in Rust and enforces it with the layer.
//!
//! `cargo run -p tallygate --features tower --example rules`

use std::convert::Infallible;
use std::error::Error;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use tallygate::http::{ClientAddress, Peer};
use tallygate::rules::{ListEntry, Override, OverrideAction, Rule, RuleSet, Rules};
use tallygate::tower::RateLimitLayer;
use tallygate::{Engine, MemoryStore, Quota};
use tower::{Layer, Service, service_fn};

fn rules() -> Result<Rules, Box<dyn Error>> {
    let mut login = Rule::new("login", Quota::per_minute(5)).by_ip();
    login.matcher.paths = vec!["/login".parse()?];
    login.stop = true;
    let api = Rule::new("api", Quota::per_hour(1_000)).by_header("x-api-key");
    let set = RuleSet {
        client: ClientAddress::behind(["10.0.0.0/8".parse()?]),
        rules: vec![login, api],
        overrides: vec![Override {
            rule: Some("login".parse()?),
            client: ListEntry::Network("192.0.2.0/24".parse()?),
            action: OverrideAction::Allow,
        }],
    };
    Ok(Rules::new(set)?)
}

#[expect(clippy::print_stdout, reason = "an example prints its result")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let layer = RateLimitLayer::with_engine(Engine::new(MemoryStore::new()), rules()?);
    let mut service = layer.layer(service_fn(|_: Request<()>| async {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    }));
    // A server inserts the address of each connection.
    let peer = Peer("198.51.100.7:50000".parse()?);
    for _ in 0..7 {
        let request = Request::post("/login").extension(peer).body(())?;
        let status: StatusCode = service.call(request).await?.status();
        println!("POST /login: {status}");
    }
    Ok(())
}
