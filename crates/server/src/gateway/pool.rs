//! Connections to one server that speaks HTTP/1.1, kept for the next request. Knows nothing of what
//! is asked.
//!
//! A client that knows many servers looks each up by its name and starts a task to learn when a
//! connection is free again, for every request; with one server neither is needed.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use http::{Request, Uri};
use hyper::client::conn::http1::{self, SendRequest};
use tokio::time::{Instant, sleep};
use tower_service::Service;

use super::body::Asked;
use super::upstreams::{Https, Outcome, Unanswered};

/// Connections to one server.
pub(super) struct Pool(Arc<Shared>);

struct Shared {
    to: Uri,
    https: Https,
    idle: Mutex<Idle>,
    most: usize,
    longest: Duration,
}

/// Connections that nobody uses, the one that was used last at the end.
#[derive(Default)]
struct Idle {
    all: Vec<Kept>,
    /// Whether somebody looks after those that are kept for too long.
    swept: bool,
}

struct Kept {
    sender: SendRequest<Asked>,
    since: Instant,
}

/// A connection in use.
pub(super) struct Lent {
    sender: SendRequest<Asked>,
    pool: Arc<Shared>,
}

impl Pool {
    /// At most so many connections are kept, and for no longer than this.
    pub(super) fn new(to: Uri, https: Https, most: usize, longest: Duration) -> Self {
        Pool(Arc::new(Shared {
            to,
            https,
            idle: Mutex::default(),
            most,
            longest,
        }))
    }

    /// Sends a request, at once if a connection is free. One that closes before it takes the request
    /// costs nothing but another try.
    pub(super) fn send(
        &self,
        request: Request<Asked>,
        now: Instant,
    ) -> impl Future<Output = Outcome> + use<> {
        let first = match self.0.take(now) {
            Some(mut sender) => Ok((sender.try_send_request(request), sender)),
            None => Err(request),
        };
        let pool = Arc::clone(&self.0);
        async move {
            let request = match first {
                Ok((answer, sender)) => match answer.await {
                    Ok(answer) => return Ok((answer, Some(Lent { sender, pool }))),
                    Err(mut unsent) => match unsent.take_message() {
                        Some(request) => request,
                        None => return Err(Unanswered::Broken),
                    },
                },
                Err(request) => request,
            };
            // Seldom: the others' futures need not have room for it.
            Box::pin(pool.ask_anew(request)).await
        }
    }
}

impl Shared {
    /// Sends a request on a connection of its own, or on one that has become free.
    async fn ask_anew(self: Arc<Self>, mut request: Request<Asked>) -> Outcome {
        while let Some(mut sender) = self.take(Instant::now()) {
            match sender.try_send_request(request).await {
                Ok(answer) => return Ok((answer, Some(Lent { sender, pool: self }))),
                Err(mut unsent) => match unsent.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(Unanswered::Broken),
                },
            }
        }
        let mut sender = self.connect().await?;
        match sender.try_send_request(request).await {
            Ok(answer) => Ok((answer, Some(Lent { sender, pool: self }))),
            Err(_) => Err(Unanswered::Broken),
        }
    }

    async fn connect(&self) -> Result<SendRequest<Asked>, Unanswered> {
        let stream = self.https.clone().call(self.to.clone()).await;
        let stream = stream.map_err(Unanswered::Unreached)?;
        let opened = http1::handshake(stream).await;
        let (sender, connection) = opened.map_err(|error| Unanswered::Unreached(error.into()))?;
        // How it ends, whoever uses it is told.
        tokio::spawn(connection.with_upgrades());
        Ok(sender)
    }

    /// A connection that can be used at once; those that have closed are forgotten on the way.
    fn take(&self, now: Instant) -> Option<SendRequest<Asked>> {
        let mut idle = self.idle();
        let mut place = idle.all.len();
        while let Some(before) = place.checked_sub(1) {
            place = before;
            let kept = &idle.all[place];
            if now.duration_since(kept.since) > self.longest {
                // As have all before it.
                idle.all.drain(..=place);
                return None;
            }
            if kept.sender.is_ready() {
                return Some(idle.all.remove(place).sender);
            }
            if kept.sender.is_closed() {
                idle.all.remove(place);
            }
        }
        None
    }

    fn keep(self: &Arc<Self>, sender: SendRequest<Asked>) {
        let mut idle = self.idle();
        if sender.is_closed() || idle.all.len() >= self.most {
            return;
        }
        let since = Instant::now();
        idle.all.push(Kept { sender, since });
        if !idle.swept {
            idle.swept = true;
            tokio::spawn(sweep(Arc::downgrade(self), self.longest));
        }
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes connections that were kept for too long, until none is left.
async fn sweep(pool: Weak<Shared>, longest: Duration) {
    loop {
        sleep(longest).await;
        let Some(pool) = pool.upgrade() else { return };
        let now = Instant::now();
        let mut idle = pool.idle();
        idle.all
            .retain(|kept| now.duration_since(kept.since) <= longest && !kept.sender.is_closed());
        if idle.all.is_empty() {
            idle.swept = false;
            return;
        }
    }
}

impl Lent {
    /// Its answer has come to an end: the next request can have it.
    pub(super) fn give_back(self) {
        let Lent { sender, pool } = self;
        pool.keep(sender);
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("to", &self.0.to)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lent").finish_non_exhaustive()
    }
}
