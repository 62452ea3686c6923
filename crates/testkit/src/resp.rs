//! A minimal RESP client over a blocking socket, independent of the client under test.

use std::io::{self, BufRead, BufReader, Error, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(10);

/// A server's reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Null.
    Nil,
    /// A simple string such as `OK`.
    Status(String),
    /// An error, starting with its code.
    Error(String),
    /// An integer.
    Integer(i64),
    /// A bulk string.
    Bulk(Vec<u8>),
    /// An array.
    Array(Vec<Reply>),
}

impl Reply {
    /// The text of a simple or bulk string.
    ///
    /// # Panics
    ///
    /// Panics if the reply is something else, or not UTF-8.
    #[must_use]
    #[track_caller]
    pub fn text(&self) -> &str {
        match self {
            Self::Status(text) => text,
            Self::Bulk(bytes) => std::str::from_utf8(bytes).expect("the reply is UTF-8"),
            Self::Nil | Self::Error(_) | Self::Integer(_) | Self::Array(_) => {
                panic!("not a text: {self:?}")
            }
        }
    }

    /// The value of an integer, or of a text that is one.
    ///
    /// # Panics
    ///
    /// Panics if the reply is not a number.
    #[must_use]
    #[track_caller]
    pub fn integer(&self) -> i64 {
        match self {
            Self::Integer(number) => *number,
            Self::Status(_) | Self::Bulk(_) => self.text().parse().expect("the text is a number"),
            Self::Nil | Self::Error(_) | Self::Array(_) => panic!("not a number: {self:?}"),
        }
    }

    /// The replies inside an array.
    ///
    /// # Panics
    ///
    /// Panics if the reply is not an array.
    #[must_use]
    #[track_caller]
    pub fn array(&self) -> &[Reply] {
        match self {
            Self::Array(replies) => replies,
            Self::Nil | Self::Status(_) | Self::Error(_) | Self::Integer(_) | Self::Bulk(_) => {
                panic!("not an array: {self:?}")
            }
        }
    }

    /// The error, if it is one.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Error(error) => Some(error),
            Self::Nil | Self::Status(_) | Self::Integer(_) | Self::Bulk(_) | Self::Array(_) => None,
        }
    }
}

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// One connection to a server.
pub struct Connection(BufReader<Box<dyn Stream>>);

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connection")
    }
}

impl Connection {
    /// Connects to a port of the loopback address.
    ///
    /// # Errors
    ///
    /// On an I/O error.
    pub fn to_port(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Self(BufReader::new(Box::new(stream))))
    }

    /// Connects to a Unix socket.
    ///
    /// # Errors
    ///
    /// On an I/O error.
    pub fn to_socket(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Self(BufReader::new(Box::new(stream))))
    }

    /// Sends a command and waits for its reply, ten seconds at most.
    ///
    /// # Errors
    ///
    /// On an I/O error; [`ErrorKind::InvalidData`] for invalid RESP. A server error is a [`Reply`].
    pub fn command<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<Reply> {
        self.send(args)?;
        self.receive()
    }

    /// Sends a command and does not wait.
    ///
    /// # Errors
    ///
    /// On an I/O error.
    pub fn send<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<()> {
        let mut request = format!("*{}\r\n", args.len()).into_bytes();
        for arg in args {
            let arg = arg.as_ref();
            request.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
            request.extend_from_slice(arg);
            request.extend_from_slice(b"\r\n");
        }
        self.0.get_mut().write_all(&request)
    }

    /// Waits for the next reply, ten seconds at most.
    ///
    /// # Errors
    ///
    /// As for [`command`](Self::command).
    pub fn receive(&mut self) -> io::Result<Reply> {
        let line = self.line()?;
        let (kind, rest) = line.split_at_checked(1).ok_or_else(|| not_resp(&line))?;
        let number = || rest.parse::<i64>().map_err(|_| not_resp(&line));
        match kind {
            "+" => Ok(Reply::Status(rest.to_owned())),
            "-" => Ok(Reply::Error(rest.to_owned())),
            ":" => Ok(Reply::Integer(number()?)),
            "$" => match usize::try_from(number()?) {
                Ok(length) => self.bulk(length),
                Err(_) => Ok(Reply::Nil),
            },
            "*" => match usize::try_from(number()?) {
                Ok(length) => (0..length)
                    .map(|_| self.receive())
                    .collect::<io::Result<_>>()
                    .map(Reply::Array),
                Err(_) => Ok(Reply::Nil),
            },
            _ => Err(not_resp(&line)),
        }
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        self.0.read_until(b'\n', &mut line)?;
        let Some(line) = line.strip_suffix(b"\r\n") else {
            return Err(Error::new(ErrorKind::UnexpectedEof, "incomplete reply"));
        };
        Ok(String::from_utf8_lossy(line).into_owned())
    }

    fn bulk(&mut self, length: usize) -> io::Result<Reply> {
        let mut bytes = vec![0; length + 2];
        self.0.read_exact(&mut bytes)?;
        bytes.truncate(length);
        Ok(Reply::Bulk(bytes))
    }
}

fn not_resp(line: &str) -> Error {
    Error::new(
        ErrorKind::InvalidData,
        format!("not a Redis reply: {line:?}"),
    )
}
