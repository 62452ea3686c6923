//! TLS configurations: towards clients with a certificate that can be renewed, towards upstreams
//! with the authorities to trust.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use hyper_rustls::ConfigBuilderExt;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{
    ClientConfig, ConfigBuilder, RootCertStore, ServerConfig, WantsVerifier,
};

use super::SettingsError;

/// The files of a gateway's certificate and its key, both PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The certificate chain.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// The certificate shown to clients, which can be renewed at any time.
#[derive(Clone, Debug)]
pub struct Certificate {
    tls: Tls,
    config: Arc<ArcSwap<ServerConfig>>,
}

impl Certificate {
    pub(super) fn new(tls: Tls) -> Result<Self, SettingsError> {
        let config = Arc::new(ArcSwap::from_pointee(tls.server_config()?));
        Ok(Certificate { tls, config })
    }

    /// Reads the files again. The result applies to new connections.
    ///
    /// # Errors
    /// When they cannot be used; the certificate then stays the same.
    pub fn reload(&self) -> Result<(), SettingsError> {
        self.config.store(Arc::new(self.tls.server_config()?));
        Ok(())
    }

    /// The files.
    pub fn tls(&self) -> &Tls {
        &self.tls
    }

    pub(super) fn config(&self) -> Arc<ArcSwap<ServerConfig>> {
        Arc::clone(&self.config)
    }
}

impl Tls {
    pub(super) fn server_config(&self) -> Result<ServerConfig, SettingsError> {
        let certificates = read_certificates(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|error| file_error(&self.key, error))?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|config| {
                let config = config.with_no_client_auth();
                config.with_single_cert(certificates, key)
            });
        let mut config = config.map_err(|error| file_error(&self.certificate, error))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// TLS to upstreams, trusting the authorities in a file or, by default, those of the system.
pub(super) fn client_config(ca_cert: Option<&Path>) -> Result<ClientConfig, SettingsError> {
    let Some(file) = ca_cert else {
        return client_config_with_native_roots().map_err(|error| SettingsError::Roots {
            reason: error.to_string(),
        });
    };
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(file)? {
        let added = roots.add(certificate);
        added.map_err(|error| file_error(file, error))?;
    }
    Ok(client_config_with_roots(roots))
}

pub(crate) fn client_config_with_native_roots() -> io::Result<ClientConfig> {
    Ok(client_builder().with_native_roots()?.with_no_client_auth())
}

/// Without any root it is for servers that do not use TLS.
pub(crate) fn client_config_with_roots(roots: RootCertStore) -> ClientConfig {
    client_builder()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

fn client_builder() -> ConfigBuilder<ClientConfig, WantsVerifier> {
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring supports the default protocol versions")
}

fn read_certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, SettingsError> {
    let certificates = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| file_error(file, error))?;
    match certificates.is_empty() {
        true => Err(file_error(file, "it holds no certificate")),
        false => Ok(certificates),
    }
}

fn file_error(file: &Path, reason: impl ToString) -> SettingsError {
    SettingsError::Tls {
        file: file.to_owned(),
        reason: reason.to_string(),
    }
}
