//! A tower layer that limits the requests to an HTTP service, for axum, tonic and hyper.
//!
//! ```
//! use axum::Router;
//! use axum::routing::post;
//! use tallygate::Quota;
//! use tallygate::rules::Rule;
//! use tallygate::tower::RateLimitLayer;
//!
//! let login = Rule::new("login", "sliding-window-log 5/min".parse::<Quota>()?).by_ip();
//! let app: Router = Router::new()
//!     .route("/login", post(|| async { "welcome" }))
//!     .layer(RateLimitLayer::new(login));
//! # Ok::<(), tallygate::QuotaError>(())
//! ```
//!
//! Serve it with `into_make_service_with_connect_info::<SocketAddr>()`, so that axum records the
//! address of the client (feature `axum`). Other servers insert a [`Peer`](crate::http::Peer).
//!
//! A request that exceeds a limit is answered with status 429, `Retry-After` and problem details, or,
//! for gRPC, with `RESOURCE_EXHAUSTED` and `RetryInfo`. Every other response carries the remaining
//! quota. The error type and the body type of the service do not change.

mod body;
mod future;
mod layer;
mod service;

pub use body::{FromBytes, RateLimitBody};
pub use future::ResponseFuture;
pub use layer::RateLimitLayer;
pub use service::RateLimit;
