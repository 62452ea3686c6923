//! `/live/events`: what the server does, told once a second to whoever looks. One look serves all
//! viewers, and nobody looks while there are none. Knows the running server; knows nothing of pages.

mod body;
mod event;
mod latency;

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval};

pub(super) use self::body::Events;
use self::event::Figures;
use crate::state::Serving;

/// The most viewers at a time.
const MOST_VIEWERS: usize = 64;
/// How many events wait for a viewer that does not read, and how many it may miss before it is
/// given up.
const WAITING: usize = 2;
const MOST_MISSED: u32 = 30;
/// How often everybody is told.
const EVERY: Duration = Duration::from_secs(1);

/// Who looks, and what they were told last.
pub(super) struct Live {
    viewers: Mutex<Viewers>,
    /// Somebody came while nobody was there.
    came: Notify,
}

#[derive(Default)]
struct Viewers {
    all: Vec<Viewer>,
    latest: Option<Bytes>,
    ended: bool,
}

struct Viewer {
    events: mpsc::Sender<Bytes>,
    missed: u32,
}

/// Why nobody more can look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// There are [`MOST_VIEWERS`] already.
    Crowded,
    /// The server ends.
    Ended,
}

impl Live {
    /// Starts to look whenever somebody is there to be told, until told to stop.
    pub(super) fn start(serving: Arc<Serving>, stop: watch::Receiver<bool>) -> Arc<Self> {
        let live = Arc::new(Live {
            viewers: Mutex::default(),
            came: Notify::new(),
        });
        tokio::spawn(Arc::clone(&live).run(serving, stop));
        live
    }

    /// Lets somebody look.
    ///
    /// # Errors
    /// When too many do already, or the server ends.
    pub(super) fn join(&self) -> Result<Events, Full> {
        let mut viewers = self.viewers();
        viewers.all.retain(|viewer| !viewer.events.is_closed());
        if viewers.ended {
            return Err(Full::Ended);
        }
        if viewers.all.len() >= MOST_VIEWERS {
            return Err(Full::Crowded);
        }
        let (events, told) = mpsc::channel(WAITING);
        if let Some(latest) = &viewers.latest {
            let _ = events.try_send(latest.clone());
        }
        viewers.all.push(Viewer { events, missed: 0 });
        self.came.notify_one();
        Ok(Events::new(told))
    }

    async fn run(self: Arc<Self>, serving: Arc<Serving>, mut stop: watch::Receiver<bool>) {
        tokio::select! {
            never = self.look(serving) => match never {},
            _ = stop.wait_for(|stop| *stop) => {}
        }
        let mut viewers = self.viewers();
        viewers.ended = true;
        viewers.all.clear();
    }

    async fn look(&self, serving: Arc<Serving>) -> Infallible {
        let mut figures = Figures::new(serving);
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if self.viewers().all.is_empty() {
                self.viewers().latest = None;
                self.came.notified().await;
                figures.forget();
                ticks.reset_immediately();
            }
            ticks.tick().await;
            // Every place in memory is looked at, which would hold requests up.
            let looked = tokio::task::spawn_blocking(move || {
                let event = figures.event(Instant::now());
                (figures, event)
            });
            let Ok((again, event)) = looked.await else {
                // The runtime ends, and this with it.
                return std::future::pending().await;
            };
            figures = again;
            self.tell(event);
        }
    }

    fn tell(&self, event: Bytes) {
        let mut viewers = self.viewers();
        viewers
            .all
            .retain_mut(|viewer| match viewer.events.try_send(event.clone()) {
                Ok(()) => {
                    viewer.missed = 0;
                    true
                }
                Err(mpsc::error::TrySendError::Full(_)) => {
                    viewer.missed += 1;
                    viewer.missed < MOST_MISSED
                }
                Err(mpsc::error::TrySendError::Closed(_)) => false,
            });
        viewers.latest = Some(event);
    }

    fn viewers(&self) -> MutexGuard<'_, Viewers> {
        // What it holds is whole between any two statements.
        self.viewers.lock().unwrap_or_else(|held| held.into_inner())
    }
}
