//! Reuse of upstream connections: which, how many, how long.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use http::Method;

use super::*;

/// A server that counts opened and closed connections.
#[derive(Default)]
struct CountingServer {
    opened: AtomicUsize,
    closed: AtomicUsize,
}

impl CountingServer {
    /// Answers every read with some bytes, and closes the connection after the first if `ends`.
    async fn start(answer: &'static [u8], ends: bool) -> (SocketAddr, Arc<Self>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = Arc::new(CountingServer::default());
        let counts = Arc::clone(&server);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                counts.opened.fetch_add(1, Relaxed);
                let counts = Arc::clone(&counts);
                tokio::spawn(async move {
                    let mut bytes = [0; 4096];
                    while let Ok(1..) = stream.read(&mut bytes).await {
                        if stream.write_all(answer).await.is_err() || ends {
                            break;
                        }
                    }
                    drop(stream);
                    counts.closed.fetch_add(1, Relaxed);
                });
            }
        });
        (address, server)
    }

    fn open(&self) -> usize {
        self.opened.load(Relaxed) - self.closed.load(Relaxed)
    }
}

const COMPLETE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

async fn send(gateway: &Running, method: Method, body: TestBody) -> (u16, String) {
    let request = Request::builder().method(method).uri(gateway.url("/"));
    read(http1().request(request.body(body).unwrap()).await.unwrap()).await
}

#[tokio::test]
async fn sequential_requests_reuse_one_connection() {
    for answer in [
        COMPLETE,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
    ] {
        let (address, server) = CountingServer::start(answer, false).await;
        let gateway = Running::start(proxy_to(address), admit_all()).await;
        for _ in 0..5 {
            send(&gateway, Method::GET, empty()).await;
            send(&gateway, Method::POST, text("a body")).await;
        }
        let opened = server.opened.load(Relaxed);
        assert_eq!(opened, 1, "{}", String::from_utf8_lossy(answer));
    }
}

#[tokio::test]
async fn a_connection_closed_by_the_upstream_loses_no_request() {
    let (address, server) = CountingServer::start(COMPLETE, true).await;
    let gateway = Running::start(proxy_to(address), admit_all()).await;
    for already in 0..20 {
        until("the connection ends", || {
            server.closed.load(Relaxed) == already
        })
        .await;
        // A POST is not retried: this one was never sent.
        let (status, body) = send(&gateway, Method::POST, text("a body")).await;
        assert_eq!((status, body.as_str()), (200, "hello"));
    }
    assert_eq!(server.opened.load(Relaxed), 20);
}

#[tokio::test]
async fn an_expired_idle_connection_is_closed() {
    let (address, server) = CountingServer::start(COMPLETE, false).await;
    let mut settings = proxy_to(address);
    settings.timeouts.pool_idle = Duration::from_millis(20);
    let gateway = Running::start(settings, admit_all()).await;
    for closed in 1..=2 {
        send(&gateway, Method::GET, empty()).await;
        until("it is closed", || server.closed.load(Relaxed) == closed).await;
    }
    assert_eq!(server.opened.load(Relaxed), 2);
}

#[tokio::test]
async fn the_pool_keeps_at_most_its_limit() {
    let arrived = Arc::new(tokio::sync::Barrier::new(8));
    let connections = Arc::new(CountingServer::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let counts = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            counts.opened.fetch_add(1, Relaxed);
            let (counts, arrived) = (Arc::clone(&counts), Arc::clone(&arrived));
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 4096]).await;
                arrived.wait().await;
                let _ = stream.write_all(COMPLETE).await;
                let _ = stream.read(&mut [0; 4096]).await;
                counts.closed.fetch_add(1, Relaxed);
            });
        }
    });
    let mut settings = proxy_to(address);
    settings.limits.pool = 3;
    settings.timeouts.pool_idle = TIMEOUT;
    let gateway = Running::start(settings, admit_all()).await;
    let all = (0..8).map(|_| send(&gateway, Method::GET, empty()));
    for (status, _) in futures_util::future::join_all(all).await {
        assert_eq!(status, 200);
    }
    assert_eq!(connections.opened.load(Relaxed), 8);
    until("five are closed", || connections.open() == 3).await;
}

#[tokio::test]
async fn a_connection_with_an_unfinished_response_is_not_reused() {
    let half = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nhalf";
    let (address, server) = CountingServer::start(half, false).await;
    let gateway = Running::start(proxy_to(address), admit_all()).await;
    for left in 1..=3 {
        let mut client = gateway.connect().await;
        client
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .await
            .unwrap();
        let mut read = Vec::new();
        while !read.ends_with(b"half") {
            assert_ne!(client.read_buf(&mut read).await.unwrap(), 0);
        }
        drop(client);
        until("it is closed", || server.closed.load(Relaxed) == left).await;
    }
    assert_eq!(server.opened.load(Relaxed), 3);
}
