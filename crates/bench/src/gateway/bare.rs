//! Servers in bare hyper: a proxy without limits, a handler that parses and answers a check without
//! deciding, and an upstream that streams events. Each runs in a process of its own.

use std::convert::Infallible;
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};

use http::header::CONTENT_TYPE;
use http::uri::{Authority, Scheme};
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

type BoxError = Box<dyn Error + Send + Sync>;

/// A baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bare {
    /// Forwards requests to a port of the loopback address.
    Proxy {
        /// The port.
        to: u16,
    },
    /// Parses and answers a check.
    Check,
    /// Answers with a stream of events, each sent on its own.
    Events,
}

impl Bare {
    /// The arguments of a child that listens on a port.
    pub fn task(self, port: u16) -> Vec<String> {
        match self {
            Bare::Proxy { to } => vec!["proxy".into(), port.to_string(), to.to_string()],
            Bare::Check => vec!["check".into(), port.to_string()],
            Bare::Events => vec!["events".into(), port.to_string()],
        }
    }

    /// Runs a baseline until the process ends, with `TOKIO_WORKER_THREADS` threads.
    ///
    /// # Errors
    /// When the arguments are invalid or the port is in use.
    pub fn run(task: &[String]) -> Result<(), Box<dyn Error>> {
        let (bare, port) = match task {
            [kind, port, to] if kind == "proxy" => (Bare::Proxy { to: to.parse()? }, port),
            [kind, port] if kind == "check" => (Bare::Check, port),
            [kind, port] if kind == "events" => (Bare::Events, port),
            _ => return Err(format!("no task: {}", task.join(" ")).into()),
        };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse()?));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?;
        let ended = match bare {
            Bare::Proxy { to } => runtime.block_on(proxy(address, to)),
            Bare::Check => runtime.block_on(check(address)),
            Bare::Events => runtime.block_on(events(address)),
        };
        ended.map_err(|error| error as Box<dyn Error>)
    }
}

async fn proxy(address: SocketAddr, to: u16) -> Result<(), BoxError> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client = Client::builder(TokioExecutor::new()).build::<_, Incoming>(connector);
    let to: Authority = format!("127.0.0.1:{to}").parse()?;
    let listener = TcpListener::bind(address).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (client, to) = (client.clone(), to.clone());
        let forward = service_fn(move |mut request: Request<Incoming>| {
            let mut parts = std::mem::take(request.uri_mut()).into_parts();
            parts.scheme = Some(Scheme::HTTP);
            parts.authority = Some(to.clone());
            let client = client.clone();
            async move {
                *request.uri_mut() = Uri::from_parts(parts)?;
                Ok::<_, BoxError>(client.request(request).await?)
            }
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), forward));
    }
}

/// The fields of a check.
#[derive(Deserialize)]
struct CheckRequest {
    key: String,
    quota: String,
    cost: u32,
}

/// The fields of a response.
#[derive(Serialize)]
struct CheckResponse {
    allowed: bool,
    granted: u32,
    limit: u32,
    remaining: u32,
    retry_after_us: Option<u64>,
    reset_after_us: u64,
    delay_us: u64,
    binding: String,
    degraded: bool,
    shared: bool,
}

async fn check(address: SocketAddr) -> Result<(), BoxError> {
    let listener = TcpListener::bind(address).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let handler = service_fn(|request: Request<Incoming>| async {
            let body = request.into_body().collect().await?.to_bytes();
            let check: CheckRequest = serde_json::from_slice(&body)?;
            let body = CheckResponse {
                allowed: true,
                granted: check.cost,
                limit: 1_000_000,
                remaining: 999_999 - check.key.len() as u32,
                retry_after_us: None,
                reset_after_us: 1,
                delay_us: 0,
                binding: check.quota,
                degraded: false,
                shared: false,
            };
            let mut response = Response::new(Full::new(Bytes::from(serde_json::to_vec(&body)?)));
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert(CONTENT_TYPE, json);
            Ok::<_, BoxError>(response)
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), handler));
    }
}

/// The events of a response.
const EVENTS: usize = 100;
/// An event, as completion servers send them.
const EVENT: &str = "data: {\"id\":\"cmpl-7\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\
    \"model\":\"small\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"},\"finish_reason\":null}]}\n\n";
/// The last one, with what the response cost.
const USAGE: &str = "data: {\"id\":\"cmpl-7\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\
    \"model\":\"small\",\"choices\":[],\"usage\":{\"prompt_tokens\":20,\"completion_tokens\":70,\
    \"total_tokens\":90}}\n\ndata: [DONE]\n\n";

/// A body of events. It pauses before each, so that the events before are sent.
struct Events {
    left: usize,
    paused: bool,
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.paused = !self.paused;
        if self.paused {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let Some(left) = self.left.checked_sub(1) else {
            return Poll::Ready(None);
        };
        self.left = left;
        let event = if left == 0 { USAGE } else { EVENT };
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(event.as_bytes())))))
    }
}

async fn events(address: SocketAddr) -> Result<(), BoxError> {
    let listener = TcpListener::bind(address).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let handler = service_fn(|_: Request<Incoming>| async {
            let mut response = Response::new(Events {
                left: EVENTS,
                paused: false,
            });
            let events = HeaderValue::from_static("text/event-stream");
            response.headers_mut().insert(CONTENT_TYPE, events);
            Ok::<_, Infallible>(response)
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), handler));
    }
}
