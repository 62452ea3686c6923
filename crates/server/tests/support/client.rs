//! A minimal HTTP/1.1 client that shares no code with the server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Response {
    /// The only value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(other, _)| other == name);
        let value = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "{name} twice: {self:?}");
        value
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    /// The code of a well-formed problem.
    pub(crate) fn code(&self) -> String {
        let json = self.json();
        let code = json["code"].as_str().unwrap_or_default().to_owned();
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json")
        );
        assert_eq!(json["status"], self.status, "{self:?}");
        assert_eq!(json["type"], format!("urn:tallygate:problem:{code}"));
        code
    }
}

/// Sends a request over a new connection.
pub(crate) fn send(
    to: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: impl AsRef<[u8]>,
) -> Response {
    Connection::open(to)
        .send(method, path, headers, body)
        .unwrap()
}

/// A connection for several requests.
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    to: SocketAddr,
}

impl Connection {
    pub(crate) fn open(to: SocketAddr) -> Self {
        Self::over(TcpStream::connect(to).unwrap())
    }

    /// Uses a stream, such as one from another address.
    pub(crate) fn over(stream: TcpStream) -> Self {
        let timeout = Some(Duration::from_secs(60));
        stream.set_read_timeout(timeout).unwrap();
        let to = stream.peer_addr().unwrap();
        Connection { stream, to }
    }

    pub(crate) fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl AsRef<[u8]>,
    ) -> Option<Response> {
        let body = body.as_ref();
        let mut head = format!("{method} {path} HTTP/1.1\r\n");
        if !headers.iter().any(|(name, _)| *name == "host") {
            head += &format!("host: {}\r\n", self.to);
        }
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        let has_length = headers.iter().any(|(name, _)| *name == "content-length");
        if !has_length && method != "GET" {
            head += &format!("content-length: {}\r\n", body.len());
        }
        head += "\r\n";
        self.stream
            .write_all(&[head.as_bytes(), body].concat())
            .ok()?;
        self.read()
    }

    /// Reads a response; none if the connection was closed.
    pub(crate) fn read(&mut self) -> Option<Response> {
        let mut reader = BufReader::new(&self.stream);
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let status = line.split(' ').nth(1)?.parse().ok()?;
        let mut headers = Vec::new();
        loop {
            line.clear();
            reader.read_line(&mut line).ok()?;
            let Some((name, value)) = line.trim_end().split_once(':') else {
                break;
            };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let length = headers.iter().find(|(name, _)| name == "content-length");
        let length = length.map_or(0, |(_, value)| value.parse().unwrap());
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let body = String::from_utf8(body).unwrap();
        Some(Response {
            status,
            headers,
            body,
        })
    }
}
