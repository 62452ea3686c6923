//! Reservations: an estimate that is charged first and settled when the actual cost is known.

use std::error::Error;
use std::fmt;
use std::pin::Pin;

use tallygate_core::Verb;
use tokio::time::sleep;

use super::{Engine, Refused};
use crate::decision::Decision;
use crate::error::debug_is_display;
use crate::request::{OwnedRequest, Request};
use crate::store::Store;
use crate::unique::unique_name;

impl<S: Store> Engine<S> {
    /// Charges the cost of a request as an estimate, if it fits, and waits for its shaping delay if
    /// there is one. [Settle](Reservation::settle) the reservation when the actual cost is known.
    /// Dropped, or not settled within an hour, the estimate stays charged.
    ///
    /// A request without an [id](Request::id) gets one of its own. With one that is still known, it is
    /// admitted and charges nothing.
    ///
    /// # Errors
    /// When the estimate does not fit, or the id was used with another one.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tallygate::{Limiter, Quota};
    ///
    /// let limiter = Limiter::new("fixed-window 100000/d".parse::<Quota>()?);
    /// let reservation = limiter.reserve("team", 1_000).await?;
    /// let decision = reservation.settle(812).await;
    /// assert_eq!(decision.remaining(), 99_188);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn reserve(&self, request: &Request<'_>) -> Result<Reservation, ReserveError> {
        let mut request = request.clone().verb(Verb::Reserve);
        if request.requested_id().is_none() {
            request = request.id(unique_name());
        }
        if request.lacks_owner() {
            request = request.owner(unique_name());
        }
        let decision = self.decide(&request).await;
        if !decision.allowed() {
            return Err(ReserveError::Refused(Refused::new(decision)));
        }
        if let Some(estimate) = decision.first_estimate(&request) {
            return Err(ReserveError::Conflict { estimate });
        }
        if !decision.delay().is_zero() {
            sleep(decision.delay()).await;
        }
        Ok(Reservation {
            settle: Box::new(ReservedRequest {
                engine: self.clone(),
                request: request.to_owned(),
                is_local: decision.degraded(),
            }),
            decision,
        })
    }
}

/// A charged estimate; see [`Engine::reserve`].
#[must_use = "the estimate stays charged until it is settled"]
pub struct Reservation {
    decision: Decision,
    settle: Box<dyn Settle>,
}

impl Reservation {
    /// The decision that admitted the estimate.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Corrects the estimate to the actual cost, 0 included: what is above it is charged, and what is
    /// below it is returned as far as it still counts. Limits with a cost of their own keep it.
    pub async fn settle(self, cost: u32) -> Decision {
        self.settle.settle(cost).await
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation")
            .field("decision", &self.decision)
            .finish_non_exhaustive()
    }
}

/// A reserved request, whatever its store.
trait Settle: Send + Sync {
    fn settle(self: Box<Self>, cost: u32) -> Pin<Box<dyn Future<Output = Decision> + Send>>;
}

struct ReservedRequest<S> {
    engine: Engine<S>,
    request: OwnedRequest,
    /// Whether it was counted without the store.
    is_local: bool,
}

impl<S: Store> Settle for ReservedRequest<S> {
    fn settle(self: Box<Self>, cost: u32) -> Pin<Box<dyn Future<Output = Decision> + Send>> {
        Box::pin(async move {
            let request = self.request.request().verb(Verb::Settle).cost(cost);
            if self.is_local {
                self.engine.submit_local(&request);
            }
            self.engine.decide(&request).await
        })
    }
}

/// Why an estimate was not charged.
#[derive(Clone)]
#[non_exhaustive]
pub enum ReserveError {
    /// It does not fit.
    Refused(Refused),
    /// The id is known with another estimate, which stays charged.
    Conflict {
        /// The first estimate.
        estimate: u32,
    },
}

impl fmt::Display for ReserveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReserveError::Refused(refused) => fmt::Display::fmt(refused, f),
            ReserveError::Conflict { estimate } => {
                write!(f, "the id is in use with an estimate of {estimate}")
            }
        }
    }
}

debug_is_display!(ReserveError);

impl Error for ReserveError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            ReserveError::Refused(refused) => Some(refused),
            ReserveError::Conflict { .. } => None,
        }
    }
}
