//! A request's body while its request is held back: read ahead a little, so that a client who leaves
//! with half of it sent is noticed. Knows nothing of why a request is held back.

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

use super::client::{Client, Inbound};

/// The most bytes that are read ahead. Who has sent more and leaves is noticed when its time comes.
const MOST: usize = 64 << 10;

/// What is kept around a frame, and what its bytes are a part of.
const FRAME: usize = 256;

/// A request's body as it comes from the client.
#[derive(Debug)]
pub(super) enum Upload {
    /// Nobody reads ahead.
    Plain(Incoming),
    /// Somebody may.
    Shared(Arc<Mutex<Ahead>>),
}

/// A body and what was read of it ahead.
#[derive(Debug)]
pub(super) struct Ahead {
    incoming: Incoming,
    frames: VecDeque<Frame<Bytes>>,
    bytes: usize,
    ended: bool,
    /// Whether the body is on its way to an upstream.
    claimed: bool,
}

/// Reads ahead for as long as a body is not on its way, and ends if the client leaves.
#[derive(Debug)]
pub(super) struct Leaves(Arc<Mutex<Ahead>>);

/// Makes a request's body one that is read ahead, where that is of use: HTTP/2 tells by itself who
/// leaves, and who waits to be asked for a body has not sent any.
pub(super) fn watched(
    request: Request<Incoming>,
    client: Arc<Client>,
) -> (Request<Inbound>, Option<Leaves>) {
    let plain = request.version() == Version::HTTP_2
        || request.body().is_end_stream()
        || request.headers().contains_key(EXPECT);
    let mut leaves = None;
    let request = request.map(|incoming| {
        let upload = match plain {
            true => Upload::Plain(incoming),
            false => {
                let ahead = Arc::new(Mutex::new(Ahead {
                    incoming,
                    frames: VecDeque::new(),
                    bytes: 0,
                    ended: false,
                    claimed: false,
                }));
                leaves = Some(Leaves(Arc::clone(&ahead)));
                Upload::Shared(ahead)
            }
        };
        Inbound { client, upload }
    });
    (request, leaves)
}

impl Upload {
    /// The body is on its way: from now on nobody else reads it.
    pub(super) fn claim(&self) {
        match self {
            Upload::Plain(_) => {}
            Upload::Shared(ahead) => lock(ahead).claimed = true,
        }
    }
}

fn lock(ahead: &Mutex<Ahead>) -> MutexGuard<'_, Ahead> {
    ahead.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a frame takes, with what is kept around it: a body may come in very small ones.
fn room(frame: &Frame<Bytes>) -> usize {
    FRAME + frame.data_ref().map_or(0, Bytes::len)
}

impl Future for Leaves {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut ahead = lock(&self.0);
        while !ahead.claimed && !ahead.ended && ahead.bytes < MOST {
            match Pin::new(&mut ahead.incoming).poll_frame(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => ahead.ended = true,
                Poll::Ready(Some(Err(_))) => return Poll::Ready(()),
                Poll::Ready(Some(Ok(frame))) => {
                    ahead.bytes += room(&frame);
                    ahead.frames.push_back(frame);
                }
            }
        }
        Poll::Pending
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Upload::Plain(incoming) => Pin::new(incoming).poll_frame(context),
            Upload::Shared(ahead) => {
                let mut ahead = lock(ahead);
                ahead.claimed = true;
                match ahead.frames.pop_front() {
                    Some(frame) => {
                        ahead.bytes -= room(&frame);
                        Poll::Ready(Some(Ok(frame)))
                    }
                    None if ahead.ended => Poll::Ready(None),
                    None => Pin::new(&mut ahead.incoming).poll_frame(context),
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Upload::Plain(incoming) => incoming.is_end_stream(),
            Upload::Shared(ahead) => {
                let ahead = lock(ahead);
                ahead.frames.is_empty() && (ahead.ended || ahead.incoming.is_end_stream())
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Upload::Plain(incoming) => incoming.size_hint(),
            Upload::Shared(ahead) => {
                let ahead = lock(ahead);
                let (rest, ahead) = (ahead.incoming.size_hint(), ahead.bytes as u64);
                let mut hint = SizeHint::new();
                hint.set_lower(rest.lower() + ahead);
                if let Some(upper) = rest.upper() {
                    hint.set_upper(upper + ahead);
                }
                hint
            }
        }
    }
}
