//! The response body of the admin listener.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use tokio::sync::mpsc;

pub(crate) enum AdminBody {
    Full(Full<Bytes>),
    /// Server-sent events, until the server shuts down or disconnects the viewer.
    Events(mpsc::Receiver<Bytes>),
}

impl Body for AdminBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            AdminBody::Full(full) => Pin::new(full).poll_frame(context),
            AdminBody::Events(events) => events
                .poll_recv(context)
                .map(|event| event.map(|event| Ok(Frame::data(event)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            AdminBody::Full(full) => full.is_end_stream(),
            AdminBody::Events(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            AdminBody::Full(full) => full.size_hint(),
            AdminBody::Events(_) => SizeHint::default(),
        }
    }
}
