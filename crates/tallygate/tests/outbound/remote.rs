//! A remote without a socket, on the runtime's paused clock: notes who arrives when, and answers
//! what it is told to.

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

/// The runtime's time, which begins at the start of an hour.
#[derive(Debug)]
pub(crate) struct RuntimeClock(Instant);

impl Clock for RuntimeClock {
    fn now_us(&self) -> u64 {
        1_699_999_200_000_000 + u64::try_from(self.0.elapsed().as_micros()).unwrap()
    }
}

pub(crate) type Gate = OutboundLayer<MemoryStore<RuntimeClock>>;
pub(crate) type Outcome = Result<StatusCode, OutboundError<Infallible>>;

/// A limiter on the runtime's clock.
pub(crate) fn limiter(quota: &str) -> Limiter<MemoryStore<RuntimeClock>> {
    let clock = RuntimeClock(Instant::now());
    let store = MemoryStore::builder().clock(clock).build();
    Limiter::over(store, quota.parse::<Quota>().unwrap())
}

/// A remote, and the calls that were made to it.
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

    /// Waits for that many milliseconds since the remote was made.
    pub(crate) async fn until_ms(&self, ms: u64) {
        sleep_until(self.start + Duration::from_millis(ms)).await;
        settle().await;
    }

    /// Who arrived, and when, in that order.
    pub(crate) fn arrived(&self) -> Vec<(String, u64)> {
        self.arrived.lock().unwrap().clone()
    }

    #[track_caller]
    pub(crate) fn assert_arrived(&self, right: &[(&str, u64)]) {
        let arrived = self.arrived();
        let arrived: Vec<(&str, u64)> = arrived.iter().map(|(n, ms)| (&**n, *ms)).collect();
        assert_eq!(arrived, right);
    }
}

/// A call's target is its name, and in its query what the remote is to answer: `/a?429&after=500`
/// and any number of `&field=value`.
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
        let mut asked = request.uri().query().unwrap_or("200").split('&');
        let mut response = Response::builder().status(asked.next().unwrap());
        let mut after = Duration::ZERO;
        for pair in asked {
            match pair.split_once('=').unwrap() {
                ("after", ms) => after = Duration::from_millis(ms.parse().unwrap()),
                (field, value) => response = response.header(field, value),
            }
        }
        let response = response.body(()).unwrap();
        Box::pin(async move {
            // A timer of no length would still wait for the next millisecond.
            if !after.is_zero() {
                sleep(after).await;
            }
            Ok(response)
        })
    }
}

/// Callers of a remote through a gate.
#[derive(Clone)]
pub(crate) struct Calls {
    pub(crate) client: OutboundService<Remote, MemoryStore<RuntimeClock>>,
    pub(crate) remote: Remote,
    gate: Gate,
}

impl Calls {
    pub(crate) fn through(gate: &Gate) -> Self {
        let remote = Remote::new();
        Calls {
            client: gate.layer(remote.clone()),
            gate: gate.clone(),
            remote,
        }
    }

    pub(crate) fn under(quota: &str) -> Self {
        Self::through(&OutboundLayer::new(limiter(quota)))
    }

    /// Somebody calls, and stands in line when this returns.
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

    /// How many stand in line, and how many keys are remembered.
    pub(crate) fn lines(&self) -> (usize, usize) {
        let shown = format!("{:?}", self.gate);
        let number = |name: &str| {
            let rest = shown.split(name).nth(1).unwrap();
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().unwrap()
        };
        (number("standing: "), number("keys: "))
    }
}

/// Lets every task that can go on do so, without time moving on.
pub(crate) async fn settle() {
    for _ in 0..5 {
        yield_now().await;
    }
}

/// Somebody hangs up, and has done so when this returns.
pub(crate) async fn hang_up(call: JoinHandle<Outcome>) {
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    settle().await;
}
