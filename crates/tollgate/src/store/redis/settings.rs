//! What all connections of a store have in common, and how one is made.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, PushInfo, PushKind,
    TlsCertificates,
};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::address::Address;
use super::error::{RedisError, Trouble};
use super::script::Scripts;

/// How long connecting may take, signing in included.
pub(super) const CONNECT_WITHIN: Duration = Duration::from_millis(500);

pub(super) struct Settings {
    pub(super) address: Address,
    pub(super) certificates: TlsCertificates,
    pub(super) scripts: Arc<Scripts>,
    pub(super) batching: bool,
    /// How long an answer may take before it counts as lost.
    pub(super) answer_within: Duration,
}

impl Settings {
    /// Connects and signs in. `lost` is notified when the connection ends.
    pub(super) async fn connect(
        &self,
        info: ConnectionInfo,
        lost: Arc<Notify>,
    ) -> Result<MultiplexedConnection, Trouble> {
        let client = self.client(info).map_err(|error| Trouble::from(&error))?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_WITHIN))
            .set_response_timeout(Some(self.answer_within))
            .set_push_sender(move |push: PushInfo| {
                if push.kind == PushKind::Disconnection {
                    lost.notify_one();
                }
                Ok::<(), ()>(())
            });
        // The client's own limit does not cover all it does.
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        match timeout(CONNECT_WITHIN, connecting).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => Err(not_connected(&error)),
            Err(_) => Err(Trouble::Down("no answer within 500 ms")),
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
        if !self.address.tls
            && (self.certificates.root_cert.is_some() || self.certificates.client_tls.is_some())
        {
            return Err(RedisError::url(
                "certificates are given, but the scheme has no TLS",
            ));
        }
        Ok(())
    }
}

/// Nothing was sent yet, whatever broke.
fn not_connected(error: &redis::RedisError) -> Trouble {
    match Trouble::from(error) {
        Trouble::Broken | Trouble::Garbled => Trouble::Down(why(error)),
        Trouble::Silent => Trouble::Down("no answer within 500 ms"),
        trouble => trouble,
    }
}

/// Names a failure to connect without repeating what was said.
fn why(error: &redis::RedisError) -> &'static str {
    use std::io::ErrorKind as Io;
    let text = error.to_string().to_lowercase();
    let says = |word: &str| text.contains(word);
    let io = std::error::Error::source(error)
        .and_then(|source| source.downcast_ref::<std::io::Error>())
        .map(std::io::Error::kind);
    if says("expired") {
        "the server's certificate has expired"
    } else if says("unknownissuer") || says("unknown issuer") {
        "the server's certificate is signed by nobody that is trusted; give its CA"
    } else if says("notvalidforname") || says("not valid for name") {
        "the server's certificate is for another name"
    } else if says("certificaterequired") || says("certificate required") {
        "the server wants a client certificate"
    } else if says("certificate") {
        "the server's certificate is not valid"
    } else if says("invalidcontenttype") || says("corrupt message") {
        "the server does not speak TLS; use redis:// without the second s"
    } else if says("lookup") || says("resolve") {
        "the host's name is not known"
    } else if io == Some(Io::NotFound) {
        "there is no such socket"
    } else if io == Some(Io::PermissionDenied) {
        "the socket may not be opened"
    } else {
        "the server closed it; does it want TLS (rediss://)?"
    }
}
