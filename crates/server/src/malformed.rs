//! Rewrites hyper's bare rejections of malformed requests, a status line without a body, as problem
//! details on their way to the client.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::problem::Code;

#[derive(Debug)]
pub(crate) struct MalformedIo<T> {
    inner: T,
    /// Whether what is written now can be a bare rejection.
    pub(crate) rewrites: bool,
    replacement: Vec<u8>,
    written: usize,
}

impl<T> MalformedIo<T> {
    pub(crate) fn new(inner: T) -> Self {
        MalformedIo {
            inner,
            rewrites: true,
            replacement: Vec::new(),
            written: 0,
        }
    }
}

impl<T: AsyncWrite + Unpin> MalformedIo<T> {
    /// Whether a bare rejection is to be replaced, or is being replaced.
    fn replaces(&mut self, bytes: &[u8]) -> bool {
        if self.rewrites && self.replacement.is_empty() {
            self.replacement = rewrite(bytes).unwrap_or_default();
        }
        self.rewrites && !self.replacement.is_empty()
    }

    /// Writes the replacement. Once complete, `len` bytes count as written.
    fn poll_replacement(
        &mut self,
        context: &mut Context<'_>,
        len: usize,
    ) -> Poll<io::Result<usize>> {
        while let rest @ [_, ..] = &self.replacement[self.written..] {
            let written = ready!(Pin::new(&mut self.inner).poll_write(context, rest))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += written;
        }
        self.replacement.clear();
        self.written = 0;
        Poll::Ready(Ok(len))
    }
}

/// The only slice that is not empty.
fn single<'b>(slices: &'b [io::IoSlice<'_>]) -> Option<&'b [u8]> {
    let mut slices = slices.iter().filter(|slice| !slice.is_empty());
    let first = slices.next()?;
    slices.next().is_none().then_some(&**first)
}

/// A bare rejection as problem details; `None` if the bytes are anything else.
fn rewrite(bytes: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let head = text.strip_suffix("\r\n\r\n")?;
    let mut lines = head.split("\r\n");
    let status_line = lines.next()?;
    let (code, detail) = match status_line.strip_prefix("HTTP/1.1 ")?.get(..3)? {
        "400" => (Code::BadRequest, "this is not an HTTP request"),
        "414" => (Code::TargetTooLong, "the request's target is too long"),
        "431" => (
            Code::HeadTooLarge,
            "the request's head has too many bytes or headers",
        ),
        _ => return None,
    };
    let mut date = "";
    for line in lines {
        match line {
            "connection: close" | "content-length: 0" => {}
            _ if line.starts_with("date: ") => date = line,
            // A handler's response, not hyper's rejection.
            _ => return None,
        }
    }
    let json = code.details(detail).to_json();
    let len = json.len() + 1;
    let response = format!(
        "{status_line}\r\nconnection: close\r\ncontent-type: application/problem+json\r\n\
         content-length: {len}\r\n{date}\r\n\r\n{json}\n"
    );
    Some(response.into_bytes())
}

impl<T: AsyncRead + Unpin> AsyncRead for MalformedIo<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_read(context, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for MalformedIo<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        match this.replaces(bytes) {
            true => this.poll_replacement(context, bytes.len()),
            false => Pin::new(&mut this.inner).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        match single(slices) {
            Some(bytes) if this.replaces(bytes) => this.poll_replacement(context, bytes.len()),
            Some(_) | None => Pin::new(&mut this.inner).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const BARE: &[u8] = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n\
                          content-length: 0\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n";

    #[tokio::test]
    async fn a_bare_rejection_is_rewritten_whatever_the_socket_buffer() {
        for buffer in [1, 7, 4096] {
            let (near, mut far) = tokio::io::duplex(buffer);
            let mut io = MalformedIo::new(near);
            let write = tokio::spawn(async move {
                io.write_all(BARE).await.unwrap();
                io.write_all(b"more").await.unwrap();
            });
            let mut text = String::new();
            far.read_to_string(&mut text).await.unwrap();
            write.await.unwrap();
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with("HTTP/1.1 431 Request Header Fields Too Large\r\n"));
            assert!(head.contains("\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT"));
            let (json, more) = body.split_once('\n').unwrap();
            assert!(head.contains(&format!("\r\ncontent-length: {}\r\n", json.len() + 1)));
            assert_eq!(more, "more");
            let json: serde_json::Value = serde_json::from_str(json).unwrap();
            assert_eq!(
                (&json["status"], &json["code"]),
                (&431.into(), &"head-too-large".into())
            );
        }
    }

    #[test]
    fn other_responses_are_not_rewritten() {
        let is_rewritten = |text: &str| rewrite(text.as_bytes()).is_some();
        assert!(is_rewritten(
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n"
        ));
        for other in [
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n",
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nx: y\r\n\r\n",
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\nno",
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            "\r\n\r\n",
            "",
        ] {
            assert!(!is_rewritten(other), "{other}");
        }
    }
}
