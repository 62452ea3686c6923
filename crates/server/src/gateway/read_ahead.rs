//! Reads ahead in a request's body while the request is delayed, so that a client that disconnects
//! in the middle of its body is noticed.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::EXPECT;
use http::{Request, Version};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::body::prepend;
use super::connection_state::ConnectionState;

/// How much is read ahead. With more than that a disconnect is noticed only on forwarding.
const MAX_BYTES: usize = 64 << 10;
/// What a buffered frame takes besides its bytes: a body may come in very small frames.
const FRAME_OVERHEAD_BYTES: usize = 256;

/// A request's body and its connection: as a request extension the connection would cost a lookup.
#[derive(Debug)]
pub(super) struct InboundBody {
    pub(super) connection: Arc<ConnectionState>,
    pub(super) body: ClientBody,
}

#[derive(Debug)]
pub(super) enum ClientBody {
    Plain(Incoming),
    ReadAhead(Arc<Mutex<Buffer>>),
}

#[derive(Debug)]
pub(super) struct Buffer {
    incoming: Incoming,
    frames: VecDeque<Frame<Bytes>>,
    bytes: usize,
    ended: bool,
    /// Whether the body is being forwarded, which ends reading ahead.
    forwarding: bool,
}

/// Reads ahead until the body is forwarded; ready if the client disconnects.
#[derive(Debug)]
pub(super) struct Disconnect(Arc<Mutex<Buffer>>);

/// Makes a request's body one that is read ahead, where that is needed: HTTP/2 reports a disconnect
/// by itself, and a client that waits for `100 Continue` has not sent a body yet.
pub(super) fn wrap(
    request: Request<Incoming>,
    connection: Arc<ConnectionState>,
) -> (Request<InboundBody>, Option<Disconnect>) {
    let plain = request.version() == Version::HTTP_2
        || request.body().is_end_stream()
        || request.headers().contains_key(EXPECT);
    let mut disconnect = None;
    let request = request.map(|incoming| {
        let body = match plain {
            true => ClientBody::Plain(incoming),
            false => {
                let buffer = Arc::new(Mutex::new(Buffer {
                    incoming,
                    frames: VecDeque::new(),
                    bytes: 0,
                    ended: false,
                    forwarding: false,
                }));
                disconnect = Some(Disconnect(Arc::clone(&buffer)));
                ClientBody::ReadAhead(buffer)
            }
        };
        InboundBody { connection, body }
    });
    (request, disconnect)
}

impl ClientBody {
    pub(super) fn start_forwarding(&self) {
        match self {
            ClientBody::Plain(_) => {}
            ClientBody::ReadAhead(buffer) => lock(buffer).forwarding = true,
        }
    }
}

fn lock(buffer: &Mutex<Buffer>) -> MutexGuard<'_, Buffer> {
    buffer.lock().unwrap_or_else(PoisonError::into_inner)
}

fn buffered_bytes(frame: &Frame<Bytes>) -> usize {
    FRAME_OVERHEAD_BYTES + frame.data_ref().map_or(0, Bytes::len)
}

impl Future for Disconnect {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut buffer = lock(&self.0);
        while !buffer.forwarding && !buffer.ended && buffer.bytes < MAX_BYTES {
            match Pin::new(&mut buffer.incoming).poll_frame(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => buffer.ended = true,
                Poll::Ready(Some(Err(_))) => return Poll::Ready(()),
                Poll::Ready(Some(Ok(frame))) => {
                    buffer.bytes += buffered_bytes(&frame);
                    buffer.frames.push_back(frame);
                }
            }
        }
        Poll::Pending
    }
}

impl Body for ClientBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            ClientBody::Plain(incoming) => Pin::new(incoming).poll_frame(context),
            ClientBody::ReadAhead(buffer) => {
                let mut buffer = lock(buffer);
                buffer.forwarding = true;
                match buffer.frames.pop_front() {
                    Some(frame) => {
                        buffer.bytes -= buffered_bytes(&frame);
                        Poll::Ready(Some(Ok(frame)))
                    }
                    None if buffer.ended => Poll::Ready(None),
                    None => Pin::new(&mut buffer.incoming).poll_frame(context),
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            ClientBody::Plain(incoming) => incoming.is_end_stream(),
            ClientBody::ReadAhead(buffer) => {
                let buffer = lock(buffer);
                buffer.frames.is_empty() && (buffer.ended || buffer.incoming.is_end_stream())
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            ClientBody::Plain(incoming) => incoming.size_hint(),
            ClientBody::ReadAhead(buffer) => {
                let buffer = lock(buffer);
                let overhead = FRAME_OVERHEAD_BYTES * buffer.frames.len();
                prepend(buffer.bytes - overhead, &buffer.incoming.size_hint())
            }
        }
    }
}
