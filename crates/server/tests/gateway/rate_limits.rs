//! Rate limits in front of the upstream: refusals never reach it, and a delayed client that
//! disconnects leaves the queue.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use http::{Request, Response};
use tokio::io::AsyncWriteExt;

use super::*;

#[tokio::test]
async fn refused_requests_never_reach_the_upstream() {
    let received = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&received);
    let address = upstream(move |_| {
        count.fetch_add(1, Relaxed);
        async { Response::new(text("hello")) }
    })
    .await;
    let layer =
        RateLimitLayer::new(Rule::new("ip", "fixed-window 2/d".parse::<Quota>().unwrap()).by_ip());
    let gateway = Running::start(proxy_to(address), layer).await;
    for (client, expected) in [
        (http1(), 200),
        (http2(), 200),
        (http1(), 429),
        (http2(), 429),
    ] {
        let request = Request::get(gateway.url("/")).body(empty()).unwrap();
        let response = client.request(request).await.unwrap();
        assert!(response.headers().contains_key("ratelimit-policy"));
        assert_eq!(
            response.headers().contains_key("retry-after"),
            expected == 429
        );
        assert_eq!(response.status(), expected);
    }
    assert_eq!(received.load(Relaxed), 2);
}

/// A gateway that admits one request per hour and delays one more, and whether its queue has room.
async fn shaped() -> (Running, impl Fn() -> bool) {
    let quota: Quota = "leaky-bucket 1/h queue 2".parse().unwrap();
    let layer = RateLimitLayer::new(Rule::new("shaped", quota));
    let limit = layer.policy().limits().next().unwrap().clone();
    let limiter = layer.engine().limiter(limit);
    let room = move || limiter.peek("all", 1).allowed();
    let gateway = Running::start(proxy_to(hello().await), layer).await;
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
        let delayed = gateway.send(bytes).await;
        until("the second is delayed", || !room()).await;
        assert_eq!(get(&http1(), &gateway.url("/")).await.0, 429);
        drop(delayed);
        until(&format!("there is room after {bytes:?}"), &room).await;
        // The next one takes its slot.
        let _next = gateway.send(get_).await;
        until("the next is delayed", || !room()).await;
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
            let mut delayed = gateway.send(head).await;
            delayed.write_all(&vec![b'x'; half]).await.unwrap();
            until("the second is delayed", || !room()).await;
            drop(delayed);
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
            proxy_to(address),
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
        // The second and the third are delayed.
        let pending = [(); 3].map(|()| gateway.raw(&bytes));
        for response in futures_util::future::join_all(pending).await {
            assert!(response.starts_with("HTTP/1.1 200"), "{response}");
            assert!(
                response.ends_with(&format!("{length} {size} true")),
                "{response}"
            );
        }
    }
}

#[tokio::test]
async fn an_http2_request_reset_while_delayed_leaves_the_queue() {
    let (gateway, room) = shaped().await;
    let client = http2();
    let request = Request::post(gateway.url("/")).body(text("body")).unwrap();
    let requester = client.clone();
    let delayed = tokio::spawn(async move { requester.request(request).await });
    until("the second is delayed", || !room()).await;
    delayed.abort();
    until("there is room", &room).await;
    let next = tokio::spawn(async move { get(&client, &gateway.url("/")).await });
    until("the next is delayed", || !room()).await;
    assert!(!next.is_finished());
}
