//! Costs that are in the bodies of requests, and those that responses say.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use futures_util::{StreamExt, stream};
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use tallygate::http::ActualSource;
use tallygate::rules::{Cost, CostSource};
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

use super::*;

const LIMIT: u32 = 1_000_000;
const ESTIMATE: u32 = 1_000;

fn tokens() -> Rule {
    let quota: Quota = format!("fixed-window {LIMIT}/366d").parse().unwrap();
    Rule::new("tokens", quota).cost(|_| ESTIMATE)
}

fn settled() -> Rule {
    tokens().actual_cost([
        ActualSource::Header("x-tokens".parse().unwrap()),
        ActualSource::Json("usage.total_tokens".parse().unwrap()),
    ])
}

/// Starts a server that answers each connection with bytes and closes it.
async fn raw_upstream(answer: impl Into<Vec<u8>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answer = answer.into();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let answer = answer.clone();
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                stream.write_all(&answer).await.unwrap();
                let _ = stream.shutdown().await;
                // Without this the reset of unread bytes may overtake the answer.
                let _ = stream.read_to_end(&mut head).await;
            });
        }
    });
    address
}

fn response(kind: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    )
}

/// What a request cost in the end, after a response of these bytes.
async fn cost_after(answer: String) -> u32 {
    let (gateway, left) = start_with_rule(raw_upstream(answer).await, settled()).await;
    let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let response = gateway.raw(request).await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    LIMIT - left()
}

