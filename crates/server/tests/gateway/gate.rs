//! The limits before the upstream: refusals never reach it, and whoever is held back and leaves
//! frees its place.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use http::{Request, Response};
use tokio::io::AsyncWriteExt;

use super::*;

#[tokio::test]
async fn what_is_refused_never_reaches_the_upstream() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let address = upstream(move |_| {
        count.fetch_add(1, Relaxed);
        async { Response::new(text("hello")) }
    })
    .await;
    let gate = Gate::new(Rule::new("ip", "fixed-window 2/d".parse::<Quota>().unwrap()).by_ip());
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
    let gate = Gate::new(Rule::new("shaped", quota));
    let limit = gate.policy().limits().next().unwrap().clone();
    let limiter = gate.limiter().with(limit);
    let room = move || limiter.peek("all", 1).allowed();
    let gateway = Running::start(before(hello().await), gate).await;
    assert_eq!(get(&http1(), &gateway.url("/")).await.0, 200);
    assert!(room());
    (gateway, room)
}

#[tokio::test]
async fn a_client_that_leaves_while_held_back_frees_its_place() {
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
async fn an_http2_request_that_is_given_up_while_held_back_frees_its_place() {
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
