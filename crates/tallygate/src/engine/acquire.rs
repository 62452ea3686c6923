//! Waiting: until a request fits, or until its shaping delay is over.
//!
//! Requests for the same counters wait in one [`Queue`]. While none waits for capacity, they are
//! decided concurrently. Otherwise the first one queries the store and sleeps until it fits; the
//! others wait for their turn. A request that is admitted with a shaping delay enters the
//! [shaping queue](super::shaping_queue). No lock is held across a call to the store.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tallygate_core::Verb;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::Engine;
use super::queue::{MAX_WAITING, Queue, TurnTicket};
use super::shaping_queue::{ShapingQueue, delaying_entries, shapes};
use crate::decision::Decision;
use crate::error::debug_is_display;
use crate::request::{Request, RequestEntry};
use crate::store::Store;

/// How often `admit` decides a request whose slot turns out to be too late.
const MAX_ATTEMPTS: u32 = 3;
const MICROSECOND: Duration = Duration::from_micros(1);

/// How long to wait.
///
/// ```
/// use std::time::Duration;
/// use tallygate::Wait;
///
/// let wait = Wait::at_most(Duration::from_secs(2)).jitter(Duration::from_millis(20));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Wait {
    max: Option<Duration>,
    jitter: Duration,
}

impl Wait {
    /// Waits without a bound.
    pub fn forever() -> Self {
        Wait::default()
    }

    /// Waits no longer than this. A request that is known to need longer fails immediately. With zero,
    /// only a store in this process can admit.
    pub fn at_most(max: Duration) -> Self {
        Wait {
            max: Some(max),
            ..Wait::default()
        }
    }

    /// Adds a random time of up to `max` to each wait for room, so that requests that were refused
    /// together do not retry together; never past the deadline. Shaping delays get none.
    #[must_use]
    pub fn jitter(mut self, max: Duration) -> Self {
        self.jitter = max;
        self
    }

    /// The deadline from now; `None` without a bound.
    fn deadline(&self) -> Option<Instant> {
        Instant::now().checked_add(self.max?)
    }

    fn random_jitter(&self) -> Duration {
        let max = u64::try_from(self.jitter.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(fastrand::u64(0..=max))
    }
}

/// Why a request did not wait until it was admitted.
#[non_exhaustive]
pub enum AcquireError {
    /// The cost exceeds the capacity of a limit.
    Never,
    /// The wait would be longer than allowed.
    TooLate {
        /// The shortest wait known.
        wait: Duration,
    },
    /// Too many requests are waiting.
    TooManyWaiting,
    /// The store failed, and the failure policy refuses.
    Unavailable,
}

impl fmt::Display for AcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AcquireError::Never => f.write_str(
                "the cost is above the capacity and never fits: lower it, or raise the limit",
            ),
            AcquireError::TooLate { wait } => {
                write!(f, "a wait of {wait:?} or more is longer than allowed")
            }
            AcquireError::TooManyWaiting => {
                write!(f, "{MAX_WAITING} requests are waiting already")
            }
            AcquireError::Unavailable => {
                f.write_str("the store did not answer, and the failure policy refuses")
            }
        }
    }
}

debug_is_display!(AcquireError);

impl Error for AcquireError {}

/// Waiting needs the feature `tokio` and a runtime with timers.
impl<S: Store> Engine<S> {
    /// The number of requests that wait for room or for a shaping delay.
    pub fn waiting(&self) -> usize {
        self.shared.guard.queues.len()
    }

