//! An exact, fast rate limiter: six behaviours behind one call.
//!
//! ```
//! use tallygate::{Limiter, Quota, RetryAfter};
//!
//! let limiter = Limiter::new("100/min".parse::<Quota>()?);
//! let decision = limiter.check("user:42");
//! match decision.retry_after() {
//!     None => println!("go ahead, {} left", decision.remaining()),
//!     Some(RetryAfter::After(wait)) => println!("try again in {wait:?}"),
//!     Some(RetryAfter::Never) => println!("that will never fit"),
//! }
//! # Ok::<(), tallygate::QuotaError>(())
//! ```
//!
//! # The words
//!
//! A [`Quota`] says how much is allowed: an algorithm, a limit, a period, and for buckets a burst
//! or a queue. It is written as text, [the same everywhere](Quota#impl-FromStr-for-Quota):
//!
//! | text | behaviour |
//! |---|---|
//! | `100/min` | sliding window counter, the default: smooth and small, an estimate |
//! | `fixed-window 100/min` | one count a window; twice the limit can pass around a boundary |
//! | `sliding-window-log 5/min` | exact; remembers every request |
//! | `token-bucket 10/s burst 50` | starts full; silence is banked up to the burst |
//! | `leaky-bucket 10/s burst 20` | starts empty; the token bucket's mirror image |
//! | `leaky-bucket 10/s queue 20` | admitted requests are told how long to wait |
//!
//! A [`Limit`] is a quota under a name. A [`Key`] is who is limited; text becomes one by itself,
//! and [parts](Key::from_parts) are joined so that no two lists of parts meet. A counter is known
//! by its key and its limit's name.
//!
//! A [`Limiter`] asks a store about a key and gets a [`Decision`]. The [`MemoryStore`] keeps the
//! counters in this process: bounded, never pausing, asked by plain calls. Over any [`Store`],
//! [`Limiter::decide`] is the same asynchronously.
//!
//! # More than one limit, more than one unit
//!
//! A [`Request`] may carry several limits on several keys: all of them admit it, or none is
//! charged. [`Limiter::and`] gives every request of a limiter several.
//!
//! ```
//! use tallygate::{Limit, Limiter, Quota, Request};
//!
//! let per_user = Limit::named("user", Quota::per_minute(60));
//! let per_tenant = Limit::named("tenant", Quota::per_minute(1_000));
//! let limiter = Limiter::new(per_user.clone());
//!
//! let request = Request::new("ann", &per_user).and("acme", &per_tenant)?.cost(5);
//! let decision = limiter.decide_now(&request);
//! assert_eq!(decision.binding(), 0); // ann has 55 left, acme 995
//! # Ok::<(), tallygate::RequestError>(())
//! ```
//!
//! A request costs 1 unit unless told otherwise, and asks with one of six verbs: *check* takes all
//! of the cost or nothing, *peek* only looks, *take* takes what fits, *charge* takes whatever fits
//! or not, *refund* gives back, *reset* forgets the key. A request that turns out not to count is
//! [undone](Limiter::undo): what it took is taken back, however late, and never more.
//!
//! # Waiting
//!
//! With the feature `tokio`, [`Limiter::acquire`](Limiter#method.acquire) waits until a request
//! fits, first come, first served.
//!
//! # Calling others
//!
//! With the feature `tower`, `outbound::OutboundLayer` is a tower layer for HTTP clients: calls wait in
//! order for a third party's limit, and obey what its responses say.
//!
//! # One limit for many servers
//!
//! With the feature `redis`, a `RedisStore` keeps the counters in Redis or Valkey. What to answer
//! when it cannot be reached is the limiter's [policy](Limiter::on_failure); a decision made
//! without the store is [degraded](Decision::degraded).
//!
//! # Before a service
//!
//! With the feature `tower`, a [`tower::RateLimitLayer`] is a layer before any HTTP service: rules say whom
//! to limit, clients are told the truth. With the features `axum` and `tonic` it knows where those
//! note the socket's peer. [`http`] is what it is made of, [`outbound`] the same for calls to
//! others.
//!
//! # Testing
//!
//! A [`ManualClock`] moves when told to, so that no test has to sleep.

mod clock;
#[cfg(feature = "config")]
pub mod config;
mod decision;
mod engine;
mod failure;
#[cfg(feature = "http")]
pub mod http;
mod key;
mod limit;
mod limiter;
#[cfg(feature = "tower")]
pub mod outbound;
mod request;
#[cfg(feature = "rules")]
pub mod rules;
mod store;
#[cfg(feature = "tower")]
pub mod tower;

pub use clock::{Clock, ManualClock, SystemClock};
pub use decision::{Decision, RetryAfter};
pub use engine::Engine;
#[cfg(feature = "tokio")]
pub use engine::{AcquireError, Wait};
pub use failure::{OnFailure, Replicas};
pub use key::{Key, KeyPart};
pub use limit::Limit;
pub use limiter::Limiter;
pub use request::{MAX_LIMITS, Request, RequestEntry, RequestError};
pub use store::{
    LocalStore, MemoryStore, MemoryStoreBuilder, Snapshot, Store, StoreError, StoreErrorKind,
};
#[cfg(feature = "redis")]
pub use store::{RedisError, RedisReply, RedisServer, RedisStore, RedisStoreBuilder, Topology};
pub use tallygate_core::{
    Algorithm, CounterState, Outcome, Quota, QuotaError, Retry, Verb, Verdict,
};

/// The README's examples are tested too.
#[cfg(all(doctest, feature = "axum", feature = "redis"))]
#[doc = include_str!("../../../README.md")]
struct Readme;
