//! Single flight: concurrent identical requests share one upstream call.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use http::header::HeaderName;
use http::{Request, Response};
use tallygate_server::gateway::SingleFlight;

use super::*;

/// A gateway whose upstream responds only after `requests` requests were admitted.
struct CoalescingGateway {
    gateway: Running,
    /// Calls to the upstream.
    calls: Arc<AtomicUsize>,
    client: Client<HttpConnector, TestBody>,
}

impl CoalescingGateway {
    async fn start(
        requests: usize,
        single_flight: SingleFlight,
        answer: impl Fn() -> Response<TestBody> + Send + Sync + 'static,
    ) -> Self {
        let (calls, admitted) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (count, arrived) = (Arc::clone(&calls), Arc::clone(&admitted));
        let answer = Arc::new(answer);
        let address = upstream(move |_| {
            count.fetch_add(1, Relaxed);
            let (arrived, answer) = (Arc::clone(&arrived), Arc::clone(&answer));
            async move {
                until("all have arrived", || arrived.load(Relaxed) >= requests).await;
                answer()
            }
        })
        .await;
        // On one thread an admitted request joins its call before anything else runs.
        let layer = admit_all().on_decision(move |_, _| {
            admitted.fetch_add(1, Relaxed);
        });
        let mut settings = proxy_to(address);
        settings.single_flight = vec![single_flight];
        CoalescingGateway {
            gateway: Running::start(settings, layer).await,
            calls,
            client: http1(),
        }
    }

    fn send(&self, path: &str, headers: &[(&str, &str)]) -> JoinHandle<(u16, String)> {
        let mut request = Request::get(self.gateway.url(path));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let pending = self.client.request(request.body(empty()).unwrap());
        tokio::spawn(async move { read(pending.await.unwrap()).await })
    }

    fn calls(&self) -> usize {
        self.calls.load(Relaxed)
    }
}

fn all_requests() -> SingleFlight {
    SingleFlight::when(|_| true)
}

fn hello_all() -> Response<TestBody> {
    Response::new(text("hello all"))
}

#[tokio::test]
async fn a_stampede_of_a_thousand_is_one_call() {
    let gateway = CoalescingGateway::start(1000, all_requests(), hello_all).await;
    let responses: Vec<_> = (0..1000)
        .map(|_| gateway.send("/report?q=1", &[]))
        .collect();
    for response in responses {
        assert_eq!(response.await.unwrap(), (200, "hello all".to_owned()));
    }
    assert_eq!(gateway.calls(), 1);
}

#[tokio::test]
async fn an_error_is_shared_too() {
    let down = || Response::builder().status(503).body(text("down")).unwrap();
    let gateway = CoalescingGateway::start(50, all_requests(), down).await;
    let responses: Vec<_> = (0..50).map(|_| gateway.send("/", &[])).collect();
    for response in responses {
        assert_eq!(response.await.unwrap(), (503, "down".to_owned()));
    }
    assert_eq!(gateway.calls(), 1);
}

#[tokio::test]
async fn requests_with_different_credentials_are_not_coalesced() {
    let gateway = CoalescingGateway::start(10, all_requests(), hello_all).await;
    let credentials = [
        ("authorization", "Bearer a"),
        ("authorization", "Bearer b"),
        ("cookie", "session=1"),
        ("x-api-key", "k"),
        ("user-agent", "none of these"),
    ];
    let responses = credentials
        .iter()
        .chain(&credentials)
        .map(|header| gateway.send("/", &[*header]));
    for response in responses.collect::<Vec<_>>() {
        assert_eq!(response.await.unwrap().0, 200);
    }
    assert_eq!(gateway.calls(), 5);
}

#[tokio::test]
async fn only_the_configured_headers_are_compared() {
    let tenant = HeaderName::from_static("x-tenant");
    let gateway = CoalescingGateway::start(4, all_requests().by_headers([tenant]), hello_all).await;
    let responses = [("1", "a"), ("1", "b"), ("2", "a"), ("2", "b")];
    let responses = responses
        .map(|(tenant, cookie)| gateway.send("/", &[("x-tenant", tenant), ("cookie", cookie)]));
    for response in responses {
        assert_eq!(response.await.unwrap().0, 200);
    }
    assert_eq!(gateway.calls(), 2);
}

