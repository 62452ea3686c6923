//! Rejects requests that two servers could interpret differently (request smuggling), and responses
//! that two clients could, beyond those that hyper rejects itself.

use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, Request};

use super::Limits;
use super::error::GatewayError;
use super::request_line::{check_host, check_method, check_target};

pub(super) fn validate<B>(
    request: &Request<B>,
    is_ambiguous: bool,
    limits: &Limits,
) -> Result<(), GatewayError> {
    if is_ambiguous {
        return bad(
            "the request has both a length and a transfer coding, more than one length, or a trailer \
             that ends with a line feed alone",
        );
    }
    check_method(request.method()).map_err(GatewayError::MethodNotSupported)?;
    check_target(request).map_err(GatewayError::BadRequest)?;
    check_host(request).map_err(GatewayError::BadRequest)?;
    let headers = request.headers();
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    if let Some(coding) = codings.next() {
        let chunked = coding
            .as_bytes()
            .trim_ascii()
            .eq_ignore_ascii_case(b"chunked");
        if !chunked || codings.next().is_some() {
            return bad("the only supported transfer coding is a single `chunked`");
        }
        if headers.contains_key(CONTENT_LENGTH) {
            return bad("the request has both a length and a transfer coding");
        }
    }
    if headers.len() > limits.headers {
        // HTTP/2 has no such bound of its own.
        return Err(GatewayError::HeadTooLarge);
    }
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let Some(length) = lengths.next() else {
        return Ok(());
    };
    if lengths.next().is_some() {
        return bad("the request has more than one length");
    }
    let length = length.to_str().ok().and_then(|text| text.parse().ok());
    match length {
        Some(0..) if length > Some(limits.body_bytes) => Err(GatewayError::BodyTooLarge),
        Some(0..) => Ok(()),
        None => bad("the request's length is not a number"),
    }
}

/// Accepts a response with a length, or with the coding `chunked`, or with neither.
pub(super) fn validate_response(headers: &HeaderMap) -> Result<(), GatewayError> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let is_unambiguous = match (codings.next(), lengths.next()) {
        (None, None) => true,
        (None, Some(length)) => length.as_bytes().iter().all(u8::is_ascii_digit),
        (Some(coding), None) => coding.as_bytes().eq_ignore_ascii_case(b"chunked"),
        (Some(_), Some(_)) => false,
    };
    match is_unambiguous && codings.next().is_none() && lengths.next().is_none() {
        true => Ok(()),
        false => Err(GatewayError::UpstreamMalformed),
    }
}

fn bad(detail: &'static str) -> Result<(), GatewayError> {
    Err(GatewayError::BadRequest(detail))
}

const LENGTH: &[u8] = b"content-length";
const CODING: &[u8] = b"transfer-encoding";

/// Follows the requests of an HTTP/1 connection in chunks of any size and finds heads whose body
/// two servers could delimit differently: with both `Content-Length` and `Transfer-Encoding`, or with
/// more than one `Content-Length`.
///
/// hyper drops all but one of these. That is one valid reading, but a proxy in front may have used
/// another one, so such a request is rejected.
///
/// Delimits bodies as hyper does; what hyper does not accept needs no reading here, because it closes
/// the connection. Bodies are skipped: what looks like a head in them is none.
#[derive(Debug, Default)]
pub(super) struct FramingScanner {
    position: Position,
    /// The start of a line, as far as it can be one of the two names.
    name: [u8; CODING.len()],
    name_len: usize,
    length: Option<u64>,
    is_chunked: bool,
    /// The size of a chunk, as far as it was read.
    chunk_size: u64,
    /// How many requests have started.
    requests: u64,
}

#[derive(Clone, Copy, Debug, Default)]
enum Position {
    /// In the empty lines before a request.
    #[default]
    Start,
    /// In a line of a head whose rest does not matter.
    Line,
    /// In the name of a header, or at the end of the head.
    Name,
    /// In the value of `Content-Length`, before, in and after the number.
    BeforeLength,
    InLength,
    AfterLength,
    /// In a body with so many bytes left, after which this follows.
    Body(u64, AfterBody),
    ChunkSize,
    ChunkExtension,
    /// At the start of a trailer, in one, and after the carriage return at the end of one.
    TrailerStart,
    Trailer,
    TrailerEnd,
    /// After the carriage return of the empty line.
    LastLineEnd,
    /// The requests that follow cannot be told apart.
    Lost,
}

