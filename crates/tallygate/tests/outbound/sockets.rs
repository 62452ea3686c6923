//! Real clients and servers. Nobody may arrive too early; how late is the machine's affair.

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
/// How long anything may take before a test is given up: for a busy machine, not for this code.
const PATIENCE: Duration = Duration::from_secs(60);

type Hyper = Client<HttpConnector, Empty<Bytes>>;
type Fields<'a> = &'a [(&'static str, &'a [u8])];

fn client(gate: &OutboundLayer) -> OutboundService<Hyper> {
    gate.layer(Client::builder(TokioExecutor::new()).build_http())
}

fn gate(quota: &str) -> OutboundLayer {
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

/// Answers `/first` with a status and fields, and everything else with 200.
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
async fn the_remotes_word_is_kept_in_each_of_its_forms() {
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
    let gate = gate("token-bucket 1000/s burst 1000");
    let client = client(&gate);
    let mut tasks = Vec::new();
    for (status, fields) in forms {
        let server = server(status, fields).await;
        // Hosts differ by their ports, so that one gate serves them all at once.
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

/// The server's `Date` and its `Retry-After` are of one clock, so that ours plays no part.
#[tokio::test(flavor = "multi_thread")]
async fn a_date_is_kept_too() {
    let second = Duration::from_secs(1);
    let date = SystemTime::now() + 2 * second;
    let server = server(
        429,
        &[("retry-after", httpdate::fmt_http_date(date).as_bytes())],
    )
    .await;
    let client = client(&gate("token-bucket 1000/s burst 1000"));
    assert_eq!(get(&client, server.uri("/first")).await.unwrap(), 429);
    assert_eq!(get(&client, server.uri("/later")).await.unwrap(), 200);
    let arrivals = server.arrivals();
    // Dates have no fractions.
    assert!(arrivals[1].wall >= date - second, "{arrivals:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_spaced_by_the_quota_also_after_a_pause() {
    let server = server(429, &[("retry-after", b"0.5")]).await;
    let client = client(&gate("leaky-bucket 50/s queue 100"));
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
        // The n-th to arrive is at best the n-th to leave; a millisecond each for two clocks.
        let due = start + 19 * MS * u32::try_from(n).unwrap();
        assert!(arrival.at >= due, "{n}: {arrivals:?}");
    }
}

/// Whoever may not wait would be turned away if any of these had been obeyed.
#[tokio::test(flavor = "multi_thread")]
async fn garbage_from_the_remote_holds_nobody_up() {
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
    let client = client(&gate("token-bucket 1000/s burst 1000").max_wait(Duration::ZERO));
    for (n, fields) in garbage.into_iter().enumerate() {
        let server = server(429, fields).await;
        assert_eq!(get(&client, server.uri("/first")).await.unwrap(), 429);
        let later = get(&client, server.uri("/later")).await;
        assert_eq!(later.unwrap(), 200, "{n}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_fields_that_occur_twice_the_longest_wait_counts() {
    let twice: [Fields<'_>; 3] = [
        &[("retry-after", b"0"), ("retry-after", b"600")],
        &[
            ("ratelimit", b"\"a\";r=0;t=1"),
            ("ratelimit", b"\"b\";r=0;t=600"),
        ],
        &[("retry-after", b"1"), ("ratelimit", b"\"b\";r=0;t=600")],
    ];
    let client = client(&gate("token-bucket 1000/s burst 1000").max_wait(400_000 * MS));
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
async fn a_server_that_cannot_be_reached_is_the_clients_error() {
    let client = client(&gate("token-bucket 1000/s burst 1000"));
    // Nobody can listen there.
    let error = get(&client, "http://127.0.0.1:0/".into())
        .await
        .unwrap_err();
    assert!(error.into_inner().unwrap().is_connect());
}

/// Many threads, short pauses, callers that hang up: everybody else gets through, and nothing is
/// left behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_load_nobody_is_forgotten() {
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
        let gate = gate(quota);
        let client = client(&gate);
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
            let call = tokio::time::timeout(PATIENCE, call).await;
            answered += usize::from(call.expect("nobody is forgotten").unwrap().is_some());
        }
        assert_eq!(answered, 320);
        let arrived = server.arrivals().len() - before;
        assert!((320..=400).contains(&arrived), "{arrived}");
        let shown = format!("{gate:?}");
        assert!(shown.contains("standing: 0"), "{shown}");
    }
}
