//! Waiting until a request fits: first come, first served for each key of this process.
//!
//! Whoever waits stands in the line of its key. The first of the line asks the store and sleeps
//! as long as it is told; the others wait for their turn. A request that is admitted with a
//! shaping delay takes a [seat](super::seats) and lets the next one ask.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use tallygate_core::Verb;
use tokio::sync::MutexGuard as Turn;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::Limiter;
use super::line::{Line, MOST_WAITING};
use crate::decision::{Decision, RetryAfter};
use crate::key::Key;
use crate::request::{Asked, Request};
use crate::store::Store;

/// How long to wait, and how exactly.
///
/// ```
/// use std::time::Duration;
/// use tallygate::Wait;
///
/// let wait = Wait::at_most(Duration::from_secs(2)).jitter(Duration::from_millis(20));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Wait {
    at_most: Option<Duration>,
    jitter: Duration,
}

impl Wait {
    /// As long as it takes.
    pub fn forever() -> Self {
        Wait::default()
    }

    /// No longer than this; a request that cannot make it fails, or is refused, at once.
    pub fn at_most(longest: Duration) -> Self {
        Wait {
            at_most: Some(longest),
            ..Wait::default()
        }
    }

    /// Adds a random bit of up to this to each wait for room, so that those who were refused
    /// together do not come back together; never past the deadline. A shaping delay spaces
    /// requests already and gets none.
    #[must_use]
    pub fn jitter(mut self, most: Duration) -> Self {
        self.jitter = most;
        self
    }

    /// When it ends, if begun now; an end beyond that of time is none.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let longest = self.at_most?;
        Instant::now().checked_add(longest)
    }

    fn random_bit(&self) -> Duration {
        let most = u64::try_from(self.jitter.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(fastrand::u64(0..=most))
    }
}

/// Why a request did not wait to its end.
#[derive(Debug)]
#[non_exhaustive]
pub enum AcquireError {
    /// Its cost is above the capacity: no wait is long enough.
    Never,
    /// It would have to wait at least this long, which is more than allowed.
    TooLate {
        /// The least wait known.
        wait: Duration,
    },
    /// Too many are waiting already.
    Crowded,
    /// The store cannot be reached, and the policy for that is to refuse.
    Unavailable,
}

impl fmt::Display for AcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AcquireError::Never => f.write_str("the cost is above the capacity and never fits"),
            AcquireError::TooLate { wait } => {
                write!(f, "a wait of {wait:?} or more is longer than allowed")
            }
            AcquireError::Crowded => write!(f, "{MOST_WAITING} requests are waiting already"),
            AcquireError::Unavailable => {
                f.write_str("the store did not answer, and nothing goes ahead without it")
            }
        }
    }
}

impl Error for AcquireError {}

/// Waiting needs the feature `tokio` and a runtime with timers.
impl<S: Store> Limiter<S> {
    /// How many requests of this limiter and its clones wait at the moment: for room, or for
    /// their turn in a shaping queue.
    pub fn waiting(&self) -> usize {
        self.waiting.count()
    }

