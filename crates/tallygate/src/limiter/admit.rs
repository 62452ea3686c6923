//! Going ahead in turn: whoever is refused is told at once, and whoever is admitted with a shaping
//! delay sits it out. Knows no waiting for room.

use tallygate_core::Verb;
use tokio::time::Instant;

use super::seats::charged;
use super::{AcquireError, Limiter, Wait};
use crate::decision::Decision;
use crate::request::Request;
use crate::store::Store;

impl<S: Store> Limiter<S> {
    /// Decides a request and, if it is admitted with a shaping delay, sits that out: first come,
    /// first served for each key of this limiter and its clones. Where there is no room it is
    /// refused at once, unlike with [`acquire_with`](Limiter::acquire_with), which waits. Its verb
    /// plays no part.
    ///
    /// A delay longer than the wait allows is refused too, with nothing charged;
    /// [`retry_after`](Decision::retry_after) says when it will be short enough. (What others take
    /// at that very moment may still make the wait a little longer.) Jitter plays no part.
    ///
    /// Dropped during the delay, its place in the queue passes to the next, as with
    /// [`acquire`](Limiter::acquire).
    ///
    /// # Errors
    /// When too many are waiting; nothing is charged then.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use tallygate::{Limiter, Quota, Wait};
    ///
    /// let limiter = Limiter::new("leaky-bucket 1/5ms queue 3".parse::<Quota>()?);
    /// let request = limiter.request("mailer");
    /// for _ in 0..3 {
    ///     let decision = limiter.admit(&request, Wait::at_most(Duration::from_secs(1))).await?;
    ///     assert!(decision.allowed()); // 5 ms after the one before
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn admit(&self, request: &Request<'_>, wait: Wait) -> Result<Decision, AcquireError> {
        let check;
        let request = match request.asks() {
            Verb::Check => request,
            Verb::Peek | Verb::Take | Verb::Charge | Verb::Refund | Verb::Reset => {
                check = request.clone().verb(Verb::Check);
                &check
            }
        };
        if charged(request).next().is_none() {
            return Ok(self.decide(request).await);
        }
        let deadline = wait.deadline();
        let ticket = self.waiting.enter(charged(request))?;
        let line = &ticket.line;
        let seating = match line.seating.try_lock() {
            Ok(seating) => seating,
            Err(_) => {
                // Whoever is refused anyway need not wait for those who are being seated.
                if let Some(refusal) = self.refusal(request, deadline).await {
                    return Ok(refusal);
                }
                line.seating.lock().await
            }
        };
        if deadline.is_some()
            && let Some(refusal) = self.refusal(request, deadline).await
        {
            return Ok(refusal);
        }
        let decision = self.decide(request).await;
        if decision.delay().is_zero() {
            return Ok(decision);
        }
        let seat = line.seats.take(&self.store, request, &decision);
        drop(seating);
        seat.sit_out().await;
        Ok(decision)
    }

    /// The decision that refuses, if the request is known not to fit or to wait too long, before
    /// anything is taken.
    async fn refusal(&self, request: &Request<'_>, deadline: Option<Instant>) -> Option<Decision> {
        let peek = self.decide(&request.clone().verb(Verb::Peek)).await;
        if !peek.allowed() {
            return Some(peek);
        }
        let longest = deadline?.saturating_duration_since(Instant::now());
        peek.refused_beyond(longest)
    }
}