#[derive(Clone, Copy, Debug)]
enum AfterBody {
    Request,
    Chunk,
}

/// Framing that two servers could read differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ambiguity {
    /// Of a head.
    Head,
    /// Of the end of a body: a line feed alone ends a trailer for some servers, and the body with it.
    Trailer,
}

impl FramingScanner {
    /// Reads on. Returns what is ambiguous, once, and the number of its request, counted from 1.
    pub(super) fn scan(&mut self, mut bytes: &[u8]) -> Option<(Ambiguity, u64)> {
        loop {
            match self.position {
                Position::Lost => return None,
                Position::Line => {
                    bytes = after(b'\n', bytes)?;
                    (self.position, self.name_len) = (Position::Name, 0);
                    continue;
                }
                Position::ChunkExtension => {
                    bytes = after(b'\n', bytes)?;
                    self.position = self.start_chunk();
                    continue;
                }
                Position::Trailer => {
                    let end = memchr::memchr2(b'\r', b'\n', bytes)?;
                    if bytes[end] == b'\n' {
                        self.position = Position::Lost;
                        return Some((Ambiguity::Trailer, self.requests));
                    }
                    bytes = &bytes[end + 1..];
                    self.position = Position::TrailerEnd;
                    continue;
                }
                Position::TrailerStart if bytes.first().is_some_and(|byte| *byte != b'\r') => {
                    self.position = Position::Trailer;
                    continue;
                }
                Position::Body(left, then) => {
                    let skipped = usize::try_from(left).map_or(bytes.len(), |n| n.min(bytes.len()));
                    bytes = &bytes[skipped..];
                    self.position = match (left - skipped as u64, then) {
                        (0, AfterBody::Request) => Position::Start,
                        (0, AfterBody::Chunk) => {
                            self.chunk_size = 0;
                            Position::ChunkSize
                        }
                        (left, then) => Position::Body(left, then),
                    };
                    if bytes.is_empty() {
                        return None;
                    }
                    continue;
                }
                _ => {}
            }
            let (&byte, rest) = bytes.split_first()?;
            bytes = rest;
            match self.step(byte) {
                Some(next) => self.position = next,
                None => {
                    self.position = Position::Lost;
                    return Some((Ambiguity::Head, self.requests));
                }
            }
        }
    }

    /// The position after a byte; `None` if the framing is ambiguous.
    fn step(&mut self, byte: u8) -> Option<Position> {
        Some(match (self.position, byte) {
            (Position::Start, b'\r' | b'\n') => Position::Start,
            (Position::Start, _) => {
                self.requests += 1;
                (self.length, self.is_chunked, self.chunk_size) = (None, false, 0);
                Position::Line
            }
            // Part of a line end, or of a line that hyper rejects.
            (Position::Name, b'\r') => Position::Name,
            (Position::Name, b'\n') if self.name_len == 0 => self.end_head()?,
            (Position::Name, b'\n') => {
                self.name_len = 0;
                Position::Name
            }
            (Position::Name, b':') => {
                let name = &self.name[..self.name_len];
                if name.eq_ignore_ascii_case(LENGTH) {
                    if self.length.replace(0).is_some() {
                        return None;
                    }
                    Position::BeforeLength
                } else {
                    self.is_chunked |= name.eq_ignore_ascii_case(CODING);
                    Position::Line
                }
            }
            // Neither of the two: the first letter is enough for most lines.
            (Position::Name, _) if self.name_len == self.name.len() => Position::Line,
            (Position::Name, _) if self.name_len == 0 && !b"CcTt".contains(&byte) => Position::Line,
            (Position::Name, _) => {
                self.name[self.name_len] = byte;
                self.name_len += 1;
                Position::Name
            }
            (Position::BeforeLength, b' ' | b'\t') => Position::BeforeLength,
            (Position::BeforeLength | Position::InLength, b'0'..=b'9') => {
                let length = self.length?.checked_mul(10)?;
                self.length = Some(length.checked_add(u64::from(byte - b'0'))?);
                Position::InLength
            }
            (Position::InLength | Position::AfterLength, b' ' | b'\t' | b'\r') => {
                Position::AfterLength
            }
            (Position::InLength | Position::AfterLength, b'\n') => {
                self.name_len = 0;
                Position::Name
            }
            (Position::ChunkSize, b'\n') => self.start_chunk(),
            (Position::ChunkSize, _) => match char::from(byte).to_digit(16) {
                Some(digit) => {
                    let size = self.chunk_size.checked_mul(16)?;
                    self.chunk_size = size + u64::from(digit);
                    Position::ChunkSize
                }
                None => Position::ChunkExtension,
            },
            (Position::TrailerStart, b'\r') => Position::LastLineEnd,
            (Position::TrailerEnd, b'\n') => Position::TrailerStart,
            (Position::LastLineEnd, b'\n') => Position::Start,
            // hyper rejects these.
            _ => return None,
        })
    }

