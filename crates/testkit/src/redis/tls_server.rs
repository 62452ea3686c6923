//! A server with TLS and ACL users only.

use super::config::{Role, ServerConfig};
use super::{Flavour, Server, User};
use crate::certificates::{Certificates, Pair};

/// Whether the server requests a client certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificate {
    /// No.
    NotRequested,
    /// Optional.
    Optional,
    /// Required.
    Required,
}

/// Redis on a TLS port, with every [`User`] and no default user.
#[derive(Debug)]
pub struct TlsServer {
    server: Server,
    certificates: Certificates,
}

impl TlsServer {
    /// Starts it with a valid certificate.
    #[must_use]
    pub fn start(client: ClientCertificate) -> Self {
        let certificates = Certificates::new();
        let pair = certificates.server();
        Self::start_with(&pair, certificates, client)
    }

    /// Starts it with a certificate that expired in 2002.
    #[must_use]
    pub fn start_expired() -> Self {
        let certificates = Certificates::new();
        let pair = certificates.expired_server();
        Self::start_with(&pair, certificates, ClientCertificate::NotRequested)
    }

    /// Its URL for a user: `rediss://<name>:<password>@127.0.0.1:<port>`.
    #[must_use]
    pub fn url(&self, user: User) -> String {
        let (name, password) = (user.name(), user.password());
        format!(
            "rediss://{name}:{password}@127.0.0.1:{}",
            self.server.port()
        )
    }

    /// The server; its own `url` does not work here, its commands do.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The CA and the client certificate.
    #[must_use]
    pub fn certificates(&self) -> &Certificates {
        &self.certificates
    }

    fn start_with(pair: &Pair, certificates: Certificates, client: ClientCertificate) -> Self {
        let client = match client {
            ClientCertificate::NotRequested => "no",
            ClientCertificate::Optional => "optional",
            ClientCertificate::Required => "yes",
        };
        let mut config = ServerConfig::new(Flavour::Redis, &[]);
        config.role = Role::Tls;
        config.lines = vec![
            format!("tls-cert-file {}", pair.certificate.display()),
            format!("tls-key-file {}", pair.key.display()),
            format!("tls-ca-cert-file {}", certificates.authority().display()),
            format!("tls-auth-clients {client}"),
            "user default off".to_owned(),
        ];
        let users =
            User::ALL.map(|user| format!("user {} {}", user.name(), user.rules().join(" ")));
        config.lines.extend(users);
        let admin = User::Admin;
        config.login = Some((admin.name().to_owned(), admin.password().to_owned()));
        Self {
            server: Server::start_config(&config),
            certificates,
        }
    }
}
