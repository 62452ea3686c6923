//! Forwarding: HTTP/1 and HTTP/2 on both sides, streamed bodies, trailers, upgrades.

use http::header::{HeaderMap, HeaderValue};
use http::{Request, Response};
use http_body_util::{BodyExt, Channel, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

#[tokio::test]
async fn http1_and_http2_work_on_either_side() {
    let address = upstream(|request| async move {
        let version = format!("{:?}", request.version());
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let echo = String::from_utf8(body.to_vec()).unwrap();
        Response::new(text(format!("{version} {echo}")))
    })
    .await;
    for (scheme, spoken) in [("http", "HTTP/1.1"), ("h2c", "HTTP/2.0")] {
        let settings = Settings::new([format!("{scheme}://{address}").parse().unwrap()]);
        let gateway = Running::start(settings, admit_all()).await;
        for client in [http1(), http2()] {
            let request = Request::post(gateway.url("/x?y"))
                .body(text("ping"))
                .unwrap();
            let response = read(client.request(request).await.unwrap()).await;
            assert_eq!(response, (200, format!("{spoken} ping")));
            let response = get(&client, &gateway.url("/")).await;
            assert_eq!(response, (200, format!("{spoken} ")));
        }
    }
}

#[tokio::test]
async fn path_and_query_are_forwarded_unchanged() {
    let address = upstream(|request| async move {
        Response::new(text(request.uri().path_and_query().unwrap().to_string()))
    })
    .await;
    let gateway = Running::start(proxy_to(address), admit_all()).await;
    for path in ["/", "/a//b/../c;d=%2F%2f?x=%20&y=a+b", "/?", "/%E2%82%AC"] {
        let wire = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let response = gateway.raw(wire).await;
        assert!(response.ends_with(&format!("\r\n\r\n{path}")), "{response}");
    }
}

#[tokio::test]
async fn bodies_are_streamed_both_ways() {
    // The upstream echoes every chunk: a buffer anywhere would wait for ever.
    let address = upstream(|request| async move {
        let stream = request.into_body().into_data_stream();
        let frames =
            futures_util::StreamExt::map(stream, |data| data.map(Frame::data).map_err(Into::into));
        Response::new(BodyExt::boxed(StreamBody::new(frames)))
    })
    .await;
    for scheme in ["http", "h2c"] {
        let settings = Settings::new([format!("{scheme}://{address}").parse().unwrap()]);
        let gateway = Running::start(settings, admit_all()).await;
        for client in [http1(), http2()] {
            let (mut sender, body) = Channel::<Bytes, std::io::Error>::new(1);
            let body = body.map_err(Into::into).boxed();
            let request = Request::post(gateway.url("/")).body(body).unwrap();
            let pending = tokio::spawn(client.request(request));
            sender.send_data(Bytes::from("first")).await.unwrap();
            let mut response = pending.await.unwrap().unwrap().into_body();
            for piece in ["first", "second", "third"] {
                let frame = response.frame().await.unwrap().unwrap();
                assert_eq!(frame.into_data().unwrap(), piece);
                let next = match piece {
                    "first" => "second",
                    _ => "third",
                };
                if piece != "third" {
                    sender.send_data(Bytes::from(next)).await.unwrap();
                }
            }
            drop(sender);
            assert_eq!(response.collect().await.unwrap().to_bytes(), "");
        }
    }
}

/// A body of unknown length: only those have trailers in HTTP/1.
fn unsized_text(text: &'static str) -> TestBody {
    let frames = [Ok(Frame::data(Bytes::from(text)))];
    BodyExt::boxed(StreamBody::new(futures_util::stream::iter(frames)))
}

#[tokio::test]
async fn trailers_are_forwarded_both_ways() {
    let address = upstream(|request| async move {
        assert_eq!(request.headers()["te"], "trailers");
        let pending = request.into_body().collect().await.unwrap();
        let checksum = pending.trailers().unwrap()["x-sum"].clone();
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        trailers.insert("x-sum", checksum);
        let body = unsized_text("message").with_trailers(async move { Some(Ok(trailers)) });
        let mut response = Response::new(body.boxed());
        let names = HeaderValue::from_static("grpc-status, x-sum");
        response.headers_mut().insert("trailer", names);
        response
    })
    .await;
    for scheme in ["http", "h2c"] {
        let settings = Settings::new([format!("{scheme}://{address}").parse().unwrap()]);
        let gateway = Running::start(settings, admit_all()).await;
        for client in [http1(), http2()] {
            let mut sum = HeaderMap::new();
            sum.insert("x-sum", HeaderValue::from_static("7"));
            let body = unsized_text("call").with_trailers(async move { Some(Ok(sum)) });
            let request = Request::post(gateway.url("/package.Service/Method"))
                .header("te", "trailers")
                .header("trailer", "x-sum")
                .body(body.boxed())
                .unwrap();
            let response = client.request(request).await.unwrap();
            let response = response.into_body().collect().await.unwrap();
            let trailers = response.trailers().expect("trailers").clone();
            assert_eq!(trailers["grpc-status"], "0");
            assert_eq!(trailers["x-sum"], "7");
            assert_eq!(response.to_bytes(), "message");
        }
    }
}

#[tokio::test]
async fn an_upgraded_connection_carries_bytes_both_ways() {
    let address = upstream(|mut request| async move {
        assert_eq!(request.headers()["upgrade"], "websocket");
        let upgraded = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut io = TokioIo::new(upgraded.await.unwrap());
            let mut buffer = [0; 4];
            while io.read_exact(&mut buffer).await.is_ok() {
                buffer.reverse();
                io.write_all(&buffer).await.unwrap();
            }
        });
        let response = Response::builder().status(101);
        let response = response.header("connection", "upgrade");
        let response = response.header("upgrade", "websocket");
        response
            .header("sec-websocket-accept", "x")
            .body(empty())
            .unwrap()
    })
    .await;
    let gateway = Running::start(proxy_to(address), admit_all()).await;
    let mut stream = gateway.connect().await;
    let head = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    while !response.ends_with(b"\r\n\r\n") {
        response.push(stream.read_u8().await.unwrap());
    }
    let response = String::from_utf8(response).unwrap().to_lowercase();
    assert!(response.starts_with("http/1.1 101"), "{response}");
    assert!(response.contains("sec-websocket-accept: x"), "{response}");
    for (sent, back) in [(b"abcd", b"dcba"), (b"1234", b"4321")] {
        stream.write_all(sent).await.unwrap();
        let mut buffer = [0; 4];
        stream.read_exact(&mut buffer).await.unwrap();
        assert_eq!(&buffer, back);
    }
    // Closing one side closes the other.
    stream.shutdown().await.unwrap();
    assert_eq!(stream.read(&mut [0; 4]).await.unwrap(), 0);
}

