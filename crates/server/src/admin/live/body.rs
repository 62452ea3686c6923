//! Answers of the admin listener: whole, or events for as long as somebody listens. Knows bodies;
//! knows nothing of what the events say.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use tokio::sync::mpsc;

/// The body of an answer.
pub(crate) enum Events {
    /// All there is.
    Whole(Full<Bytes>),
    /// An event after the other, until the server ends or gives the viewer up.
    Told(mpsc::Receiver<Bytes>),
}

impl Events {
    pub(super) fn new(told: mpsc::Receiver<Bytes>) -> Self {
        Events::Told(told)
    }
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Events::Whole(whole) => Pin::new(whole).poll_frame(context),
            Events::Told(told) => told
                .poll_recv(context)
                .map(|event| event.map(|event| Ok(Frame::data(event)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Events::Whole(whole) => whole.is_end_stream(),
            Events::Told(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Events::Whole(whole) => whole.size_hint(),
            Events::Told(_) => SizeHint::default(),
        }
    }
}
