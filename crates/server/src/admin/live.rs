//! `/live/events`: server-sent events with a snapshot of the server every second. All viewers share
//! one snapshot; without viewers none is taken.

mod event;
mod latency;

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use self::event::EventBuilder;
use crate::problem::{Code, Problem};
use crate::state::ServerState;

const MAX_VIEWERS: usize = 64;
/// Events that are buffered for a slow viewer; more are skipped.
const BUFFERED_EVENTS: usize = 2;
/// A viewer that skips this many events in a row is disconnected.
const MAX_SKIPPED_EVENTS: u32 = 30;
const EVENT_INTERVAL: Duration = Duration::from_secs(1);

/// The body of a response: a document or an event stream.
pub(crate) type AdminBody = UnsyncBoxBody<Bytes, Infallible>;

pub(super) struct Live {
    viewers: Mutex<Viewers>,
    joined: Notify,
}

#[derive(Default)]
struct Viewers {
    all: Vec<Viewer>,
    latest: Option<Bytes>,
    is_shutdown: bool,
}

struct Viewer {
    events: mpsc::Sender<Bytes>,
    skipped: u32,
}

impl Live {
    /// Starts the task that broadcasts events until shutdown.
    pub(super) fn start(state: Arc<ServerState>, shutdown: CancellationToken) -> Arc<Self> {
        let live = Arc::new(Live {
            viewers: Mutex::default(),
            joined: Notify::new(),
        });
        tokio::spawn(Arc::clone(&live).run(state, shutdown));
        live
    }

    /// Adds a viewer.
    ///
    /// # Errors
    /// When there are [`MAX_VIEWERS`] already, or the server shuts down.
    pub(super) fn join(&self) -> Result<AdminBody, Problem> {
        let mut viewers = self.viewers();
        viewers.all.retain(|viewer| !viewer.events.is_closed());
        if viewers.is_shutdown {
            return Err(shutting_down());
        }
        if viewers.all.len() >= MAX_VIEWERS {
            let detail = "the maximum number of viewers is reached";
            return Err(Problem::new(Code::TooManyViewers, detail));
        }
        let (events, mut receiver) = mpsc::channel(BUFFERED_EVENTS);
        if let Some(latest) = &viewers.latest {
            let _ = events.try_send(latest.clone());
        }
        viewers.all.push(Viewer { events, skipped: 0 });
        self.joined.notify_one();
        let events = stream::poll_fn(move |context| receiver.poll_recv(context));
        let frames = events.map(|event| Ok(Frame::data(event)));
        Ok(StreamBody::new(frames).boxed_unsync())
    }

    async fn run(self: Arc<Self>, state: Arc<ServerState>, shutdown: CancellationToken) {
        tokio::select! {
            never = self.broadcast_all(state) => match never {},
            () = shutdown.cancelled() => {}
        }
        let mut viewers = self.viewers();
        viewers.is_shutdown = true;
        viewers.all.clear();
    }

    async fn broadcast_all(&self, state: Arc<ServerState>) -> Infallible {
        let mut builder = EventBuilder::new(state);
        let mut ticks = interval(EVENT_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if self.viewers().all.is_empty() {
                self.viewers().latest = None;
                self.joined.notified().await;
                builder.reset();
                ticks.reset_immediately();
            }
            ticks.tick().await;
            // Counting keys visits every slot in memory: too slow for an async thread.
            let built = tokio::task::spawn_blocking(move || {
                let event = builder.build(Instant::now());
                (builder, event)
            });
            let Ok((returned, event)) = built.await else {
                // The runtime is shutting down.
                return std::future::pending().await;
            };
            builder = returned;
            self.broadcast(event);
        }
    }

    fn broadcast(&self, event: Bytes) {
        let mut viewers = self.viewers();
        viewers
            .all
            .retain_mut(|viewer| match viewer.events.try_send(event.clone()) {
                Ok(()) => {
                    viewer.skipped = 0;
                    true
                }
                Err(mpsc::error::TrySendError::Full(_)) => {
                    viewer.skipped += 1;
                    viewer.skipped < MAX_SKIPPED_EVENTS
                }
                Err(mpsc::error::TrySendError::Closed(_)) => false,
            });
        viewers.latest = Some(event);
    }

    fn viewers(&self) -> MutexGuard<'_, Viewers> {
        // No statement leaves the list half changed.
        self.viewers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn shutting_down() -> Problem {
    Problem::new(Code::Closed, "the server is shutting down")
}
