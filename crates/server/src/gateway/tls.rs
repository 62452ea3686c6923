//! TLS with clients, a certificate and a key from files, HTTP/2 where the client wants it; and with
//! upstreams, whose certificates are checked. Knows nothing of what is spoken inside.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use hyper_rustls::ConfigBuilderExt;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};

use super::SettingsError;

/// Where a gateway's certificate and its key are, both as PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The certificate, and those that lead from it to one that clients know.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// The certificate that clients are shown, which another can take the place of at any time.
#[derive(Clone, Debug)]
pub struct Certificate {
    tls: Tls,
    config: Arc<ArcSwap<ServerConfig>>,
}

impl Certificate {
    pub(super) fn new(tls: Tls) -> Result<Self, SettingsError> {
        let config = Arc::new(ArcSwap::from_pointee(tls.config()?));
        Ok(Certificate { tls, config })
    }

    /// Reads the files again, for every connection from now on.
    ///
    /// # Errors
    /// When they cannot be used; then the certificate stays as it was.
    pub fn renew(&self) -> Result<(), SettingsError> {
        self.config.store(Arc::new(self.tls.config()?));
        Ok(())
    }

    /// Where it is.
    pub fn tls(&self) -> &Tls {
        &self.tls
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.config.load_full())
    }
}

impl Tls {
    /// Says whether the files can be used.
    pub(super) fn check(&self) -> Result<(), SettingsError> {
        self.config().map(|_| ())
    }

    /// Reads the files.
    fn config(&self) -> Result<ServerConfig, SettingsError> {
        let certificates = certificates(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|error| wrong(&self.key, error.to_string()))?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|config| {
                let config = config.with_no_client_auth();
                config.with_single_cert(certificates, key)
            });
        let mut config = config.map_err(|error| wrong(&self.certificate, error.to_string()))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// How TLS is spoken with upstreams whose certificates an authority vouches for: the one in a file,
/// or any that the system trusts.
pub(super) fn client(authority: Option<&Path>) -> Result<ClientConfig, SettingsError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring speaks every version that is safe");
    let builder = match authority {
        None => builder
            .with_native_roots()
            .map_err(|error| SettingsError::Roots {
                why: error.to_string(),
            })?,
        Some(file) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(file)? {
                let added = roots.add(certificate);
                added.map_err(|error| wrong(file, error.to_string()))?;
            }
            builder.with_root_certificates(roots)
        }
    };
    Ok(builder.with_no_client_auth())
}

/// How TLS is spoken where no upstream does: nobody is trusted.
pub(super) fn nobody() -> ClientConfig {
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring speaks every version that is safe")
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth()
}

/// The certificates in a file; at least one.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, SettingsError> {
    let certificates = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| wrong(file, error.to_string()))?;
    match certificates.is_empty() {
        true => Err(wrong(file, "it holds no certificate".to_owned())),
        false => Ok(certificates),
    }
}

fn wrong(file: &Path, why: String) -> SettingsError {
    let file = file.to_owned();
    SettingsError::Tls { file, why }
}
