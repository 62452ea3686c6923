//! An axum application with three limits: failed logins, searches with bursts, shaped checkouts.
//!
//! `cargo run -p tallygate --features axum --example axum_shop -- serve`, then run
//! `curl -i localhost:3000/search` a few times. Without `serve` it calls its own routes and exits.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Method, Request, StatusCode};
use axum::routing::{get, post};
use tallygate::rules::Rule;
use tallygate::tower::RateLimitLayer;
use tallygate::{OnFailure, Quota};
use tower::ServiceExt;

fn shop() -> Result<Router, Box<dyn Error>> {
    // Only failed logins count. If the store fails, logins are refused.
    let failed_logins = Rule::new("login", "sliding-window-log 3/min".parse::<Quota>()?)
        .limit("fixed-window 50/d".parse()?)
        .by_ip()
        .count_if(|status, _| status == StatusCode::UNAUTHORIZED)
        .on_failure(OnFailure::Closed);
    // A burst of 5, then one every 500 ms; a deep search costs more.
    let search = Rule::new("search", "token-bucket 2/s burst 5".parse::<Quota>()?)
        .by_ip()
        .cost(|head| {
            if head.uri().query().is_some_and(|q| q.contains("deep")) {
                5
            } else {
                1
            }
        });
    // Shaped for a slow payment service: 20 per second, up to 100 delayed, each by at most 3 s.
    let checkout = Rule::new("checkout", "leaky-bucket 20/s queue 100".parse::<Quota>()?)
        .max_delay(Duration::from_secs(3));
    let log_in = || async { (StatusCode::UNAUTHORIZED, "wrong password\n") };
    Ok(Router::new()
        .route(
            "/login",
            post(log_in).layer(RateLimitLayer::new(failed_logins)),
        )
        .route(
            "/search",
            get(|| async { "found\n" }).layer(RateLimitLayer::new(search)),
        )
        .route(
            "/checkout",
            post(|| async { "paid\n" }).layer(RateLimitLayer::new(checkout)),
        ))
}

#[expect(clippy::print_stdout, reason = "an example prints its result")]
#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let shop = shop()?;
    if std::env::args().nth(1).as_deref() == Some("serve") {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
        println!("http://{}", listener.local_addr()?);
        let shop = shop.into_make_service_with_connect_info::<SocketAddr>();
        return Ok(axum::serve(listener, shop).await?);
    }
    for (method, path, times) in [
        (Method::POST, "/login", 5),
        (Method::GET, "/search", 3),
        (Method::GET, "/search?deep", 1),
        (Method::POST, "/checkout", 3),
    ] {
        for _ in 0..times {
            let mut request = Request::builder()
                .method(&method)
                .uri(path)
                .body(Body::empty())?;
            let peer = SocketAddr::from(([192, 0, 2, 1], 40_000));
            request.extensions_mut().insert(ConnectInfo(peer));
            let response = shop.clone().oneshot(request).await?;
            let header = |name| {
                response
                    .headers()
                    .get(name)
                    .and_then(|value| value.to_str().ok())
            };
            println!(
                "{method} {path} → {}, {} left{}",
                response.status(),
                header("x-ratelimit-remaining").unwrap_or("?"),
                header("retry-after").map_or(String::new(), |wait| format!(", retry in {wait} s")),
            );
        }
    }
    Ok(())
}