#[tokio::test]
async fn the_actual_cost_is_charged_once_the_response_has_ended() {
    let json = r#"{"text":"hi","usage":{"prompt_tokens":800,"total_tokens":812}}"#;
    let events = "data: {\"delta\":\"hi\",\"usage\":null}\n\n\
                  data: {\"usage\":{\"total_tokens\":5}}\n\n\
                  data: {\"usage\":{\"total_tokens\":812}}\n\ndata: [DONE]\n\n";
    for (kind, body, expected) in [
        ("application/json", json, 812),
        ("text/event-stream", events, 812),
        ("application/json", r#"{"usage":{"total_tokens":0}}"#, 0),
        (
            "application/json",
            r#"{"usage":{"total_tokens":5000}}"#,
            5_000,
        ),
        // Above what is left: a debt.
        (
            "application/json",
            r#"{"usage":{"total_tokens":4294967295}}"#,
            LIMIT,
        ),
        // The estimate stays.
        (
            "application/json",
            r#"{"usage":{"total_tokens":-1}}"#,
            ESTIMATE,
        ),
        (
            "application/json",
            r#"{"usage":{"total_tokens":8.5}}"#,
            ESTIMATE,
        ),
        (
            "application/json",
            r#"{"usage":{"total_tokens":4294967296}}"#,
            ESTIMATE,
        ),
        (
            "application/json",
            r#"{"usage":{"total_tokens":"812"}}"#,
            ESTIMATE,
        ),
        (
            "application/json",
            r#"{"usage":{"total_tokens":812}"#,
            ESTIMATE,
        ),
        ("application/json", r#"{"usage":{}}"#, ESTIMATE),
        ("application/json", "", ESTIMATE),
        ("text/html", "<html>", ESTIMATE),
    ] {
        assert_eq!(cost_after(response(kind, body)).await, expected, "{body}");
        // The same in chunks, the same as long as the connection lasts.
        let mut chunks = String::new();
        for piece in body.as_bytes().chunks(7) {
            let piece = str::from_utf8(piece).unwrap();
            chunks += &format!("{:x}\r\n{piece}\r\n", piece.len());
        }
        let chunked = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\
             Connection: close\r\n\r\n{chunks}0\r\n\r\n"
        );
        assert_eq!(cost_after(chunked).await, expected, "{body}");
        let open =
            format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n{body}");
        assert_eq!(cost_after(open).await, expected, "{body}");
    }
}

#[tokio::test]
async fn a_header_with_the_actual_cost_counts_first() {
    let json = r#"{"usage":{"total_tokens":812}}"#;
    for (header, expected) in [("7", 7), ("-7", 812), ("7.0", 812), ("4294967296", 812)] {
        let answer = response("application/json", json).replacen(
            "\r\n",
            &format!("\r\nx-tokens: {header}\r\n"),
            1,
        );
        assert_eq!(cost_after(answer).await, expected, "{header}");
    }
}

#[tokio::test]
async fn a_response_that_breaks_off_leaves_the_estimate() {
    let json = r#"{"usage":{"total_tokens":812}}"#;
    let event = "data: {\"usage\":{\"total_tokens\":812}}\n\n";
    for (kind, body) in [("application/json", json), ("text/event-stream", event)] {
        let length = body.len();
        for framing in [
            format!("Content-Length: {}\r\n\r\n{body}", length + 1),
            format!("Transfer-Encoding: chunked\r\n\r\n{length:x}\r\n{body}\r\n"),
        ] {
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n{framing}");
            assert_eq!(cost_after(answer.clone()).await, ESTIMATE, "{answer}");
        }
    }
}

#[tokio::test]
async fn a_client_that_is_gone_before_the_end_leaves_the_estimate() {
    let (send, address) = event_stream().await;
    let (gateway, left) = start_with_rule(address, settled()).await;
    let mut client = gateway.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    send.send("data: {\"usage\":{\"total_tokens\":5}}\n\n")
        .unwrap();
    let mut seen = Vec::new();
    while !seen.ends_with(b"}}\n\n\r\n") {
        seen.push(client.read_u8().await.unwrap());
    }
    drop(client);
    // The upstream's connection is closed when the gateway notices.
    tokio::time::timeout(TIMEOUT, send.closed()).await.unwrap();
    assert_eq!(left(), LIMIT - ESTIMATE);
}

/// Starts a server whose only response is a stream of events that come from a channel.
async fn event_stream() -> (mpsc::UnboundedSender<&'static str>, SocketAddr) {
    let (send, receive) = mpsc::unbounded_channel();
    let receive = Mutex::new(Some(receive));
    let address = upstream(move |_| {
        let receive = receive.lock().unwrap().take().unwrap();
        let pieces = stream::unfold(receive, |mut receive| async move {
            let piece: &str = receive.recv().await?;
            let frame = Frame::data(Bytes::from_static(piece.as_bytes()));
            Some((Ok(frame), receive))
        });
        let mut response = Response::new(BodyExt::boxed(StreamBody::new(pieces)));
        let kind = "text/event-stream".parse().unwrap();
        response.headers_mut().insert("content-type", kind);
        async { response }
    })
    .await;
    (send, address)
}

/// Each piece is sent only when the client has the one before.
#[tokio::test]
async fn no_byte_is_delayed() {
    let (send, address) = event_stream().await;
    let (gateway, left) = start_with_rule(address, settled()).await;
    let request = Request::get(gateway.url("/")).body(empty()).unwrap();
    let response = http1().request(request).await.unwrap();
    assert_eq!(left(), LIMIT - ESTIMATE);
    let mut body = response.into_body().into_data_stream();
    for piece in [
        "da",
        "ta: {\"usage\":{\"total",
        "_tokens\":81",
        "2}}",
        "\n",
        "\n",
    ] {
        send.send(piece).unwrap();
        let received = tokio::time::timeout(TIMEOUT, body.next()).await.unwrap();
        assert_eq!(received.unwrap().unwrap(), piece);
        assert_eq!(left(), LIMIT - ESTIMATE);
    }
    drop(send);
    assert!(body.next().await.is_none());
    assert_eq!(left(), LIMIT - 812);
}

#[tokio::test]
async fn json_that_never_ends_is_read_for_a_mebibyte() {
    let padding = "x".repeat(3 << 20);
    for (body, expected) in [
        (
            format!("{{\"usage\":{{\"total_tokens\":812}},\"pad\":\"{padding}\"}}"),
            ESTIMATE,
        ),
        (
            format!("{{\"usage\":{{\"total_tokens\":812}},\"pad\":\"{padding}"),
            ESTIMATE,
        ),
    ] {
        assert_eq!(
            cost_after(response("application/json", &body)).await,
            expected
        );
    }
    // Each event is short.
    let events = "data: {\"delta\":\"token\"}\n\n".repeat(100_000);
    let events = format!("{events}data: {{\"usage\":{{\"total_tokens\":812}}}}\n\n");
    assert_eq!(
        cost_after(response("text/event-stream", &events)).await,
        812
    );
}

#[tokio::test]
async fn upstreams_are_asked_for_identity_and_compressed_responses_are_not_read() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&seen);
    let address = upstream(move |request| {
        let accepted: Vec<_> = request
            .headers()
            .get_all("accept-encoding")
            .iter()
            .cloned()
            .collect();
        record.lock().unwrap().push(accepted);
        async {
            let mut response = Response::new(text(r#"{"usage":{"total_tokens":812}}"#));
            let gzip = "gzip".parse().unwrap();
            response.headers_mut().insert("content-encoding", gzip);
            response
        }
    })
    .await;
    let header = || ActualSource::Header("x-tokens".parse().unwrap());
    for (rule, accepted) in [
        (settled(), "identity"),
        (tokens().actual_cost([header()]), "gzip, br"),
        (tokens(), "gzip, br"),
    ] {
        let (gateway, left) = start_with_rule(address, rule).await;
        let request = Request::get(gateway.url("/")).header("accept-encoding", "gzip, br");
        let response = http1()
            .request(request.body(empty()).unwrap())
            .await
            .unwrap();
        assert_eq!(read(response).await.0, 200);
        assert_eq!(*seen.lock().unwrap().last().unwrap(), [accepted]);
        assert_eq!(left(), LIMIT - ESTIMATE);
    }
}

#[tokio::test]
async fn what_does_not_count_is_not_settled() {
    let json = response("application/json", r#"{"usage":{"total_tokens":812}}"#);
    let rule = settled().count_if(|status, _| status != 200);
    let (gateway, left) = start_with_rule(raw_upstream(json).await, rule).await;
    assert_eq!(get(&http1(), &gateway.url("/")).await.0, 200);
    assert_eq!(left(), LIMIT);
}

#[tokio::test]
async fn each_rule_settles_its_own_cost_over_http2_and_in_shadow() {
    let json = r#"{"in":3,"out":{"n":50}}"#;
    let address = upstream(move |_| async move {
        let mut response = Response::new(text(json));
        let kind = "application/json".parse().unwrap();
        response.headers_mut().insert("content-type", kind);
        response
    })
    .await;
    let rule = |name: &str, path: &str| {
        let mut rule = tokens().actual_cost([ActualSource::Json(path.parse().unwrap())]);
        rule.name = name.parse().unwrap();
        rule
    };
    let requests = Rule::new("requests", Quota::per_day(10));
    let layer = RateLimitLayer::new(rule("in", "in"))
        .and(rule("out", "out.n").shadow())
        .and(requests);
    let limits: Vec<_> = layer.policy().limits().cloned().collect();
    let engine = layer.engine().clone();
    let gateway = Running::start(proxy_to(address), layer).await;
    assert_eq!(
        get(&http2(), &gateway.url("/")).await,
        (200, json.to_owned())
    );
    let left = limits
        .into_iter()
        .map(|limit| engine.limiter(limit).peek("all", 1).remaining());
    assert_eq!(left.collect::<Vec<_>>(), [LIMIT - 3, LIMIT - 50, 9]);
}

/// A rule whose cost is that of a model in the request's body.
fn by_model() -> Rule {
    let quota: Quota = format!("fixed-window {LIMIT}/366d").parse().unwrap();
    let mut rule = Rule::new("models", quota);
    let costs = [("gpt-large", 20), ("gpt-*", 7), ("small", 2)];
    rule.cost = Cost::FirstOf {
        sources: vec![CostSource::JsonText {
            path: "model".parse().unwrap(),
            costs: costs
                .map(|(text, cost)| (text.parse().unwrap(), cost))
                .into(),
        }],
        default: 3,
        min: 0,
        max: u32::MAX,
    };
    rule
}

/// Starts a server that returns the body and the headers that frame it.
async fn echo() -> SocketAddr {
    upstream(|request| async move {
        let length = request.headers().get("content-length").cloned();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let mut response = Response::new(text(body));
        if let Some(length) = length {
            response.headers_mut().insert("x-length", length);
        }
        response
    })
    .await
}

#[tokio::test]
async fn the_cost_of_a_model_is_in_the_body_which_is_forwarded_unchanged() {
    let (gateway, left) = start_with_rule(echo().await, by_model()).await;
    let padding = "x".repeat(2 << 20);
    let mut before = LIMIT;
    for (body, expected) in [
        (r#"{"model":"gpt-large","n":1}"#.to_owned(), 20),
        (r#"{"n":1,"model":"small"}"#.to_owned(), 2),
        (r#"{"model":"gpt\u002dlarge"}"#.to_owned(), 20),
        (r#"{"model":"gpt-5"}"#.to_owned(), 7),
        (r#"{"model":"other"}"#.to_owned(), 3),
        // The largest of what a server may read.
        (r#"{"model":"small","Model":"gpt-large"}"#.to_owned(), 20),
        (r#"{"model":"small","model":"other"}"#.to_owned(), 3),
        (r#"{"model":"small"}{"model":"gpt-large"}"#.to_owned(), 3),
        (r#"{"model":["small"]}"#.to_owned(), 3),
        ("model=small".to_owned(), 3),
        (" ".to_owned(), 3),
        // What is not read could say anything.
        (format!(r#"{{"model":"small","pad":"{padding}"}}"#), 3),
        (format!(r#"{{"model":"gpt-large","pad":"{padding}"}}"#), 20),
        (format!(r#"{{"pad":"{padding}","model":"gpt-large"}}"#), 3),
    ] {
        for client in [http1(), http2()] {
            let request = Request::post(gateway.url("/"))
                .body(text(body.clone()))
                .unwrap();
            let response = client.request(request).await.unwrap();
            let length = response.headers().get("x-length").cloned();
            assert_eq!(length.unwrap().to_str().unwrap(), body.len().to_string());
            let (status, answer) = read(response).await;
            assert_eq!(status, 200);
            assert!(answer == body, "{} bytes of {}", answer.len(), body.len());
            let shown = &body[..body.len().min(80)];
            assert_eq!(before - left(), expected, "{shown}");
            before = left();
        }
    }
    // Without a body, and compressed.
    let bodiless = Request::post(gateway.url("/")).body(empty()).unwrap();
    let compressed = Request::post(gateway.url("/"))
        .header("content-encoding", "gzip")
        .body(text(r#"{"model":"gpt-large"}"#))
        .unwrap();
    for request in [bodiless, compressed] {
        assert_eq!(http1().request(request).await.unwrap().status(), 200);
        assert_eq!(before - left(), 3);
        before = left();
    }
}

#[tokio::test]
async fn a_body_in_pieces_and_its_trailers_are_forwarded_unchanged() {
    let seen = Arc::new(Mutex::new((Bytes::new(), HeaderMap::new())));
    let record = Arc::clone(&seen);
    let address = upstream(move |request| {
        let record = Arc::clone(&record);
        async move {
            let body = request.into_body().collect().await.unwrap();
            let trailers = body.trailers().cloned().unwrap_or_default();
            *record.lock().unwrap() = (body.to_bytes(), trailers);
            Response::new(text("hello"))
        }
    })
    .await;
    let (gateway, left) = start_with_rule(address, by_model()).await;
    let mut stream = gateway
        .send(
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\
               TE: trailers\r\nConnection: close\r\n\r\n",
        )
        .await;
    let body = r#"{"a":[1,2,{"model":"x"}],"model":"gpt-large"}"#;
    for byte in body.bytes() {
        let chunk = format!("1\r\n{}\r\n", char::from(byte));
        stream.write_all(chunk.as_bytes()).await.unwrap();
    }
    stream.write_all(b"0\r\nx-sum: 7\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let (received, trailers) = seen.lock().unwrap().clone();
    assert_eq!((received, left()), (Bytes::from(body), LIMIT - 20));
    assert_eq!(trailers["x-sum"], "7");
}

#[tokio::test]
async fn a_client_that_stops_in_its_body_is_not_charged() {
    let received = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&received);
    let address = upstream(move |_| {
        count.fetch_add(1, Relaxed);
        async { Response::new(text("hello")) }
    })
    .await;
    let rule = by_model();
    let layer = RateLimitLayer::new(rule);
    let limit = layer.policy().limits().next().unwrap().clone();
    let limiter = layer.engine().limiter(limit);
    let mut settings = proxy_to(address);
    settings.timeouts.body_idle = Duration::from_millis(100);
    let gateway = Running::start(settings, layer).await;
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{\"model\":";
    // One waits, the other disconnects.
    let answer = gateway.raw(head).await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    let mut gone = gateway.send(head).await;
    gone.shutdown().await.unwrap();
    let mut answer = String::new();
    let _ = gone.read_to_string(&mut answer).await;
    assert_eq!(limiter.peek("all", 1).remaining(), LIMIT);
    assert_eq!(received.load(Relaxed), 0);
}

#[tokio::test]
async fn a_number_in_the_body_is_a_cost_within_bounds() {
    let quota: Quota = format!("fixed-window {LIMIT}/366d").parse().unwrap();
    let mut rule = Rule::new("tokens", quota);
    rule.cost = Cost::FirstOf {
        sources: vec![
            CostSource::Header("x-max-tokens".parse().unwrap()),
            CostSource::Json("max_tokens".parse().unwrap()),
        ],
        default: 100,
        min: 10,
        max: 4_000,
    };
    let (gateway, left) = start_with_rule(echo().await, rule).await;
    let mut before = LIMIT;
    for (header, body, expected) in [
        (None, r#"{"max_tokens":500}"#, 500),
        (None, r#"{"max_tokens":1}"#, 10),
        (None, r#"{"max_tokens":1000000}"#, 4_000),
        (None, r#"{"max_tokens":-5}"#, 100),
        (None, r#"{"max_tokens":500,"max_tokens":"700"}"#, 500),
        (None, r#"{"max_tokens":50,"max_tokens":"700"}"#, 100),
        (None, "{}", 100),
        (Some("70"), r#"{"max_tokens":500}"#, 70),
        (Some("x"), r#"{"max_tokens":500}"#, 500),
    ] {
        let mut request = Request::post(gateway.url("/"));
        if let Some(header) = header {
            request = request.header("x-max-tokens", header);
        }
        let request = request.body(text(body)).unwrap();
        assert_eq!(http1().request(request).await.unwrap().status(), 200);
        assert_eq!(before - left(), expected, "{header:?} {body}");
        before = left();
    }
}
