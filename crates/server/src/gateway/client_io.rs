//! A client's socket: records reads and scans HTTP/1 requests for ambiguous framing.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection_state::ConnectionState;
use super::smuggling::{Ambiguity, FramingScanner};
use crate::listener::ClientSocket;
use crate::malformed::MalformedIo;

#[derive(Debug)]
pub(super) struct ClientIo<T> {
    inner: MalformedIo<ClientSocket<T>>,
    state: Arc<ConnectionState>,
    scanner: FramingScanner,
}

impl<T> ClientIo<T> {
    pub(super) fn new(socket: ClientSocket<T>, state: Arc<ConnectionState>) -> Self {
        ClientIo {
            inner: MalformedIo::new(socket),
            state,
            scanner: FramingScanner::default(),
        }
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
            if let Some((ambiguity, request)) = this.scanner.scan(bytes) {
                this.state.record_ambiguous_framing(request);
                // A request that has not begun is refused then; the body of one that has breaks off.
                if ambiguity == Ambiguity::Trailer && this.state.is_ambiguous() {
                    let problem = "a trailer ends with a line feed alone";
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, problem)));
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ClientIo<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        // With a request in flight an upstream's response may look the same.
        this.inner.rewrites = this.state.is_reading_head();
        Pin::new(&mut this.inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.inner.rewrites = this.state.is_reading_head();
        Pin::new(&mut this.inner).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.state.is_http2() {
            // A refused request resets its stream; a connection ends only if it is idle or abused.
            this.state.activity().set_unread_input(false);
        }
        Pin::new(&mut this.inner).poll_shutdown(context)
    }
}
