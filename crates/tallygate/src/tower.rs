//! A gate before a service: a tower layer for axum, tonic and hyper. Knows tower's traits and
//! `http`'s types; knows no framework but for the bodies it answers with.
//!
//! ```
//! use axum::Router;
//! use axum::routing::post;
//! use tallygate::Quota;
//! use tallygate::http::Rule;
//! use tallygate::tower::Gate;
//!
//! let login = Rule::new("login", "sliding-window-log 5/min".parse::<Quota>()?).by_ip();
//! let app: Router = Router::new()
//!     .route("/login", post(|| async { "welcome" }))
//!     .layer(Gate::new(login));
//! # Ok::<(), tallygate::QuotaError>(())
//! ```
//!
//! Serve it with `into_make_service_with_connect_info::<SocketAddr>()`, so that axum notes who is
//! at the other end (feature `axum`); other servers insert a [`Peer`](crate::http::Peer).
//!
//! A request that some limit refuses gets 429 with a true `Retry-After` and problem details, or,
//! if it is gRPC, `RESOURCE_EXHAUSTED` with `RetryInfo`. Every answer tells what is left. The
//! service's error type stays what it is, and so does its body.

mod body;
mod gate;
mod passing;
mod service;

pub use body::{FromText, GateBody};
pub use gate::Gate;
pub use passing::Passing;
pub use service::Gated;
