//! Request smuggling: ambiguous requests are rejected and their connection closed, so that nothing
//! after them is taken for another request.

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
async fn ambiguous_requests_are_rejected_and_nothing_after_them_is_read() {
    let next = "GET /smuggled HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let cases: &[(&str, &str)] = &[
        (
            "length and coding",
            "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
        (
            "coding and length",
            "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
        ),
        (
            "two lengths",
            "Content-Length: 4\r\nContent-Length: 5\r\n\r\nbodyx",
        ),
        ("a list of lengths", "Content-Length: 4, 4\r\n\r\nbody"),
        ("a signed length", "Content-Length: +4\r\n\r\nbody"),
        ("a negative length", "Content-Length: -1\r\n\r\n"),
        ("a length in hexadecimal", "Content-Length: 0x4\r\n\r\nbody"),
        (
            "a huge length",
            "Content-Length: 99999999999999999999\r\n\r\n",
        ),
        ("an empty length", "Content-Length: \r\n\r\n"),
        (
            "another coding",
            "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        ),
        (
            "a coding after chunked",
            "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        ),
        (
            "an unknown coding",
            "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        ),
        (
            "two codings",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
        (
            "a vertical tab",
            "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
        ),
        (
            "a space before the colon",
            "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        ),
        ("a folded line", "X-Folded: a\r\n b\r\n\r\n"),
        (
            "a folded coding",
            "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
        ),
        ("a line without a colon", "X-Nothing\r\n\r\n"),
        ("an empty name", ": x\r\n\r\n"),
        ("a name with a space", "X Y: x\r\n\r\n"),
        ("a zero byte", "X-Zero: a\0b\r\n\r\n"),
        ("a lone carriage return", "X-Return: a\rb\r\n\r\n"),
        ("two hosts", "Host: b\r\n\r\n"),
        ("the same host twice", "Host: a\r\n\r\n"),
    ];
    for (name, rest) in cases {
        let bytes = format!("POST / HTTP/1.1\r\nHost: a\r\n{rest}{next}");
        let (response, received) = send(bytes.as_bytes()).await;
        assert!(response.starts_with("HTTP/1.1 400"), "{name}: {response}");
        assert_eq!(problem(&response), "urn:tallygate:problem:bad-request");
        assert_eq!(
            response.matches("HTTP/1.1").count(),
            1,
            "{name}: {response}"
        );
        assert_eq!(received, Vec::<String>::new(), "{name}");
    }
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
async fn a_malformed_chunked_body_closes_the_connection() {
    let next = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    for (name, body) in [
        ("no number", "x\r\nbody\r\n0\r\n\r\n"),
        ("a sign", "+4\r\nbody\r\n0\r\n\r\n"),
        ("a prefix", "0x4\r\nbody\r\n0\r\n\r\n"),
        (
            "a number too large",
            "fffffffffffffffff\r\nbody\r\n0\r\n\r\n",
        ),
        ("a piece too long", "3\r\nbody\r\n0\r\n\r\n"),
        ("a space in the number", "4 4\r\nbody\r\n0\r\n\r\n"),
    ] {
        let head = "POST /first HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let (response, received) = send(format!("{head}{body}{next}").as_bytes()).await;
        assert!(!response.contains(" 200 "), "{name}: {response}");
        assert!(
            received.iter().all(|line| line == "POST /first"),
            "{name}: {received:?}"
        );
    }
}

#[tokio::test]
async fn conflicting_framing_is_found_in_a_pipelined_request() {
    let bytes = "POST /first HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody\
                 POST /second HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\
                 Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    let (response, received) = send(bytes.as_bytes()).await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    assert!(response.contains("HTTP/1.1 400"), "{response}");
    assert_eq!(received, ["POST /first"]);
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
