//! Reads `/live/events` of a server, and connects again when the stream breaks.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, USER_AGENT};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use memchr::memchr;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::{sleep, timeout};

use crate::error::{Failure, root_cause};
use crate::otlp;

/// Longer events are an error: a server lists 200 rules at most.
const MAX_EVENT_BYTES: usize = 4 << 20;
/// A stream without an event for this long is lost. There is one per second.
const EVENT_TIMEOUT: Duration = Duration::from_secs(5);
const MIN_WAIT: Duration = Duration::from_millis(250);
const MAX_WAIT: Duration = Duration::from_secs(3);

/// What happened to the stream.
pub(super) enum Update {
    /// The JSON of an event.
    Event(String),
    /// It broke, or could not be opened. It is tried again.
    Lost(String),
    /// The server does not serve it; this will not change by itself.
    Refused(String),
}

#[derive(Clone)]
pub(super) struct Source {
    /// Without a path.
    url: String,
    events: Uri,
    authorization: Option<HeaderValue>,
}

impl Source {
    /// `url` is the address of the admin listener; a path of it, such as `/live`, is ignored.
    ///
    /// # Errors
    /// When it is not a URL, or the token is not visible ASCII.
    pub(super) fn new(url: &str, token: Option<String>) -> Result<Self, Failure> {
        let bad = || {
            let example = "http://127.0.0.1:8090";
            Failure::Input(format!(
                "`{url}` is not the URL of a server, such as {example}"
            ))
        };
        let with_scheme = match url.contains("://") {
            true => url.to_owned(),
            false => format!("http://{url}"),
        };
        let parsed: Uri = with_scheme.parse().map_err(|_| bad())?;
        let (Some(scheme), Some(authority)) = (parsed.scheme_str(), parsed.authority()) else {
            return Err(bad());
        };
        if !matches!(scheme, "http" | "https") || authority.as_str().contains('@') {
            return Err(bad());
        }
        let url = format!("{scheme}://{authority}");
        let events = format!("{url}/live/events").parse().map_err(|_| bad())?;
        let authorization = token.map(|token| {
            let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| {
                Failure::Input("the admin token has characters that no header can hold".to_owned())
            })?;
            value.set_sensitive(true);
            Ok::<_, Failure>(value)
        });
        Ok(Source {
            url,
            events,
            authorization: authorization.transpose()?,
        })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Starts to read; ends when the receiver is dropped.
    pub(super) fn start(self) -> Receiver<Update> {
        let (updates, receiver) = mpsc::channel(1);
        tokio::spawn(async move {
            let mut wait = MIN_WAIT;
            loop {
                let mut received = false;
                let Err(error) = self.read(&updates, &mut received).await else {
                    return;
                };
                if received {
                    wait = MIN_WAIT;
                }
                let (update, is_final) = match error {
                    StreamError::Refused(error) => (Update::Refused(error), true),
                    StreamError::Lost(error) => (Update::Lost(error), false),
                };
                if updates.send(update).await.is_err() || is_final {
                    return;
                }
                sleep(wait).await;
                wait = (wait * 2).min(MAX_WAIT);
            }
        });
        receiver
    }

    /// Reads one stream until it breaks. `Ok` if nobody listens any more.
    async fn read(&self, updates: &Sender<Update>, received: &mut bool) -> Result<(), StreamError> {
        let opened = timeout(EVENT_TIMEOUT, self.open()).await;
        let mut body = opened
            .map_err(|_| self.lost("it does not respond"))??
            .into_body();
        let mut buffer = BytesMut::new();
        loop {
            let frame = timeout(EVENT_TIMEOUT, body.frame()).await;
            let frame = frame.map_err(|_| self.lost("it sends no events"))?;
            let Some(frame) = frame else {
                return Err(self.lost("it ended the stream"));
            };
            let frame = frame.map_err(|error| self.lost(root_cause(&error)))?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            buffer.extend_from_slice(&data);
            while let Some(end) = memchr(b'\n', &buffer) {
                let line = buffer.split_to(end + 1);
                let Some(json) = line.strip_prefix(b"data:") else {
                    continue;
                };
                let json = String::from_utf8_lossy(json.trim_ascii()).into_owned();
                *received = true;
                if updates.send(Update::Event(json)).await.is_err() {
                    return Ok(());
                }
            }
            if buffer.len() > MAX_EVENT_BYTES {
                return Err(self.lost("its event is too long"));
            }
        }
    }

    async fn open(&self) -> Result<Response<Incoming>, StreamError> {
        let is_https = self.events.scheme_str() == Some("https");
        let connector = otlp::connector(is_https).map_err(StreamError::Refused)?;
        let client: Client<_, Empty<Bytes>> =
            Client::builder(TokioExecutor::new()).build(connector);
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = self.events.clone();
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        let agent = concat!("tallygate-top/", env!("CARGO_PKG_VERSION"));
        headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        let response = client.request(request).await;
        let response = response.map_err(|error| self.lost(root_cause(&error)))?;
        let url = &self.url;
        let content_type = response.headers().get(CONTENT_TYPE);
        let is_stream = content_type.is_some_and(|kind| kind == "text/event-stream");
        match response.status() {
            StatusCode::OK if is_stream => Ok(response),
            StatusCode::UNAUTHORIZED if self.authorization.is_some() => Err(StreamError::Refused(
                format!("{url} does not accept this admin token"),
            )),
            StatusCode::UNAUTHORIZED => Err(StreamError::Refused(format!(
                "{url} needs the admin token: set TALLYGATE_ADMIN_TOKEN or --admin-token-file"
            ))),
            StatusCode::SERVICE_UNAVAILABLE => {
                Err(self.lost("it has too many viewers, or shuts down"))
            }
            status => Err(StreamError::Refused(format!(
                "{url} is not the admin listener of a Tallygate server: it responds with {status} \
                 to /live/events"
            ))),
        }
    }

    fn lost(&self, why: impl std::fmt::Display) -> StreamError {
        StreamError::Lost(format!("cannot read {}: {why}", self.url))
    }
}

enum StreamError {
    Lost(String),
    Refused(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_may_lack_a_scheme_and_have_a_path() {
        for (text, expected) in [
            ("127.0.0.1:8090", "http://127.0.0.1:8090"),
            ("http://localhost:8090/live", "http://localhost:8090"),
            ("https://gate.example/", "https://gate.example"),
            ("[::1]:8090", "http://[::1]:8090"),
        ] {
            let source = Source::new(text, None).ok().unwrap();
            assert_eq!(source.url(), expected);
            assert_eq!(source.events.to_string(), format!("{expected}/live/events"));
        }
        for wrong in ["", "ftp://a", "http://", "a b", "http://user:secret@host"] {
            let Err(Failure::Input(text)) = Source::new(wrong, None) else {
                panic!("{wrong}");
            };
            assert!(text.contains("such as http://127.0.0.1:8090"), "{text}");
        }
        assert!(Source::new("a", Some("line\nbreak".to_owned())).is_err());
    }
}
