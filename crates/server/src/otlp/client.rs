//! Sends a receiver what it is told, a connection each. Knows HTTP; knows nothing of what is told.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use super::Settings;

/// Somebody who is told.
#[derive(Clone)]
pub(super) struct Receiver {
    settings: Settings,
    tls: Option<TlsConnector>,
    /// Whether it failed last time: changes are logged, not failures.
    failing: Arc<AtomicBool>,
}

impl Receiver {
    /// Makes ready for a receiver.
    ///
    /// # Errors
    /// When it is behind https and the system knows no authority.
    pub(super) fn new(settings: &Settings) -> Result<Self, String> {
        let tls = settings.secure.then(connector).transpose()?;
        Ok(Receiver {
            settings: settings.clone(),
            tls,
            failing: Arc::default(),
        })
    }

    /// Sends bytes to a path, once, within the time that is allowed.
    pub(super) async fn post(&self, path: &str, bytes: Vec<u8>) {
        let sent = timeout(self.settings.timeout, self.send(path, bytes));
        let sent = match sent.await {
            Ok(sent) => sent,
            Err(_) => Err("it took too long".to_owned()),
        };
        match sent {
            Ok(()) => {
                if self.failing.swap(false, Ordering::Relaxed) {
                    tracing::info!("the OTLP receiver takes telemetry again");
                }
            }
            Err(error) => {
                if !self.failing.swap(true, Ordering::Relaxed) {
                    tracing::warn!(error, "the OTLP receiver does not take telemetry");
                }
            }
        }
    }

    async fn send(&self, path: &str, bytes: Vec<u8>) -> Result<(), String> {
        let said = |error: io::Error| error.to_string();
        let authority = &self.settings.authority;
        let usual = if self.settings.secure { 443 } else { 80 };
        let host = authority.host();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let port = authority.port_u16().unwrap_or(usual);
        let stream = TcpStream::connect((bare, port)).await.map_err(said)?;
        let _ = stream.set_nodelay(true);
        match &self.tls {
            None => self.exchange(stream, path, bytes).await,
            Some(tls) => {
                let name = ServerName::try_from(bare.to_owned()).map_err(|e| e.to_string())?;
                let stream = tls.connect(name, stream).await.map_err(said)?;
                self.exchange(stream, path, bytes).await
            }
        }
    }

    async fn exchange<S>(&self, stream: S, path: &str, bytes: Vec<u8>) -> Result<(), String>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let said = |error: hyper::Error| error.to_string();
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(said)?;
        let mut request = Request::new(Full::new(Bytes::from(bytes)));
        *request.method_mut() = Method::POST;
        let target = format!("{}{path}", self.settings.path);
        *request.uri_mut() = target.parse().map_err(|_| "the path is wrong".to_owned())?;
        let headers = request.headers_mut();
        *headers = self.settings.headers.clone();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/x-protobuf"),
        );
        let agent = concat!("tallygate/", env!("CARGO_PKG_VERSION"));
        headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        let host = HeaderValue::try_from(self.settings.authority.as_str());
        headers.insert(HOST, host.map_err(|_| "the host is wrong".to_owned())?);
        let answered = sender.send_request(request);
        // The connection ends when its one answer is here.
        let answer = tokio::select! {
            answer = answered => answer.map_err(said)?,
            ended = connection => {
                ended.map_err(said)?;
                return Err("it closed the connection".to_owned());
            }
        };
        match answer.status() {
            StatusCode::OK | StatusCode::ACCEPTED | StatusCode::NO_CONTENT => Ok(()),
            status => Err(format!("it answered {status}")),
        }
    }
}

fn connector() -> Result<TlsConnector, String> {
    let mut roots = RootCertStore::empty();
    for certificate in rustls_native_certs::load_native_certs().certs {
        // One that cannot be used makes the others no worse.
        let _ = roots.add(certificate);
    }
    if roots.is_empty() {
        return Err("the system knows no authority to trust an OTLP receiver by".to_owned());
    }
    let provider = Arc::new(crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
