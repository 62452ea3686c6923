//! A client's socket: records reads, scans heads for conflicting framing and limits how long a
//! write may block.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection_state::ConnectionState;
use super::idle_timeout::IdleTimeout;
use super::smuggling::FramingScanner;
use crate::malformed::MalformedIo;

#[derive(Debug)]
pub(super) struct ClientIo<T> {
    inner: MalformedIo<T>,
    state: Arc<ConnectionState>,
    scanner: FramingScanner,
    write_timeout: IdleTimeout,
}

impl<T> ClientIo<T> {
    pub(super) fn new(inner: T, state: Arc<ConnectionState>, write_timeout: Duration) -> Self {
        ClientIo {
            inner: MalformedIo::new(inner),
            state,
            scanner: FramingScanner::default(),
            write_timeout: IdleTimeout::new(write_timeout),
        }
    }

    /// Polls the socket for writing, for at most the write timeout.
    fn poll_with_timeout<R>(
        &mut self,
        context: &mut Context<'_>,
        poll: impl FnOnce(Pin<&mut MalformedIo<T>>, &mut Context<'_>) -> Poll<io::Result<R>>,
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

impl<T: AsyncRead + Unpin> AsyncRead for ClientIo<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(context, buffer))?;
        let bytes = &buffer.filled()[before..];
        if !bytes.is_empty() && !this.state.is_http2() {
            this.state.record_read();
            if this.scanner.finds_conflict(bytes) {
                this.state.record_conflicting_framing();
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for ClientIo<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        // With a request in flight an upstream's response may look the same.
        this.inner.rewrites = this.state.is_reading_head();
        this.poll_with_timeout(context, |io, context| io.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.inner.rewrites = this.state.is_reading_head();
        this.poll_with_timeout(context, |io, context| {
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

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut()
            .poll_with_timeout(context, |io, context| io.poll_shutdown(context))
    }
}
