//! The PROXY protocol, versions 1 and 2: before a connection's first byte, a proxy says in a header whom
//! the connection is from. Public for fuzzing.
//!
//! <https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use thiserror::Error;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// The longest header of version 1, with its line end.
const MAX_V1_BYTES: usize = 107;
/// The longest header of version 2 that is read, as in nginx. The addresses take 52 bytes at most;
/// the rest are extensions, which are ignored.
const MAX_V2_BYTES: usize = 4096;

const V1_START: &[u8] = b"PROXY ";
const V2_START: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// The start of version 2, the command, the kind of addresses and the length of the rest.
const V2_HEAD_BYTES: usize = 16;

/// Why a header cannot be used.
#[derive(Debug, Error)]
pub enum HeaderError {
    /// The connection starts with something else.
    #[error("there is none")]
    Missing,
    /// It breaks the protocol.
    #[error("{0}")]
    Malformed(&'static str),
    /// The connection failed or ended before.
    #[error("the connection ended before: {0}")]
    Io(#[from] io::Error),
}

/// Reads a header and nothing that follows it. Returns the client, or `None` if the connection is from
/// the proxy itself or from somebody without an address.
pub(super) async fn read(stream: &mut TcpStream) -> Result<Option<SocketAddr>, HeaderError> {
    let mut header = Vec::new();
    let mut chunk = [0; 256];
    loop {
        let peeked = stream.peek(&mut chunk).await?;
        if peeked == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let before = header.len();
        header.extend_from_slice(&chunk[..peeked]);
        let end = length(&header)?;
        // What is peeked without an end is all part of the header.
        header.truncate(end.unwrap_or(header.len()));
        stream
            .read_exact(&mut chunk[..header.len() - before])
            .await?;
        if end.is_some() {
            return parse(&header);
        }
    }
}

/// The length of the header that a connection starts with, `None` if it does not end in these bytes.
///
/// # Errors
/// When no header starts like this, or it is too long.
pub fn length(bytes: &[u8]) -> Result<Option<usize>, HeaderError> {
    let starts = |start: &[u8]| {
        bytes
            .iter()
            .zip(start)
            .all(|(byte, expected)| byte == expected)
    };
    if starts(V1_START) {
        let line = &bytes[..bytes.len().min(MAX_V1_BYTES)];
        match memchr::memchr(b'\n', line) {
            Some(end) => Ok(Some(end + 1)),
            None if line.len() < MAX_V1_BYTES => Ok(None),
            None => Err(HeaderError::Malformed("it has more than 107 bytes")),
        }
    } else if starts(V2_START) {
        let Some(&[.., high, low]) = bytes.first_chunk::<V2_HEAD_BYTES>() else {
            return Ok(None);
        };
        let length = V2_HEAD_BYTES + usize::from(u16::from_be_bytes([high, low]));
        match length <= MAX_V2_BYTES {
            true => Ok((length <= bytes.len()).then_some(length)),
            false => Err(HeaderError::Malformed("it has more than 4096 bytes")),
        }
    } else {
        Err(HeaderError::Missing)
    }
}

/// The client that a whole header names; `None` if it names none.
///
/// # Errors
/// When the header breaks the protocol.
pub fn parse(header: &[u8]) -> Result<Option<SocketAddr>, HeaderError> {
    match header.strip_prefix(V2_START) {
        Some(rest) => parse_v2(rest),
        None => parse_v1(header),
    }
}

fn parse_v1(header: &[u8]) -> Result<Option<SocketAddr>, HeaderError> {
    let line = header.strip_suffix(b"\r\n");
    let line = line.and_then(|line| str::from_utf8(line).ok());
    // Others take a carriage return alone for the end.
    let line = line.filter(|line| !line.contains('\r'));
    let line = line.ok_or(HeaderError::Malformed("it is not a line of text"))?;
    let mut words = line.split(' ').skip(1);
    let is_ipv4 = match words.next() {
        // Whatever follows.
        Some("UNKNOWN") => return Ok(None),
        Some("TCP4") => true,
        Some("TCP6") => false,
        _ => {
            return Err(HeaderError::Malformed(
                "the protocol is not TCP4, TCP6 or UNKNOWN",
            ));
        }
    };
    let address = |word: &str| -> Option<IpAddr> {
        match is_ipv4 {
            true => word.parse::<Ipv4Addr>().ok().map(Into::into),
            false => word.parse::<Ipv6Addr>().ok().map(Into::into),
        }
    };
    // In decimal digits, without leading zeros.
    let port = |word: &str| {
        let port = word.parse::<u16>().ok();
        port.filter(|port| port.to_string() == word)
    };
    let words: Vec<&str> = words.collect();
    let [source, destination, source_port, destination_port] = words[..] else {
        return Err(HeaderError::Malformed(
            "it does not have two addresses and two ports",
        ));
    };
    let client = address(source).zip(port(source_port));
    match (client, address(destination), port(destination_port)) {
        (Some(client), Some(_), Some(_)) => Ok(Some(client.into())),
        _ => Err(HeaderError::Malformed("an address or a port is invalid")),
    }
}

/// Parses what follows the start.
fn parse_v2(rest: &[u8]) -> Result<Option<SocketAddr>, HeaderError> {
    let Some((&[command, kind, _, _], addresses)) = rest.split_first_chunk() else {
        return Err(HeaderError::Malformed("it ends in its head"));
    };
    // The address and the port of the client, between which are those of the proxy.
    let port = |at: usize| Some(u16::from_be_bytes(*addresses.get(at..)?.first_chunk()?));
    let client: Option<SocketAddr> = match (command, kind) {
        // The proxy's own, such as a health check.
        (0x20, _) => return Ok(None),
        // From somebody who has no address, or by datagrams or Unix sockets.
        (0x21, 0x00 | 0x12 | 0x22 | 0x31 | 0x32) => return Ok(None),
        (0x21, 0x11) => {
            let address = addresses
                .first_chunk::<4>()
                .map(|octets| Ipv4Addr::from(*octets));
            address
                .zip(port(8))
                .filter(|_| addresses.len() >= 12)
                .map(Into::into)
        }
        (0x21, 0x21) => {
            let address = addresses
                .first_chunk::<16>()
                .map(|octets| Ipv6Addr::from(*octets));
            address
                .zip(port(32))
                .filter(|_| addresses.len() >= 36)
                .map(Into::into)
        }
        (0x21, _) => return Err(HeaderError::Malformed("the kind of addresses is unknown")),
        _ => {
            return Err(HeaderError::Malformed(
                "the version or the command is unknown",
            ));
        }
    };
    match client {
        Some(client) => Ok(Some(client)),
        None => Err(HeaderError::Malformed("its addresses are cut off")),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    /// A header of version 2.
    fn v2(command: u8, kind: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
        [V2_START, &[command, kind], &length, rest].concat()
    }

    const IPV4: [u8; 12] = [192, 0, 2, 1, 10, 0, 0, 1, 0xdc, 0x04, 1, 187];

    fn ipv6() -> Vec<u8> {
        let source: Ipv6Addr = "2001:db8::1".parse().unwrap();
        [&source.octets()[..], &[0; 16], &[0xdc, 0x04, 1, 187]].concat()
    }

    #[test]
    fn both_versions_name_a_client() {
        let extensions = [&IPV4[..], &[4, 0, 1, 0, 0xe0, 0, 2, 1, 1]].concat();
        for (header, client) in [
            (
                b"PROXY TCP4 192.0.2.1 10.0.0.1 56324 443\r\n".to_vec(),
                "192.0.2.1:56324",
            ),
            (
                b"PROXY TCP4 192.0.2.1 10.0.0.1 0 65535\r\n".to_vec(),
                "192.0.2.1:0",
            ),
            (
                b"PROXY TCP6 2001:db8::1 ::1 56324 443\r\n".to_vec(),
                "[2001:db8::1]:56324",
            ),
            (
                b"PROXY TCP6 ::ffff:192.0.2.1 ::1 1 2\r\n".to_vec(),
                "[::ffff:192.0.2.1]:1",
            ),
            (v2(0x21, 0x11, &IPV4), "192.0.2.1:56324"),
            (v2(0x21, 0x11, &extensions), "192.0.2.1:56324"),
            (v2(0x21, 0x21, &ipv6()), "[2001:db8::1]:56324"),
        ] {
            assert_eq!(
                parse(&header).unwrap(),
                Some(client.parse().unwrap()),
                "{client}"
            );
        }
    }

    #[test]
    fn a_header_may_name_no_client() {
        for header in [
            b"PROXY UNKNOWN\r\n".to_vec(),
            b"PROXY UNKNOWN 192.0.2.1 10.0.0.1 1 2\r\n".to_vec(),
            b"PROXY UNKNOWN anything at all\r\n".to_vec(),
            v2(0x20, 0x00, &[]),
            v2(0x20, 0x11, &IPV4),
            v2(0x20, 0xff, &[1]),
            v2(0x21, 0x00, &[4, 0, 0]),
            v2(0x21, 0x12, &IPV4),
            v2(0x21, 0x31, &[0; 216]),
        ] {
            assert_eq!(parse(&header).unwrap(), None, "{header:?}");
        }
    }

    #[test]
    fn what_breaks_the_protocol_is_refused() {
        for line in [
            "PROXY TCP4 192.0.2.1 10.0.0.1 1 2\n",
            "PROXY TCP4 192.0.2.1 10.0.0.1 1\r\n",
            "PROXY TCP4 192.0.2.1 10.0.0.1 1 2 3\r\n",
            "PROXY TCP4 192.0.2.1 10.0.0.1 1 2 \r\n",
            "PROXY TCP4  192.0.2.1 10.0.0.1 1 2\r\n",
            "PROXY TCP4 192.0.2.1 10.0.0.1 +1 2\r\n",
            "PROXY TCP4 192.0.2.1 10.0.0.1 01 2\r\n",
            "PROXY TCP4 192.0.2.1 10.0.0.1 65536 2\r\n",
            "PROXY TCP4 192.0.2.1 10.0.0.1 1 -2\r\n",
            "PROXY TCP4 192.0.2 10.0.0.1 1 2\r\n",
            "PROXY TCP4 192.0.2.01 10.0.0.1 1 2\r\n",
            "PROXY TCP4 192.0.2.1 localhost 1 2\r\n",
            "PROXY TCP4 2001:db8::1 ::1 1 2\r\n",
            "PROXY TCP6 192.0.2.1 10.0.0.1 1 2\r\n",
            "PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n",
            "PROXY tcp4 192.0.2.1 10.0.0.1 1 2\r\n",
            "PROXY UDP4 192.0.2.1 10.0.0.1 1 2\r\n",
            "PROXY UNKNOWNS\r\n",
            "PROXY UNKNOWN a\rb\r\n",
            "PROXY UNKNOWN\r\r\n",
            "PROXY \r\n",
            "PROXY TCP4\t192.0.2.1 10.0.0.1 1 2\r\n",
            "PROXY TCP4 192.0.2.1\u{a0} 10.0.0.1 1 2\r\n",
        ] {
            assert!(parse(line.as_bytes()).is_err(), "{line:?}");
        }
        for header in [
            v2(0x11, 0x11, &IPV4),
            v2(0x31, 0x11, &IPV4),
            v2(0x22, 0x11, &IPV4),
            v2(0x2f, 0x11, &IPV4),
            v2(0x21, 0x13, &IPV4),
            v2(0x21, 0x10, &IPV4),
            v2(0x21, 0x41, &IPV4),
            v2(0x21, 0x11, &IPV4[..11]),
            v2(0x21, 0x11, &[]),
            v2(0x21, 0x21, &IPV4),
            v2(0x21, 0x21, &ipv6()[..35]),
            V2_START.to_vec(),
        ] {
            assert!(parse(&header).is_err(), "{header:?}");
        }
    }

    #[test]
    fn the_length_is_known_at_the_end_and_not_before() {
        for header in [
            b"PROXY UNKNOWN\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.1 10.0.0.1 56324 443\r\n".to_vec(),
            v2(0x20, 0, &[]),
            v2(0x21, 0x11, &[&IPV4[..], &[0; 4000]].concat()),
        ] {
            for end in 0..header.len() {
                assert_eq!(length(&header[..end]).unwrap(), None, "{end} of {header:?}");
            }
            let followed = [&header[..], b"GET / HTTP/1.1\r\n\r\n"].concat();
            assert_eq!(length(&followed).unwrap(), Some(header.len()));
        }
        let line = format!("PROXY UNKNOWN {}\r\n", "x".repeat(MAX_V1_BYTES - 16));
        assert_eq!(length(line.as_bytes()).unwrap(), Some(MAX_V1_BYTES));
        let line = format!("PROXY UNKNOWN {}", "x".repeat(MAX_V1_BYTES - 14));
        assert_eq!(line.len(), MAX_V1_BYTES);
        assert!(length(line.as_bytes()).is_err());
        let longest = v2(0x20, 0, &[0; MAX_V2_BYTES - V2_HEAD_BYTES]);
        assert_eq!(length(&longest).unwrap(), Some(MAX_V2_BYTES));
        let longer = v2(0x20, 0, &[0; MAX_V2_BYTES - V2_HEAD_BYTES + 1]);
        assert!(length(&longer[..V2_HEAD_BYTES]).is_err());
        for other in [
            "GET / HTTP/1.1\r\n",
            "PROXy TCP4 ",
            "PROXY\tTCP4",
            "\r\nGET",
            "\x16\x03",
        ] {
            let missing = length(other.as_bytes());
            assert!(matches!(missing, Err(HeaderError::Missing)), "{other:?}");
        }
    }

    #[tokio::test]
    async fn nothing_after_a_header_is_read_however_it_arrives() {
        let header = v2(0x21, 0x11, &[&IPV4[..], &[0; 700]].concat());
        for size in [1, 7, 256, 1000] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut client = TcpStream::connect(listener.local_addr().unwrap())
                .await
                .unwrap();
            client.set_nodelay(true).unwrap();
            let sent = [&header[..], b"what follows"].concat();
            let write = tokio::spawn(async move {
                for piece in sent.chunks(size) {
                    client.write_all(piece).await.unwrap();
                    tokio::task::yield_now().await;
                }
            });
            let (mut stream, _) = listener.accept().await.unwrap();
            let named = read(&mut stream).await.unwrap();
            assert_eq!(named, Some("192.0.2.1:56324".parse().unwrap()));
            let mut rest = String::new();
            stream.read_to_string(&mut rest).await.unwrap();
            assert_eq!(rest, "what follows");
            write.await.unwrap();
        }
    }
}
