//! The limits before the upstream: refusals never reach it, and whoever is held back and leaves
//! frees its place.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use http::{Request, Response};
use tokio::io::AsyncWriteExt;

use super::*;

#[tokio::test]
async fn refused_requests_never_reach_the_upstream() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let address = upstream(move |_| {
        count.fetch_add(1, Relaxed);
        async { Response::new(text("hello")) }
    })
    .await;
    let gate =
        RateLimitLayer::new(Rule::new("ip", "fixed-window 2/d".parse::<Quota>().unwrap()).by_ip());
    let gateway = Running::start(before(address), gate).await;
    for (client, expected) in [
        (http1(), 200),
        (http2(), 200),
        (http1(), 429),
        (http2(), 429),
    ] {
        let request = Request::get(gateway.url("/")).body(empty()).unwrap();
        let answer = client.request(request).await.unwrap();
        assert!(answer.headers().contains_key("ratelimit-policy"));
        assert_eq!(
            answer.headers().contains_key("retry-after"),
            expected == 429
        );
        assert_eq!(answer.status(), expected);
    }
    assert_eq!(asked.load(Relaxed), 2);
}

/// A gateway that lets one through an hour and holds one more, and whether there is room for it.
async fn shaped() -> (Running, impl Fn() -> bool) {
    let quota: Quota = "leaky-bucket 1/h queue 2".parse().unwrap();
    let gate = RateLimitLayer::new(Rule::new("shaped", quota));
    let limit = gate.policy().limits().next().unwrap().clone();
    let limiter = gate.engine().with(limit);
    let room = move || limiter.peek("all", 1).allowed();
    let gateway = Running::start(before(hello().await), gate).await;
    assert_eq!(get(&http1(), &gateway.url("/")).await.0, 200);
    assert!(room());
    (gateway, room)
}

#[tokio::test]
async fn a_client_that_disconnects_while_delayed_leaves_the_queue() {
    let get_ = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody";
    for bytes in [get_, post] {
        let (gateway, room) = shaped().await;
        let mut held = gateway.connect().await;
        held.write_all(bytes.as_bytes()).await.unwrap();
        until("the second is held", || !room()).await;
        assert_eq!(get(&http1(), &gateway.url("/")).await.0, 429);
        drop(held);
        until(&format!("there is room after {bytes:?}"), &room).await;
        // The next one takes the place.
        let mut next = gateway.connect().await;
        next.write_all(get_.as_bytes()).await.unwrap();
        until("the next is held", || !room()).await;
    }
}

#[tokio::test]
async fn a_client_that_disconnects_in_the_middle_of_its_body_leaves_the_queue() {
    let length = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 40000\r\n\r\n";
    let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
                   9c40\r\n";
    for head in [length, chunked] {
        for half in [0, 1, 20_000] {
            let (gateway, room) = shaped().await;
            let mut held = gateway.connect().await;
            held.write_all(head.as_bytes()).await.unwrap();
            held.write_all(&vec![b'x'; half]).await.unwrap();
            until("the second is held", || !room()).await;
            drop(held);
            until(&format!("there is room after {half} of {head:?}"), &room).await;
        }
    }
}

#[tokio::test]
async fn a_delayed_body_arrives_whole() {
    let address = upstream(|request| async move {
        let length = request.headers().get("content-length").cloned();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let same = body
            .iter()
            .enumerate()
            .all(|(at, byte)| *byte == (at % 251) as u8);
        Response::new(text(format!("{length:?} {} {same}", body.len())))
    })
    .await;
    for (size, chunked) in [(10, false), (300_000, false), (300_000, true)] {
        let quota: Quota = "leaky-bucket 1/100ms queue 3".parse().unwrap();
        let gateway = Running::start(
            before(address),
            RateLimitLayer::new(Rule::new("all", quota)),
        )
        .await;
        let body: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
        let bytes = match chunked {
            false => [
                format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n")
                    .as_bytes(),
                &body,
            ]
            .concat(),
            true => {
                let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\
                            Connection: close\r\n\r\n";
                let mut bytes = head.as_bytes().to_vec();
                for chunk in body.chunks(1000) {
                    bytes.extend(format!("{:x}\r\n", chunk.len()).bytes());
                    bytes.extend(chunk);
                    bytes.extend(b"\r\n");
                }
                bytes.extend(b"0\r\n\r\n");
                bytes
            }
        };
        let length = match chunked {
            false => format!("Some(\"{size}\")"),
            true => "None".to_owned(),
        };
        // The second and the third are held back.
        let asked = [(); 3].map(|()| gateway.raw(&bytes));
        for answer in futures_util::future::join_all(asked).await {
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            assert!(
                answer.ends_with(&format!("{length} {size} true")),
                "{answer}"
            );
        }
    }
}

#[tokio::test]
async fn an_http2_request_reset_while_delayed_leaves_the_queue() {
    let (gateway, room) = shaped().await;
    let client = http2();
    let request = Request::post(gateway.url("/")).body(text("body")).unwrap();
    let asked = client.clone();
    let held = tokio::spawn(async move { asked.request(request).await });
    until("the second is held", || !room()).await;
    held.abort();
    until("there is room", &room).await;
    let next = tokio::spawn(async move { get(&client, &gateway.url("/")).await });
    until("the next is held", || !room()).await;
    assert!(!next.is_finished());
}
