//! An HTTP client that keeps to the rate limit of a third party and obeys `Retry-After`.
//!
//! `cargo run -p tallygate --example outbound_client --features tower`

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tallygate::outbound::{OutboundError, OutboundLayer};
use tallygate::{Limiter, Quota};
use tokio::net::TcpListener;
use tower::{ServiceBuilder, ServiceExt};

#[tokio::main]
#[expect(clippy::print_stdout, reason = "an example prints its result")]
async fn main() -> Result<(), Box<dyn Error>> {
    let remote = third_party().await?;

    // The third party accepts a call every 50 ms. A call waits for at most 10 s.
    let layer = OutboundLayer::new(Limiter::new(
        "leaky-bucket 20/s queue 100".parse::<Quota>()?,
    ))
    .by_host()
    .max_wait(Duration::from_secs(10));
    let client = ServiceBuilder::new()
        .layer(layer)
        .service(Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>());

    let started = Instant::now();
    let mut calls = Vec::new();
    for n in 1..=6 {
        let client = client.clone();
        let request = Request::get(format!("http://{remote}/items/{n}")).body(Empty::new())?;
        calls.push(tokio::spawn(async move {
            let response = client.oneshot(request).await?;
            let status = response.status();
            println!("item {n}: {status} after {:?}", started.elapsed());
            Ok::<_, OutboundError<_>>(())
        }));
    }
    for call in calls {
        call.await??;
    }
    Ok(())
}

/// Starts a server that refuses the third call with `Retry-After: 1`.
async fn third_party() -> Result<SocketAddr, Box<dyn Error>> {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let answer = service_fn(|_: Request<Incoming>| async {
        let mut response = Response::new(Empty::<Bytes>::new());
        if CALLS.fetch_add(1, Ordering::Relaxed) == 2 {
            *response.status_mut() = http::StatusCode::TOO_MANY_REQUESTS;
            response.headers_mut().insert("retry-after", 1.into());
        }
        Ok::<_, Infallible>(response)
    });
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
        }
    });
    Ok(address)
}
