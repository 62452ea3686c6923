//! A server that speaks TLS only, to users only. Knows nothing of the client under test.

use super::config::{Plan, Role};
use super::{Flavour, Server, User};
use crate::certificates::{Certificates, Pair};

/// What the server wants to see of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificate {
    /// Nothing.
    Unasked,
    /// A certificate of the authority, or none.
    Optional,
    /// A certificate of the authority.
    Required,
}

/// Redis on a TLS port, with every [`User`] and without the default one.
#[derive(Debug)]
pub struct Secured {
    server: Server,
    certificates: Certificates,
}

impl Secured {
    /// Starts it with a sound certificate.
    #[must_use]
    pub fn start(asks: ClientCertificate) -> Self {
        let certificates = Certificates::new();
        let shown = certificates.server();
        Self::start_showing(&shown, certificates, asks)
    }

    /// Starts it with a certificate that expired in 2002.
    #[must_use]
    pub fn start_expired() -> Self {
        let certificates = Certificates::new();
        let shown = certificates.expired_server();
        Self::start_showing(&shown, certificates, ClientCertificate::Unasked)
    }

    /// Where a client finds it as one of the users: `rediss://<name>:<password>@127.0.0.1:<port>`.
    #[must_use]
    pub fn url(&self, user: User) -> String {
        let (name, password) = (user.name(), user.password());
        format!(
            "rediss://{name}:{password}@127.0.0.1:{}",
            self.server.port()
        )
    }

    /// The server; its own `url` would not work here, its commands do.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The authority to trust, the client's certificate to show.
    #[must_use]
    pub fn certificates(&self) -> &Certificates {
        &self.certificates
    }

    fn start_showing(shown: &Pair, certificates: Certificates, asks: ClientCertificate) -> Self {
        let asks = match asks {
            ClientCertificate::Unasked => "no",
            ClientCertificate::Optional => "optional",
            ClientCertificate::Required => "yes",
        };
        let mut plan = Plan::new(Flavour::Redis, &[]);
        plan.role = Role::Tls;
        plan.config = vec![
            format!("tls-cert-file {}", shown.certificate.display()),
            format!("tls-key-file {}", shown.key.display()),
            format!("tls-ca-cert-file {}", certificates.authority().display()),
            format!("tls-auth-clients {asks}"),
            "user default off".to_owned(),
        ];
        let users =
            User::ALL.map(|user| format!("user {} {}", user.name(), user.rules().join(" ")));
        plan.config.extend(users);
        let admin = User::Admin;
        plan.login = Some((admin.name().to_owned(), admin.password().to_owned()));
        Self {
            server: Server::start_plan(&plan),
            certificates,
        }
    }
}
