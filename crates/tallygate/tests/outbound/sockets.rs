//! Real clients and servers. No call may arrive early; lateness is not checked.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::Empty;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tallygate::outbound::{OutboundError, OutboundLayer, OutboundService};
use tallygate::{AcquireError, Limiter, Quota};
use tower::{Layer, ServiceExt};

use crate::server::Server;

const MS: Duration = Duration::from_millis(1);
/// Generous, for a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(60);

type Hyper = Client<HttpConnector, Empty<Bytes>>;
type Fields<'a> = &'a [(&'static str, &'a [u8])];

fn client(layer: &OutboundLayer) -> OutboundService<Hyper> {
    layer.layer(Client::builder(TokioExecutor::new()).build_http())
}

fn layer(quota: &str) -> OutboundLayer {
    OutboundLayer::new(Limiter::new(quota.parse::<Quota>().unwrap())).by_host()
}

async fn get(
    client: &OutboundService<Hyper>,
    uri: String,
) -> Result<StatusCode, OutboundError<hyper_util::client::legacy::Error>> {
    let request = Request::get(uri).body(Empty::new()).unwrap();
    let response = client.clone().oneshot(request).await?;
    Ok(response.status())
}

/// Answers `/first` with a status and headers, and everything else with 200.
async fn server(status: u16, fields: Fields<'_>) -> Server {
    let mut first = Response::new(());
    *first.status_mut() = StatusCode::from_u16(status).unwrap();
    for (name, value) in fields {
        let value = HeaderValue::from_bytes(value).unwrap();
        first
            .headers_mut()
            .append(HeaderName::from_static(name), value);
    }
    Server::start(move |path| match path {
        "/first" => first.clone(),
        _ => Response::new(()),
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_form_of_pause_is_respected() {
    let soon = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let soon = (soon.unwrap().as_secs() + 3).to_string();
    let forms: [(u16, Fields<'_>); 6] = [
        (429, &[("retry-after", b"1")]),
        (503, &[("retry-after", b"1")]),
        (200, &[("ratelimit", b"\"default\";r=0;t=1")]),
        (200, &[("ratelimit", b"limit=100, remaining=0, reset=1")]),
        (
            200,
            &[("x-ratelimit-remaining", b"0"), ("x-ratelimit-reset", b"1")],
        ),
        (
            200,
            &[
                ("x-ratelimit-remaining", b"0"),
                ("x-ratelimit-reset", soon.as_bytes()),
            ],
        ),
    ];
    let layer = layer("token-bucket 1000/s burst 1000");
    let client = client(&layer);
    let mut tasks = Vec::new();
    for (status, fields) in forms {
        let server = server(status, fields).await;
        // Hosts differ by port, so that one layer serves them all.
        assert_eq!(get(&client, server.uri("/first")).await.unwrap(), status);
        let calls: Vec<_> = (0..3)
            .map(|_| {
                let (client, uri) = (client.clone(), server.uri("/later"));
                tokio::spawn(async move { get(&client, uri).await.unwrap() })
            })
            .collect();
        tasks.push((server, calls));
    }
    for (form, (server, calls)) in tasks.into_iter().enumerate() {
        for call in calls {
            assert_eq!(call.await.unwrap(), 200);
        }
        let arrivals = server.arrivals();
        assert_eq!(arrivals.len(), 4);
        let waited = |later: &crate::server::Arrival| {
            if form == 5 {
                let second: u64 = soon.parse().unwrap();
                later.wall >= SystemTime::UNIX_EPOCH + Duration::from_secs(second)
            } else {
                later.at >= arrivals[0].at + 1_000 * MS
            }
        };
        assert!(arrivals[1..].iter().all(waited), "{form}: {arrivals:?}");
    }
}

/// `Date` and `Retry-After` come from the same clock, so that the local one does not matter.
#[tokio::test(flavor = "multi_thread")]
async fn a_date_is_respected() {
    let second = Duration::from_secs(1);
    let date = SystemTime::now() + 2 * second;
    let server = server(
        429,
        &[("retry-after", httpdate::fmt_http_date(date).as_bytes())],
    )
    .await;
    let client = client(&layer("token-bucket 1000/s burst 1000"));
    assert_eq!(get(&client, server.uri("/first")).await.unwrap(), 429);
    assert_eq!(get(&client, server.uri("/later")).await.unwrap(), 200);
    let arrivals = server.arrivals();
    // Dates are in whole seconds.
    assert!(arrivals[1].wall >= date - second, "{arrivals:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_quota_spaces_calls_after_a_pause() {
    let server = server(429, &[("retry-after", b"0.5")]).await;
    let client = client(&layer("leaky-bucket 50/s queue 100"));
    assert_eq!(get(&client, server.uri("/first")).await.unwrap(), 429);
    let calls: Vec<_> = (0..10)
        .map(|n| {
            let (client, uri) = (client.clone(), server.uri(&format!("/{n}")));
            tokio::spawn(async move { get(&client, uri).await.unwrap() })
        })
        .collect();
    for call in calls {
        assert_eq!(call.await.unwrap(), 200);
    }
    let arrivals = server.arrivals();
    assert_eq!(arrivals.len(), 11);
    let start = arrivals[0].at + 500 * MS;
    for (n, arrival) in arrivals[1..].iter().enumerate() {
        // The n-th to arrive was at best the n-th sent; a millisecond each for two clocks.
        let due = start + 19 * MS * u32::try_from(n).unwrap();
        assert!(arrival.at >= due, "{n}: {arrivals:?}");
    }
}

/// With a maximum wait of zero, a call would fail if any of these caused a pause.
#[tokio::test(flavor = "multi_thread")]
async fn garbage_headers_cause_no_pause() {
    let huge = vec![b'9'; 64 * 1024];
    let garbage: [Fields<'_>; 7] = [
        &[("retry-after", b"-1")],
        &[("retry-after", b"soon"), ("retry-after", b"later")],
        &[("retry-after", b"\xff\xfe\x80\x81")],
        &[("retry-after", &huge)],
        &[("ratelimit", &huge), ("ratelimit", b"\"a;r=0;t=9")],
        &[("ratelimit", b"\"\xc3\xa9\";r=0;t=9")],
        &[
            ("x-ratelimit-remaining", b"none"),
            ("x-ratelimit-reset", &huge),
        ],
    ];
    let client = client(&layer("token-bucket 1000/s burst 1000").max_wait(Duration::ZERO));
    for (n, fields) in garbage.into_iter().enumerate() {
        let server = server(429, fields).await;
        assert_eq!(get(&client, server.uri("/first")).await.unwrap(), 429);
        let later = get(&client, server.uri("/later")).await;
        assert_eq!(later.unwrap(), 200, "{n}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_repeated_headers_the_longest_wait_counts() {
    let twice: [Fields<'_>; 3] = [
        &[("retry-after", b"0"), ("retry-after", b"600")],
        &[
            ("ratelimit", b"\"a\";r=0;t=1"),
            ("ratelimit", b"\"b\";r=0;t=600"),
        ],
        &[("retry-after", b"1"), ("ratelimit", b"\"b\";r=0;t=600")],
    ];
    let client = client(&layer("token-bucket 1000/s burst 1000").max_wait(400_000 * MS));
    for fields in twice {
        let server = server(429, fields).await;
        assert_eq!(get(&client, server.uri("/first")).await.unwrap(), 429);
        let error = get(&client, server.uri("/later")).await.unwrap_err();
        let OutboundError::Limit(AcquireError::TooLate { wait }) = error else {
            panic!("{error:?}");
        };
        assert!(wait > 400_000 * MS && wait <= 600_000 * MS, "{wait:?}");
        assert_eq!(server.arrivals().len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_server_is_the_clients_error() {
    let client = client(&layer("token-bucket 1000/s burst 1000"));
    // No server can listen there.
    let error = get(&client, "http://127.0.0.1:0/".into())
        .await
        .unwrap_err();
    assert!(error.into_inner().unwrap().is_connect());
}

/// Many threads, short pauses, dropped calls: all others are sent, and no state is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_load_no_call_is_lost() {
    let server = Server::start(|path| {
        let pauses = path.ends_with('7');
        let response = Response::builder().status(if pauses { 429 } else { 200 });
        let response = if pauses {
            response.header("retry-after", "0.02")
        } else {
            response
        };
        response.body(()).unwrap()
    })
    .await;
    for quota in [
        "leaky-bucket 1000/s queue 500",
        "token-bucket 1000/s burst 5",
    ] {
        let layer = layer(quota);
        let client = client(&layer);
        let before = server.arrivals().len();
        let calls: Vec<_> = (0..400)
            .map(|n| {
                let (client, uri) = (client.clone(), server.uri(&format!("/{n}")));
                tokio::spawn(async move {
                    let call = get(&client, uri);
                    if n % 5 == 0 {
                        let _ = tokio::time::timeout(MS * (n / 5), call).await;
                        None
                    } else {
                        Some(call.await.unwrap())
                    }
                })
            })
            .collect();
        let mut answered = 0;
        for call in calls {
            let call = tokio::time::timeout(TIMEOUT, call).await;
            answered += usize::from(call.expect("every call ends").unwrap().is_some());
        }
        assert_eq!(answered, 320);
        let arrived = server.arrivals().len() - before;
        assert!((320..=400).contains(&arrived), "{arrived}");
        let shown = format!("{layer:?}");
        assert!(shown.contains("calls: 0"), "{shown}");
    }
}
