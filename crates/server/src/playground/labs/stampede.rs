//! The stampede: many ask for the same page at once, through the real gateway with and without
//! single flight, to an upstream on a real socket that counts its calls.

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
use serde::Deserialize;
use serde_json::json;
use tallygate::Quota;
use tallygate::http::Rule;
use tallygate::tower::RateLimitLayer;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};

use super::{Measured, apart, failed, within};
use crate::gateway::{self, Gateway, SingleFlight, Upstream};

const MOST: u32 = 1_000;

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Settings {
    requests: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { requests: MOST }
    }
}

pub(super) async fn run(settings: Settings) -> Measured {
    let requests = settings.requests;
    within("requests", requests, 1..=MOST)?;
    // One thread: whoever was let through has joined a flight before anything else runs.
    apart(move || async move {
        let without = stampede(requests, Vec::new()).await?;
        let with = stampede(requests, vec![SingleFlight::when(|_| true)]).await?;
        Ok(json!({"requests": requests, "without": without, "with": with}))
    })
    .await
}

/// Everybody asks at once; says how many calls that was to the upstream.
async fn stampede(requests: u32, single_flight: Vec<SingleFlight>) -> Measured {
    let many = requests as usize;
    let (passed, arrived) = watch::channel(0_usize);
    let calls = Arc::new(AtomicUsize::new(0));
    let upstream = upstream(Arc::clone(&calls), arrived, many);
    let upstream: Upstream = format!("h2c://{}", upstream.await.map_err(failed)?)
        .parse()
        .map_err(failed)?;
    let mut settings = gateway::Settings::new([upstream]);
    settings.single_flight = single_flight;
    // One connection will do for all of them, and needs no descriptors.
    settings.limits.streams = MOST;
    let rule = Rule::new("all", Quota::per_second(1_000_000));
    let gate = RateLimitLayer::new(rule)
        .on_decision(move |_, _| passed.send_modify(|passed| *passed += 1));
    let gateway = Gateway::new(settings, gate).map_err(failed)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let listener = listener.await.map_err(failed)?;
    let url = format!("http://{}/page", listener.local_addr().map_err(failed)?);
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(async move {
        let told = async move {
            let _ = stopped.await;
        };
        gateway.serve(listener, told).await;
    });

    let client = Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build_http::<Empty<Bytes>>();
    let ask = || {
        let request = Request::get(&url).body(Empty::new());
        let client = &client;
        async move {
            let Ok(request) = request else { return false };
            match client.request(request).await {
                Ok(answer) if answer.status() == StatusCode::OK => {
                    answer.into_body().collect().await.is_ok()
                }
                Ok(_) | Err(_) => false,
            }
        }
    };
    let answers = join_all((0..many).map(|_| ask())).await;
    drop(client);
    let _ = stop.send(());
    let _ = serving.await;
    let answered = answers.into_iter().filter(|answered| *answered).count();
    let calls = calls.load(Ordering::Relaxed);
    Ok(json!({"upstream_calls": calls, "answered": answered}))
}

/// A server that counts its calls and answers none before all requests are under way.
async fn upstream(
    calls: Arc<AtomicUsize>,
    arrived: watch::Receiver<usize>,
    many: usize,
) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (calls, arrived) = (Arc::clone(&calls), arrived.clone());
            let answer = service_fn(move |_: Request<Incoming>| {
                calls.fetch_add(1, Ordering::Relaxed);
                let mut arrived = arrived.clone();
                async move {
                    let _ = arrived.wait_for(|arrived| *arrived >= many).await;
                    let page = Full::new(Bytes::from_static(b"the same for everybody\n"));
                    Ok::<_, Infallible>(Response::new(page))
                }
            });
            tokio::spawn(async move {
                let mut builder = auto::Builder::new(TokioExecutor::new());
                builder.http2().max_concurrent_streams(MOST);
                let _ = builder.serve_connection(TokioIo::new(stream), answer).await;
            });
        }
    });
    Ok(address)
}
