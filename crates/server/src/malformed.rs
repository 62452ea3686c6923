//! Answers to what is no request: hyper refuses it before anybody here sees it, with a status and
//! nothing else. On its way out that becomes a problem like any other. Knows hyper's bare answers;
//! knows nothing of requests.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection whose bare refusals leave as problems.
#[derive(Debug)]
pub(super) struct Told<T> {
    inner: T,
    instead: Instead,
}

/// A problem that is written in the place of a bare refusal.
#[derive(Debug, Default)]
pub(super) struct Instead {
    text: Vec<u8>,
    written: usize,
}

impl<T> Told<T> {
    pub(super) fn new(inner: T) -> Self {
        Told {
            inner,
            instead: Instead::default(),
        }
    }
}

impl Instead {
    /// Whether a bare refusal is to be replaced, or is being.
    pub(super) fn takes(&mut self, bytes: &[u8]) -> bool {
        if self.text.is_empty() {
            self.text = problem(bytes).unwrap_or_default();
        }
        !self.text.is_empty()
    }

    /// Writes the problem; once all of it is, `length` bytes count as written.
    pub(super) fn poll<T: AsyncWrite + Unpin>(
        &mut self,
        to: &mut T,
        context: &mut Context<'_>,
        length: usize,
    ) -> Poll<io::Result<usize>> {
        while let rest @ [_, ..] = &self.text[self.written..] {
            let written = ready!(Pin::new(&mut *to).poll_write(context, rest))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += written;
        }
        *self = Instead::default();
        Poll::Ready(Ok(length))
    }
}

/// The one part of some bytes, if all others are empty.
pub(super) fn only<'b>(bytes: &'b [io::IoSlice<'_>]) -> Option<&'b [u8]> {
    let mut parts = bytes.iter().filter(|part| !part.is_empty());
    let first = parts.next()?;
    parts.next().is_none().then_some(&**first)
}

/// The problem that says what a bare refusal says; none if these bytes are anything else.
fn problem(bytes: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let head = text.strip_suffix("\r\n\r\n")?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?;
    let (code, title, detail) = match status.strip_prefix("HTTP/1.1 ")?.get(..3)? {
        "400" => (
            "bad-request",
            "Request not understood",
            "this is no HTTP request",
        ),
        "414" => (
            "target-too-long",
            "Target too long",
            "the request's target is longer than is read here",
        ),
        "431" => (
            "head-too-large",
            "Head too large",
            "the request's head has more bytes or headers than are read here",
        ),
        _ => return None,
    };
    let mut date = "";
    for line in lines {
        match line {
            "connection: close" | "content-length: 0" => {}
            _ if line.starts_with("date: ") => date = line,
            // Somebody meant this answer.
            _ => return None,
        }
    }
    let number: u16 = status.get(9..12)?.parse().ok()?;
    let json = serde_json::json!({
        "type": format!("urn:tallygate:problem:{code}"),
        "title": title,
        "status": number,
        "detail": detail,
        "code": code,
    });
    let json = format!("{json}\n");
    let length = json.len();
    let answer = format!(
        "{status}\r\nconnection: close\r\ncontent-type: application/problem+json\r\n\
         content-length: {length}\r\n{date}\r\n\r\n{json}"
    );
    Some(answer.into_bytes())
}

impl<T: AsyncRead + Unpin> AsyncRead for Told<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_read(context, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Told<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        match this.instead.takes(bytes) {
            true => this.instead.poll(&mut this.inner, context, bytes.len()),
            false => Pin::new(&mut this.inner).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        match only(bytes) {
            Some(only) if this.instead.takes(only) => {
                this.instead.poll(&mut this.inner, context, only.len())
            }
            Some(_) | None => Pin::new(&mut this.inner).poll_write_vectored(context, bytes),
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
    async fn a_bare_refusal_becomes_a_problem_however_little_room_there_is() {
        for room in [1, 7, 4096] {
            let (near, mut far) = tokio::io::duplex(room);
            let mut told = Told::new(near);
            let write = tokio::spawn(async move {
                told.write_all(BARE).await.unwrap();
                told.write_all(b"more").await.unwrap();
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
    fn whatever_somebody_meant_is_left_alone() {
        let said = |text: &str| problem(text.as_bytes()).is_some();
        assert!(said(
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
            assert!(!said(other), "{other}");
        }
    }
}
