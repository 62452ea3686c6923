//! Concurrency limits: a request holds a unit until its response, its stream or its tunnel has ended.

use std::sync::Mutex;

use futures_util::stream;
use http_body::Frame;
use http_body_util::StreamBody;
use tokio::sync::{Notify, mpsc};

use super::*;

const HOLD: &str = "concurrent 2 for 1h";

fn rule() -> Rule {
    Rule::new("reports", HOLD.parse::<Quota>().unwrap())
}

/// Starts a server that responds when it is told to.
async fn waiting() -> (Arc<Notify>, SocketAddr) {
    let go = Arc::new(Notify::new());
    let told = Arc::clone(&go);
    let address = upstream(move |_| {
        let told = Arc::clone(&told);
        async move {
            told.notified().await;
            Response::new(text("hello"))
        }
    })
    .await;
    (go, address)
}

#[tokio::test]
async fn a_request_holds_a_unit_until_its_response_has_ended() {
    let (go, address) = waiting().await;
    let (gateway, free) = start_with_rule(address, rule().cost(|_| 900)).await;
    let url = gateway.url("/");
    let request = move |url: String| tokio::spawn(async move { get(&http1(), &url).await });
    let (one, two) = (request(url.clone()), request(url.clone()));
    until("both are in flight", || free() == 0).await;
    let third = Request::get(&url).body(empty()).unwrap();
    let refused = http1().request(third).await.unwrap();
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.headers()["retry-after"], "1");
    let (_, body) = read(refused).await;
    assert!(body.contains("in flight"), "{body}");
    go.notify_one();
    until("one has ended", || free() == 1).await;
    go.notify_one();
    for response in [one, two] {
        assert_eq!(response.await.unwrap(), (200, "hello".to_owned()));
    }
    until("both have ended", || free() == 2).await;
}

#[tokio::test]
async fn a_client_that_disconnects_releases_what_it_holds() {
    let (_go, address) = waiting().await;
    let (gateway, free) = start_with_rule(address, rule()).await;
    let bodies = [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody",
    ];
    for bytes in bodies {
        let client = gateway.send(bytes).await;
        until("it is in flight", || free() == 1).await;
        drop(client);
        until(&format!("released after {bytes:?}"), || free() == 2).await;
    }
    let (mut sender, connection) = gateway.connect_http2().await;
    let request = Request::get(gateway.url("/")).body(empty()).unwrap();
    let response = tokio::spawn(sender.send_request(request));
    until("the stream is in flight", || free() == 1).await;
    response.abort();
    until("the stream was reset", || free() == 2).await;
    connection.abort();
}

/// Starts a server whose only response is a stream that comes from a channel.
async fn streaming() -> (mpsc::UnboundedSender<&'static str>, SocketAddr) {
    let (send, receive) = mpsc::unbounded_channel();
    let receive = Mutex::new(Some(receive));
    let address = upstream(move |_| {
        let receive = receive.lock().unwrap().take().unwrap();
        let pieces = stream::unfold(receive, |mut receive| async move {
            let piece: &str = receive.recv().await?;
            let frame = Frame::data(Bytes::from_static(piece.as_bytes()));
            Some((Ok(frame), receive))
        });
        let response = Response::new(BodyExt::boxed(StreamBody::new(pieces)));
        async { response }
    })
    .await;
    (send, address)
}

#[tokio::test]
async fn a_stream_holds_a_unit_to_its_end_or_until_its_client_is_gone() {
    for to_the_end in [true, false] {
        let (send, address) = streaming().await;
        let (gateway, free) = start_with_rule(address, rule()).await;
        let request = Request::get(gateway.url("/")).body(empty()).unwrap();
        let client = http1();
        let mut response = client.request(request).await.unwrap();
        for piece in ["a", "b"] {
            send.send(piece).unwrap();
            let frame = response.frame().await.unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap(), piece);
            assert_eq!(free(), 1);
        }
        match to_the_end {
            true => {
                drop(send);
                assert!(response.frame().await.is_none());
            }
            false => drop((response, client)),
        }
        until("it is released", || free() == 2).await;
    }
}

#[tokio::test]
async fn a_response_that_breaks_off_releases() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = [0; 1024];
        let _ = stream.read(&mut head).await;
        let cut = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhal";
        stream.write_all(cut).await.unwrap();
    });
    let (gateway, free) = start_with_rule(address, rule()).await;
    let answer = gateway.raw("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(answer.ends_with("hal"), "{answer}");
    until("it is released", || free() == 2).await;
    // Nobody listens there any more.
    assert_eq!(get(&http1(), &gateway.url("/")).await.0, 502);
    assert_eq!(free(), 2);
}

#[tokio::test]
async fn an_upgraded_connection_holds_a_unit_until_it_is_closed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let upstream = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let switched = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\
                         Upgrade: websocket\r\n\r\n";
        stream.write_all(switched).await.unwrap();
        while let Ok(byte) = stream.read_u8().await {
            stream.write_u8(byte).await.unwrap();
        }
    });
    let (gateway, free) = start_with_rule(address, rule()).await;
    let mut client = gateway
        .send(
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        )
        .await;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 101"));
    for byte in *b"ping" {
        client.write_u8(byte).await.unwrap();
        assert_eq!(client.read_u8().await.unwrap(), byte);
        assert_eq!(free(), 1);
    }
    drop(client);
    until("the tunnel is closed", || free() == 2).await;
    upstream.await.unwrap();
}

#[tokio::test]
async fn a_hold_is_renewed_for_as_long_as_the_response_takes() {
    let (send, address) = streaming().await;
    let rule = Rule::new("short", "concurrent 1 for 1s".parse::<Quota>().unwrap());
    let (gateway, free) = start_with_rule(address, rule).await;
    let request = Request::get(gateway.url("/")).body(empty()).unwrap();
    let mut response = http1().request(request).await.unwrap();
    // Two hold times: without a renewal it would have ended.
    let started = std::time::Instant::now();
    while started.elapsed() < Duration::from_secs(2) {
        send.send("tick").unwrap();
        response.frame().await.unwrap().unwrap();
        assert_eq!(free(), 0);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    drop(send);
    assert!(response.frame().await.is_none());
    until("it is released", || free() == 1).await;
}

#[tokio::test]
async fn a_refused_request_holds_nothing_and_shadow_rules_hold_too() {
    let (go, address) = waiting().await;
    let layer = RateLimitLayer::new(Rule::new("rate", Quota::per_day(1)))
        .and(Rule::new("held", HOLD.parse::<Quota>().unwrap()))
        .and(Rule::new("shadow", "concurrent 1 for 1h".parse::<Quota>().unwrap()).shadow());
    let limits: Vec<_> = layer.policy().limits().cloned().collect();
    let engine = layer.engine().clone();
    let free = move || -> Vec<u32> {
        let limits = limits[1..].iter().cloned();
        let limiters = limits.map(|limit| engine.limiter(limit));
        limiters
            .map(|limiter| limiter.peek("all", 0).remaining())
            .collect()
    };
    let gateway = Running::start(proxy_to(address), layer).await;
    let url = gateway.url("/");
    let first = tokio::spawn(async move { get(&http1(), &url).await });
    until("it is in flight", || free() == [1, 0]).await;
    // Refused by its rate.
    assert_eq!(get(&http1(), &gateway.url("/")).await.0, 429);
    assert_eq!(free(), [1, 0]);
    go.notify_one();
    assert_eq!(first.await.unwrap().0, 200);
    until("all is released", || free() == [2, 1]).await;
}
