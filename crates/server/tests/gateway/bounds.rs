//! Timeouts and size limits: clients beyond them get an error or are disconnected, others are not
//! affected.

use http::{Request, Response};
use http_body_util::{BodyExt, Channel};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

const SHORT: Duration = Duration::from_millis(50);

/// Reads until the gateway closes the connection.
async fn read_to_close(stream: &mut TcpStream) -> String {
    let mut response = Vec::new();
    let read = stream.read_to_end(&mut response);
    let _ = tokio::time::timeout(TIMEOUT, read)
        .await
        .expect("a closed connection");
    String::from_utf8_lossy(&response).into_owned()
}

#[tokio::test]
async fn a_head_that_never_ends_is_disconnected() {
    let mut settings = proxy_to(hello().await);
    settings.timeouts.header = SHORT;
    let gateway = Running::start(settings, admit_all()).await;
    let silent = read_to_close(&mut gateway.connect().await).await;
    assert_eq!(silent, "");

    // A trickle of bytes does not extend the timeout.
    let mut stream = gateway.send(b"GET / HTTP/1.1\r\nHost: a\r\n").await;
    let mut sent = 0;
    let cut = async {
        while stream.write_all(b"X-Slow: 1\r\n").await.is_ok() {
            sent += 1;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, cut)
        .await
        .expect("a closed connection");
    assert!(sent > 0);

    // The same after an answered request.
    let head = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut stream = gateway.send(head).await;
    let mut status = [0; 12];
    stream.read_exact(&mut status).await.unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");
    stream.write_all(&head[..9]).await.unwrap();
    assert!(!read_to_close(&mut stream).await.contains("HTTP/1.1"));
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_one_in_use_is_not() {
    let release = Arc::new(tokio::sync::Notify::new());
    let waits = Arc::clone(&release);
    let address = upstream(move |request| {
        let waits = Arc::clone(&waits);
        async move {
            if request.uri().path() == "/slow" {
                waits.notified().await;
            }
            Response::new(text("hello"))
        }
    })
    .await;
    let mut settings = proxy_to(address);
    settings.timeouts.keep_alive = SHORT;
    settings.timeouts.header = SHORT;
    let gateway = Running::start(settings, admit_all()).await;
    let mut slow = gateway.send(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut idle = gateway.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(read_to_close(&mut idle).await.ends_with("hello"));
    // The slow one started before the idle one and is still open.
    release.notify_one();
    assert!(read_to_close(&mut slow).await.ends_with("hello"));
}

#[tokio::test]
async fn an_idle_http2_connection_is_closed() {
    let mut settings = proxy_to(hello().await);
    settings.timeouts.keep_alive = SHORT;
    let gateway = Running::start(settings, admit_all()).await;
    let (mut sender, ended) = gateway.connect_http2().await;
    let request = Request::get(gateway.url("/")).body(empty()).unwrap();
    assert_eq!(
        read(sender.send_request(request).await.unwrap()).await.0,
        200
    );
    let ended = tokio::time::timeout(TIMEOUT, ended)
        .await
        .expect("a closed connection");
    ended.unwrap().unwrap();
}

#[tokio::test]
async fn a_stalled_request_body_times_out() {
    let mut settings = proxy_to(read_body().await);
    settings.timeouts.body_idle = SHORT;
    let gateway = Running::start(settings, admit_all()).await;
    let response = gateway
        .raw("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nbody")
        .await;
    assert!(response.starts_with("HTTP/1.1 408"), "{response}");
    assert_eq!(problem(&response), "urn:tallygate:problem:body-too-slow");
}

#[tokio::test]
async fn a_client_that_does_not_read_is_disconnected() {
    let dropped = Arc::new(tokio::sync::Notify::new());
    let notify = Arc::clone(&dropped);
    let address = upstream(move |_| {
        let notify = Arc::clone(&notify);
        async move {
            let (mut sender, body) = Channel::<Bytes, std::io::Error>::new(1);
            tokio::spawn(async move {
                while sender
                    .send_data(Bytes::from(vec![0; 1 << 16]))
                    .await
                    .is_ok()
                {}
                notify.notify_one();
            });
            Response::new(body.map_err(Into::into).boxed())
        }
    })
    .await;
    let mut settings = proxy_to(address);
    settings.timeouts.write = SHORT;
    let gateway = Running::start(settings, admit_all()).await;
    let _stream = gateway.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let cut = tokio::time::timeout(TIMEOUT, dropped.notified());
    cut.await.expect("the upstream's response is dropped");
}

#[tokio::test]
async fn an_http2_response_that_nobody_reads_is_reset_and_then_the_connection_is_idle() {
    let address = upstream(|_| async { Response::new(text(vec![0; 10 << 20])) }).await;
    let mut settings = proxy_to(address);
    settings.timeouts.write = SHORT;
    settings.timeouts.header = SHORT;
    settings.timeouts.keep_alive = SHORT;
    let gateway = Running::start(settings, admit_all()).await;
    let (mut sender, ended) = gateway.connect_http2().await;
    let request = Request::get(gateway.url("/")).body(empty()).unwrap();
    let unread = sender.send_request(request).await.unwrap();
    let ended = tokio::time::timeout(TIMEOUT, ended).await;
    let _ = ended.expect("a closed connection");
    assert!(unread.into_body().collect().await.is_err());
}

#[tokio::test]
async fn a_body_above_the_limit_is_rejected_with_any_framing() {
    let mut settings = proxy_to(read_body().await);
    settings.limits.body_bytes = 10;
    let gateway = Running::start(settings, admit_all()).await;
    let head = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n";
    let cases = [
        (200, "Content-Length: 10\r\n\r\n0123456789"),
        (413, "Content-Length: 11\r\n\r\n01234567890"),
        (
            200,
            "Transfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\n0\r\n\r\n",
        ),
        (
            413,
            "Transfer-Encoding: chunked\r\n\r\n8\r\n01234567\r\n8\r\n01234567\r\n0\r\n\r\n",
        ),
    ];
    for (status, rest) in cases {
        let response = gateway.raw(format!("{head}{rest}")).await;
        assert!(
            response.starts_with(&format!("HTTP/1.1 {status}")),
            "{rest}: {response}"
        );
        if status == 413 {
            assert_eq!(problem(&response), "urn:tallygate:problem:body-too-large");
        }
    }
    for (status, len) in [(200, 10), (413, 11)] {
        let request = Request::post(gateway.url("/"))
            .body(text(vec![b'x'; len]))
            .unwrap();
        assert_eq!(
            read(http2().request(request).await.unwrap()).await.0,
            status
        );
    }
}

#[tokio::test]
async fn a_head_above_the_limit_is_rejected() {
    let gateway = Running::start(proxy_to(hello().await), admit_all()).await;
    let large = format!(
        "GET / HTTP/1.1\r\nHost: a\r\nX-Large: {}\r\n\r\n",
        "x".repeat(33 << 10)
    );
    let many = format!(
        "GET / HTTP/1.1\r\nHost: a\r\n{}\r\n",
        "X-Many: 1\r\n".repeat(100)
    );
    for bytes in [large, many] {
        let response = gateway.raw(bytes).await;
        assert!(response.starts_with("HTTP/1.1 431"), "{response}");
        assert_eq!(problem(&response), "urn:tallygate:problem:head-too-large");
    }
    let client = http2();
    let large = Request::get(gateway.url("/")).header("x-large", "x".repeat(33 << 10));
    let status = match client.request(large.body(empty()).unwrap()).await {
        Ok(response) => response.status().as_u16(),
        // The client knows the limit and does not send it.
        Err(_) => 431,
    };
    assert_eq!(status, 431);
    let mut many = Request::get(gateway.url("/"));
    for _ in 0..101 {
        many = many.header("x-many", "1");
    }
    let response = client.request(many.body(empty()).unwrap()).await.unwrap();
    assert_eq!(response.status(), 431);
    assert_eq!(
        get(&client, &gateway.url("/")).await,
        (200, "hello".to_owned())
    );
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_for_those_in_use_and_replace_idle_ones() {
    let release = Arc::new(tokio::sync::Notify::new());
    let waits = Arc::clone(&release);
    let address = upstream(move |request| {
        let waits = Arc::clone(&waits);
        async move {
            if request.uri().path() == "/slow" {
                waits.notified().await;
            }
            Response::new(text("hello"))
        }
    })
    .await;
    let mut settings = proxy_to(address);
    settings.limits.connections = 1;
    let gateway = Running::start(settings, admit_all()).await;
    let mut first = gateway.send(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut second = gateway.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut byte = [0];
    let early = tokio::time::timeout(SHORT, second.read(&mut byte)).await;
    assert!(early.is_err(), "the second waits");
    release.notify_one();
    // The first is idle after its response, and makes room.
    assert!(read_to_close(&mut first).await.ends_with("hello"));
    let mut status = [0; 12];
    second.read_exact(&mut status).await.unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");
}

#[tokio::test]
async fn a_client_that_resets_most_http2_requests_is_disconnected() {
    let address = upstream(|request| async move {
        if request.uri().path() == "/slow" {
            std::future::pending::<()>().await;
        }
        Response::new(text("hello"))
    })
    .await;
    let mut settings = proxy_to(address);
    settings.limits.resets = 10;
    let gateway = Running::start(settings, admit_all()).await;
    let (mut sender, ended) = gateway.connect_http2().await;
    let mut resets = 0;
    while !ended.is_finished() && resets < 10_000 {
        let request = Request::get(gateway.url("/slow")).body(empty()).unwrap();
        let pending = sender.send_request(request);
        let _ = tokio::time::timeout(Duration::from_millis(1), pending).await;
        resets += 1;
    }
    assert!(resets < 10_000, "still connected");
    // Others are not affected.
    assert_eq!(get(&http2(), &gateway.url("/")).await.0, 200);
}

#[tokio::test]
async fn a_rapid_reset_ends_the_connection_and_not_the_gateway() {
    let gateway = Running::start(proxy_to(hello().await), admit_all()).await;
    let (mut reader, mut writer) = gateway.connect().await.into_split();
    let resets = tokio::spawn(async move {
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
        for stream in (1..200_000_u32).step_by(2) {
            // GET http://a/ and a reset with CANCEL.
            bytes.extend(b"\0\0\x06\x01\x05");
            bytes.extend(stream.to_be_bytes());
            bytes.extend(b"\x82\x86\x84\x01\x01a");
            bytes.extend(b"\0\0\x04\x03\0");
            bytes.extend(stream.to_be_bytes());
            bytes.extend(b"\0\0\0\x08");
            if bytes.len() > 1 << 14 {
                if writer.write_all(&bytes).await.is_err() {
                    return stream;
                }
                bytes.clear();
            }
        }
        u32::MAX
    });
    let mut response = Vec::new();
    let end = reader.read_to_end(&mut response);
    let _ = tokio::time::timeout(TIMEOUT, end)
        .await
        .expect("a closed connection");
    drop(reader);
    assert!(resets.await.unwrap() < 200_000, "every reset was accepted");
    assert_eq!(get(&http2(), &gateway.url("/")).await.0, 200);
}
