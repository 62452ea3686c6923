//! Many concurrent requests for the same page through the real gateway, with and without request
//! coalescing.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde_json::json;
use tallygate::Quota;
use tallygate::rules::Rule;
use tallygate::tower::RateLimitLayer;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};

use super::{LabResult, failed, on_own_thread};
use crate::gateway::{self, Gateway, SingleFlight, Upstream};

const MAX_REQUESTS: u32 = 1_000;

settings! {
    requests: 1_000 in 1..=MAX_REQUESTS,
}

pub(super) async fn run(json: &[u8]) -> LabResult {
    let Settings { requests } = Settings::parse(json)?;
    // One thread: an admitted request joins the flight before anything else runs.
    on_own_thread(move || async move {
        let without = stampede(requests, Vec::new()).await?;
        let with = stampede(requests, vec![SingleFlight::when(|_| true)]).await?;
        Ok(json!({"requests": requests, "without": without, "with": with}))
    })
    .await
}

async fn stampede(requests: u32, single_flight: Vec<SingleFlight>) -> LabResult {
    let count = requests as usize;
    let (admitted, admissions) = watch::channel(0_usize);
    let calls = Arc::new(AtomicUsize::new(0));
    let upstream = upstream(Arc::clone(&calls), admissions, count);
    let upstream: Upstream = format!("h2c://{}", upstream.await.map_err(failed)?)
        .parse()
        .map_err(failed)?;
    let mut settings = gateway::Settings::new([upstream]);
    settings.single_flight = single_flight;
    // All on one connection, which saves file descriptors.
    settings.limits.streams = MAX_REQUESTS;
    let rule = Rule::new("all", Quota::per_second(1_000_000));
    let layer = RateLimitLayer::new(rule)
        .on_decision(move |_, _| admitted.send_modify(|admitted| *admitted += 1));
    let gateway = Gateway::new(settings, layer).map_err(failed)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let listener = listener.await.map_err(failed)?;
    let url = format!("http://{}/page", listener.local_addr().map_err(failed)?);
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(async move {
        let shutdown = async move {
            let _ = stopped.await;
        };
        gateway.serve(listener, shutdown).await;
    });

    let client = Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build_http::<Empty<Bytes>>();
    let send = || {
        let request = Request::get(&url).body(Empty::new());
        let client = &client;
        async move {
            let Ok(request) = request else { return false };
            match client.request(request).await {
                Ok(response) if response.status() == StatusCode::OK => {
                    response.into_body().collect().await.is_ok()
                }
                Ok(_) | Err(_) => false,
            }
        }
    };
    let results = join_all((0..count).map(|_| send())).await;
    drop(client);
    let _ = stop.send(());
    let _ = serving.await;
    let answered = results.into_iter().filter(|success| *success).count();
    let calls = calls.load(Ordering::Relaxed);
    Ok(json!({"upstream_calls": calls, "answered": answered}))
}

/// A server that counts its calls and responds once all requests are admitted.
async fn upstream(
    calls: Arc<AtomicUsize>,
    admissions: watch::Receiver<usize>,
    count: usize,
) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (calls, admissions) = (Arc::clone(&calls), admissions.clone());
            let service = service_fn(move |_: Request<Incoming>| {
                calls.fetch_add(1, Ordering::Relaxed);
                let mut admissions = admissions.clone();
                async move {
                    let _ = admissions.wait_for(|admitted| *admitted >= count).await;
                    let page = Full::new(Bytes::from_static(b"the same for all\n"));
                    Ok::<_, Infallible>(Response::new(page))
                }
            });
            tokio::spawn(async move {
                let mut builder = auto::Builder::new(TokioExecutor::new());
                builder.http2().max_concurrent_streams(MAX_REQUESTS);
                let _ = builder
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    Ok(address)
}
