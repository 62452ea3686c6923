//! Reads ahead in a request's body: for a cost that is in it, and while the request is delayed, so that
//! a client that disconnects in the middle of its body is noticed.

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
use tallygate::http::{JsonPath, MAX_JSON_BYTES, RequestJsonReader};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::body::{UploadLimits, UploadWait, prepend};
use super::connection_state::ConnectionState;
use super::error::GatewayError;

/// How much is read ahead. With more than that a disconnect is noticed only on forwarding.
const MAX_BYTES: usize = 64 << 10;
/// How many requests are read for their cost at a time: 256 MiB in all.
const MAX_JSON_BODIES: usize = (256 << 20) / MAX_JSON_BYTES;
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
    /// The memory for what was read for a cost.
    memory: Option<OwnedSemaphorePermit>,
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
                    memory: None,
                }));
                disconnect = Some(Disconnect(Arc::clone(&buffer)));
                ClientBody::ReadAhead(buffer)
            }
        };
        InboundBody { connection, body }
    });
    (request, disconnect)
}

/// Bounds the memory for the bodies of all requests that are read for their cost.
#[derive(Debug)]
pub(super) struct JsonMemory(Arc<Semaphore>);

impl Default for JsonMemory {
    fn default() -> Self {
        JsonMemory(Arc::new(Semaphore::new(MAX_JSON_BODIES)))
    }
}

/// Reads a request's body as far as its cost may be in it, and inserts what is found. If too many other
/// requests are being read it is not read, and costs the default.
///
/// # Errors
/// When the client is too slow or disconnects.
pub(super) async fn read_json(
    request: Request<Incoming>,
    connection: Arc<ConnectionState>,
    paths: Vec<JsonPath>,
    limits: UploadLimits,
    memory: &JsonMemory,
) -> Result<(Request<InboundBody>, Option<Disconnect>), GatewayError> {
    let reader = RequestJsonReader::new(request.headers(), paths);
    let permit = Arc::clone(&memory.0).try_acquire_owned();
    let (Some(mut reader), Ok(permit)) = (reader, permit) else {
        return Ok(wrap(request, connection));
    };
    let (mut parts, mut incoming) = request.into_parts();
    let mut start = Vec::new();
    let mut frames = VecDeque::new();
    let mut wait = UploadWait::new(limits);
    let mut ended = false;
    loop {
        let frame = wait.next(&mut incoming).await?;
        match frame.map(Frame::into_data) {
            None => ended = true,
            Some(Ok(data)) => {
                if reader.read(&data) {
                    start.extend_from_slice(&data);
                    continue;
                }
                frames.push_back(Frame::data(data));
            }
            Some(Err(other)) => frames.push_back(other),
        }
        break;
    }
    if !start.is_empty() {
        frames.push_front(Frame::data(Bytes::from(start)));
    }
    parts.extensions.insert(reader.finish());
    let buffer = Arc::new(Mutex::new(Buffer {
        incoming,
        bytes: frames.iter().map(buffered_bytes).sum(),
        frames,
        ended,
        forwarding: false,
        memory: Some(permit),
    }));
    // HTTP/2 reports a disconnect by itself.
    let is_http2 = parts.version == Version::HTTP_2;
    let disconnect = (!is_http2).then(|| Disconnect(Arc::clone(&buffer)));
    let body = ClientBody::ReadAhead(buffer);
    let body = InboundBody { connection, body };
    Ok((Request::from_parts(parts, body), disconnect))
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
                    None => {
                        buffer.memory = None;
                        Pin::new(&mut buffer.incoming).poll_frame(context)
                    }
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
