//! The bytes of a client's connection on their way: when they come, what their heads look like,
//! whether the client makes room for answers. Knows nothing of what they mean.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection_state::ConnectionState;
use super::framing_scanner::Scan;
use super::idle_timeout::Timer;
use crate::malformed::{Instead, only};

/// A client's connection.
#[derive(Debug)]
pub(super) struct Wire<T> {
    inner: T,
    watch: Arc<ConnectionState>,
    scan: Scan,
    full: Timer,
    instead: Instead,
}

impl<T> Wire<T> {
    pub(super) fn new(inner: T, watch: Arc<ConnectionState>, write: Duration) -> Self {
        Wire {
            inner,
            watch,
            scan: Scan::default(),
            full: Timer::new(write),
            instead: Instead::default(),
        }
    }

    /// Whether bytes are a bare refusal of what came instead of a request, and not an answer to
    /// one, which might look the same.
    fn refuses(&mut self, bytes: &[u8]) -> bool {
        self.watch.reads_head() && self.instead.takes(bytes)
    }

    /// Passes on whether bytes could be written, unless they could not for too long.
    fn written<R>(
        &mut self,
        context: &mut Context<'_>,
        poll: Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        match poll {
            Poll::Ready(done) => {
                self.full.stop();
                Poll::Ready(done)
            }
            Poll::Pending => {
                ready!(self.full.poll(context));
                let late = io::Error::new(io::ErrorKind::TimedOut, "the client does not read");
                Poll::Ready(Err(late))
            }
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Wire<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(context, buffer))?;
        let new = &buffer.filled()[before..];
        if !new.is_empty() && !this.watch.is_http2() {
            this.watch.read();
            if this.scan.finds_both(new) {
                this.watch.two_lengths();
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Wire<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let poll = match this.refuses(bytes) {
            true => this.instead.poll(&mut this.inner, context, bytes.len()),
            false => Pin::new(&mut this.inner).poll_write(context, bytes),
        };
        this.written(context, poll)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let poll = match only(bytes) {
            Some(only) if this.refuses(only) => {
                this.instead.poll(&mut this.inner, context, only.len())
            }
            Some(_) | None => Pin::new(&mut this.inner).poll_write_vectored(context, bytes),
        };
        this.written(context, poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let poll = Pin::new(&mut this.inner).poll_flush(context);
        this.written(context, poll)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let poll = Pin::new(&mut this.inner).poll_shutdown(context);
        this.written(context, poll)
    }
}