    /// Waits until 1 is taken: until a window or bucket has room, or through a shaping delay.
    /// First come, first served for each key of this limiter and its clones.
    ///
    /// Dropped before its end, its place in line or in the queue passes to the next. (Dropped
    /// during a shaping delay, other limits of the same request keep what they counted: giving
    /// back what may be of the past by then would let others have more than their limit.)
    ///
    /// # Errors
    /// When too many are waiting, or the store cannot be reached and the policy is to refuse then.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tallygate::{Limiter, Quota};
    ///
    /// // One at a time, 5 ms apart.
    /// let limiter = Limiter::new("leaky-bucket 1/5ms queue 10".parse::<Quota>()?);
    /// for _ in 0..3 {
    ///     limiter.acquire("mailer").await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire(&self, key: impl Into<Key<'_>>) -> Result<Decision, AcquireError> {
        let key = key.into();
        self.acquire_with(&self.request(&key), Wait::forever())
            .await
    }

    /// Waits until a cost is taken, as [`acquire`](Limiter::acquire) does for 1.
    ///
    /// # Errors
    /// At once when it never fits; when too many are waiting, or the store cannot be reached and the policy is to refuse then.
    pub async fn acquire_cost(
        &self,
        key: impl Into<Key<'_>>,
        cost: u32,
    ) -> Result<Decision, AcquireError> {
        let key = key.into();
        let request = self.request(&key).cost(cost);
        self.acquire_with(&request, Wait::forever()).await
    }

    /// Waits until a request's cost is taken, whichever limits it carries; its verb plays no part.
    ///
    /// # Errors
    /// At once when it never fits or the wait is known to be longer than allowed; in the end when
    /// it turned out so; when too many are waiting; when the store cannot
    /// be reached and the policy is to refuse then.
    pub async fn acquire_with(
        &self,
        request: &Request<'_>,
        wait: Wait,
    ) -> Result<Decision, AcquireError> {
        let fits = |asked: &Asked<'_>| asked.units() <= asked.limit.quota().capacity();
        if !request.asked().iter().all(fits) {
            return Err(AcquireError::Never);
        }
        let deadline = wait.deadline();
        let ticket = self.waiting.enter(request.asked().iter())?;
        let turn = self.wait_for_turn(&ticket.line, request, deadline).await?;
        let check = request.clone().verb(Verb::Check);
        loop {
            self.foresee(request, deadline).await?;
            let seating = ticket.line.seating.lock().await;
            let decision = self.asked(&check).await?;
            let pause = match decision.retry_after() {
                None if decision.delay().is_zero() => return Ok(decision),
                None => {
                    let seats = &ticket.line.seats;
                    let seat = seats.take(&self.store, request, &decision);
                    drop((seating, turn));
                    // Others may have come between foreseeing and taking, and nobody is seated
                    // before those who wait already; leaving the seat passes it on.
                    in_time(seat.wait(), deadline)?;
                    seat.sit_out().await;
                    return Ok(decision);
                }
                Some(RetryAfter::Never) => return Err(AcquireError::Never),
                Some(RetryAfter::After(pause)) => pause,
            };
            drop(seating);
            in_time(pause, deadline)?;
            let again = Instant::now() + pause + wait.random_bit();
            sleep_until(deadline.map_or(again, |deadline| again.min(deadline))).await;
        }
    }

    /// Decides; without the store too, if that is the policy.
    async fn asked(&self, request: &Request<'_>) -> Result<Decision, AcquireError> {
        let decision = self.decide(request).await;
        if decision.unavailable() {
            Err(AcquireError::Unavailable)
        } else {
            Ok(decision)
        }
    }

    async fn wait_for_turn<'l>(
        &self,
        line: &'l Line,
        request: &Request<'_>,
        deadline: Option<Instant>,
    ) -> Result<Turn<'l, ()>, AcquireError> {
        if let Ok(turn) = line.gate.try_lock() {
            return Ok(turn);
        }
        self.foresee(request, deadline).await?;
        let Some(deadline) = deadline else {
            return Ok(line.gate.lock().await);
        };
        let started = Instant::now();
        timeout_at(deadline, line.gate.lock())
            .await
            .map_err(|_| AcquireError::TooLate {
                wait: started.elapsed(),
            })
    }

    /// Fails when the request is known not to make it, before anything is taken.
    async fn foresee(
        &self,
        request: &Request<'_>,
        deadline: Option<Instant>,
    ) -> Result<(), AcquireError> {
        if deadline.is_none() {
            return Ok(());
        }
        let peek = request.clone().verb(Verb::Peek);
        let decision = self.asked(&peek).await?;
        match decision.retry_after() {
            None => in_time(decision.delay(), deadline),
            Some(RetryAfter::After(pause)) => in_time(pause, deadline),
            Some(RetryAfter::Never) => Err(AcquireError::Never),
        }
    }
}

fn in_time(wait: Duration, deadline: Option<Instant>) -> Result<(), AcquireError> {
    match deadline {
        Some(deadline) if !wait.is_zero() && Instant::now() + wait > deadline => {
            Err(AcquireError::TooLate { wait })
        }
        Some(_) | None => Ok(()),
    }
}
