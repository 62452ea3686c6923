//! A body that was kept in memory, or the start of one whose rest is still coming.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

use super::body::{Reply, Stopped};

/// A body that was kept, and what comes after it.
#[derive(Debug)]
pub(super) struct Again {
    body: Bytes,
    trailers: Option<HeaderMap>,
    rest: Option<Box<Reply>>,
}

impl Again {
    pub(super) fn new(body: Bytes, trailers: Option<HeaderMap>, rest: Option<Box<Reply>>) -> Self {
        Again {
            body,
            trailers,
            rest,
        }
    }

    pub(super) fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Stopped>>> {
        if !self.body.is_empty() {
            let body = std::mem::take(&mut self.body);
            return Poll::Ready(Some(Ok(Frame::data(body))));
        }
        match (&mut self.rest, self.trailers.take()) {
            (Some(rest), _) => Pin::new(&mut **rest).poll_frame(context),
            (None, Some(trailers)) => Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
            (None, None) => Poll::Ready(None),
        }
    }

    pub(super) fn is_end_stream(&self) -> bool {
        let rest = self.rest.as_ref();
        self.body.is_empty()
            && self.trailers.is_none()
            && rest.is_none_or(|rest| rest.is_end_stream())
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        let len = self.body.len() as u64;
        let Some(rest) = &self.rest else {
            return SizeHint::with_exact(len);
        };
        let rest = rest.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(len));
        if let Some(upper) = rest.upper().and_then(|upper| upper.checked_add(len)) {
            hint.set_upper(upper);
        }
        hint
    }
}
