//! The body of an answer: the service's own, or what the gate says.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// The body of an answer: the service's own, or what the gate says.
    #[derive(Debug)]
    pub struct GateBody<B> {
        #[pin]
        inner: Inner<B>,
    }
}

pin_project! {
    #[project = InnerProjection]
    #[derive(Debug)]
    enum Inner<B> {
        Service { #[pin] body: B },
        Gate { text: Bytes },
    }
}

impl<B> GateBody<B> {
    pub(super) fn service(body: B) -> Self {
        let inner = Inner::Service { body };
        GateBody { inner }
    }

    pub(super) fn gate(text: Bytes) -> Self {
        let inner = Inner::Gate { text };
        GateBody { inner }
    }
}

impl<B: Body<Data = Bytes>> Body for GateBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().inner.project() {
            InnerProjection::Service { body } => body.poll_frame(context),
            InnerProjection::Gate { text } => Poll::Ready(match text.is_empty() {
                true => None,
                false => Some(Ok(Frame::data(std::mem::take(text)))),
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Inner::Service { body } => body.is_end_stream(),
            Inner::Gate { text } => text.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Service { body } => body.size_hint(),
            Inner::Gate { text } => SizeHint::with_exact(text.len() as u64),
        }
    }
}
