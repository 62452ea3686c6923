//! TLS towards clients and upstreams: ALPN, trust, unusable files.

use http::{Request, Response};
use tokio::io::AsyncWriteExt;

use tallygate_server::gateway::{SettingsError, Tls};
use tallygate_testkit::certificates::Certificates;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::*;

fn settings(upstream: SocketAddr, certificates: &Certificates) -> Settings {
    let pair = certificates.server();
    let mut settings = proxy_to(upstream);
    settings.tls = Some(Tls {
        certificate: pair.certificate,
        key: pair.key,
    });
    settings
}

/// Connects as a client that offers these protocols.
async fn connect(
    gateway: &Running,
    certificates: &Certificates,
    protocols: &[&str],
) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(certificates.authority()).unwrap();
    roots.add(authority).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols
        .iter()
        .map(|name| name.as_bytes().to_vec())
        .collect();
    let name = ServerName::try_from("localhost").unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    connector
        .connect(name, gateway.connect().await)
        .await
        .unwrap()
}

#[tokio::test]
async fn alpn_negotiates_the_protocol() {
    let address = upstream(|request| async move {
        let proto = request.headers()["x-forwarded-proto"]
            .to_str()
            .unwrap()
            .to_owned();
        Response::new(text(proto))
    })
    .await;
    let certificates = Certificates::new();
    let gateway = Running::start(settings(address, &certificates), admit_all()).await;
    let url = format!("https://localhost:{}/", gateway.address.port());

    let stream = connect(&gateway, &certificates, &["h2", "http/1.1"]).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let io = TokioIo::new(stream);
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), io);
    let (mut sender, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    let request = Request::get(&url).body(empty()).unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(read(response).await, (200, "https".to_owned()));

    for protocols in [&["http/1.1"][..], &[]] {
        let stream = connect(&gateway, &certificates, protocols).await;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
        let (mut sender, connection) = handshake.await.unwrap();
        tokio::spawn(connection);
        let request = Request::get("/").header("host", "localhost");
        let response = sender.send_request(request.body(empty()).unwrap()).await;
        assert_eq!(read(response.unwrap()).await, (200, "https".to_owned()));
    }
}

#[tokio::test]
async fn clients_that_fail_the_handshake_are_disconnected() {
    let certificates = Certificates::new();
    let mut settings = settings(hello().await, &certificates);
    settings.timeouts.header = Duration::from_millis(50);
    let gateway = Running::start(settings, admit_all()).await;
    let response = gateway.raw("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(!response.contains("HTTP"), "{response}");
    assert_eq!(gateway.raw("").await, "");
    // Others are not affected.
    let mut stream = connect(&gateway, &certificates, &[]).await;
    let close = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    stream.write_all(close).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    assert!(response.ends_with("hello"), "{response}");
}

#[tokio::test]
async fn unusable_files_are_named() {
    let certificates = Certificates::new();
    let (server, client) = (certificates.server(), certificates.client());
    let nothing = server.certificate.with_file_name("nothing");
    for (certificate, key) in [
        (&nothing, &server.key),
        (&server.certificate, &nothing),
        (&server.key, &server.key),
        (&server.certificate, &server.certificate),
        (&server.certificate, &client.key),
    ] {
        let mut settings = proxy_to("127.0.0.1:1".parse().unwrap());
        settings.tls = Some(Tls {
            certificate: certificate.clone(),
            key: key.clone(),
        });
        let error = Gateway::new(settings, admit_all()).unwrap_err();
        assert!(matches!(error, SettingsError::Tls { .. }), "{error}");
        assert!(
            error.to_string().contains("cannot be used for TLS: "),
            "{error}"
        );
    }
}

/// Starts a TLS server that responds with what it received.
async fn tls_upstream(certificates: &Certificates, protocol: &str) -> SocketAddr {
    let pair = certificates.server();
    let certificate = CertificateDer::from_pem_file(&pair.certificate).unwrap();
    let key = PrivateKeyDer::from_pem_file(&pair.key).unwrap();
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else {
                    return;
                };
                let service = service_fn(|request: Request<Incoming>| async move {
                    let host = request.headers().get("host");
                    let host = host.map_or("none", |host| host.to_str().unwrap());
                    let body = format!("{:?} {} {host}", request.version(), request.uri().path());
                    Ok::<_, Infallible>(Response::new(text(body)))
                });
                let builder = auto::Builder::new(TokioExecutor::new());
                let _ = builder
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    address
}

#[tokio::test]
async fn upstreams_may_use_tls_and_http2_over_tls() {
    let certificates = Certificates::new();
    for (scheme, protocol, version) in [("https", "http/1.1", "HTTP/1.1"), ("h2", "h2", "HTTP/2.0")]
    {
        let port = tls_upstream(&certificates, protocol).await.port();
        let url = format!("{scheme}://localhost:{port}");
        let mut settings = Settings::new([url.parse().unwrap()]);
        settings.upstream_ca_cert = Some(certificates.authority());
        let gateway = Running::start(settings, admit_all()).await;
        for _ in 0..2 {
            let (status, body) = get(&http1(), &gateway.url("/x")).await;
            assert_eq!(status, 200, "{body}");
            assert!(body.starts_with(&format!("{version} /x ")), "{body}");
        }
    }
}

#[tokio::test]
async fn an_upstream_with_an_untrusted_certificate_gets_no_request() {
    let certificates = Certificates::new();
    let port = tls_upstream(&certificates, "http/1.1").await.port();
    let named = |host: &str| Settings::new([format!("https://{host}:{port}").parse().unwrap()]);
    let mut stranger = named("localhost");
    stranger.upstream_ca_cert = Some(certificates.other_authority());
    let mut other_name = named("[::ffff:127.0.0.1]");
    other_name.upstream_ca_cert = Some(certificates.authority());
    for settings in [stranger, named("localhost"), other_name] {
        let gateway = Running::start(settings, admit_all()).await;
        let (status, body) = get(&http1(), &gateway.url("/")).await;
        assert_eq!(status, 502);
        assert_eq!(problem(&body), "urn:tallygate:problem:upstream-failed");
    }
}

#[tokio::test]
async fn an_unreadable_authority_is_named() {
    let certificates = Certificates::new();
    let nothing = certificates.authority().with_file_name("nothing");
    for file in [nothing, certificates.server().key] {
        let mut settings = Settings::new(["https://localhost".parse().unwrap()]);
        settings.upstream_ca_cert = Some(file);
        let error = Gateway::new(settings, admit_all()).unwrap_err();
        assert!(matches!(error, SettingsError::Tls { .. }), "{error}");
    }
}

#[tokio::test]
async fn invalid_settings_are_rejected() {
    let error = Gateway::new(Settings::new([]), admit_all()).unwrap_err();
    assert_eq!(error, SettingsError::NoUpstream);
    let mut settings = proxy_to("127.0.0.1:1".parse().unwrap());
    settings.limits.connections = 0;
    let error = Gateway::new(settings, admit_all()).unwrap_err();
    assert_eq!(error.to_string(), "the gateway's connections 0 is below 1");
}