#[tokio::test]
async fn an_admitted_client_gets_100_continue_and_a_refused_one_does_not() {
    let address = upstream(|request| async move {
        assert!(!request.headers().contains_key("expect"));
        let body = request.into_body().collect().await.unwrap().to_bytes();
        Response::new(text(body))
    })
    .await;
    let layer = RateLimitLayer::new(Rule::new(
        "one",
        "fixed-window 1/d".parse::<Quota>().unwrap(),
    ));
    let gateway = Running::start(proxy_to(address), layer).await;
    let head = "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n";
    let mut stream = gateway.connect().await;
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut line = [0; 25];
    stream.read_exact(&mut line).await.unwrap();
    assert_eq!(&line, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"body").await.unwrap();
    let mut response = vec![0; 15];
    stream.read_exact(&mut response).await.unwrap();
    assert_eq!(response, b"HTTP/1.1 200 OK");

    // A refused client never sends its body.
    let refused = gateway.raw(head).await;
    assert!(refused.starts_with("HTTP/1.1 429"), "{refused}");
}

#[tokio::test]
async fn a_head_request_keeps_its_length_and_has_no_body() {
    let address = upstream(|_| async { Response::new(text("hello")) }).await;
    let gateway = Running::start(proxy_to(address), admit_all()).await;
    let response = gateway
        .raw("HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .await;
    assert!(response.contains("content-length: 5"), "{response}");
    assert!(response.ends_with("\r\n\r\n"), "{response}");
}

#[tokio::test]
async fn an_http_1_0_client_is_served() {
    let gateway = Running::start(proxy_to(hello().await), admit_all()).await;
    let response = gateway.raw("GET / HTTP/1.0\r\n\r\n").await;
    assert!(response.starts_with("HTTP/1.0 200"), "{response}");
    assert!(response.ends_with("hello"), "{response}");
}

#[tokio::test]
async fn options_for_the_whole_server_keep_their_target_and_host() {
    let address = upstream(|request| async move {
        let host = request.headers().get("x-forwarded-host").cloned();
        Response::new(text(format!("{} {host:?}", request.uri().path())))
    })
    .await;
    for scheme in ["http", "h2c"] {
        let settings = Settings::new([format!("{scheme}://{address}").parse().unwrap()]);
        let gateway = Running::start(settings, admit_all()).await;
        let response = gateway
            .raw("OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            .await;
        assert!(response.ends_with("* Some(\"a\")"), "{scheme}: {response}");
    }
}
