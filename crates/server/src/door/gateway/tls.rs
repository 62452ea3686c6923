//! TLS with clients: a certificate and a key from files, HTTP/2 where the client wants it. Knows
//! nothing of what is spoken inside.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::SettingsError;

/// Where a gateway's certificate and its key are, both as PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The certificate, and those that lead from it to one that clients know.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl Tls {
    /// Reads the files.
    pub(super) fn acceptor(&self) -> Result<TlsAcceptor, SettingsError> {
        let wrong = |file: &Path, why: String| SettingsError::Tls {
            file: file.to_owned(),
            why,
        };
        let certificates = CertificateDer::pem_file_iter(&self.certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| wrong(&self.certificate, error.to_string()))?;
        if certificates.is_empty() {
            let why = "it holds no certificate".to_owned();
            return Err(wrong(&self.certificate, why));
        }
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
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}
