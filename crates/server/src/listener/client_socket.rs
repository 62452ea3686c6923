//! A client's socket: a blocked write times out, and closing lets the client read the last response.
//!
//! A socket that is closed while the client still sends is reset, and the client may lose a response
//! that it has not read yet. Clients that write a whole request before they read would then never see
//! why it was refused. So the end of the response is sent first, and what the client sends is read
//! and discarded for a while.

use std::future::Future;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::connections::Activity;
use crate::idle_timeout::IdleTimeout;

/// How much of a request is discarded after its response.
const MAX_DISCARDED_BYTES: usize = 16 << 20;
/// How long closing takes at most.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
const DISCARD_BUFFER_BYTES: usize = 16 << 10;

#[derive(Debug)]
pub(crate) struct ClientSocket<T> {
    inner: T,
    activity: Arc<Activity>,
    write_timeout: IdleTimeout,
    /// How long closing waits for more of the request.
    linger: Duration,
    closing: Option<Box<Closing>>,
}

#[derive(Debug)]
struct Closing {
    is_write_shut_down: bool,
    discarded_bytes: usize,
    deadline: Instant,
    timer: Pin<Box<Sleep>>,
    /// Whether something was read since the timer was set.
    moved: bool,
}

impl<T> ClientSocket<T> {
    pub(crate) fn new(
        inner: T,
        activity: Arc<Activity>,
        write_timeout: Duration,
        linger: Duration,
    ) -> Self {
        ClientSocket {
            inner,
            activity,
            write_timeout: IdleTimeout::new(write_timeout),
            linger,
            closing: None,
        }
    }

    /// Polls the socket for writing, for at most the write timeout.
    fn poll_with_timeout<R>(
        &mut self,
        context: &mut Context<'_>,
        poll: impl FnOnce(Pin<&mut T>, &mut Context<'_>) -> Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>>
    where
        T: Unpin,
    {
        if let Poll::Ready(result) = poll(Pin::new(&mut self.inner), context) {
            self.write_timeout.stop();
            return Poll::Ready(result);
        }
        ready!(self.write_timeout.poll(context));
        let error = io::Error::new(io::ErrorKind::TimedOut, "the client does not read");
        Poll::Ready(Err(error))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for ClientSocket<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(context, buffer))?;
        if buffer.filled().len() > before {
            this.activity.set_unread_input(true);
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ClientSocket<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut()
            .poll_with_timeout(context, |io, context| io.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_with_timeout(context, |io, context| {
            io.poll_write_vectored(context, slices)
        })
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut()
            .poll_with_timeout(context, |io, context| io.poll_flush(context))
    }

    /// Sends the end of the stream; then, if the client may still be sending, reads until it ends,
    /// is silent or has sent too much.
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let linger = this.linger;
        let closing = this
            .closing
            .get_or_insert_with(|| Box::new(Closing::new(linger)));
        if !closing.is_write_shut_down {
            match Pin::new(&mut this.inner).poll_shutdown(context) {
                Poll::Ready(result) => result?,
                Poll::Pending => return closing.poll_timer(context, linger).map(Ok),
            }
            closing.is_write_shut_down = true;
        }
        if !this.activity.has_unread_input() || this.activity.is_closing() {
            return Poll::Ready(Ok(()));
        }
        while closing.discarded_bytes < MAX_DISCARDED_BYTES {
            let mut bytes = [MaybeUninit::uninit(); DISCARD_BUFFER_BYTES];
            let mut buffer = ReadBuf::uninit(&mut bytes);
            match Pin::new(&mut this.inner).poll_read(context, &mut buffer) {
                Poll::Pending => return closing.poll_timer(context, linger).map(Ok),
                // The client is gone, which is how closing ends.
                Poll::Ready(Err(_)) => break,
                Poll::Ready(Ok(())) if buffer.filled().is_empty() => break,
                Poll::Ready(Ok(())) => {
                    closing.discarded_bytes += buffer.filled().len();
                    closing.moved = true;
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Closing {
    fn new(linger: Duration) -> Self {
        let now = Instant::now();
        let deadline = now + CLOSE_TIMEOUT;
        Closing {
            is_write_shut_down: false,
            discarded_bytes: 0,
            deadline,
            timer: Box::pin(sleep_until(deadline.min(now + linger))),
            moved: false,
        }
    }

    /// Ready when nothing was read for a while, or closing takes too long.
    fn poll_timer(&mut self, context: &mut Context<'_>, linger: Duration) -> Poll<()> {
        loop {
            ready!(self.timer.as_mut().poll(context));
            let now = Instant::now();
            if !std::mem::take(&mut self.moved) || now >= self.deadline {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(self.deadline.min(now + linger));
        }
    }
}
