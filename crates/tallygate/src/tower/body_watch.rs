//! Watches a response's body as it passes, up to its end.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

/// Sees the data of a response's body as it passes, and whether it reached its end.
///
/// Dropped before, the response broke off or its client disconnected.
pub struct BodyWatch {
    /// `None` after the end.
    watcher: Option<Box<dyn Watcher>>,
    /// The bytes up to the end, if the response says how many there are.
    left: Option<u64>,
}

/// What a [`BodyWatch`] calls.
pub(super) trait Watcher: Send + Sync {
    /// A piece of the body passes.
    fn data(&mut self, data: &[u8]);

    /// The body has ended as it should.
    fn end(self: Box<Self>);
}

impl BodyWatch {
    /// A watch of a body of so many bytes, if that is known.
    pub(super) fn new(watcher: Box<dyn Watcher>, content_length: Option<u64>) -> Self {
        BodyWatch {
            watcher: Some(watcher),
            left: content_length,
        }
    }

    /// A piece of the body passes.
    pub fn data(&mut self, data: &[u8]) {
        let Some(watcher) = &mut self.watcher else {
            return;
        };
        watcher.data(data);
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(data.len() as u64);
            // A server need not poll a body again after that.
            if *left == 0 && !data.is_empty() {
                self.end();
            }
        }
    }

    /// The body has ended as it should. Later calls do nothing.
    pub fn end(&mut self) {
        if let Some(watcher) = self.watcher.take() {
            watcher.end();
        }
    }
}

impl fmt::Debug for BodyWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyWatch")
            .field("left", &self.left)
            .finish_non_exhaustive()
    }
}

pin_project! {
    /// A body whose data a [`BodyWatch`] sees.
    #[derive(Debug)]
    pub struct WatchedBody<B> {
        #[pin]
        body: B,
        watch: BodyWatch,
    }
}

impl<B: Body<Data = Bytes>> WatchedBody<B> {
    /// Lets a watch see a body.
    pub fn new(body: B, mut watch: BodyWatch) -> Self {
        // A server does not poll an empty body.
        if body.is_end_stream() {
            watch.end();
        }
        WatchedBody { body, watch }
    }
}

impl<B: Body<Data = Bytes>> Body for WatchedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        poll_watched(this.body, this.watch, context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Polls a body and shows what it returns to a watch.
pub(super) fn poll_watched<B: Body<Data = Bytes>>(
    mut body: Pin<&mut B>,
    watch: &mut BodyWatch,
    context: &mut Context<'_>,
) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
    let polled = ready!(body.as_mut().poll_frame(context));
    match &polled {
        Some(Ok(frame)) => {
            if let Some(data) = frame.data_ref() {
                watch.data(data);
            }
            if body.is_end_stream() {
                watch.end();
            }
        }
        Some(Err(_)) => watch.watcher = None,
        None => watch.end(),
    }
    Poll::Ready(polled)
}
