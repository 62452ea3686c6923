//! A tower layer for HTTP clients that keeps outbound calls within a remote's limits (feature
//! `tower`).
//!
//! A third party allows ten requests a second. [`OutboundLayer`] queues calls in order of arrival
//! and sends no more than that. When a response requires a pause, nothing is sent until it ends.
//!
//! ```
//! use std::time::Duration;
//! use http::{Request, Response};
//! use tallygate::{Limiter, Quota};
//! use tallygate::outbound::OutboundLayer;
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let client = service_fn(|_: Request<String>| async {
//! #     Ok::<_, std::io::Error>(Response::new(String::new()))
//! # });
//! // One call every 100 ms to each host; up to 1,000 wait, each for up to 30 s.
//! let layer = OutboundLayer::new(Limiter::new("leaky-bucket 10/s queue 1000".parse::<Quota>()?))
//!     .by_host()
//!     .max_wait(Duration::from_secs(30));
//! // `client` is any service for HTTP requests, such as hyper-util's.
//! let client = ServiceBuilder::new().layer(layer).service(client);
//!
//! let request = Request::get("https://api.example.com/v1/items").body(String::new())?;
//! let response = client.oneshot(request).await?;
//! # assert!(response.status().is_success());
//! # Ok(())
//! # }
//! ```
//!
//! # Which quota
//!
//! `leaky-bucket 10/s queue 1000` spaces calls evenly, and the wait of a new call is known
//! immediately: use it where the remote counts short windows, or its algorithm is unknown.
//! `token-bucket 10/s burst 50` sends up to 50 calls at once after a quiet period. For a remote
//! with several limits, use several: [`Limiter::and`]. Over a `RedisStore` all processes share the
//! limit; a pause is known only to the process that received the response.
//!
//! # Response headers
//!
//! | header | meaning |
//! |---|---|
//! | `Retry-After: 120` or a date, with status 429 or 503 | pause until then |
//! | `RateLimit: "name";r=0;t=30`, any number of items | pause for 30 s |
//! | `RateLimit: limit=100, remaining=0, reset=30` (IETF draft 07) | pause for 30 s |
//! | `X-RateLimit-Remaining: 0` with `X-RateLimit-Reset: 30` | pause for 30 s |
//! | the same two as `X-Rate-Limit-…` or `RateLimit-…` (draft 06) | pause for 30 s |
//!
//! Other responses change nothing, including a 429 without a wait. If several headers apply, the
//! longest wait counts. A later response can lengthen a pause but not shorten it. A pause applies
//! to the key of the call.
//!
//! - *Remaining* counts as 0 when it is below 1.
//! - A plain number of a billion seconds or more is a Unix time; of a hundred billion or more, a
//!   Unix time in milliseconds. A time in the past means no wait. Dates are compared with the
//!   response's own `Date`, so that clock differences do not matter, or else with the local clock.
//! - Fractions are rounded up to a millisecond.
//! - A pause is limited to [`max_pause`](OutboundLayer::max_pause), one hour by default.
//! - Negative numbers, text, non-ASCII values, values above 4 KiB, and everything after the 16th
//!   value of one header are ignored. Of a header that occurs twice or holds a list, the longest
//!   wait and the least remaining count. `RateLimit` is parsed strictly as a structured field
//!   (RFC 9651): all values as one field, or, if that is invalid, each valid value.
//!
//! # Waiting
//!
//! Calls of one key are served in order of arrival. A pause recalls calls that wait at the
//! limiter: they keep their order, release their slots in a shaping queue, and acquire again when
//! the pause ends, spaced by the quota. Calls already sent are not affected. Over a store outside
//! this process, the call that is being decided may be charged without being sent.
//!
//! Dropping a waiting call removes it from the queue. A call fails with [`OutboundError::Limit`] if
//! it would wait longer than [`max_wait`](OutboundLayer::max_wait), can never fit, or exceeds the
//! 100,000 calls that may wait; as soon as that is known.
//!
//! This layer does not retry. With tower's retry layer around it, each attempt waits for its turn.
//!
//! The client becomes ready before the wait, so that a call is sent as soon as its turn comes. A
//! layer that reserves something when ready, such as a concurrency limit, belongs outside this one:
//! inside, waiting calls would hold the reservation.
//!
//! # With reqwest
//!
//! reqwest has its own request type, which converts:
//!
//! ```
//! # use tallygate::{Limiter, Quota, outbound::OutboundLayer};
//! use tower::{ServiceBuilder, service_fn};
//!
//! # fn main() {
//! # let layer = OutboundLayer::new(Limiter::new(Quota::per_second(10)));
//! let client = reqwest::Client::new();
//! let client = ServiceBuilder::new().layer(layer).service(service_fn(
//!     move |request: http::Request<reqwest::Body>| {
//!         let client = client.clone();
//!         async move {
//!             let response = client.execute(request.try_into()?).await?;
//!             Ok::<_, reqwest::Error>(http::Response::from(response))
//!         }
//!     },
//! ));
//! # fn calls<S: tower::Service<http::Request<reqwest::Body>>>(_: &S) {}
//! # calls(&client);
//! # }
//! ```

mod queue;
mod response_hints;
mod service;
mod target;

use std::error::Error;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use queue::{QueueId, Queues};
pub use response_hints::requested_pause;
pub use service::{OutboundService, ResponseFuture};

use crate::engine::{AcquireError, Wait};
use crate::http::Head;
use crate::key::Key;
use crate::limiter::Limiter;
use crate::request::RequestEntry;
use crate::store::{MemoryStore, Store};

const DEFAULT_MAX_PAUSE: Duration = Duration::from_secs(60 * 60);
/// The upper bound of pauses and jitter: the longest period of a quota.
const MAX_DURATION: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// A tower layer that makes outbound calls wait for their turn; see the [module](self).
///
/// Services built by one layer, and by its clones, share queues, pauses and the limiter. Needs a
/// tokio runtime with timers.
pub struct OutboundLayer<S = MemoryStore> {
    limiter: Limiter<S>,
    key: Arc<KeyFn>,
    cost: Arc<CostFn>,
    max_wait: Option<Duration>,
    max_pause: Duration,
    jitter: Duration,
    queues: Arc<Queues>,
}

type KeyFn = dyn for<'h> Fn(Head<'h>) -> Key<'h> + Send + Sync;
type CostFn = dyn Fn(Head<'_>) -> u32 + Send + Sync;

impl<S: Store> OutboundLayer<S> {
    /// A layer with one queue for all calls, cost 1, and no maximum wait.
    pub fn new(limiter: Limiter<S>) -> Self {
        OutboundLayer {
            limiter,
            key: Arc::new(|_: Head<'_>| Key::from("")),
            cost: Arc::new(|_: Head<'_>| 1),
            max_wait: None,
            max_pause: DEFAULT_MAX_PAUSE,
            jitter: Duration::ZERO,
            queues: Arc::default(),
        }
    }
}

impl<S> OutboundLayer<S> {
    /// Uses one queue and one counter per target host and port, from the request's target or else
    /// its `Host` header.
    #[must_use]
    pub fn by_host(self) -> Self {
        self.by(target::host_key)
    }

    /// Uses one queue and one counter per key.
    ///
    /// ```
    /// use tallygate::{Key, Limiter, Quota, outbound::OutboundLayer};
    ///
    /// // The remote counts by token.
    /// let layer = OutboundLayer::new(Limiter::new(Quota::per_minute(60))).by(|head| {
    ///     let token = head.headers().get("authorization");
    ///     token.map_or(Key::from(""), Key::secret)
    /// });
    /// ```
    #[must_use]
    pub fn by(mut self, key: impl for<'h> Fn(Head<'h>) -> Key<'h> + Send + Sync + 'static) -> Self {
        self.key = Arc::new(key);
        self
    }

    /// Sets the cost of each call; one of cost 0 waits only for pauses.
    ///
    /// ```
    /// use tallygate::{Limiter, Quota, outbound::OutboundLayer};
    ///
    /// // A search counts as five.
    /// let layer = OutboundLayer::new(Limiter::new(Quota::per_minute(60)))
    ///     .cost(|head| if head.uri().path() == "/search" { 5 } else { 1 });
    /// ```
    #[must_use]
    pub fn cost(mut self, cost: impl Fn(Head<'_>) -> u32 + Send + Sync + 'static) -> Self {
        self.cost = Arc::new(cost);
        self
    }

    /// Sets the maximum wait, pauses included. A call that cannot meet it fails at once.
    #[must_use]
    pub fn max_wait(mut self, wait: Duration) -> Self {
        self.max_wait = Some(wait);
        self
    }

    /// Limits the pauses that the remote may request: one hour by default, at most 366 days.
    #[must_use]
    pub fn max_pause(mut self, pause: Duration) -> Self {
        self.max_pause = pause.min(MAX_DURATION);
        self
    }

    /// Adds a random time of up to `jitter` to each pause, and to each
    /// [wait for capacity](Wait::jitter), so that processes do not resume together. At most 366
    /// days.
    #[must_use]
    pub fn jitter(mut self, jitter: Duration) -> Self {
        self.jitter = jitter.min(MAX_DURATION);
        self
    }

    /// Pauses a queue on the remote's request.
    fn pause(&self, queue: QueueId, requested: Duration) {
        let wait = requested.min(self.max_pause);
        if wait.is_zero() {
            return;
        }
        tracing::debug!(?requested, ?wait, "the remote requested a pause");
        let max_us = u64::try_from(self.jitter.as_micros()).unwrap_or(u64::MAX);
        let jitter = Duration::from_micros(fastrand::u64(0..=max_us));
        self.queues.pause(queue, wait + jitter);
    }
}

impl<S: Store> OutboundLayer<S> {
    /// Waits until a call may be sent; returns its queue.
    async fn wait_turn(&self, key: &Key<'_>, cost: u32) -> Result<QueueId, AcquireError> {
        let request = self.limiter.request(key).cost(cost);
        // Fail immediately, even during a pause.
        let fits = |check: &RequestEntry<'_>| check.cost() <= check.limit.quota().capacity();
        if !request.entries().iter().all(fits) {
            return Err(AcquireError::Never);
        }
        // A deadline that overflows does not apply.
        let now = Instant::now();
        let deadline = self.max_wait.and_then(|wait| now.checked_add(wait));
        let queue = self.queues.id(key);
        let ticket = self.queues.join(queue)?;
        let decision = loop {
            ticket.wait_turn(deadline).await?;
            let wait = match deadline {
                Some(deadline) => Wait::at_most(deadline.saturating_duration_since(Instant::now())),
                None => Wait::forever(),
            };
            let acquire = self
                .limiter
                .acquire_with(&request, wait.jitter(self.jitter));
            // Unconstrained: if tokio's budget cut the first poll short, the next call could
            // overtake this one in the limiter's queue.
            let acquire = pin!(tokio::task::unconstrained(acquire));
            if let Some(outcome) = ticket.acquire(acquire).await {
                break outcome?;
            }
        };
        // A pause that started at the same moment does not refund the units, unless the call fails.
        while ticket.is_paused() {
            if let Err(error) = ticket.wait_turn(deadline).await {
                self.limiter.engine().undo_unshaped(&request, &decision);
                return Err(error);
            }
        }
        Ok(queue)
    }
}

impl<S> Clone for OutboundLayer<S> {
    fn clone(&self) -> Self {
        OutboundLayer {
            limiter: self.limiter.clone(),
            key: Arc::clone(&self.key),
            cost: Arc::clone(&self.cost),
            queues: Arc::clone(&self.queues),
            ..*self
        }
    }
}

impl<S> fmt::Debug for OutboundLayer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutboundLayer")
            .field("max_wait", &self.max_wait)
            .field("max_pause", &self.max_pause)
            .field("jitter", &self.jitter)
            .field("queues", &self.queues)
            .finish_non_exhaustive()
    }
}

/// Why an outbound call has no response.
///
/// An inbound layer can answer with a response of its own. An outbound layer cannot: a call that is
/// not sent must be an error, distinct from the client's.
#[derive(thiserror::Error)]
pub enum OutboundError<E> {
    /// Not sent: the wait is too long, the cost never fits, the queue is full, or the limiter's
    /// store cannot be reached.
    #[error("the call was not sent: {0}")]
    Limit(#[source] AcquireError),
    /// The client's error.
    #[error("the call failed: {0}")]
    Inner(#[source] E),
}

/// One line, for programs that return the error from `main`.
impl<E: fmt::Debug> fmt::Debug for OutboundError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OutboundError::Limit(error) => write!(f, "the call was not sent: {error:?}"),
            OutboundError::Inner(error) => write!(f, "the call failed: {error:?}"),
        }
    }
}

impl<E> OutboundError<E> {
    /// The client's error, if it is one.
    pub fn into_inner(self) -> Option<E> {
        match self {
            OutboundError::Limit(_) => None,
            OutboundError::Inner(error) => Some(error),
        }
    }

    /// Boxes either error, for clients whose error is a box, which does not implement [`Error`].
    pub fn into_boxed(self) -> Box<dyn Error + Send + Sync>
    where
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        match self {
            OutboundError::Limit(error) => Box::new(error),
            OutboundError::Inner(error) => error.into(),
        }
    }
}
