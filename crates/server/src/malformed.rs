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
    /// Whether a line has ended since the last write: the client has sent the whole request line.
    has_line: bool,
    replacement: Vec<u8>,
    written: usize,
}

impl<T> MalformedIo<T> {
    pub(crate) fn new(inner: T) -> Self {
        MalformedIo {
            inner,
            rewrites: true,
            has_line: false,
            replacement: Vec::new(),
            written: 0,
        }
    }
}

impl<T: AsyncWrite + Unpin> MalformedIo<T> {
    /// Whether a bare rejection is to be replaced, or is being replaced.
    fn replaces(&mut self, bytes: &[u8]) -> bool {
        if self.rewrites && self.replacement.is_empty() {
            self.replacement = rewrite(bytes, !self.has_line).unwrap_or_default();
        }
        self.has_line = false;
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

/// A bare rejection as problem details; `None` if the bytes are anything else. `in_target`: the request
/// line had not ended.
fn rewrite(bytes: &[u8], in_target: bool) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let head = text.strip_suffix("\r\n\r\n")?;
    let mut lines = head.split("\r\n");
    let status_line = lines.next()?;
    let status = status_line.strip_prefix("HTTP/1.1 ")?;
    let target_too_long = (
        "414 URI Too Long",
        Code::TargetTooLong,
        "the request's target is too long",
    );
    let (status, code, detail) = match status.get(..3)? {
        "400" => (status, Code::BadRequest, "this is not an HTTP request"),
        "414" => target_too_long,
        // hyper does not tell which part of the head is too long.
        "431" if in_target => target_too_long,
        "431" => (
            status,
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
    Some(response(status, code, detail, date))
}

/// A response of HTTP/1 that is the connection's last. The date is a header line, or empty.
pub(crate) fn response(status: &str, code: Code, detail: &str, date: &str) -> Vec<u8> {
    let json = code.details(detail).to_json();
    let len = json.len() + 1;
    let date_end = if date.is_empty() { "" } else { "\r\n" };
    let response = format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-type: application/problem+json\r\n\
         content-length: {len}\r\n{date}{date_end}\r\n{json}\n"
    );
    response.into_bytes()
}

impl<T: AsyncRead + Unpin> AsyncRead for MalformedIo<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(context, buffer))?;
        this.has_line =
            this.has_line || memchr::memchr(b'\n', &buffer.filled()[before..]).is_some();
        Poll::Ready(Ok(()))
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
            Some(_) | None => {
                this.has_line = false;
                Pin::new(&mut this.inner).poll_write_vectored(context, slices)
            }
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
        for (buffer, request, status, code) in [
            (
                1,
                &b"GET / HTTP/1.1\r\nx: y"[..],
                "431 Request Header Fields Too Large",
                "head-too-large",
            ),
            (
                7,
                b"GET / HTTP/1.1\r\n",
                "431 Request Header Fields Too Large",
                "head-too-large",
            ),
            (
                4096,
                b"GET /path HTTP/1.1",
                "414 URI Too Long",
                "target-too-long",
            ),
        ] {
            let (near, mut far) = tokio::io::duplex(buffer);
            let mut io = MalformedIo::new(near);
            let write = tokio::spawn(async move {
                let mut received = vec![0; request.len()];
                io.read_exact(&mut received).await.unwrap();
                io.write_all(BARE).await.unwrap();
                io.write_all(b"more").await.unwrap();
            });
            far.write_all(request).await.unwrap();
            let mut text = String::new();
            far.read_to_string(&mut text).await.unwrap();
            write.await.unwrap();
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            assert!(
                head.starts_with(&format!("HTTP/1.1 {status}\r\n")),
                "{head}"
            );
            assert!(head.contains("\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT"));
            let (json, more) = body.split_once('\n').unwrap();
            assert!(head.contains(&format!("\r\ncontent-length: {}\r\n", json.len() + 1)));
            assert_eq!(more, "more");
            let json: serde_json::Value = serde_json::from_str(json).unwrap();
            assert_eq!(json["code"], code);
            assert!(status.starts_with(&json["status"].to_string()), "{json}");
        }
    }

    #[test]
    fn other_responses_are_not_rewritten() {
        let is_rewritten = |text: &str| rewrite(text.as_bytes(), true).is_some();
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
