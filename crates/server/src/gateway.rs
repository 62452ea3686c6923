//! The gateway: a reverse proxy that applies the limits to every request.
//!
//! A refused request never reaches an upstream. A delayed one waits here, and leaves the queue as
//! soon as its client disconnects. Bodies, trailers and upgraded connections are streamed.

mod body;
mod client_io;
mod coalesce;
mod connection;
mod connection_state;
mod error;
mod forward;
mod headers;
mod pool;
mod read_ahead;
#[doc(hidden)]
pub mod request_line;
mod settings;
mod smuggling;
mod stream_executor;
pub(crate) mod tls;
mod tunnel;
mod upstreams;

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use tallygate::Store;
use tallygate::http::Policy;
use tallygate::tower::RateLimitLayer;
use tokio::net::TcpListener;
use tower_layer::Layer;

#[doc(hidden)]
pub use crate::listener::proxy_protocol;
use crate::listener::{
    self, ConnectionLimits, Options, PeerTest, ProxyProtocolOptions, TlsOptions,
};
use crate::metrics::GatewayMetrics;
use coalesce::Coalesce;
use connection::GatewayHandler;
use forward::Forward;

pub use coalesce::SingleFlight;
pub(crate) use settings::RuleHeaders;
pub use settings::{Host, Limits, Settings, SettingsError, Timeouts, TrustedPeers, Upstream};
pub use tls::{Certificate, Tls};

/// A reverse proxy with limits.
pub struct Gateway<P, S> {
    handler: Arc<GatewayHandler<P, S>>,
    certificate: Option<Certificate>,
}

/// The result of a graceful shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainReport {
    /// How many connections were aborted when the drain timeout ended.
    pub aborted: usize,
}

impl<P: Policy, S: Store> Gateway<P, S> {
    /// A gateway that applies `layer` to every request.
    ///
    /// # Errors
    /// When there is no upstream, a limit is 0, or a certificate, its key or the certificate
    /// authorities for upstreams cannot be used.
    pub fn new(settings: Settings, layer: RateLimitLayer<P, S>) -> Result<Self, SettingsError> {
        settings.check()?;
        let certificate = settings.tls.clone().map(Certificate::new).transpose()?;
        let metrics = settings.metrics.clone().unwrap_or_else(|| {
            let upstreams = settings.upstreams.iter().map(Upstream::authority);
            Arc::new(GatewayMetrics::unregistered(
                upstreams.map(ToString::to_string),
            ))
        });
        let single_flight = settings.single_flight.clone();
        let forward = Forward::new(settings.clone(), &metrics)?;
        let policy = Arc::clone(layer.policy());
        let service = layer.layer(Coalesce::new(forward, single_flight));
        Ok(Gateway {
            handler: Arc::new(GatewayHandler::new(service, policy, settings, metrics)),
            certificate,
        })
    }

    /// The certificate shown to clients; `None` without TLS.
    pub fn certificate(&self) -> Option<&Certificate> {
        self.certificate.as_ref()
    }

    /// Serves connections until `shutdown` resolves. Then it accepts no more, drains the requests
    /// in flight and aborts what is left after the drain timeout.
    pub async fn serve(
        &self,
        listener: TcpListener,
        shutdown: impl Future<Output = ()>,
    ) -> DrainReport {
        let settings = &self.handler.settings;
        let tls = self.certificate.as_ref().map(|certificate| TlsOptions {
            config: certificate.config(),
            handshake_timeout: settings.timeouts.header,
        });
        let trusted = settings.trusted.clone();
        let is_proxy: PeerTest = Arc::new(move |peer| trusted.contains(peer));
        let options = Options {
            connections: ConnectionLimits {
                max: settings.limits.connections,
                max_per_client: settings.limits.connections_per_client,
                is_exempt: Arc::clone(&is_proxy),
                gauge: self.handler.metrics.connections.clone(),
            },
            drain_timeout: settings.timeouts.drain,
            proxy_protocol: settings.proxy_protocol.then(|| ProxyProtocolOptions {
                is_proxy,
                header_timeout: settings.timeouts.header,
            }),
            tls,
        };
        let handler = Arc::clone(&self.handler);
        let aborted = listener::serve(listener, handler, &options, shutdown).await;
        DrainReport { aborted }
    }
}

impl<P, S> fmt::Debug for Gateway<P, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway")
            .field("settings", &self.handler.settings)
            .finish_non_exhaustive()
    }
}
