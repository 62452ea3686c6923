//! Requests that do not say clearly which host they are for are rejected.

use std::sync::Mutex;

use http::Response;
use http_body_util::BodyExt;

use super::*;

/// Sends bytes; returns the response and the requests that reached the upstream.
async fn send(bytes: &[u8]) -> (String, Vec<String>) {
    let received = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&received);
    let address = upstream(move |request| {
        let record = Arc::clone(&record);
        async move {
            let line = format!("{} {}", request.method(), request.uri().path());
            record.lock().unwrap().push(line);
            let _ = request.into_body().collect().await;
            Response::new(text("response"))
        }
    })
    .await;
    let gateway = Running::start(proxy_to(address), admit_all()).await;
    let response = gateway.raw(bytes).await;
    let received = received.lock().unwrap().clone();
    (response, received)
}

#[tokio::test]
async fn a_missing_malformed_or_conflicting_host_is_rejected() {
    let cases = [
        ("no host", "GET / HTTP/1.1\r\n\r\n"),
        ("an empty host", "GET / HTTP/1.1\r\nHost: \r\n\r\n"),
        ("a host with a user", "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n"),
        ("a host with a path", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"),
        ("a host with a space", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n"),
        (
            "another host in the target",
            "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n",
        ),
        (
            "another port in the target",
            "GET http://a:8/ HTTP/1.1\r\nHost: a\r\n\r\n",
        ),
        (
            "a user in the target",
            "GET http://u@a/ HTTP/1.1\r\nHost: a\r\n\r\n",
        ),
        ("only a target", "GET http://a/ HTTP/1.1\r\n\r\n"),
        (
            "a space in the target",
            "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
        ),
        (
            "a coding in HTTP/1.0",
            "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
        ("an unknown version", "GET / HTTP/1.9\r\nHost: a\r\n\r\n"),
        ("no version", "GET /\r\nHost: a\r\n\r\n"),
    ];
    for (name, bytes) in cases {
        let (response, received) = send(bytes.as_bytes()).await;
        assert!(response.contains(" 400 "), "{name}: {response}");
        assert_eq!(received, Vec::<String>::new(), "{name}");
    }
}

#[tokio::test]
async fn an_absolute_target_that_matches_the_host_is_accepted() {
    let bytes = b"GET http://A/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let (response, received) = send(bytes).await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    assert_eq!(received, ["GET /x"]);
}

#[tokio::test]
async fn connect_is_rejected() {
    let (response, received) = send(b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n").await;
    assert!(response.starts_with("HTTP/1.1 501"), "{response}");
    assert_eq!(
        problem(&response),
        "urn:tallygate:problem:method-not-supported"
    );
    assert_eq!(received, Vec::<String>::new());
}
