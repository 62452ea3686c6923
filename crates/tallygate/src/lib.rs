//! A rate limiter: six algorithms, in memory or in Redis, as a library or as a tower layer.
//!
//! ```
//! use tallygate::{Limiter, Quota, RetryAfter};
//!
//! let limiter = Limiter::new("100/min".parse::<Quota>()?);
//! let decision = limiter.check("user:42");
//! match decision.retry_after() {
//!     None => println!("admitted, {} left", decision.remaining()),
//!     Some(RetryAfter::After(wait)) => println!("retry in {wait:?}"),
//!     Some(RetryAfter::Never) => println!("cost above the capacity"),
//! }
//! # Ok::<(), tallygate::QuotaError>(())
//! ```
//!
//! # Quotas
//!
//! A [`Quota`] is an algorithm, a limit, a period and, for buckets, a burst or a queue. Its
//! [text form](Quota#impl-FromStr-for-Quota) is the same in code, files and APIs:
//!
//! | text | algorithm |
//! |---|---|
//! | `100/min` | sliding window counter, the default: small and smooth, an estimate |
//! | `fixed-window 100/min` | one count per window; up to twice the limit around a boundary |
//! | `sliding-window-log 5/min` | exact; stores every request |
//! | `token-bucket 10/s burst 50` | starts full; unused tokens accumulate up to the burst |
//! | `leaky-bucket 10/s burst 20` | starts empty; admits the same as the token bucket |
//! | `leaky-bucket 10/s queue 20` | shapes: admitted requests get a delay |
//!
//! A [`Limit`] is a quota with a name. A [`Key`] identifies who is limited: text, or several
//! [parts](Key::from_parts). A counter is identified by its key and its limit's name.
//!
//! A [`Limiter`] is an [`Engine`] with limits; an engine is a [`Store`] with a deadline, a circuit
//! breaker and a failure policy. With a [`MemoryStore`], decisions are plain function calls; with
//! any store, [`Limiter::decide`] is asynchronous.
//!
//! # Several limits and costs
//!
//! A [`Request`] may have several limits on several keys: all admit it, or none is charged.
//! [`Limiter::and`] adds a limit to every request of a limiter.
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
//! assert_eq!(decision.binding(), 0); // 55 left for ann, 995 for acme
//! # Ok::<(), tallygate::RequestError>(())
//! ```
//!
//! The cost is 1 by default. There are six verbs: *check* takes all of the cost or nothing, *peek*
//! takes nothing, *take* takes what fits, *charge* takes the cost unconditionally, *refund* returns
//! units, *reset* removes the counter. [`Limiter::undo`] returns what a decision took.
//!
//! # HTTP services
//!
//! [`tower::RateLimitLayer`] limits the requests to an HTTP or gRPC service. Refused requests get
//! status 429 with `Retry-After`.
//!
#![cfg_attr(feature = "axum", doc = "```no_run")]
#![cfg_attr(not(feature = "axum"), doc = "```ignore")]
//! use std::net::SocketAddr;
//!
//! use axum::{Router, routing::post};
//! use tallygate::Quota;
//! use tallygate::rules::Rule;
//! use tallygate::tower::RateLimitLayer;
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let login = Rule::new("login", "sliding-window-log 5/min".parse::<Quota>()?).by_ip();
//! let app = Router::new()
//!     .route("/login", post(|| async { "welcome" }))
//!     .layer(RateLimitLayer::new(login));
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
//! axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Redis
//!
//! A `RedisStore` shares the counters between processes. If it fails, the
//! [failure policy](Limiter::on_failure) decides, and the decision is
//! [degraded](Decision::degraded).
//!
#![cfg_attr(feature = "redis", doc = "```no_run")]
#![cfg_attr(not(feature = "redis"), doc = "```ignore")]
//! use tallygate::{Limiter, OnFailure, Quota, RedisStore};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = RedisStore::connect("redis://localhost").await?;
//! let limiter = Limiter::with_store(store, Quota::per_minute(5)).on_failure(OnFailure::Closed);
//! let decision = limiter.decide(&limiter.request("user:42")).await;
//! println!("admitted: {}", decision.allowed());
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! None is enabled by default.
//!
//! | feature | adds |
//! |---|---|
//! | `tokio` | [`Limiter::acquire`](Limiter#method.acquire): waits until a request fits |
//! | `redis` | `RedisStore`: Redis or Valkey; standalone, Sentinel or Cluster |
//! | `http` | [`http`]: client addresses, plans, response headers |
//! | `rules` | `rules`: which requests are limited, by which keys |
//! | `config` | `config`: loads rules from a file |
//! | `tower` | [`tower`] for services, [`outbound`] for clients |
//! | `axum`, `tonic` | the body types and peer addresses of those crates |
//!
//! For tests, a [`ManualClock`] is advanced by hand.

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
#[cfg(feature = "tokio")]
pub use engine::{AcquireError, Wait};
pub use engine::{Engine, Guard, OverloadStats};
pub use failure::{OnFailure, Replicas};
pub use key::{Key, KeyPart};
pub use limit::{Limit, Partition};
pub use limiter::Limiter;
pub use request::{MAX_LIMITS, Request, RequestEntry, RequestError};
pub use store::{
    LocalStore, MemoryStore, MemoryStoreBuilder, Snapshot, Store, StoreError, StoreErrorKind,
};
#[cfg(feature = "redis")]
pub use store::{
    RedisError, RedisReply, RedisServer, RedisStore, RedisStoreBuilder, RefusalCacheSettings,
    RefusalCacheStats, Topology,
};
pub use tallygate_core::{
    Algorithm, CounterState, Outcome, Quota, QuotaError, Retry, Verb, Verdict,
};

/// Tests the examples of the README.
#[cfg(all(doctest, feature = "axum", feature = "redis"))]
#[doc = include_str!("../../../README.md")]
struct Readme;
