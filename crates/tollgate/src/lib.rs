//! An exact, fast rate limiter: six behaviours behind one call.
//!
//! ```
//! use tollgate::{Limiter, Quota, RetryAfter};
//!
//! let limiter = Limiter::new("100/min".parse::<Quota>()?);
//! let decision = limiter.check("user:42");
//! match decision.retry_after() {
//!     None => println!("go ahead, {} left", decision.remaining()),
//!     Some(RetryAfter::After(wait)) => println!("try again in {wait:?}"),
//!     Some(RetryAfter::Never) => println!("that will never fit"),
//! }
//! # Ok::<(), tollgate::QuotaError>(())
//! ```
mod clock;
mod decision;
mod key;
mod limit;
mod limiter;
mod request;
mod store;

pub use clock::{Clock, ManualClock, SystemClock};
pub use decision::{Decision, RetryAfter};
pub use key::Key;
pub use limit::Limit;
pub use limiter::Limiter;
#[cfg(feature = "tokio")]
pub use limiter::{AcquireError, Wait};
pub use request::{Asked, MAX_LIMITS, Request, RequestError};
pub use store::{MemoryStore, MemoryStoreBuilder, Store, StoreError};
pub use tollgate_core::{Algorithm, Outcome, Quota, QuotaError, Retry, Verb, Verdict};