    fn end_head(&self) -> Option<Position> {
        Some(match (self.length, self.is_chunked) {
            (Some(_), true) => return None,
            (None, true) => Position::ChunkSize,
            (None | Some(0), false) => Position::Start,
            (Some(length), false) => Position::Body(length, AfterBody::Request),
        })
    }

    /// The position after the line with the size of a chunk.
    fn start_chunk(&self) -> Position {
        match self.chunk_size {
            0 => Position::TrailerStart,
            // And its line end.
            size => Position::Body(size.saturating_add(2), AfterBody::Chunk),
        }
    }
}

/// What follows the first of these bytes.
fn after(byte: u8, bytes: &[u8]) -> Option<&[u8]> {
    memchr::memchr(byte, bytes).map(|at| &bytes[at + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scans a text in chunks of every size. Returns the first ambiguous request, which must be the
    /// same one whatever the size, and how many requests have started.
    fn scan(text: &str) -> (Option<(Ambiguity, u64)>, u64) {
        let scan_in = |size| {
            let mut scanner = FramingScanner::default();
            let mut chunks = text.as_bytes().chunks(size);
            let found = chunks.find_map(|chunk| scanner.scan(chunk));
            (found, scanner.requests)
        };
        let whole = scan_in(text.len());
        for size in 1..text.len() {
            assert_eq!(scan_in(size), whole, "in chunks of {size}: {text}");
        }
        whole
    }

    const PLAIN: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

    #[test]
    fn a_head_with_both_or_with_two_lengths_is_found() {
        for lines in [
            "content-LENGTH: 5\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\ncontent-length:5\r\n",
            "Transfer-Encoding: chunked\nX: y\nContent-Length: 5\n",
            "Content-Length: 5\r\nContent-Length: 5\r\n",
            "Content-Length: 5, 5\r\n",
            "Content-Length: +5\r\n",
            "Content-Length:\r\n",
            "Content-Length: 5 5\r\n",
            "Content-Length: 99999999999999999999\r\n",
        ] {
            let head = format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
            assert_eq!(scan(&head).0, Some((Ambiguity::Head, 1)), "{head}");
            let third = scan(&[PLAIN, "\r\n\n", PLAIN, &head].concat()).0;
            assert_eq!(third, Some((Ambiguity::Head, 3)));
        }
    }

    #[test]
    fn a_trailer_that_ends_with_a_line_feed_alone_is_found() {
        for trailers in ["\n", "A: b\n\r\n", "A: b\r\n\n", "A: b\r\nC: d\n\n"] {
            let head = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n";
            let text = format!("{head}{trailers}{PLAIN}");
            assert_eq!(scan(&text), (Some((Ambiguity::Trailer, 1)), 1), "{text}");
        }
    }

    #[test]
    fn what_looks_like_a_head_in_a_body_is_none() {
        let both = "POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n";
        let len = both.len();
        for request in [
            format!("Content-Length: {len}\r\n\r\n{both}"),
            format!("Content-Length: \t0{len} \t\r\n\r\n{both}"),
            format!("Transfer-Encoding: chunked\r\n\r\n{len:x}\r\n{both}\r\n0\r\n\r\n"),
            format!(
                "Transfer-Encoding: chunked\r\n\r\n0{len:X} ;x=y\r\n{both}\r\n1\r\n\n\r\n00\r\n\r\n"
            ),
            "Transfer-Encoding: chunked\r\n\r\n0;x\r\nA: b\r\nC: d\r\n\r\n".to_owned(),
            "X-Content-Length: 2\r\nTransfer-Encoding-X: chunked\r\na: content-length: 5\r\n\r\n"
                .to_owned(),
            "Content-Length: 0\r\n\r\n".to_owned(),
        ] {
            let text = format!("POST / HTTP/1.1\r\nHost: a\r\n{request}{PLAIN}");
            assert_eq!(scan(&text), (None, 2), "{text}");
        }
    }
}
