//! The gateway over real sockets, between real clients and real servers.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod bounds;
mod coalesce;
mod connection_limits;
mod connection_reuse;
mod costs;
mod drain;
mod forwarding;
mod headers;
mod holds;
mod rate_limits;
mod redis;
mod smuggling;
mod tls;
mod upstreams;

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2 as http2_conn;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tallygate::rules::{Rule, Rules};
use tallygate::tower::RateLimitLayer;
use tallygate::{Quota, Store};
use tallygate_server::gateway::{DrainReport, Gateway, Settings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

type Http2Connection = JoinHandle<hyper::Result<()>>;
type TestBody = BoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// How long a test waits for anything.
const TIMEOUT: Duration = Duration::from_secs(60);

fn text(text: impl Into<Bytes>) -> TestBody {
    Full::new(text.into())
        .map_err(|never| match never {})
        .boxed()
}

fn empty() -> TestBody {
    Empty::new().map_err(|never| match never {}).boxed()
}

/// Starts a server that responds to HTTP/1 and HTTP/2 requests with a function.
async fn upstream<F, R>(answer: F) -> SocketAddr
where
    F: Fn(Request<Incoming>) -> R + Send + Sync + 'static,
    R: Future<Output = Response<TestBody>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answer = Arc::new(answer);
    tokio::spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                continue;
            };
            let answer = Arc::clone(&answer);
            tokio::spawn(async move {
                let service = service_fn(move |request| {
                    let response = answer(request);
                    async move { Ok::<_, Infallible>(response.await) }
                });
                let builder = auto::Builder::new(TokioExecutor::new());
                let io = TokioIo::new(stream);
                let _ = builder.serve_connection_with_upgrades(io, service).await;
            });
        }
    });
    address
}

/// Starts a server that responds with `hello`.
async fn hello() -> SocketAddr {
    upstream(|_| async { Response::new(text("hello")) }).await
}

/// Starts a server that responds with `hello` after it has read the body.
async fn read_body() -> SocketAddr {
    upstream(|request| async move {
        let _ = request.into_body().collect().await;
        Response::new(text("hello"))
    })
    .await
}

/// A layer that admits everything.
fn admit_all() -> RateLimitLayer {
    RateLimitLayer::new(Rule::new("all", Quota::per_second(1_000_000)))
}

fn proxy_to(upstream: SocketAddr) -> Settings {
    Settings::new([format!("http://{upstream}").parse().unwrap()])
}

/// Starts a gateway with one rule. Returns it, and what is left of the rule's first limit.
async fn start_with_rule(upstream: SocketAddr, rule: Rule) -> (Running, impl Fn() -> u32) {
    let layer = RateLimitLayer::new(rule);
    let limit = layer.policy().limits().next().unwrap().clone();
    let limiter = layer.engine().limiter(limit);
    let left = move || limiter.peek("all", 0).remaining();
    (Running::start(proxy_to(upstream), layer).await, left)
}

/// A running gateway.
struct Running {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<DrainReport>,
}

impl Running {
    async fn start<S: Store>(settings: Settings, layer: RateLimitLayer<Rules, S>) -> Self {
        let gateway = Gateway::new(settings, layer).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let ended = tokio::spawn(async move {
            let stopped = async {
                let _ = stopped.await;
            };
            gateway.serve(listener, stopped).await
        });
        Running {
            address,
            stop,
            ended,
        }
    }

    /// Starts the shutdown.
    fn stop(self) -> JoinHandle<DrainReport> {
        let _ = self.stop.send(());
        self.ended
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends bytes on a new connection.
    async fn send(&self, bytes: impl AsRef<[u8]>) -> TcpStream {
        let mut stream = self.connect().await;
        stream.write_all(bytes.as_ref()).await.unwrap();
        stream
    }

    /// Opens an HTTP/2 connection. The task ends with the connection.
    async fn connect_http2(&self) -> (http2_conn::SendRequest<TestBody>, Http2Connection) {
        let io = TokioIo::new(self.connect().await);
        let handshake = http2_conn::handshake(TokioExecutor::new(), io);
        let (sender, connection) = handshake.await.unwrap();
        (sender, tokio::spawn(connection))
    }

    /// Sends bytes on a new connection and reads until the gateway closes it.
    async fn raw(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut stream = self.connect().await;
        let _ = stream.write_all(bytes.as_ref()).await;
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        let _ = tokio::time::timeout(TIMEOUT, read)
            .await
            .expect("a closed connection");
        String::from_utf8_lossy(&answer).into_owned()
    }
}

fn http1() -> Client<HttpConnector, TestBody> {
    Client::builder(TokioExecutor::new()).build_http()
}

fn http2() -> Client<HttpConnector, TestBody> {
    Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build_http()
}

async fn get(client: &Client<HttpConnector, TestBody>, url: &str) -> (u16, String) {
    let request = Request::get(url).body(empty()).unwrap();
    read(client.request(request).await.unwrap()).await
}

async fn read(response: Response<Incoming>) -> (u16, String) {
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8_lossy(&body).into_owned())
}

/// The type of the problem in a response.
fn problem(text: &str) -> String {
    let start = text
        .find('{')
        .unwrap_or_else(|| panic!("no problem in {text:?}"));
    let json: serde_json::Value = serde_json::from_str(&text[start..]).unwrap();
    json["type"].as_str().unwrap().to_owned()
}

/// Polls until a condition holds.
async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, wait)
        .await
        .unwrap_or_else(|_| panic!("never: {what}"));
}
