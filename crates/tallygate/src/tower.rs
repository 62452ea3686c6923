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
//!
//! Rules with a cost in the request's JSON body need it before they decide. The layer reads up to 1 MiB
//! ahead if the body is one of axum or tonic, or [`Full`](http_body_util::Full); for other bodies insert
//! a [`RequestJson`](crate::http::RequestJson).
//!
//! A request holds a unit of each concurrency limit (`concurrent 10 for 30s`) until the body of its
//! response has ended or is dropped. A service whose response outlives its body, such as an upgrade,
//! keeps the [`Holds`](crate::http::Holds) that it finds in the request's extensions.

mod body;
mod body_watch;
mod future;
mod layer;
mod read_ahead;
mod service;

pub use body::{FromBytes, RateLimitBody};
pub use body_watch::{BodyWatch, WatchedBody};
pub use future::ResponseFuture;
pub use layer::RateLimitLayer;
pub use service::RateLimit;
