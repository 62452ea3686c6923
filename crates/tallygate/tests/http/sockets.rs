//! axum over real sockets.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tallygate::http::ClientAddress;
use tallygate::rules::Rule;
use tallygate::tower::RateLimitLayer;
use tallygate::{MemoryStore, Quota};
use tokio::net::TcpListener;

async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

async fn send(to: SocketAddr, forwarded: Option<&str>) -> http::Response<Bytes> {
    let client: Client<HttpConnector, Full<Bytes>> =
        Client::builder(TokioExecutor::new()).build_http();
    let mut request = http::Request::post(format!("http://{to}/login"))
        .body(Full::default())
        .unwrap();
    if let Some(forwarded) = forwarded {
        request
            .headers_mut()
            .insert("x-forwarded-for", forwarded.parse().unwrap());
    }
    let (parts, body) = client.request(request).await.unwrap().into_parts();
    http::Response::from_parts(parts, body.collect().await.unwrap().to_bytes())
}

fn app(layer: RateLimitLayer) -> Router {
    Router::new()
        .route("/login", post(|| async { "welcome" }))
        .layer(layer)
}

#[tokio::test]
async fn a_login_is_limited_by_peer_address() {
    let quota: Quota = "sliding-window-log 2/d".parse().unwrap();
    let address = serve(app(RateLimitLayer::new(Rule::new("login", quota).by_ip()))).await;
    for remaining in ["1", "0"] {
        let response = send(address, Some("203.0.113.1")).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.body(), "welcome");
        assert_eq!(response.headers()["x-ratelimit-remaining"], remaining);
    }
    let refused = send(address, Some("203.0.113.2")).await;
    assert_eq!(refused.status(), 429);
    assert_eq!(
        refused.headers()["content-type"],
        "application/problem+json"
    );
    assert_eq!(
        refused.headers()["content-length"],
        refused.body().len().to_string().as_str()
    );
}

#[tokio::test]
async fn clients_behind_a_trusted_proxy_are_counted_separately() {
    let rule = Rule::new("login", "fixed-window 1/d".parse::<Quota>().unwrap()).by_ip();
    let layer = RateLimitLayer::with_store(MemoryStore::new(), rule)
        .client(ClientAddress::behind(["127.0.0.0/8".parse().unwrap()]));
    let address = serve(app(layer)).await;
    assert_eq!(send(address, Some("203.0.113.1")).await.status(), 200);
    assert_eq!(send(address, Some("203.0.113.2")).await.status(), 200);
    assert_eq!(send(address, Some("203.0.113.1")).await.status(), 429);
    assert_eq!(
        send(address, Some("9.9.9.9, 203.0.113.1")).await.status(),
        429
    );
}

#[tokio::test]
async fn a_request_with_a_slow_body_is_counted_once_and_undone_by_count_if() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let quota: Quota = "fixed-window 2/d".parse().unwrap();
    let rule = Rule::new("login", quota).count_if(|status, _| status != 200);
    let app = Router::new()
        .route("/login", post(|body: String| async move { body }))
        .layer(RateLimitLayer::new(rule));
    let address = serve(app).await;
    // An aborted request counts.
    let mut aborted = tokio::net::TcpStream::connect(address).await.unwrap();
    let head = b"POST /login HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nhalf";
    aborted.write_all(head).await.unwrap();
    let mut slow = tokio::net::TcpStream::connect(address).await.unwrap();
    slow.write_all(head).await.unwrap();
    // Both are counted: a third is refused until the slow one is answered.
    let full = async { while send(address, None).await.status() != 429 {} };
    tokio::time::timeout(Duration::from_secs(60), full)
        .await
        .unwrap();
    drop(aborted);
    slow.write_all(b" done!").await.unwrap();
    let mut answer = vec![0; 12];
    slow.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, b"HTTP/1.1 200");
    assert_eq!(
        send(address, None).await.status(),
        200,
        "the slow request was undone"
    );
    assert_eq!(
        send(address, None).await.status(),
        200,
        "and so was this one"
    );
}