#[tokio::test]
async fn other_paths_ranges_and_conditions_are_other_calls() {
    let only = SingleFlight::when(|head| head.uri().path().starts_with("/shared"));
    let gateway = CoalescingGateway::start(8, only, hello_all).await;
    let responses = [
        gateway.send("/shared", &[]),
        gateway.send("/shared?x", &[]),
        gateway.send("/shared/y", &[("range", "bytes=0-1")]),
        gateway.send("/shared/y", &[("range", "bytes=0-1")]),
        gateway.send("/shared/y", &[("if-none-match", "\"a\"")]),
        gateway.send("/shared/y", &[("if-none-match", "\"a\"")]),
        gateway.send("/other", &[]),
        gateway.send("/other", &[]),
    ];
    for response in responses {
        assert_eq!(response.await.unwrap().0, 200);
    }
    assert_eq!(gateway.calls(), 8);
}

#[tokio::test]
async fn private_responses_are_not_shared() {
    for (name, value) in [
        ("set-cookie", "session=1"),
        ("cache-control", "max-age=0, Private"),
        ("cache-control", "no-store"),
        ("vary", "*"),
        ("vary", "x-other, User-Agent"),
        ("content-type", "text/event-stream"),
    ] {
        let own = move || {
            let response = Response::builder().header(name, value);
            response.body(text("own")).unwrap()
        };
        let gateway = CoalescingGateway::start(3, all_requests(), own).await;
        let responses = ["a", "b", "c"].map(|agent| gateway.send("/", &[("user-agent", agent)]));
        for response in responses {
            assert_eq!(
                response.await.unwrap(),
                (200, "own".to_owned()),
                "{name}: {value}"
            );
        }
        assert_eq!(gateway.calls(), 3, "{name}: {value}");
    }
}

#[tokio::test]
async fn a_body_too_large_to_buffer_reaches_every_client_whole() {
    let chunked = || {
        let frames = (0..10).map(|_| Ok(hyper::body::Frame::data(Bytes::from(vec![b'x'; 100]))));
        let frames = futures_util::stream::iter(frames);
        Response::new(BodyExt::boxed(http_body_util::StreamBody::new(frames)))
    };
    let sized = || Response::new(text(vec![b'x'; 1000]));
    for (max_bytes, calls) in [(1000, 1), (999, 5), (0, 5)] {
        let gateways = [
            CoalescingGateway::start(5, all_requests().max_body_bytes(max_bytes), chunked).await,
            CoalescingGateway::start(5, all_requests().max_body_bytes(max_bytes), sized).await,
        ];
        for gateway in gateways {
            let responses: Vec<_> = (0..5).map(|_| gateway.send("/", &[])).collect();
            for response in responses {
                assert_eq!(response.await.unwrap(), (200, "x".repeat(1000)));
            }
            assert_eq!(gateway.calls(), calls, "at max_bytes {max_bytes}");
        }
    }
}

#[tokio::test]
async fn if_the_leader_disconnects_a_follower_leads() {
    let gateway = CoalescingGateway::start(11, all_requests(), hello_all).await;
    let leader = gateway.send("/", &[]);
    until("the first call", || gateway.calls() == 1).await;
    let responses: Vec<_> = (0..9).map(|_| gateway.send("/", &[])).collect();
    leader.abort();
    until("a second call", || gateway.calls() == 2).await;
    let last = gateway.send("/", &[]);
    for response in responses.into_iter().chain([last]) {
        assert_eq!(response.await.unwrap(), (200, "hello all".to_owned()));
    }
    assert_eq!(gateway.calls(), 2);
}

#[tokio::test]
async fn a_request_after_the_response_is_a_new_call() {
    let gateway = CoalescingGateway::start(1, all_requests(), hello_all).await;
    for calls in 1..=3 {
        assert_eq!(gateway.send("/", &[]).await.unwrap().0, 200);
        assert_eq!(gateway.calls(), calls);
    }
}
