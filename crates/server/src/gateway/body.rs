//! Bodies on their way through, piece by piece, never kept: bounded in size going up, in time both
//! ways. Knows nothing of heads.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use pin_project_lite::pin_project;
use tallygate::tower::FromBytes;
use tokio::time::Instant;

use super::connection_state::InFlight;
use super::error::Problem;
use super::idle_timeout::Timer;
use super::pool::Lent;
use super::read_ahead::Upload;
use super::replay_body::Again;

/// A request's body on its way to an upstream.
// Small: it is moved from hand to hand with its request. Most have none.
#[derive(Debug)]
pub(super) struct Asked(Option<Box<Going>>);

#[derive(Debug)]
struct Going {
    upload: Upload,
    progress: Arc<Progress>,
    left: u64,
    idle: Timer,
}

/// How far a request's body has come, and what stopped it.
#[derive(Debug)]
pub(super) struct Progress {
    started: Instant,
    /// Milliseconds since then.
    last: AtomicU64,
    fault: AtomicU8,
}

const TOO_LARGE: u8 = 1;
const LATE: u8 = 2;
const BROKEN: u8 = 3;

impl Progress {
    /// When the last part was passed on.
    pub(super) fn last(&self) -> Instant {
        self.started + Duration::from_millis(self.last.load(Relaxed))
    }

    /// What stopped the body, if that was the client's doing.
    pub(super) fn fault(&self) -> Option<Problem> {
        match self.fault.load(Relaxed) {
            0 => None,
            TOO_LARGE => Some(Problem::BodyTooLarge),
            LATE => Some(Problem::BodyLate),
            _ => Some(Problem::BadRequest("the body broke off or is malformed")),
        }
    }

    fn moved(&self) {
        let millis = self.started.elapsed().as_millis();
        self.last
            .store(u64::try_from(millis).unwrap_or(u64::MAX), Relaxed);
    }
}

impl Asked {
    /// No body.
    pub(super) fn empty() -> Self {
        Asked(None)
    }

    /// A body of at most so many bytes, and how far it has come.
    pub(super) fn new(upload: Upload, most: u64, idle: Duration) -> (Self, Arc<Progress>) {
        let progress = Arc::new(Progress {
            started: Instant::now(),
            last: AtomicU64::new(0),
            fault: AtomicU8::new(0),
        });
        let going = Going {
            upload,
            progress: Arc::clone(&progress),
            left: most,
            idle: Timer::new(idle),
        };
        (Asked(Some(Box::new(going))), progress)
    }
}

impl Body for Asked {
    type Data = Bytes;
    type Error = Stopped;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Stopped>>> {
        let Some(going) = &mut self.get_mut().0 else {
            return Poll::Ready(None);
        };
        let Going {
            upload,
            progress,
            left,
            idle,
        } = &mut **going;
        let stop = |fault| {
            progress.fault.store(fault, Relaxed);
            Poll::Ready(Some(Err(Stopped)))
        };
        let Poll::Ready(frame) = Pin::new(upload).poll_frame(context) else {
            ready!(idle.poll(context));
            return stop(LATE);
        };
        idle.stop();
        progress.moved();
        match frame {
            None => Poll::Ready(None),
            Some(Err(_)) => stop(BROKEN),
            Some(Ok(frame)) => {
                let len = frame.data_ref().map_or(0, Bytes::len) as u64;
                match left.checked_sub(len) {
                    Some(less) => *left = less,
                    None => return stop(TOO_LARGE),
                }
                Poll::Ready(Some(Ok(frame)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let going = self.0.as_ref();
        going.is_none_or(|going| going.upload.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Some(going) => going.upload.size_hint(),
            None => SizeHint::with_exact(0),
        }
    }
}

/// A body stopped before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stopped;

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the body stopped before its end")
    }
}

impl std::error::Error for Stopped {}

/// An answer's body on its way to the client.
#[derive(Debug)]
pub(super) enum Reply {
    /// As it comes from the upstream.
    Upstream(Coming),
    /// What the gateway says.
    Text(Bytes),
    /// One that was kept, or the start of one.
    Again(Again),
}

/// A body that an upstream sends.
#[derive(Debug)]
pub(super) struct Coming {
    inner: Incoming,
    /// What it comes on, until it has come.
    lent: Option<Lent>,
    idle: Timer,
    until: Instant,
}

impl Coming {
    /// A body whose pieces may be so far apart, and which has to end by then.
    pub(super) fn new(inner: Incoming, lent: Option<Lent>, idle: Duration, until: Instant) -> Self {
        let mut coming = Coming {
            inner,
            lent,
            idle: Timer::new(idle),
            until,
        };
        if coming.inner.is_end_stream() {
            coming.ended();
        }
        coming
    }

    fn ended(&mut self) {
        if let Some(lent) = self.lent.take() {
            lent.give_back();
        }
    }
}

impl Body for Coming {
    type Data = Bytes;
    type Error = Stopped;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Stopped>>> {
        let this = self.get_mut();
        let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(context) else {
            ready!(this.idle.poll(context));
            return Poll::Ready(Some(Err(Stopped)));
        };
        this.idle.stop();
        if frame.is_none() || this.inner.is_end_stream() {
            this.ended();
        }
        Poll::Ready(match frame {
            None => None,
            Some(Err(_)) => Some(Err(Stopped)),
            Some(Ok(_)) if Instant::now() > this.until => Some(Err(Stopped)),
            Some(Ok(frame)) => Some(Ok(frame)),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl FromBytes for Reply {
    fn from_bytes(bytes: Bytes) -> Self {
        Reply::Text(bytes)
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Stopped;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Stopped>>> {
        match self.get_mut() {
            Reply::Upstream(coming) => Pin::new(coming).poll_frame(context),
            Reply::Again(again) => again.poll_frame(context),
            Reply::Text(text) => Poll::Ready(match text.is_empty() {
                true => None,
                false => Some(Ok(Frame::data(std::mem::take(text)))),
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Reply::Upstream(coming) => coming.is_end_stream(),
            Reply::Again(again) => again.is_end_stream(),
            Reply::Text(text) => text.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Reply::Upstream(coming) => coming.size_hint(),
            Reply::Again(again) => again.size_hint(),
            Reply::Text(text) => SizeHint::with_exact(text.len() as u64),
        }
    }
}

pin_project! {
    /// An answer's body that keeps its request in flight until it is sent or given up.
    #[derive(Debug)]
    pub(super) struct Held<B> {
        #[pin]
        inner: B,
        in_flight: InFlight,
    }
}

impl<B> Held<B> {
    pub(super) fn new(inner: B, in_flight: InFlight) -> Self {
        Held { inner, in_flight }
    }
}

impl<B: Body> Body for Held<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        self.project().inner.poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