    /// Waits until the cost of a request is taken, first come, first served for each key. The verb
    /// of the request is ignored.
    ///
    /// If the future is dropped, the next request in the queue moves up. If it is dropped during a
    /// shaping delay, limits that do not shape keep what they counted.
    ///
    /// The future is ready when the wait is over, whatever the store does: over a store outside this
    /// process, its answers are a part of the wait. What the store takes after that is returned.
    ///
    /// # Errors
    /// When the cost never fits; when the wait would be longer than allowed; when too many requests
    /// are waiting; when the store fails and the failure policy refuses.
    pub async fn acquire(
        &self,
        request: &Request<'_>,
        wait: Wait,
    ) -> Result<Decision, AcquireError> {
        let fits = |entry: &RequestEntry<'_>| entry.cost() <= entry.limit.quota().capacity();
        if !request.entries().iter().all(fits) {
            return Err(AcquireError::Never);
        }
        let deadline = wait.deadline();
        let ticket = self.shared.guard.queues.enter(request.entries().iter())?;
        let Queue { turns, shaping } = &*ticket.queue;
        let turn = turns.arrive();
        let check = request.clone().verb(Verb::Check);
        // While nobody waits for capacity, requests are decided concurrently.
        let mut waits = !turns.is_empty();
        loop {
            if waits {
                self.wait_for_turn(&turn, request, deadline).await?;
            }
            if let Some(deadline) = deadline
                && shaping.is_full_until(deadline)
            {
                self.check_deadline(request, deadline).await?;
            }
            turn.keep_until(Instant::now());
            let sent = Instant::now();
            let decision = self.decide_until(&check, deadline, &ticket.queue).await?;
            let pause = match decision.retry_after() {
                None if decision.delay().is_zero() => return Ok(decision),
                None => {
                    let slot = shaping.push(&self.shared, request, &decision, sent);
                    drop(turn);
                    let start = slot.start();
                    if let Err(too_late) =
                        within(start.saturating_duration_since(Instant::now()), deadline)
                    {
                        drop(slot);
                        self.undo_unshaped(&check, &decision);
                        return Err(too_late);
                    }
                    slot.wait().await;
                    return Ok(decision);
                }
                Some(retry) => retry.duration().ok_or(AcquireError::Never)?,
            };
            within(pause, deadline)?;
            if !waits {
                // Others may be waiting by now: they are first, unless they came later.
                waits = true;
                continue;
            }
            let again = Instant::now() + pause + wait.random_jitter();
            let again = deadline.map_or(again, |deadline| again.min(deadline));
            turn.keep_until(again);
            sleep_until(again).await;
        }
    }

