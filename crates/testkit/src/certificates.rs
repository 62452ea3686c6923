//! A CA and the certificates it signed, for one test.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};
use tempfile::TempDir;

/// A certificate and its key, as PEM files.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// The certificates of a CA, in a folder that is deleted on drop.
#[derive(Debug)]
pub struct Certificates {
    folder: TempDir,
}

impl Certificates {
    /// Creates a CA, and certificates for `127.0.0.1` and `localhost`.
    ///
    /// # Panics
    ///
    /// Panics if the files cannot be written.
    #[must_use]
    pub fn new() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("tallygate-certificates-")
            .tempdir()
            .expect("the temporary folder can be written to");
        let issuer = authority(&folder.path().join("ca.pem"), "Tallygate test authority");
        authority(&folder.path().join("other-ca.pem"), "Another authority");
        let certificates = Self { folder };
        let server = || subject("server", ExtendedKeyUsagePurpose::ServerAuth);
        sign(server(), &issuer, &certificates.server());
        let mut expired = server();
        expired.not_before = date_time_ymd(2001, 1, 1);
        expired.not_after = date_time_ymd(2002, 1, 1);
        sign(expired, &issuer, &certificates.expired_server());
        let client = subject("client", ExtendedKeyUsagePurpose::ClientAuth);
        sign(client, &issuer, &certificates.client());
        certificates
    }

    /// The CA's certificate.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// The certificate of another CA.
    #[must_use]
    pub fn other_authority(&self) -> PathBuf {
        self.folder.path().join("other-ca.pem")
    }

    /// For a server.
    #[must_use]
    pub fn server(&self) -> Pair {
        self.pair("server")
    }

    /// For a server, valid until 2002.
    #[must_use]
    pub fn expired_server(&self) -> Pair {
        self.pair("expired")
    }

    /// For a client.
    #[must_use]
    pub fn client(&self) -> Pair {
        self.pair("client")
    }

    fn pair(&self, name: &str) -> Pair {
        let file = |ending| self.folder.path().join(format!("{name}{ending}"));
        Pair {
            certificate: file(".pem"),
            key: file(".key"),
        }
    }
}

impl Default for Certificates {
    fn default() -> Self {
        Self::new()
    }
}

fn authority(certificate: &Path, name: &str) -> Issuer<'static, KeyPair> {
    let key = new_key();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let signed = params.self_signed(&key).expect("the parameters are valid");
    write(certificate, &signed.pem());
    Issuer::new(params, key)
}

fn subject(name: &str, purpose: ExtendedKeyUsagePurpose) -> CertificateParams {
    let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
    let mut params = CertificateParams::new(names).expect("both are host names");
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = vec![purpose];
    params
}

fn sign(subject: CertificateParams, issuer: &Issuer<'_, KeyPair>, into: &Pair) {
    let key = new_key();
    let signed = subject
        .signed_by(&key, issuer)
        .expect("the parameters are valid");
    write(&into.certificate, &signed.pem());
    write(&into.key, &key.serialize_pem());
}

fn new_key() -> KeyPair {
    KeyPair::generate().expect("the system has random bytes")
}

fn write(path: &Path, pem: &str) {
    fs::write(path, pem).expect("the temporary folder can be written to");
}
