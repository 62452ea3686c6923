//! Keeps calls to others under their limits: a tower layer for HTTP clients (feature `tower`).
//! Knows the `http` crate's types and tower's contract; knows no client.
//!
//! A third party allows ten requests a second. [`Outbound`] makes every call wait for its turn, in
//! order of arrival, so that no more than that go out; and when the remote says that it wants to be
//! left alone, nothing goes out until that is over.
//!
//! ```
//! use std::time::Duration;
//! use http::{Request, Response};
//! use tallygate::{Limiter, Quota};
//! use tallygate::outbound::Outbound;
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let client = service_fn(|_: Request<String>| async {
//! #     Ok::<_, std::io::Error>(Response::new(String::new()))
//! # });
//! // One call every 100 ms to each host; a thousand may wait, each for half a minute.
//! let gate = Outbound::new(Limiter::new("leaky-bucket 10/s queue 1000".parse::<Quota>()?))
//!     .by_host()
//!     .at_most(Duration::from_secs(30));
//! // `client` is one of hyper-util's, or anything else that takes HTTP requests.
//! let client = ServiceBuilder::new().layer(gate).service(client);
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
//! `leaky-bucket 10/s queue 1000` spaces calls evenly and knows at once how long a newcomer will
//! wait: the right one where the remote counts short windows, or nobody has told what it counts.
//! `token-bucket 10/s burst 50` lets 50 go at once after a silence. A remote with several limits
//! gets several: [`Limiter::and`]. Over a `RedisStore` all processes of a fleet keep the limit
//! together; what the remote says in its responses is known to the process that read it.
//!
//! # What the remote says
//!
//! | field | read as |
//! |---|---|
//! | `Retry-After: 120` or a date, with status 429 or 503 | nothing before then |
//! | `RateLimit: "name";r=0;t=30`, any number of items | nothing for 30 s |
//! | `RateLimit: limit=100, remaining=0, reset=30` (IETF draft 07) | nothing for 30 s |
//! | `X-RateLimit-Remaining: 0` with `X-RateLimit-Reset: 30` | nothing for 30 s |
//! | the same two as `X-Rate-Limit-…` or `RateLimit-…` (draft 06) | nothing for 30 s |
//!
//! Every other response changes nothing: also a 429 that does not say for how long. When several
//! fields speak, the longest wait counts; a later response can lengthen a pause and never shortens
//! it. A pause holds for the key of the call it answered.
//!
//! - *Remaining* is 0 when it is below 1.
//! - A plain number of a billion seconds or more is a Unix time, one of a hundred billion or more a
//!   Unix time in milliseconds; a time that has passed is no wait. Dates are compared with the
//!   response's own `Date`, so that a wrong clock at either end does not matter; without one, with
//!   the clock of this machine.
//! - Fractions are rounded up to a millisecond.
//! - Nothing is believed beyond [`believe_at_most`](Outbound::believe_at_most), an hour unless told
//!   otherwise.
//! - Negative numbers, words, anything outside ASCII, lines above 4 KiB and what follows the 16th
//!   line of one name are ignored. Of a field that occurs twice or holds a list, the longest wait
//!   and the least remaining count. `RateLimit` is read strictly, as a structured field (RFC 9651):
//!   all its lines together, or, where that makes no sense, each line that does.
//!
//! # Waiting
//!
//! First come, first served for each key. A pause also calls those back who were waiting for the
//! limiter: they keep their order, give back the places they had in a shaping queue, and ask again
//! when the pause is over. So they do not all rush at once then, but leave as the quota spaces them.
//! Calls that are out already when the remote asks for a pause are out. Over a store outside this
//! process, the call that was just asking it may have taken its cost for nothing.
//!
//! A call that is dropped while it waits leaves its place to the next. One that would wait longer
//! than [`at_most`](Outbound::at_most), that can never fit, or that is one too many (100,000 may
//! wait) is an error, [`OutboundError::Limit`]; as far as that can be known, at once.
//!
//! This layer spaces calls and no more: nothing is sent again. Whoever wants that puts tower's
//! retry layer around it, and each attempt waits for its turn like any call.
//!
//! The client is made ready before the wait, so that a call leaves the moment its turn has come. A
//! layer that reserves something when it is ready, such as a concurrency limit, belongs outside the
//! gate: inside, waiting calls would hold what it reserved.
//!
//! # With reqwest
//!
//! Its client takes requests of its own type, which convert:
//!
//! ```
//! # use tallygate::{Limiter, Quota, outbound::Outbound};
//! use tower::{ServiceBuilder, service_fn};
//!
//! # fn main() {
//! # let gate = Outbound::new(Limiter::new(Quota::per_second(10)));
//! let client = reqwest::Client::new();
//! let client = ServiceBuilder::new().layer(gate).service(service_fn(
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

mod error;
mod queue;
mod response_hints;
mod service;
mod target;

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

pub use error::OutboundError;
use queue::{LineId, Lines};
pub use response_hints::asked_to_wait;
pub use service::{Call, OutboundService};

use crate::http::Head;
use crate::key::Key;
use crate::limiter::{AcquireError, Limiter, Wait};
use crate::request::Asked;
use crate::store::{MemoryStore, Store};

/// How long a pause is believed, unless told otherwise.
const BELIEVED: Duration = Duration::from_secs(60 * 60);
/// The longest wait there is, as the longest period of a quota.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// A gate for calls to others: a tower layer that makes them wait for their turn.
///
/// The [module](self) tells the whole story. Services made by one gate, and by its clones, share
/// lines, pauses and the limiter. Needs a tokio runtime with timers.
pub struct Outbound<S = MemoryStore> {
    limiter: Limiter<S>,
    by: Arc<KeyOf>,
    cost: Arc<CostOf>,
    at_most: Option<Duration>,
    believed: Duration,
    jitter: Duration,
    lines: Arc<Lines>,
}

type KeyOf = dyn for<'h> Fn(Head<'h>) -> Key<'h> + Send + Sync;
type CostOf = dyn Fn(Head<'_>) -> u32 + Send + Sync;

impl<S: Store> Outbound<S> {
    /// A gate before which all calls stand in one line, each of cost 1, as long as it takes.
    pub fn new(limiter: Limiter<S>) -> Self {
        Outbound {
            limiter,
            by: Arc::new(|_: Head<'_>| Key::from("")),
            cost: Arc::new(|_: Head<'_>| 1),
            at_most: None,
            believed: BELIEVED,
            jitter: Duration::ZERO,
            lines: Arc::default(),
        }
    }
}

impl<S> Outbound<S> {
    /// The same gate with a line and a count for each host and port that is called.
    ///
    /// They come from the request's target, or from its `Host` field where the target names none.
    #[must_use]
    pub fn by_host(self) -> Self {
        self.by(target::host_key)
    }

    /// The same gate with a line and a count for each key.
    ///
    /// ```
    /// use tallygate::{Key, Limiter, Quota, outbound::Outbound};
    ///
    /// // The remote counts by token.
    /// let gate = Outbound::new(Limiter::new(Quota::per_minute(60))).by(|head| {
    ///     let token = head.headers().get("authorization");
    ///     token.map_or(Key::from(""), Key::secret)
    /// });
    /// ```
    #[must_use]
    pub fn by(mut self, key: impl for<'h> Fn(Head<'h>) -> Key<'h> + Send + Sync + 'static) -> Self {
        self.by = Arc::new(key);
        self
    }

    /// The same gate with a cost for each call; one of cost 0 waits only for pauses.
    ///
    /// ```
    /// use tallygate::{Limiter, Quota, outbound::Outbound};
    ///
    /// // A search counts as five.
    /// let gate = Outbound::new(Limiter::new(Quota::per_minute(60)))
    ///     .cost(|head| if head.uri().path() == "/search" { 5 } else { 1 });
    /// ```
    #[must_use]
    pub fn cost(mut self, cost: impl Fn(Head<'_>) -> u32 + Send + Sync + 'static) -> Self {
        self.cost = Arc::new(cost);
        self
    }

    /// The same gate with calls that wait no longer than this, pauses included; one that is known
    /// not to make it fails at once.
    #[must_use]
    pub fn at_most(mut self, longest: Duration) -> Self {
        self.at_most = Some(longest);
        self
    }

    /// The same gate with another bound for the pauses that the remote may ask for: an hour unless
    /// told otherwise, and never above 366 days.
    #[must_use]
    pub fn believe_at_most(mut self, longest: Duration) -> Self {
        self.believed = longest.min(LONGEST);
        self
    }

    /// The same gate with a random bit of up to this added to each pause, and to each
    /// [wait for room](Wait::jitter), so that processes which were told the same do not come back
    /// together. Never above 366 days.
    #[must_use]
    pub fn jitter(mut self, most: Duration) -> Self {
        self.jitter = most.min(LONGEST);
        self
    }

    /// Holds a line back because the remote said so.
    fn pause(&self, line: LineId, asked: Duration) {
        let wait = asked.min(self.believed);
        if wait.is_zero() {
            return;
        }
        tracing::debug!(?asked, ?wait, "the remote asked to be left alone");
        let most = u64::try_from(self.jitter.as_micros()).unwrap_or(u64::MAX);
        let bit = Duration::from_micros(fastrand::u64(0..=most));
        self.lines.pause(line, wait + bit);
    }
}

impl<S: Store> Outbound<S> {
    /// Waits until a call may go out; gives the line it stood in.
    async fn pass(&self, key: &Key<'_>, cost: u32) -> Result<LineId, AcquireError> {
        let request = self.limiter.request(key).cost(cost);
        // Known at once, also during a pause.
        let fits = |asked: &Asked<'_>| asked.units() <= asked.limit.quota().capacity();
        if !request.asked().iter().all(fits) {
            return Err(AcquireError::Never);
        }
        // A deadline beyond the end of time is none.
        let now = Instant::now();
        let deadline = self.at_most.and_then(|longest| now.checked_add(longest));
        let line = self.lines.id(key);
        let place = self.lines.enter(line)?;
        loop {
            place.turn(deadline).await?;
            let wait = match deadline {
                Some(deadline) => Wait::at_most(deadline.saturating_duration_since(Instant::now())),
                None => Wait::forever(),
            };
            let acquire = self
                .limiter
                .acquire_with(&request, wait.jitter(self.jitter));
            // Where tokio's budget cuts a first look short, as some of its versions do, the place
            // in the limiter's line would be lost to the next one.
            let acquire = pin!(tokio::task::unconstrained(acquire));
            if let Some(outcome) = place.ask(acquire).await {
                outcome?;
                break;
            }
        }
        // What was taken is kept through a pause that came at the same moment.
        while !place.may_go() {
            place.turn(deadline).await?;
        }
        Ok(line)
    }
}

impl<S> Clone for Outbound<S> {
    fn clone(&self) -> Self {
        Outbound {
            limiter: self.limiter.clone(),
            by: Arc::clone(&self.by),
            cost: Arc::clone(&self.cost),
            lines: Arc::clone(&self.lines),
            ..*self
        }
    }
}

impl<S> fmt::Debug for Outbound<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbound")
            .field("at_most", &self.at_most)
            .field("believed", &self.believed)
            .field("jitter", &self.jitter)
            .field("lines", &self.lines)
            .finish_non_exhaustive()
    }
}
