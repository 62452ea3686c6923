//! An HTTP/2 client that writes and reads single frames, so that it can also do what no library does.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::TIMEOUT;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;

pub(crate) const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;

#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    /// The code of RST_STREAM and GOAWAY, and the increment of WINDOW_UPDATE.
    pub(crate) fn number(&self) -> u32 {
        let bytes = self.payload.last_chunk();
        u32::from_be_bytes(*bytes.unwrap())
    }
}

pub(crate) struct Http2 {
    pub(crate) stream: TcpStream,
    /// How much the server lets the client send, on the connection and on each new stream.
    pub(crate) connection_window: i64,
    pub(crate) stream_window: i64,
    read: VecDeque<Frame>,
}

impl Http2 {
    /// Connects and exchanges settings.
    pub(crate) fn open(to: SocketAddr, settings: &[(u16, u32)]) -> Self {
        Self::over(TcpStream::connect(to).unwrap(), settings)
    }

    /// Exchanges settings on a connection.
    pub(crate) fn over(stream: TcpStream, settings: &[(u16, u32)]) -> Self {
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut client = Http2 {
            stream,
            connection_window: 65_535,
            stream_window: 65_535,
            read: VecDeque::new(),
        };
        client
            .stream
            .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            .unwrap();
        let mut payload = Vec::new();
        for (name, value) in settings {
            payload.extend(name.to_be_bytes());
            payload.extend(value.to_be_bytes());
        }
        client.write(SETTINGS, 0, 0, &payload).unwrap();
        // The server has read them when it acknowledges them; its own come before.
        loop {
            let frame = client.receive().unwrap();
            if frame.kind == SETTINGS && frame.flags == ACK {
                return client;
            }
            client.read.push_back(frame);
        }
    }

    pub(crate) fn write(
        &mut self,
        kind: u8,
        flags: u8,
        stream: u32,
        payload: &[u8],
    ) -> io::Result<()> {
        let length = u32::try_from(payload.len()).unwrap();
        let mut frame = length.to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        self.stream.write_all(&frame)
    }

    /// Sends a request without body.
    pub(crate) fn get(&mut self, stream: u32, path: &str) {
        // GET, http, the path, `a`.
        self.end(stream, &block(b"\x82\x86", path));
    }

    /// Sends a header block that no body follows.
    pub(crate) fn end(&mut self, stream: u32, block: &[u8]) {
        let flags = END_STREAM | END_HEADERS;
        self.write(HEADERS, flags, stream, block).unwrap();
    }

    /// Sends a request without body, of these fields.
    pub(crate) fn request(&mut self, stream: u32, fields: &[(&str, &str)]) {
        let mut block = Vec::new();
        for (name, value) in fields {
            // A literal that is not indexed.
            block.push(0);
            string(&mut block, name);
            string(&mut block, value);
        }
        let flags = END_STREAM | END_HEADERS;
        self.write(HEADERS, flags, stream, &block).unwrap();
    }

    /// Sends a GET of `/` without body, with these headers.
    pub(crate) fn get_with(&mut self, stream: u32, headers: &[(&str, &str)]) {
        let head = [
            (":method", "GET"),
            (":scheme", "http"),
            (":authority", "a"),
            (":path", "/"),
        ];
        self.request(stream, &[&head, headers].concat());
    }

    /// The status and the body of the response on a stream; none if the server resets the stream.
    pub(crate) fn response(&mut self, stream: u32) -> Option<(u16, String)> {
        let (mut status, mut body) = (None, Vec::new());
        loop {
            let frame = self.next().expect("the connection is open");
            match (frame.stream == stream, frame.kind) {
                (true, RST_STREAM) => return None,
                (true, HEADERS) if status.is_none() => status = Some(read_status(&frame.payload)),
                (true, DATA) => body.extend(&frame.payload),
                _ => {}
            }
            if frame.stream == stream && frame.flags & END_STREAM != 0 {
                let status = status.expect("a status");
                return Some((status, String::from_utf8(body).unwrap()));
            }
        }
    }

