//! A rate limiter: six algorithms, in memory or in Redis, as a library or as a tower layer.
//!
//! ```
//! use tallygate::{Limiter, quota};
//!
//! let limiter = Limiter::new(quota!("100/min"));
//! let decision = limiter.check("user:42");
//! match decision.retry_after() {
//!     None => println!("admitted, {} left", decision.remaining()),
//!     Some(retry) => println!("refused, retry after {retry}"),
//! }
//! ```
//!
//! # axum
//!
//! A `tower::RateLimitLayer` limits the requests to an HTTP or gRPC service. Refused requests get
//! status 429 with `Retry-After`.
//!
#![cfg_attr(feature = "axum", doc = "```no_run")]
#![cfg_attr(not(feature = "axum"), doc = "```ignore")]
//! use std::net::SocketAddr;
//!
//! use axum::{Router, routing::post};
//! use tallygate::quota;
//! use tallygate::rules::Rule;
//! use tallygate::tower::RateLimitLayer;
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let login = Rule::new("login", quota!("sliding-window-log 5/min")).by_ip();
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
//! A `RedisStore` shares the counters between processes. Its verbs are asynchronous and never fail:
//! without the servers the [failure policy](Limiter::on_failure) decides, and the decision is
//! [degraded](Decision::degraded). Clones of a store share its connections.
//!
#![cfg_attr(all(feature = "axum", feature = "redis"), doc = "```no_run")]
#![cfg_attr(not(all(feature = "axum", feature = "redis")), doc = "```ignore")]
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use axum::{Router, routing::get};
//! use tallygate::rules::Rule;
//! use tallygate::tower::RateLimitLayer;
//! use tallygate::{Limiter, OnFailure, RedisStore, quota};
//!
//! let store = RedisStore::connect("redis://localhost").await?;
//!
//! let jobs = Limiter::with_store(store.clone(), quota!("10/s")).on_failure(OnFailure::Closed);
//! let decision = jobs.check("user:42").await;
//! println!("admitted: {}", decision.allowed());
//!
//! let api = Rule::new("api", quota!("600/min")).by_header("x-api-key").or_ip();
//! let app: Router = Router::new()
//!     .route("/items", get(|| async { "items" }))
//!     .layer(RateLimitLayer::with_store(store, api));
//! # Ok(())
//! # }
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
//! | `token-bucket 100/s burst 100 shared 4` | members share the bucket by weight and borrow what others leave |
//! | `concurrent 10 for 30s` | 10 units in flight, each held for 30 s unless renewed or released |
//!
//! Write it as a literal that is checked by the compiler, [`quota!("100/min")`](quota!), in parts,
//! `Quota::token_bucket(10).per_second().burst(50)`, or parse it.
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
//! The cost is 1 by default. The verbs: *check* takes all of the cost or nothing, *peek* takes
//! nothing, *take* takes what fits, *charge* takes the cost unconditionally, *refund* returns units,
//! *reset* removes the counter; *reserve* and *settle* charge an estimate and then the actual cost;
//! *renew* and *release* prolong and end what an owner holds of a concurrency limit.
//! [`Limiter::undo`] returns what a decision took.
//!
//! # Features
//!
//! None is enabled by default.
//!
//! | feature | adds |
//! |---|---|
//! | `tokio` | [`Limiter::acquire`](Limiter#method.acquire): waits until a request fits |
//! | `redis` | `RedisStore`: Redis or Valkey; standalone, Sentinel or Cluster |
//! | `http` | `http`: client addresses, plans, response headers |
//! | `rules` | `rules`: which requests are limited, by which keys |
//! | `config` | `config`: loads rules from a file |
//! | `simulate` | `simulation`: what a fleet over shared servers would decide |
//! | `tower` | `tower` for services, `outbound` for clients |
//! | `axum`, `tonic` | the body types and peer addresses of those crates |
//!
//! Warnings, such as a lost store, go to `tracing`. For tests, a [`ManualClock`] is advanced by hand.
//! The minimum Rust version is 1.88.

// Shows on docs.rs which feature an item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod clock;
#[cfg(feature = "config")]
pub mod config;
mod decision;
mod engine;
mod error;
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
#[cfg(feature = "simulate")]
pub mod simulation;
pub mod store;
#[cfg(feature = "tower")]
pub mod tower;
#[cfg(feature = "tokio")]
mod unique;

pub use clock::{Clock, ManualClock, SystemClock};
pub use decision::Decision;
pub use engine::Engine;
#[cfg(feature = "tokio")]
pub use engine::{AcquireError, Hold, Refused, Reservation, ReserveError, Wait};
pub use failure::{OnFailure, Replicas};
pub use key::{Key, KeyPart};
pub use limit::{LeaseError, LeaseSettings, Limit, Partition};
pub use limiter::{Limiter, MemberLimiter};
pub use request::{MAX_LIMITS, Member, Request, RequestEntry, RequestError};
#[doc(inline)]
pub use store::{MemoryStore, Store, StoreError};
#[cfg(feature = "redis")]
#[doc(inline)]
pub use store::{RedisError, RedisStore};
pub use tallygate_core::{
    Algorithm, Quota, QuotaBuilder, QuotaError, Retry, Verb, Weight, WeightError, quota,
};

/// Tests the examples of the README.
#[cfg(all(doctest, feature = "axum", feature = "redis"))]
#[doc = include_str!("../../../README.md")]
struct Readme;
