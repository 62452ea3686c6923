//! Graceful shutdown: requests in flight finish, late ones are answered, endless ones are aborted.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use http::{Request, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

#[tokio::test]
async fn requests_in_flight_finish_and_new_connections_are_refused() {
    let release = Arc::new(tokio::sync::Notify::new());
    let received = Arc::new(AtomicUsize::new(0));
    let (waits, count) = (Arc::clone(&release), Arc::clone(&received));
    let address = upstream(move |_| {
        let waits = Arc::clone(&waits);
        count.fetch_add(1, Relaxed);
        async move {
            waits.notified().await;
            Response::new(text("late"))
        }
    })
    .await;
    let gateway = Running::start(proxy_to(address), admit_all()).await;
    let (url, address) = (gateway.url("/"), gateway.address);
    let requests: Vec<_> = [http1(), http2()]
        .into_iter()
        .map(|client| {
            let request = Request::get(&url).body(empty()).unwrap();
            tokio::spawn(async move { client.request(request).await.unwrap() })
        })
        .collect();
    until("both are in flight", || received.load(Relaxed) == 2).await;
    let ended = gateway.stop();
    let refused = async { while TcpStream::connect(address).await.is_ok() {} };
    tokio::time::timeout(TIMEOUT, refused)
        .await
        .expect("no new connections");
    assert!(!ended.is_finished());
    release.notify_waiters();
    for request in requests {
        let response = request.await.unwrap();
        let http1 = response.version() == http::Version::HTTP_11;
        assert_eq!(response.headers().contains_key("connection"), http1);
        assert_eq!(read(response).await, (200, "late".to_owned()));
    }
    assert_eq!(ended.await.unwrap(), DrainReport { aborted: 0 });
}

#[tokio::test]
async fn no_request_is_lost_under_load() {
    let gateway = Running::start(proxy_to(hello().await), admit_all()).await;
    let address = gateway.address;
    let responses = Arc::new(AtomicUsize::new(0));
    let mut clients = Vec::new();
    for _ in 0..20 {
        let responses = Arc::clone(&responses);
        // Sends requests until a response has `connection: close`.
        clients.push(tokio::spawn(async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            loop {
                let head = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
                stream.write_all(head).await.unwrap();
                let mut response = Vec::new();
                while !response.ends_with(b"\r\n\r\nhello") {
                    let byte = stream.read_u8().await.expect("a response to every request");
                    response.push(byte);
                }
                responses.fetch_add(1, Relaxed);
                if String::from_utf8(response)
                    .unwrap()
                    .contains("connection: close")
                {
                    return;
                }
            }
        }));
    }
    let client = http2();
    let url = gateway.url("/");
    let count = Arc::clone(&responses);
    // After GOAWAY the HTTP/2 client opens another connection, which is refused: the only error
    // that may end this.
    clients.push(tokio::spawn(async move {
        loop {
            let request = Request::get(&url).body(empty()).unwrap();
            match client.request(request).await {
                Ok(response) => assert_eq!(read(response).await.0, 200),
                Err(error) => return assert!(error.is_connect(), "{error:?}"),
            }
            count.fetch_add(1, Relaxed);
        }
    }));
    until("all are busy", || responses.load(Relaxed) > 500).await;
    let ended = gateway.stop();
    for client in clients {
        client.await.unwrap();
    }
    assert_eq!(ended.await.unwrap(), DrainReport { aborted: 0 });
}

#[tokio::test]
async fn idle_connections_do_not_delay_shutdown() {
    let mut settings = proxy_to(hello().await);
    settings.timeouts.linger = Duration::from_millis(20);
    let gateway = Running::start(settings, admit_all()).await;
    let client = http1();
    assert_eq!(get(&client, &gateway.url("/")).await.0, 200);
    let silent = gateway.connect().await;
    let ended = gateway.stop().await.unwrap();
    assert_eq!(ended, DrainReport { aborted: 0 });
    drop(silent);
}

#[tokio::test]
async fn an_idle_connection_gets_one_more_request_during_shutdown() {
    let mut settings = proxy_to(hello().await);
    settings.timeouts.linger = TIMEOUT;
    let gateway = Running::start(settings, admit_all()).await;
    let address = gateway.address;
    let head = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut idle = gateway.send(head).await;
    let mut response = Vec::new();
    while !response.ends_with(b"hello") {
        response.push(idle.read_u8().await.unwrap());
    }
    let ended = gateway.stop();
    let refused = async { while TcpStream::connect(address).await.is_ok() {} };
    tokio::time::timeout(TIMEOUT, refused)
        .await
        .expect("no new connections");
    idle.write_all(head).await.unwrap();
    let mut last = String::new();
    idle.read_to_string(&mut last).await.unwrap();
    assert!(last.contains("connection: close"), "{last}");
    assert!(last.ends_with("hello"), "{last}");
    assert_eq!(ended.await.unwrap(), DrainReport { aborted: 0 });
}

#[tokio::test]
async fn requests_that_never_end_are_aborted() {
    let received = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&received);
    let address = upstream(move |_| {
        count.fetch_add(1, Relaxed);
        std::future::pending()
    })
    .await;
    let mut settings = proxy_to(address);
    settings.timeouts.drain = Duration::from_millis(50);
    let gateway = Running::start(settings, admit_all()).await;
    let mut stream = gateway.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    until("it is in flight", || received.load(Relaxed) == 1).await;
    assert_eq!(gateway.stop().await.unwrap(), DrainReport { aborted: 1 });
    assert_eq!(stream.read(&mut [0]).await.unwrap_or(0), 0);
}