    /// Sends the head of a request with a body.
    pub(crate) fn post(&mut self, stream: u32, path: &str) {
        self.start(stream, &block(b"\x83\x86", path));
    }

    /// Sends a header block that a body follows.
    pub(crate) fn start(&mut self, stream: u32, block: &[u8]) {
        self.write(HEADERS, END_HEADERS, stream, block).unwrap();
    }

    pub(crate) fn open_window(&mut self, stream: u32, bytes: u32) {
        self.write(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
            .unwrap();
    }

    /// The next frame that is not about the connection; none at its end.
    pub(crate) fn next(&mut self) -> Option<Frame> {
        match self.read.pop_front() {
            Some(frame) => Some(frame),
            None => self.receive(),
        }
    }

    /// The next frame on a stream of a kind; those before are dropped.
    pub(crate) fn next_on(&mut self, stream: u32, kind: u8) -> Frame {
        loop {
            let frame = self.next().expect("the connection is open");
            if (frame.stream, frame.kind) == (stream, kind) {
                return frame;
            }
        }
    }

    /// Reads frames, and answers those that are about the connection.
    fn receive(&mut self) -> Option<Frame> {
        loop {
            let mut head = [0; 9];
            self.stream.read_exact(&mut head).ok()?;
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; length as usize];
            self.stream.read_exact(&mut payload).ok()?;
            let frame = Frame {
                kind: head[3],
                flags: head[4],
                stream: u32::from_be_bytes([head[5], head[6], head[7], head[8]]),
                payload,
            };
            match (frame.kind, frame.flags & ACK) {
                (SETTINGS, 0) => {
                    for setting in frame.payload.chunks(6) {
                        let value = u32::from_be_bytes(*setting.last_chunk().unwrap());
                        if setting[..2] == INITIAL_WINDOW_SIZE.to_be_bytes() {
                            self.stream_window = value.into();
                        }
                    }
                    self.write(SETTINGS, ACK, 0, &[]).ok()?;
                }
                (PING, 0) => {
                    self.write(PING, ACK, 0, &frame.payload).ok()?;
                }
                (WINDOW_UPDATE, _) if frame.stream == 0 => {
                    self.connection_window += i64::from(frame.number());
                }
                _ => return Some(frame),
            }
        }
    }
}

/// Appends a string of up to 64 KiB, without Huffman coding.
fn string(block: &mut Vec<u8>, text: &str) {
    match text.len() {
        short @ 0..127 => block.push(u8::try_from(short).unwrap()),
        long => {
            let mut rest = long - 127;
            block.push(127);
            while rest >= 128 {
                block.push(u8::try_from(rest % 128).unwrap() | 128);
                rest /= 128;
            }
            block.push(u8::try_from(rest).unwrap());
        }
    }
    block.extend(text.as_bytes());
}

/// The status, which is the first field of a response: indexed, or a literal in Huffman code. Only
/// of the first response on a connection, before the server may refer to an earlier one.
fn read_status(block: &[u8]) -> u16 {
    const INDEXED: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];
    let digits = match *block {
        [field @ 0x88..=0x8e, ..] => return INDEXED[usize::from(field - 0x88)],
        [0x08 | 0x48, 0x82 | 0x83, ..] => &block[2..],
        _ => panic!("no status: {block:x?}"),
    };
    let mut bits = u32::from_be_bytes([digits[0], digits[1], digits[2], 0]);
    let mut status = 0;
    for _ in 0..3 {
        // 0, 1 and 2 have five bits, 3 to 9 six.
        let (digit, length) = match bits >> 27 {
            short @ 0..3 => (short, 5),
            _ => ((bits >> 26) - 22, 6),
        };
        bits <<= length;
        status = status * 10 + digit;
    }
    u16::try_from(status).unwrap()
}

/// A header block: two indexed fields, then the path and the host as literals.
pub(crate) fn block(indexed: &[u8], path: &str) -> Vec<u8> {
    let mut block = indexed.to_vec();
    block.extend([0x04, u8::try_from(path.len()).unwrap()]);
    block.extend(path.as_bytes());
    block.extend(b"\x01\x01a");
    block
}
