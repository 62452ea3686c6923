//! Upstreams that are down, slow or broken, and several of them.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use http::{Request, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// An address that nothing listens on.
fn unused_address() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, tallygate_testkit::ports::free()))
}

fn all(upstreams: &[SocketAddr]) -> Settings {
    let upstreams = upstreams.iter().map(|address| format!("http://{address}"));
    Settings::new(upstreams.map(|url| url.parse().unwrap()))
}

async fn named(name: &'static str) -> SocketAddr {
    upstream(move |_| async move { Response::new(text(name)) }).await
}

#[tokio::test]
async fn an_upstream_that_is_down_is_a_502() {
    let gateway = Running::start(proxy_to(unused_address()), admit_all()).await;
    let (status, body) = get(&http1(), &gateway.url("/")).await;
    assert_eq!(status, 502);
    assert_eq!(problem(&body), "urn:tallygate:problem:upstream-failed");
}

#[tokio::test]
async fn an_upstream_that_hangs_is_a_504() {
    let address = upstream(|_| std::future::pending()).await;
    let mut settings = proxy_to(address);
    settings.timeouts.first_byte = Duration::from_millis(50);
    let gateway = Running::start(settings, admit_all()).await;
    let (status, body) = get(&http2(), &gateway.url("/")).await;
    assert_eq!(status, 504);
    assert_eq!(problem(&body), "urn:tallygate:problem:upstream-too-slow");
}

#[tokio::test]
async fn a_request_has_a_total_timeout() {
    let address = upstream(|_| std::future::pending()).await;
    let mut settings = proxy_to(address);
    settings.timeouts.whole = Duration::from_millis(50);
    let gateway = Running::start(settings, admit_all()).await;
    assert_eq!(get(&http1(), &gateway.url("/")).await.0, 504);
}

/// A server that responds on every connection with some bytes and closes it.
async fn raw_server(bytes: &'static [u8]) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&accepted);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            count.fetch_add(1, Relaxed);
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(bytes).await;
        }
    });
    (address, accepted)
}

#[tokio::test]
async fn an_invalid_response_is_a_502_and_not_retried() {
    for bytes in [
        &b""[..],
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nxx",
    ] {
        let (broken, taken) = raw_server(bytes).await;
        let (other, others) = raw_server(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
        let gateway = Running::start(all(&[broken, other]), admit_all()).await;
        let text = String::from_utf8_lossy(bytes);
        assert_eq!(get(&http1(), &gateway.url("/")).await.0, 502, "{text}");
        assert_eq!(
            (taken.load(Relaxed), others.load(Relaxed)),
            (1, 0),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_truncated_response_is_not_shown_as_complete() {
    let (address, _) = raw_server(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf").await;
    let gateway = Running::start(proxy_to(address), admit_all()).await;
    for client in [http1(), http2()] {
        let request = Request::get(gateway.url("/")).body(empty()).unwrap();
        let response = client.request(request).await.unwrap();
        assert!(response.into_body().collect().await.is_err());
    }
}

#[tokio::test]
async fn a_stalled_response_times_out() {
    let address = upstream(|_| async {
        let frames = futures_util::stream::pending::<Result<hyper::body::Frame<Bytes>, _>>();
        Response::new(BodyExt::boxed(http_body_util::StreamBody::new(frames)))
    })
    .await;
    let mut settings = proxy_to(address);
    settings.timeouts.answer_idle = Duration::from_millis(50);
    let gateway = Running::start(settings, admit_all()).await;
    let request = Request::get(gateway.url("/")).body(empty()).unwrap();
    let response = http1().request(request).await.unwrap();
    assert!(response.into_body().collect().await.is_err());
}

#[tokio::test]
async fn upstreams_are_used_round_robin() {
    let gateway = Running::start(all(&[named("a").await, named("b").await]), admit_all()).await;
    let client = http1();
    let mut order = String::new();
    for _ in 0..6 {
        order += &get(&client, &gateway.url("/")).await.1;
    }
    assert_eq!(order, "ababab");
}

#[tokio::test]
async fn an_upstream_that_is_down_is_ejected_and_comes_back() {
    let down = unused_address();
    let mut settings = all(&[down, named("well").await]);
    settings.timeouts.down = Duration::from_millis(5);
    let gateway = Running::start(settings, admit_all()).await;
    let client = http1();
    // Requests to the one that is down are retried at the other.
    for _ in 0..20 {
        assert_eq!(
            get(&client, &gateway.url("/")).await,
            (200, "well".to_owned())
        );
    }
    let listener = TcpListener::bind(down).await.unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let response = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nback";
            let _ = stream.write_all(response).await;
        }
    });
    let back = async {
        while get(&client, &gateway.url("/")).await.1 != "back" {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, back)
        .await
        .expect("it comes back");
}

#[tokio::test]
async fn a_request_with_a_body_or_side_effects_is_not_retried() {
    for method in ["POST", "PATCH"] {
        let gateway =
            Running::start(all(&[unused_address(), named("other").await]), admit_all()).await;
        let request = Request::builder().method(method).uri(gateway.url("/"));
        let response = http1().request(request.body(text("x")).unwrap()).await;
        assert_eq!(response.unwrap().status(), 502, "{method}");
    }
}

#[tokio::test]
async fn a_retried_request_is_charged_once() {
    let layer = RateLimitLayer::new(Rule::new(
        "two",
        "fixed-window 2/d".parse::<Quota>().unwrap(),
    ));
    let mut settings = all(&[unused_address(), named("other").await]);
    settings.timeouts.down = Duration::from_secs(3600);
    let gateway = Running::start(settings, layer).await;
    let client = http1();
    for expected in [200, 200, 429] {
        assert_eq!(get(&client, &gateway.url("/")).await.0, expected);
    }
}
