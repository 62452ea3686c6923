//! TLS towards clients and upstreams as set by arguments, and certificate reload.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use tallygate_testkit::certificates::{Certificates, Pair};
use tallygate_testkit::poll;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::{Server, TIMEOUT, TempDir};

/// Sends a request as a client that trusts an authority. Returns the response and the server's
/// certificate, `None` if the handshake fails.
fn send(to: SocketAddr, authority: &Path) -> Option<(String, Vec<u8>)> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(authority).unwrap())
        .unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = StreamOwned::new(connection, TcpStream::connect(to).unwrap());
    let request = b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(request).ok()?;
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    let shown = stream.conn.peer_certificates()?.first()?.to_vec();
    Some((answer, shown))
}

fn copy(from: &Pair, folder: &TempDir) -> (String, String) {
    let text = |path: &Path| fs::read_to_string(path).unwrap();
    (
        folder.write("cert.pem", &text(&from.certificate)),
        folder.write("key.pem", &text(&from.key)),
    )
}

#[test]
fn tls_works_on_both_sides_and_a_renewed_certificate_needs_no_restart() {
    let (first, second) = (Certificates::new(), Certificates::new());
    let folder = TempDir::new();
    let (cert, key) = copy(&first.server(), &folder);
    let tls = [
        "--gateway",
        "127.0.0.1:0",
        "--tls-cert",
        &cert,
        "--tls-key",
        &key,
    ];
    // Nothing listens behind the last one: it responds with a 502.
    let last = Server::start(&[&tls[..], &["--upstream", "http://127.0.0.1:1"]].concat());
    let url = format!("https://localhost:{}", last.gateway().port());
    let authority = first.authority();
    let before = Server::start(&[
        "--gateway",
        "127.0.0.1:0",
        "--upstream",
        &url,
        "--upstream-ca-cert",
        authority.to_str().unwrap(),
    ]);
    let through = || super::send(before.gateway(), "GET", "/", &[], "");
    let answer = through();
    assert_eq!(answer.status, 502);
    assert!(!last.stderr().contains("tallygate: "), "{}", last.stderr());
    let (answer, old) = send(last.gateway(), &authority).unwrap();
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");

    // A key that does not belong to the certificate changes nothing.
    fs::copy(second.server().key, &key).unwrap();
    last.signal("-HUP");
    poll::first(TIMEOUT, || {
        last.stderr()
            .contains("keeps its certificate")
            .then_some(())
    })
    .unwrap();
    assert_eq!(send(last.gateway(), &authority).unwrap().1, old);
    copy(&second.server(), &folder);
    last.signal("-HUP");
    let new = poll::first(TIMEOUT, || send(last.gateway(), &second.authority())).unwrap();
    assert_ne!(new.1, old);
    // A client that trusts only the first authority rejects it.
    assert!(send(last.gateway(), &authority).is_none());
}
