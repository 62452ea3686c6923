//! OTLP export to a receiver that decodes the messages: the metrics of Prometheus, spans of sampled
//! requests, and no keys.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{Metric, metric, number_data_point};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use tallygate_testkit::certificates::Certificates;
use tallygate_testkit::poll;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::client::send;
use super::{Server, TIMEOUT, TempDir};

/// A request to a receiver or an upstream.
#[derive(Clone)]
struct Received {
    line: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

/// An HTTP server that responds with 200 and records requests.
#[derive(Clone)]
struct Receiver {
    address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Receiver {
    fn start() -> Self {
        Receiver::start_with(|stream| stream)
    }

    /// Starts a receiver behind TLS.
    fn start_tls(certificates: &Certificates) -> Self {
        let pair = certificates.server();
        let certificate = CertificateDer::from_pem_file(pair.certificate).unwrap();
        let key = PrivateKeyDer::from_pem_file(pair.key).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        let config = Arc::new(config);
        Receiver::start_with(move |stream| {
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            StreamOwned::new(connection, stream)
        })
    }

    fn start_with<S: Read + Write>(wrap: impl Fn(TcpStream) -> S + Clone + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&received);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (log, wrap) = (Arc::clone(&log), wrap.clone());
                thread::spawn(move || serve(wrap(stream.unwrap()), &log));
            }
        });
        Receiver { address, received }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn posts(&self, path: &str) -> Vec<Received> {
        let received = self.received.lock().unwrap();
        let line = format!("POST {path} HTTP/1.1");
        let posts = received.iter().filter(|one| one.line == line);
        posts.cloned().collect()
    }

    /// The metrics of the latest export by name.
    fn metrics(&self) -> BTreeMap<String, Metric> {
        let Some(last) = self.posts("/v1/metrics").pop() else {
            return BTreeMap::new();
        };
        let request = ExportMetricsServiceRequest::decode(&*last.body).unwrap();
        let resource = &request.resource_metrics[0];
        let attributes = &resource.resource.as_ref().unwrap().attributes;
        assert_eq!(
            text(attributes, "service.name").as_deref(),
            Some("tallygate")
        );
        let scopes = resource.scope_metrics.iter();
        let metrics = scopes.flat_map(|scope| scope.metrics.clone());
        metrics.map(|one| (one.name.clone(), one)).collect()
    }

    /// All spans so far.
    fn spans(&self) -> Vec<Span> {
        let decode = |post: Received| ExportTraceServiceRequest::decode(&*post.body).unwrap();
        let requests = self.posts("/v1/traces").into_iter().map(decode);
        let resources = requests.flat_map(|request| request.resource_spans);
        let scopes = resources.flat_map(|resource| resource.scope_spans);
        scopes.flat_map(|scope| scope.spans).collect()
    }
}

fn serve(stream: impl Read + Write, log: &Mutex<Vec<Received>>) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        let mut headers = BTreeMap::new();
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).unwrap();
            let Some((name, value)) = header.trim_end().split_once(':') else {
                break;
            };
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        let length = headers.get("content-length");
        let length = length.map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let line = line.trim_end().to_owned();
        log.lock().unwrap().push(Received {
            line,
            headers,
            body,
        });
        let response = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        if reader.get_mut().write_all(response).is_err() {
            return;
        }
    }
}

fn text(attributes: &[KeyValue], key: &str) -> Option<String> {
    let found = attributes.iter().find(|pair| pair.key == key)?;
    match found.value.as_ref()?.value.as_ref()? {
        any_value::Value::StringValue(text) => Some(text.clone()),
        any_value::Value::IntValue(number) => Some(number.to_string()),
        other => panic!("{other:?}"),
    }
}

/// The series as Prometheus writes them, without buckets.
fn series(metrics: &BTreeMap<String, Metric>) -> BTreeMap<String, f64> {
    let mut all = BTreeMap::new();
    for (name, metric) in metrics {
        let labelled = |name: &str, attributes: &[KeyValue]| {
            let labels: Vec<String> = attributes
                .iter()
                .map(|pair| format!("{}=\"{}\"", pair.key, text(attributes, &pair.key).unwrap()))
                .collect();
            match labels.is_empty() {
                true => name.to_owned(),
                false => format!("{name}{{{}}}", labels.join(",")),
            }
        };
        let points = match metric.data.as_ref().unwrap() {
            metric::Data::Sum(sum) => {
                assert!(
                    sum.is_monotonic && sum.aggregation_temporality == 2,
                    "{name}"
                );
                &sum.data_points
            }
            metric::Data::Gauge(gauge) => &gauge.data_points,
            metric::Data::Histogram(histogram) => {
                for point in &histogram.data_points {
                    assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
                    assert_eq!(point.bucket_counts.iter().sum::<u64>(), point.count);
                    let count = labelled(&format!("{name}_count"), &point.attributes);
                    all.insert(count, point.count as f64);
                    let sum = labelled(&format!("{name}_sum"), &point.attributes);
                    all.insert(sum, point.sum.unwrap());
                }
                continue;
            }
            other => panic!("{name}: {other:?}"),
        };
        for point in points {
            assert!(point.start_time_unix_nano > 0 && point.time_unix_nano > 0);
            let Some(number_data_point::Value::AsDouble(value)) = point.value else {
                panic!("{name}: {point:?}");
            };
            all.insert(labelled(name, &point.attributes), value);
        }
    }
    all
}

