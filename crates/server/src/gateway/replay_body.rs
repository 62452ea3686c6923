//! A body from memory, or the buffered start of one that is still being received.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

use super::body::{BodyError, ResponseBody};

/// Buffered bytes, followed by trailers or by the rest of the body.
#[derive(Debug)]
pub(super) struct ReplayBody {
    buffered: Bytes,
    trailers: Option<HeaderMap>,
    rest: Option<Box<ResponseBody>>,
}

impl ReplayBody {
    pub(super) fn new(
        buffered: Bytes,
        trailers: Option<HeaderMap>,
        rest: Option<Box<ResponseBody>>,
    ) -> Self {
        ReplayBody {
            buffered,
            trailers,
            rest,
        }
    }

    pub(super) fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if !self.buffered.is_empty() {
            let buffered = std::mem::take(&mut self.buffered);
            return Poll::Ready(Some(Ok(Frame::data(buffered))));
        }
        match (&mut self.rest, self.trailers.take()) {
            (Some(rest), _) => Pin::new(&mut **rest).poll_frame(context),
            (None, Some(trailers)) => Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
            (None, None) => Poll::Ready(None),
        }
    }

    pub(super) fn is_end_stream(&self) -> bool {
        let rest = self.rest.as_ref();
        self.buffered.is_empty()
            && self.trailers.is_none()
            && rest.is_none_or(|rest| rest.is_end_stream())
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        let len = self.buffered.len() as u64;
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
