//! A client of a few lines that knows only what it needs: it shares nothing with the server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// What a server answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Answer {
    /// A header's one value.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(known, _)| known == name);
        let value = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "{name} twice: {self:?}");
        value
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    /// Its code, where it is a problem that agrees with itself.
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

/// Asks once, over a connection of its own.
pub(crate) fn ask(
    to: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: impl AsRef<[u8]>,
) -> Answer {
    Connection::to(to).ask(method, path, headers, body).unwrap()
}

/// A connection that can be asked again.
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    to: SocketAddr,
}

impl Connection {
    pub(crate) fn to(to: SocketAddr) -> Self {
        let stream = TcpStream::connect(to).unwrap();
        let wait = Some(Duration::from_secs(60));
        stream.set_read_timeout(wait).unwrap();
        Connection { stream, to }
    }

    pub(crate) fn ask(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl AsRef<[u8]>,
    ) -> Option<Answer> {
        let body = body.as_ref();
        let mut head = format!("{method} {path} HTTP/1.1\r\n");
        if !headers.iter().any(|(name, _)| *name == "host") {
            head += &format!("host: {}\r\n", self.to);
        }
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        let framed = headers.iter().any(|(name, _)| *name == "content-length");
        if !framed && method != "GET" {
            head += &format!("content-length: {}\r\n", body.len());
        }
        head += "\r\n";
        self.stream
            .write_all(&[head.as_bytes(), body].concat())
            .ok()?;
        self.read()
    }

    /// Reads one answer; none if the connection ended before it began.
    pub(crate) fn read(&mut self) -> Option<Answer> {
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
        Some(Answer {
            status,
            headers,
            body,
        })
    }
}
