//! Opens connections, and holds what all connections of a store share.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, PushInfo,
    PushKind, TlsCertificates,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::batch::MAX_QUEUED;
use super::cache::CounterCache;
use super::command::Scripts;
use super::error::{self, RedisError, StoreFailure};
use super::url::StoreUrl;

/// The default time limit for connecting, including authentication.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

pub(super) struct Connector {
    pub(super) url: StoreUrl,
    pub(super) certificates: TlsCertificates,
    pub(super) scripts: Arc<Scripts>,
    pub(super) cache: Option<Arc<CounterCache>>,
    pub(super) batching: bool,
    pub(super) connect_timeout: Duration,
    pub(super) response_timeout: Duration,
    /// To each server; at least 1.
    pub(super) connections: usize,
    /// The store's own runtime, which runs all connections.
    pub(super) runtime: Handle,
}

impl Connector {
    /// The number of calls that may wait for each connection.
    pub(super) fn max_queued(&self) -> usize {
        MAX_QUEUED / self.connections
    }

    /// Connects and authenticates. `lost` is notified when the connection ends.
    pub(super) async fn connect(
        &self,
        info: ConnectionInfo,
        lost: Arc<Notify>,
    ) -> Result<MultiplexedConnection, StoreFailure> {
        let timeout_reason = match info.addr() {
            ConnectionAddr::TcpTls { .. } => error::TLS_TIMEOUT,
            _ => "no reply in time",
        };
        let client = self
            .client(info)
            .map_err(|error| StoreFailure::from(&error))?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_timeout))
            .set_response_timeout(Some(self.response_timeout))
            .set_push_sender(move |push: PushInfo| {
                if push.kind == PushKind::Disconnection {
                    lost.notify_one();
                }
                Ok::<(), ()>(())
            });
        // The client's own timeout does not cover all steps.
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        match timeout(self.connect_timeout, connecting).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => Err(connect_failure(&error, timeout_reason)),
            Err(_) => Err(StoreFailure::NotConnected(timeout_reason)),
        }
    }

    /// Explains a failure to connect: tries plain connections instead of encrypted ones or the other
    /// way round, without credentials. Returns the failure itself if that does not work either.
    pub(super) async fn explain(
        &self,
        failure: StoreFailure,
        info: &ConnectionInfo,
    ) -> StoreFailure {
        let (addr, mismatch) = match (&failure, info.addr().clone()) {
            (StoreFailure::NotConnected(error::CLOSED), ConnectionAddr::Tcp(host, port)) => {
                let encrypted = ConnectionAddr::TcpTls {
                    host,
                    port,
                    insecure: false,
                    tls_params: None,
                };
                (encrypted, error::REQUIRES_TLS)
            }
            (
                StoreFailure::NotConnected(error::TLS_TIMEOUT),
                ConnectionAddr::TcpTls { host, port, .. },
            ) => (ConnectionAddr::Tcp(host, port), error::NO_TLS),
            _ => return failure,
        };
        let Ok(other) = addr.into_connection_info() else {
            return failure;
        };
        let is_other = match self.connect(other, Arc::default()).await {
            // Replies to the handshake, if only that a password is missing.
            Ok(_) | Err(StoreFailure::Rejected(_) | StoreFailure::Unavailable(_)) => true,
            Err(StoreFailure::NotConnected(reason)) => error::is_tls_mismatch(reason),
            Err(_) => false,
        };
        match is_other {
            true => StoreFailure::NotConnected(mismatch),
            false => failure,
        }
    }

    fn client(&self, info: ConnectionInfo) -> redis::RedisResult<Client> {
        match info.addr() {
            ConnectionAddr::TcpTls { .. } => {
                // An error means that a provider is installed already, which is used.
                let _ = rustls::crypto::ring::default_provider().install_default();
                Client::build_with_tls(info, self.certificates.clone())
            }
            _ => Client::open(info),
        }
    }

    /// Checks the certificates.
    pub(super) fn validate(&self) -> Result<(), RedisError> {
        let TlsCertificates {
            client_tls,
            root_cert,
        } = &self.certificates;
        if !self.url.tls && (root_cert.is_some() || client_tls.is_some()) {
            return Err(RedisError::invalid_url(
                "certificates are given, but the scheme has no TLS",
            ));
        }
        let is_certificate = |pem: &[u8]| {
            let mut found = CertificateDer::pem_slice_iter(pem).peekable();
            found.peek().is_some() && found.all(|certificate| certificate.is_ok())
        };
        let is_key = |pem: &[u8]| PrivateKeyDer::from_pem_slice(pem).is_ok();
        let root_valid = root_cert.as_deref().is_none_or(is_certificate);
        let client_valid = client_tls
            .as_ref()
            .is_none_or(|client| is_certificate(&client.client_cert) && is_key(&client.client_key));
        if root_valid && client_valid {
            Ok(())
        } else {
            Err(StoreFailure::Rejected("TLS").into())
        }
    }
}

/// Translates an error that occurred while connecting: nothing was sent yet.
fn connect_failure(error: &redis::RedisError, timeout_reason: &'static str) -> StoreFailure {
    match StoreFailure::from(error) {
        StoreFailure::ConnectionLost
        | StoreFailure::InvalidReply
        | StoreFailure::NotConnected(_) => StoreFailure::NotConnected(connect_reason(error)),
        StoreFailure::TimedOut => StoreFailure::NotConnected(timeout_reason),
        StoreFailure::Rejected("ERR") => StoreFailure::Rejected(rejected_step(error)),
        failure => failure,
    }
}

/// Which step of the handshake the server rejects.
fn rejected_step(error: &redis::RedisError) -> &'static str {
    let detail = error.detail().unwrap_or_default().to_lowercase();
    if detail.contains("unknown command") || detail.contains("noproto") {
        "HELLO"
    } else if detail.contains("db index") {
        "DB"
    } else {
        "ERR"
    }
}

/// Describes a failure to connect without repeating its text, which may hold secrets.
fn connect_reason(error: &redis::RedisError) -> &'static str {
    let text = error.to_string().to_lowercase();
    let mentions = |phrase: &str| text.contains(phrase);
    if mentions("no such file") {
        "there is no such socket"
    } else if mentions("permission denied") {
        "permission to open the socket is denied"
    } else if error.is_connection_refusal() {
        "connection refused"
    } else if mentions("expired") {
        error::EXPIRED
    } else if mentions("unknownissuer") || mentions("unknown issuer") {
        error::UNTRUSTED
    } else if mentions("notvalidforname") || mentions("not valid for name") {
        error::OTHER_NAME
    } else if mentions("certificaterequired") || mentions("certificate required") {
        error::NO_CERTIFICATE
    } else if mentions("certificate") {
        "the server's certificate is not valid"
    } else if mentions("invalidcontenttype") || mentions("corrupt message") {
        error::NO_TLS
    } else if mentions("lookup") || mentions("resolve") {
        "the host name cannot be resolved"
    } else {
        error::CLOSED
    }
}
