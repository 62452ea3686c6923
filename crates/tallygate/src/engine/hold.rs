//! Holds: units in flight of concurrency limits, renewed in the background and released when dropped.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tallygate_core::Verb;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::Engine;
use crate::decision::Decision;
use crate::error::debug_is_display;
use crate::request::{OwnedRequest, Request};
use crate::store::Store;
use crate::unique::unique_name;

/// Renewals in one hold time: two may be lost.
const RENEWALS: u32 = 3;

type DecisionFuture = Pin<Box<dyn Future<Output = Decision> + Send>>;

impl<S: Store> Engine<S> {
    /// Decides a request and, if it is admitted, returns a guard of what it holds of
    /// [concurrency limits](tallygate_core::Quota::concurrent). The guard renews it every third of the
    /// shortest hold time in the background, and releases it when it is dropped, also because a task
    /// was cancelled. What a process that died held ends within the hold time.
    ///
    /// A request without an [owner](Request::owner) gets one of its own. The verb is a check, unless it
    /// is a take or a reserve. Other limits of the request are charged as usual. Renewing needs a tokio
    /// runtime.
    ///
    /// # Errors
    /// The refusal.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tallygate::{Limiter, Quota};
    ///
    /// let limiter = Limiter::new("concurrent 1 for 30s".parse::<Quota>()?);
    /// let hold = limiter.hold("user:42").await?;
    /// assert!(limiter.hold("user:42").await.is_err());
    /// drop(hold);
    /// assert!(limiter.hold("user:42").await.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn hold(&self, request: &Request<'_>) -> Result<Hold, Refused> {
        let verb = match request.requested_verb() {
            verb @ (Verb::Take | Verb::Reserve) => verb,
            _ => Verb::Check,
        };
        let mut request = request.clone().verb(verb);
        let is_new = request.requested_owner().is_none();
        if is_new {
            request = request.owner(unique_name());
        }
        // Before the store is asked: it may answer nobody.
        let held = self.held(&request);
        let mut release = ReleaseGuard(held.map(|held| Arc::new(held) as Arc<dyn ErasedHold>));
        let decision = self.decide(&request).await;
        if !decision.allowed() {
            // The store may admit it after the deadline. What another request holds stays.
            if !(is_new && decision.degraded()) {
                release.0 = None;
            }
            return Err(Refused::new(decision));
        }
        let is_lost = Arc::new(AtomicBool::new(false));
        let renewal = release.0.as_ref().and_then(|held| {
            let runtime = Handle::try_current().ok()?;
            let renewing = renew(Arc::clone(held), Arc::clone(&is_lost));
            Some(Renewal(runtime.spawn(renewing).abort_handle()))
        });
        Ok(Hold {
            decision,
            is_lost,
            renewal,
            release,
        })
    }

    /// The concurrency limits of a request; `None` if it has none.
    fn held(&self, request: &Request<'_>) -> Option<HeldRequest<S>> {
        let entries = request.entries().iter().enumerate();
        let concurrent =
            entries.filter(|(_, entry)| entry.limit.quota().algorithm().is_concurrent());
        let (positions, periods): (Vec<usize>, Vec<Duration>) = concurrent
            .map(|(at, entry)| (at, entry.limit.quota().period()))
            .unzip();
        Some(HeldRequest {
            engine: self.clone(),
            hold_time: periods.into_iter().min()?,
            request: request.subset(&positions).to_owned(),
        })
    }
}

/// Units in flight, released when dropped; see [`Engine::hold`].
#[must_use = "what it holds is released when it is dropped"]
pub struct Hold {
    decision: Decision,
    is_lost: Arc<AtomicBool>,
    /// Dropped before the release: no renewal may follow it.
    renewal: Option<Renewal>,
    release: ReleaseGuard,
}

impl Hold {
    /// The decision that admitted the request.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Whether a renewal came too late: the units ended, and others may have taken them.
    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Relaxed)
    }

    /// Releases what is held and waits for the answer. Dropping the hold does the same without
    /// waiting.
    pub async fn release(self) {
        let Hold {
            decision,
            renewal,
            mut release,
            ..
        } = self;
        drop(renewal);
        if let Some(held) = &release.0 {
            let released = held.decide(Verb::Release).await;
            // What was counted without the store is released by dropping, and once more what may not
            // have been released in time.
            if !decision.degraded() && !released.degraded() {
                release.0 = None;
            }
        }
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("decision", &self.decision)
            .field("is_lost", &self.is_lost())
            .finish_non_exhaustive()
    }
}

/// A request whose limits are all concurrent, whatever its store.
trait ErasedHold: Send + Sync {
    fn hold_time(&self) -> Duration;

    fn decide(&self, verb: Verb) -> DecisionFuture;

    /// Releases without waiting for the answer.
    fn release(&self);
}

struct HeldRequest<S> {
    engine: Engine<S>,
    request: OwnedRequest,
    /// The shortest of its limits.
    hold_time: Duration,
}

impl<S: Store> ErasedHold for HeldRequest<S> {
    fn hold_time(&self) -> Duration {
        self.hold_time
    }

    fn decide(&self, verb: Verb) -> DecisionFuture {
        let (engine, request) = (self.engine.clone(), self.request.clone());
        Box::pin(async move { engine.decide(&request.request().verb(verb)).await })
    }

    fn release(&self) {
        let request = self.request.request().verb(Verb::Release);
        self.engine.store().submit(&request);
        self.engine.submit_local(&request);
    }
}

/// Releases when dropped, unless it is empty.
struct ReleaseGuard(Option<Arc<dyn ErasedHold>>);

impl Drop for ReleaseGuard {
    fn drop(&mut self) {
        if let Some(held) = &self.0 {
            held.release();
        }
    }
}

/// Ends the task when dropped.
struct Renewal(AbortHandle);

impl Drop for Renewal {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Renews until the task is aborted or what is held is lost.
async fn renew(held: Arc<dyn ErasedHold>, is_lost: Arc<AtomicBool>) {
    loop {
        sleep(held.hold_time() / RENEWALS).await;
        let decision = held.decide(Verb::Renew).await;
        // Without the store it is not known.
        if !decision.allowed() && !decision.degraded() {
            is_lost.store(true, Relaxed);
            return;
        }
    }
}

/// The error of a request that was refused; see [`decision`](Refused::decision).
#[derive(Clone)]
pub struct Refused(Box<Decision>);

impl Refused {
    pub(super) fn new(decision: Decision) -> Self {
        Refused(Box::new(decision))
    }

    /// The refusal.
    pub fn decision(&self) -> &Decision {
        &self.0
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.retry_after() {
            _ if self.0.unavailable() => {
                f.write_str("refused: the store did not answer, and the failure policy refuses")
            }
            Some(retry) => write!(f, "refused: retry after {retry}"),
            None => f.write_str("refused"),
        }
    }
}

debug_is_display!(Refused);

impl Error for Refused {}
