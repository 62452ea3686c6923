//! The HTTP client of an OTLP endpoint.
//!
//! Written by hand: `opentelemetry-otlp` exports only what the SDK measured, and the metrics are
//! those of the Prometheus registry.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::time::timeout;
use tokio_rustls::rustls::RootCertStore;

use super::Settings;
use crate::error::root_cause;
use crate::gateway::tls;

#[derive(Clone)]
pub(crate) struct Client {
    settings: Arc<Settings>,
    http: legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    /// Whether the last export failed: only changes are logged.
    failing: Arc<AtomicBool>,
}

impl Client {
    /// Creates a client; connects to nothing yet.
    ///
    /// # Errors
    /// When the endpoint is https and the system's root certificates cannot be loaded.
    pub(crate) fn new(settings: Settings) -> Result<Self, String> {
        let connector = connector(settings.is_https())?;
        Ok(Client {
            settings: Arc::new(settings),
            http: legacy::Client::builder(TokioExecutor::new())
                // A connection per export: intervals are as long as the idle timeouts of proxies.
                .pool_max_idle_per_host(0)
                .build(connector),
            failing: Arc::default(),
        })
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Posts an export once. A failed export is dropped.
    pub(super) async fn post(&self, path: &str, body: Vec<u8>) {
        let sent = timeout(self.settings.timeout, self.send(path, body)).await;
        let sent = sent.unwrap_or_else(|_| Err("timeout".to_owned()));
        let was_failing = self.failing.swap(sent.is_err(), Ordering::Relaxed);
        match sent {
            Ok(()) if was_failing => tracing::info!("OTLP export works again"),
            Err(error) if !was_failing => tracing::warn!(error, "OTLP export fails"),
            Ok(()) | Err(_) => {}
        }
    }

    async fn send(&self, path: &str, body: Vec<u8>) -> Result<(), String> {
        let mut request = Request::new(Full::from(body));
        *request.method_mut() = Method::POST;
        let uri = format!("{}{path}", self.settings.endpoint);
        *request.uri_mut() = uri.parse().map_err(|_| "invalid path".to_owned())?;
        let headers = request.headers_mut();
        *headers = self.settings.headers.clone();
        let protobuf = HeaderValue::from_static("application/x-protobuf");
        headers.insert(CONTENT_TYPE, protobuf);
        let agent = concat!("tallygate/", env!("CARGO_PKG_VERSION"));
        headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        let response = self.http.request(request).await;
        // The client's own texts do not say why a connection failed.
        let response = response.map_err(|error| root_cause(&error).to_string())?;
        match response.status() {
            StatusCode::OK | StatusCode::ACCEPTED | StatusCode::NO_CONTENT => Ok(()),
            status => Err(format!("status {status}")),
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

/// A connector for HTTP, and with the system's root certificates for HTTPS.
pub(crate) fn connector(https: bool) -> Result<HttpsConnector<HttpConnector>, String> {
    let tls = match https {
        true => tls::client_config_with_native_roots()
            .map_err(|error| format!("cannot load the system's root certificates: {error}"))?,
        false => tls::client_config_with_roots(RootCertStore::empty()),
    };
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    Ok(HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_http1()
        .wrap_connector(tcp))
}