/// The series of `/metrics`, without buckets.
fn scraped(server: &Server) -> BTreeMap<String, f64> {
    let body = server.admin("GET", "/metrics", "").body;
    let lines = body.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter(|line| !line.contains("_bucket{"))
        .map(|line| {
            let (series, value) = line.rsplit_once(' ').unwrap();
            (series.to_owned(), value.parse().unwrap())
        })
        .collect()
}

const FREQUENT: (&str, &str) = ("OTEL_METRIC_EXPORT_INTERVAL", "100");

#[test]
fn metrics_have_the_names_and_values_of_prometheus() {
    let receiver = Receiver::start();
    let secret = ("OTEL_EXPORTER_OTLP_HEADERS", "x-api-key=k%20k");
    let server = Server::start_with_env(&["--otlp", &receiver.url()], &[FREQUENT, secret]);
    for _ in 0..7 {
        server.check(r#"{"rule":"login","attributes":{"ip":"192.0.2.1"}}"#);
    }
    server.check(r#"{"key":"k","quota":"1/h"}"#);
    // The process and the connections change all the time.
    let is_steady =
        |name: &str| !name.starts_with("process_") && !name.starts_with("tallygate_connections{");
    let mut expected = scraped(&server);
    expected.retain(|name, _| is_steady(name));
    let refused = r#"tallygate_decisions_total{outcome="refused",rule="login"}"#;
    assert_eq!(expected[refused], 2.0);
    poll::until(TIMEOUT, "the same values", || {
        let mut exported = series(&receiver.metrics());
        exported.retain(|name, _| is_steady(name));
        exported == expected
    });
    assert!(series(&receiver.metrics())["process_cpu_seconds_total"] > 0.0);
    let metrics = receiver.metrics();
    assert_eq!(metrics["tallygate_store_duration_seconds"].unit, "s");
    assert!(!metrics["tallygate_keys"].description.is_empty());
    let last = receiver.posts("/v1/metrics").pop().unwrap();
    assert_eq!(last.headers["content-type"], "application/x-protobuf");
    assert_eq!(last.headers["x-api-key"], "k k");
}

#[test]
fn an_untrusted_tls_receiver_gets_nothing() {
    let certificates = Certificates::new();
    let receiver = Receiver::start_tls(&certificates);
    let url = format!("https://localhost:{}/below", receiver.address.port());
    let start = |authority: PathBuf| {
        let trusted = ("SSL_CERT_FILE", authority.to_str().unwrap());
        Server::start_with_env(&["--otlp", &url], &[FREQUENT, trusted])
    };
    let distrusting = start(certificates.other_authority());
    let message = "OTLP export fails";
    poll::until(TIMEOUT, "the warning", || {
        distrusting.stderr().contains(message)
    });
    assert!(receiver.received.lock().unwrap().is_empty());
    let _server = start(certificates.authority());
    poll::until(TIMEOUT, "metrics", || {
        !receiver.posts("/below/v1/metrics").is_empty()
    });
}

const RULES: &str = "\
version: 1
trusted_proxies: [127.0.0.1]
rules:
  - name: users
    key: [{ header: x-user }]
    limits: [sliding-window-log 1/h]
";

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |i: usize| u8::from_str_radix(&hex[i..i + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digit).collect()
}

#[test]
fn a_trace_continues_from_the_client_to_the_upstream() {
    let (receiver, upstream, folder) = (Receiver::start(), Receiver::start(), TempDir::new());
    let rules = folder.write("rules.yaml", RULES);
    let (to, otlp) = (upstream.url(), receiver.url());
    let args = [
        "--config",
        &rules,
        "--gateway",
        "127.0.0.1:0",
        "--upstream",
        &to,
    ];
    let rest = ["--otlp", &otlp, "--otlp-sample", "0"];
    let mut server = Server::start(&[&args[..], &rest].concat());
    let gateway = server.gateway();
    let sampled = format!("00-{TRACE}-b7ad6b7169203331-01");
    let unsampled = format!("00-{TRACE}-b7ad6b7169203332-00");
    let get = |parent: &str| {
        let headers = [("x-user", "k3y-of-ann"), ("traceparent", parent)];
        send(gateway, "GET", "/p4th?q=1", &headers, "").status
    };
    assert_eq!((get(&sampled), get(&sampled)), (200, 429));
    let other = [("x-user", "bob"), ("traceparent", unsampled.as_str())];
    assert_eq!(send(gateway, "GET", "/", &other, "").status, 200);
    let third = [("x-user", "carol")];
    assert_eq!(send(gateway, "GET", "/", &third, "").status, 200);
    let headers = [("traceparent", sampled.as_str()), super::JSON];
    let body = r#"{"key":"k3y","quota":"5/h"}"#;
    assert_eq!(
        send(server.api, "POST", "/v1/check", &headers, body).status,
        200
    );
    // Shutdown flushes spans.
    server.signal("-TERM");
    assert!(server.wait().success());
    let spans = receiver.spans();
    let all = format!("{spans:?}");
    for secret in ["k3y", "p4th", "q=1"] {
        assert!(!all.contains(secret), "{secret}: {all}");
    }
    assert!(spans.iter().all(|span| span.trace_id == bytes(TRACE)));
    assert!(
        spans
            .iter()
            .all(|span| span.end_time_unix_nano >= span.start_time_unix_nano)
    );
    let by_listener = |listener: &str| -> Vec<&Span> {
        let listener = Some(listener.to_owned());
        let spans = spans.iter();
        spans
            .filter(|span| text(&span.attributes, "tallygate.listener") == listener)
            .collect()
    };
    let at_gateway = by_listener("gateway");
    let status = |span: &&Span| text(&span.attributes, "http.response.status_code").unwrap();
    assert_eq!(
        at_gateway.iter().map(status).collect::<Vec<_>>(),
        ["200", "429"]
    );
    assert_eq!(by_listener("api").len(), 1);
    assert!(
        at_gateway
            .iter()
            .all(|span| span.parent_span_id == bytes("b7ad6b7169203331"))
    );
    let decision = |parent: &Span| {
        let mut spans = spans.iter();
        let found = spans
            .find(|span| span.parent_span_id == parent.span_id)
            .unwrap();
        assert_eq!(found.name, "tallygate.decision");
        let attribute = |key| text(&found.attributes, key).unwrap();
        (attribute("tallygate.rule"), attribute("tallygate.outcome"))
    };
    let pair = |rule: &str, outcome: &str| (rule.to_owned(), outcome.to_owned());
    assert_eq!(decision(at_gateway[0]), pair("users", "admitted"));
    assert_eq!(decision(at_gateway[1]), pair("users", "refused"));
    assert_eq!(decision(by_listener("api")[0]), pair("(none)", "admitted"));
    assert_eq!(spans.len(), 6);
    // The upstream's parent is the gateway's span; unsampled headers are forwarded unchanged.
    let received = upstream.received.lock().unwrap();
    let parents: Vec<_> = received
        .iter()
        .map(|one| one.headers.get("traceparent").map(String::as_str))
        .collect();
    let id: String = at_gateway[0]
        .span_id
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let ours = format!("00-{TRACE}-{id}-01");
    assert_eq!(
        parents,
        [Some(ours.as_str()), Some(unsampled.as_str()), None]
    );
}

#[test]
fn an_unreachable_receiver_is_logged_once_and_delays_no_request() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    let mut server = Server::start_with_env(&["--otlp", &url, "--otlp-sample", "1"], &[FREQUENT]);
    for _ in 0..20 {
        assert_eq!(server.check(r#"{"key":"k","quota":"100/h"}"#).status, 200);
    }
    let message = "OTLP export fails";
    poll::until(TIMEOUT, "the warning", || server.stderr().contains(message));
    server.signal("-TERM");
    assert!(server.wait().success());
    assert_eq!(server.stderr().matches(message).count(), 1);
}

#[test]
fn invalid_settings_are_rejected_at_startup() {
    for args in [
        ["--otlp", "localhost:4318"],
        ["--otlp", "http://user:s3cret@a"],
        ["--otlp-sample", "2"],
    ] {
        let mut all = vec!["serve", "--check"];
        if args[0] == "--otlp-sample" {
            all.extend(["--otlp", "http://a"]);
        }
        all.extend(args);
        let output = super::tallygate(&all).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(
            stderr.contains("--otlp") && !stderr.contains("s3cret"),
            "{stderr}"
        );
    }
}
