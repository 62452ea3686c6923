//! What all connections of a store have in common, and how one is made.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, PushInfo, PushKind,
    TlsCertificates,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::error::{self, RedisError, Trouble};
use super::script::Scripts;
use super::url::Address;

/// How long connecting may take, signing in included, unless told otherwise.
pub(super) const CONNECT_WITHIN: Duration = Duration::from_millis(500);

pub(super) struct Settings {
    pub(super) address: Address,
    pub(super) certificates: TlsCertificates,
    pub(super) scripts: Arc<Scripts>,
    pub(super) batching: bool,
    pub(super) connect_within: Duration,
    /// How long an answer may take before it counts as lost.
    pub(super) answer_within: Duration,
    /// Where connections live: the runtime that the store was made on. Those who call may come and
    /// go with others.
    pub(super) runtime: Handle,
}

impl Settings {
    /// Connects and signs in. `lost` is notified when the connection ends.
    pub(super) async fn connect(
        &self,
        info: ConnectionInfo,
        lost: Arc<Notify>,
    ) -> Result<MultiplexedConnection, Trouble> {
        let late = match info.addr() {
            ConnectionAddr::TcpTls { .. } => error::PERHAPS_NO_TLS,
            _ => "no answer in time",
        };
        let client = self.client(info).map_err(|error| Trouble::from(&error))?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_within))
            .set_response_timeout(Some(self.answer_within))
            .set_push_sender(move |push: PushInfo| {
                if push.kind == PushKind::Disconnection {
                    lost.notify_one();
                }
                Ok::<(), ()>(())
            });
        // The client's own limit does not cover all it does.
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        match timeout(self.connect_within, connecting).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => Err(not_connected(&error, late)),
            Err(_) => Err(Trouble::Down(late)),
        }
    }

    fn client(&self, info: ConnectionInfo) -> redis::RedisResult<Client> {
        match info.addr() {
            ConnectionAddr::TcpTls { .. } => {
                // Whoever was first has chosen; both can do all that is needed.
                let _ = rustls::crypto::ring::default_provider().install_default();
                Client::build_with_tls(info, self.certificates.clone())
            }
            _ => Client::open(info),
        }
    }

    /// Checks what can be checked without connecting.
    pub(super) fn check(&self) -> Result<(), RedisError> {
        let TlsCertificates {
            client_tls,
            root_cert,
        } = &self.certificates;
        if !self.address.tls && (root_cert.is_some() || client_tls.is_some()) {
            return Err(RedisError::url(
                "certificates are given, but the scheme has no TLS",
            ));
        }
        let certified = |pem: &[u8]| {
            let mut found = CertificateDer::pem_slice_iter(pem).peekable();
            found.peek().is_some() && found.all(|certificate| certificate.is_ok())
        };
        let keyed = |pem: &[u8]| PrivateKeyDer::from_pem_slice(pem).is_ok();
        let rooted = root_cert.as_deref().is_none_or(certified);
        let shown = client_tls
            .as_ref()
            .is_none_or(|client| certified(&client.client_cert) && keyed(&client.client_key));
        if rooted && shown {
            Ok(())
        } else {
            Err(Trouble::Refused("TLS").into())
        }
    }
}

/// Nothing was sent yet, whatever broke.
fn not_connected(error: &redis::RedisError, late: &'static str) -> Trouble {
    match Trouble::from(error) {
        Trouble::Broken | Trouble::Garbled | Trouble::Down(_) => Trouble::Down(why(error)),
        Trouble::Silent => Trouble::Down(late),
        Trouble::Refused("ERR") => Trouble::Refused(unwelcome(error)),
        trouble => trouble,
    }
}

/// Which step of signing in the server does not take.
fn unwelcome(error: &redis::RedisError) -> &'static str {
    let detail = error.detail().unwrap_or_default().to_lowercase();
    if detail.contains("unknown command") || detail.contains("noproto") {
        "HELLO"
    } else if detail.contains("db index") {
        "DB"
    } else {
        "ERR"
    }
}

/// Names a failure to connect without repeating what was said.
fn why(error: &redis::RedisError) -> &'static str {
    let text = error.to_string().to_lowercase();
    let says = |word: &str| text.contains(word);
    if says("no such file") {
        "there is no such socket"
    } else if says("permission denied") {
        "the socket may not be opened"
    } else if error.is_connection_refusal() {
        "connection refused"
    } else if says("expired") {
        error::EXPIRED
    } else if says("unknownissuer") || says("unknown issuer") {
        error::UNTRUSTED
    } else if says("notvalidforname") || says("not valid for name") {
        error::OTHER_NAME
    } else if says("certificaterequired") || says("certificate required") {
        error::NO_CERTIFICATE
    } else if says("certificate") {
        "the server's certificate is not valid"
    } else if says("invalidcontenttype") || says("corrupt message") {
        error::NO_TLS
    } else if says("lookup") || says("resolve") {
        "the host's name is not known"
    } else {
        "the server closed it; does it want TLS (rediss://)?"
    }
}
