//! A remote without a socket, on tokio's paused clock. Records arrivals and sends configured
//! responses.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use tallygate::outbound::{OutboundError, OutboundLayer, OutboundService};
use tallygate::{Clock, Limiter, MemoryStore, Quota};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep, sleep_until};
use tower::{Layer, Service, ServiceExt};

/// Tokio's time, starting at the start of an hour.
#[derive(Debug)]
pub(crate) struct RuntimeClock(Instant);

impl Clock for RuntimeClock {
    fn now_us(&self) -> u64 {
        1_699_999_200_000_000 + u64::try_from(self.0.elapsed().as_micros()).unwrap()
    }
}

pub(crate) type TestLayer = OutboundLayer<MemoryStore<RuntimeClock>>;
pub(crate) type Outcome = Result<StatusCode, OutboundError<Infallible>>;

/// A limiter on tokio's clock.
pub(crate) fn limiter(quota: &str) -> Limiter<MemoryStore<RuntimeClock>> {
    let clock = RuntimeClock(Instant::now());
    let store = MemoryStore::builder().clock(clock).build();
    Limiter::with_store(store, quota.parse::<Quota>().unwrap())
}

/// Records the calls it receives.
#[derive(Clone)]
pub(crate) struct Remote {
    start: Instant,
    arrived: Arc<Mutex<Vec<(String, u64)>>>,
}

impl Remote {
    pub(crate) fn new() -> Self {
        Remote {
            start: Instant::now(),
            arrived: Arc::default(),
        }
    }

    pub(crate) fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap()
    }

    /// Waits until so many milliseconds after the remote was created.
    pub(crate) async fn until_ms(&self, ms: u64) {
        sleep_until(self.start + Duration::from_millis(ms)).await;
        settle().await;
    }

    /// The names and times of the calls, in order of arrival.
    pub(crate) fn arrived(&self) -> Vec<(String, u64)> {
        self.arrived.lock().unwrap().clone()
    }

    #[track_caller]
    pub(crate) fn assert_arrived(&self, expected: &[(&str, u64)]) {
        let arrived = self.arrived();
        let arrived: Vec<(&str, u64)> = arrived.iter().map(|(n, ms)| (&**n, *ms)).collect();
        assert_eq!(arrived, expected);
    }
}

/// The path is the call's name; the query configures the response: `/a?429&after=500` and any
/// number of `&header=value`.
impl Service<Request<()>> for Remote {
    type Response = Response<()>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<()>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        let name = request.uri().path().trim_start_matches('/').to_owned();
        self.arrived.lock().unwrap().push((name, self.now_ms()));
        let mut options = request.uri().query().unwrap_or("200").split('&');
        let mut response = Response::builder().status(options.next().unwrap());
        let mut after = Duration::ZERO;
        for pair in options {
            match pair.split_once('=').unwrap() {
                ("after", ms) => after = Duration::from_millis(ms.parse().unwrap()),
                (header, value) => response = response.header(header, value),
            }
        }
        let response = response.body(()).unwrap();
        Box::pin(async move {
            // A zero timer would still wait for the next millisecond.
            if !after.is_zero() {
                sleep(after).await;
            }
            Ok(response)
        })
    }
}

/// Calls a remote through the layer.
#[derive(Clone)]
pub(crate) struct Calls {
    pub(crate) client: OutboundService<Remote, MemoryStore<RuntimeClock>>,
    pub(crate) remote: Remote,
    layer: TestLayer,
}

impl Calls {
    pub(crate) fn through(layer: &TestLayer) -> Self {
        let remote = Remote::new();
        Calls {
            client: layer.layer(remote.clone()),
            layer: layer.clone(),
            remote,
        }
    }

    pub(crate) fn with_quota(quota: &str) -> Self {
        Self::through(&OutboundLayer::new(limiter(quota)))
    }

    /// Makes a call; it is queued when this returns.
    pub(crate) async fn call(&self, target: &str) -> JoinHandle<Outcome> {
        let task = tokio::spawn(self.calling(target));
        settle().await;
        task
    }

    /// A call and its outcome.
    pub(crate) fn calling(&self, target: &str) -> impl Future<Output = Outcome> + Send + use<> {
        let uri = if target.starts_with("http") {
            target.to_owned()
        } else {
            format!("/{target}")
        };
        let request = Request::get(uri).body(()).unwrap();
        let call = self.client.clone().oneshot(request);
        async { call.await.map(|response| response.status()) }
    }

    /// The number of queued calls and of keys with state.
    pub(crate) fn queue_sizes(&self) -> (usize, usize) {
        let shown = format!("{:?}", self.layer);
        let number = |name: &str| {
            let rest = shown.split(name).nth(1).unwrap();
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().unwrap()
        };
        (number("calls: "), number("keys: "))
    }
}

/// Runs every ready task, without advancing time.
pub(crate) async fn settle() {
    for _ in 0..5 {
        yield_now().await;
    }
}

/// Aborts a call and waits until it is dropped.
pub(crate) async fn cancel(call: JoinHandle<Outcome>) {
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    settle().await;
}