    /// Decides a request and, if it is admitted with a shaping delay, waits until the delay is
    /// over, first come, first served for each key. Unlike [`acquire`](Engine::acquire) it does not
    /// wait for room: a request that does not fit is refused immediately. The verb is a check, unless
    /// it is a reserve.
    ///
    /// A delay longer than `wait` is refused too, and nothing is charged;
    /// [`retry_after`](Decision::retry_after) is the time until it is short enough. Jitter is
    /// ignored. `wait` bounds the delay; the time in which the store answers comes on top. Over a
    /// store outside this process, requests that are decided at the same moment may be scheduled
    /// too late for `wait`: their slots are given up, as those of dropped futures are.
    ///
    /// If the future is dropped during the delay, the next request in the queue moves up. The slot
    /// that remains is returned to the store if nobody, in any process, is scheduled behind it, and
    /// otherwise kept for the next request of this process.
    ///
    /// # Errors
    /// When too many requests are waiting; nothing is charged then.
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
        let request = match request.requested_verb() {
            Verb::Check | Verb::Reserve => request,
            _ => {
                check = request.clone().verb(Verb::Check);
                &check
            }
        };
        if delaying_entries(request).next().is_none() {
            return Ok(self.decide(request).await);
        }
        let deadline = wait.deadline();
        let ticket = self.shared.guard.queues.enter(delaying_entries(request))?;
        let shaping = &ticket.queue.shaping;
        // A reserve is decided once: its id is known from then on, and would be admitted at no charge.
        let is_reserve = request.requested_verb() == Verb::Reserve;
        let mut check_first =
            deadline.is_some_and(|deadline| is_reserve || shaping.is_full_until(deadline));
        let mut attempts = 0;
        loop {
            if check_first && let Some(refusal) = self.peek_refusal(request, deadline).await {
                return Ok(refusal);
            }
            let sent = Instant::now();
            let decision = self.decide(request).await;
            if decision.delay().is_zero() {
                return Ok(decision);
            }
            let slot = shaping.push(&self.shared, request, &decision, sent);
            let Some(deadline) = deadline.filter(|deadline| slot.start() > *deadline) else {
                slot.wait().await;
                return Ok(decision);
            };
            // Others were scheduled first.
            drop(slot);
            self.undo_unshaped(request, &decision);
            attempts += 1;
            if attempts == MAX_ATTEMPTS || is_reserve {
                let max = deadline.saturating_duration_since(Instant::now());
                let max = max.min(decision.delay().saturating_sub(MICROSECOND));
                return Ok(decision.refused_beyond(max).unwrap_or(decision));
            }
            check_first = true;
        }
    }

    /// Undoes what limits that do not shape have counted. A slot is given up in the shaping queue:
    /// an undo could return time in which others are scheduled.
    pub(crate) fn undo_unshaped(&self, request: &Request<'_>, decision: &Decision) {
        let entries = request.entries().iter().enumerate();
        let others = entries.filter(|(_, entry)| !shapes(entry));
        let others: Vec<usize> = others.map(|(at, _)| at).collect();
        if !others.is_empty() {
            self.undo(&request.subset(&others), decision);
        }
    }

    /// The refusal of a request that does not fit or would be delayed for too long. Takes nothing.
    async fn peek_refusal(
        &self,
        request: &Request<'_>,
        deadline: Option<Instant>,
    ) -> Option<Decision> {
        let peek = self.decide(&request.clone().verb(Verb::Peek)).await;
        if !peek.allowed() {
            return Some(peek);
        }
        peek.refused_beyond(deadline?.saturating_duration_since(Instant::now()))
    }

    /// Decides, and fails at the deadline, or if the failure policy refuses.
    async fn decide_until(
        &self,
        request: &Request<'_>,
        deadline: Option<Instant>,
        queue: &Arc<Queue>,
    ) -> Result<Decision, AcquireError> {
        let is_later = |deadline: Instant| {
            let left = deadline.saturating_duration_since(Instant::now());
            left > self.failure.deadline_for(request)
        };
        let decision = match deadline {
            Some(deadline) if !is_later(deadline) => match self.try_decide(request) {
                Some(decision) => decision,
                None => self.decide_in_task(request, deadline, queue).await?,
            },
            // The store answers, or has failed, before the deadline.
            Some(_) | None => self.decide(request).await,
        };
        available(decision)
    }

    /// Decides in a task that goes on after the deadline and returns what the store takes then.
    async fn decide_in_task(
        &self,
        request: &Request<'_>,
        deadline: Instant,
        queue: &Arc<Queue>,
    ) -> Result<Decision, AcquireError> {
        let started = Instant::now();
        if deadline <= started {
            let wait = Duration::ZERO;
            return Err(AcquireError::TooLate { wait });
        }
        let (answer, mut answered) = oneshot::channel();
        let (engine, request, queue) = (self.clone(), request.to_owned(), Arc::clone(queue));
        tokio::spawn(async move {
            let request = request.request();
            let decision = engine.decide(&request).await;
            if let Err(late) = answer.send(decision) {
                engine.give_back(&request, &late, &queue.shaping, started);
            }
        });
        if let Ok(answer) = timeout_at(deadline, &mut answered).await {
            // Only a runtime that shuts down drops the task.
            return answer.map_err(|_| AcquireError::Unavailable);
        }
        answered.close();
        // It may have come at the last moment.
        let wait = started.elapsed();
        let answer = answered.try_recv();
        answer.map_err(|_| AcquireError::TooLate { wait })
    }

    /// Returns what a decision took for nobody, which was requested at `sent`.
    fn give_back(
        &self,
        request: &Request<'_>,
        decision: &Decision,
        shaping: &ShapingQueue,
        sent: Instant,
    ) {
        if !decision.allowed() {
            return;
        }
        if delaying_entries(request).next().is_some() {
            drop(shaping.push(&self.shared, request, decision, sent));
        }
        self.undo_unshaped(request, decision);
    }

    async fn wait_for_turn(
        &self,
        turn: &TurnTicket<'_>,
        request: &Request<'_>,
        deadline: Option<Instant>,
    ) -> Result<(), AcquireError> {
        let Some(deadline) = deadline else {
            turn.wait().await;
            return Ok(());
        };
        if turn.is_held() {
            return Ok(());
        }
        self.check_deadline(request, deadline).await?;
        let started = Instant::now();
        timeout_at(deadline, turn.wait())
            .await
            .map_err(|_| AcquireError::TooLate {
                wait: started.elapsed(),
            })
    }

    /// Fails if the request is known to miss its deadline. Takes nothing.
    async fn check_deadline(
        &self,
        request: &Request<'_>,
        deadline: Instant,
    ) -> Result<(), AcquireError> {
        let started = Instant::now();
        let peek = request.clone().verb(Verb::Peek);
        let decision = timeout_at(deadline, self.decide(&peek)).await;
        let too_late = |_| AcquireError::TooLate {
            wait: started.elapsed(),
        };
        let decision = available(decision.map_err(too_late)?)?;
        let wait = match decision.retry_after() {
            None => decision.delay(),
            Some(retry) => retry.duration().ok_or(AcquireError::Never)?,
        };
        within(wait, Some(deadline))
    }
}

/// Fails if the failure policy refuses.
fn available(decision: Decision) -> Result<Decision, AcquireError> {
    if decision.unavailable() {
        Err(AcquireError::Unavailable)
    } else {
        Ok(decision)
    }
}

fn within(wait: Duration, deadline: Option<Instant>) -> Result<(), AcquireError> {
    match deadline {
        Some(deadline) if !wait.is_zero() && Instant::now() + wait > deadline => {
            Err(AcquireError::TooLate { wait })
        }
        Some(_) | None => Ok(()),
    }
}
