//! The `gateway` section, and `single_flight` of rules. Opens no files and connections.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::Uri;

use super::{OneOrMany, OptionalField, Spanned, Text, Validator, code, schema};
use crate::config::schema::{Shorthand, Switch, Url};
use crate::rules::{CoalesceBy, Matcher};

const MAX_UPSTREAMS: usize = 256;

/// The `gateway` section of a rules file, for the gateway of `tallygate serve`. A field is `None` if
/// it is not given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatewayConfig {
    /// The listen address.
    pub listen: Option<SocketAddr>,
    /// The upstreams, used in turn: a scheme (`http`, `https`, `h2c` or `h2`), a host and a port.
    pub upstreams: Vec<Uri>,
    /// Whether upstreams get their own name in the `Host` header, instead of the client's.
    pub upstream_host: bool,
    /// The certificate authority to trust for upstreams instead of the system's.
    pub upstream_ca_cert: Option<PathBuf>,
    /// Whether trusted proxies have to send a PROXY protocol header.
    pub proxy_protocol: bool,
    /// TLS of the listener: PEM files with the certificate chain and the private key.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Timeouts.
    pub timeouts: GatewayTimeouts,
    /// Maximum sizes and numbers.
    pub sizes: GatewaySizes,
}

/// The timeouts of a gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "documented in the schema of the rules file")]
pub struct GatewayTimeouts {
    pub header: Option<Duration>,
    pub body_idle: Option<Duration>,
    pub body_grace: Option<Duration>,
    pub keep_alive: Option<Duration>,
    pub write: Option<Duration>,
    pub connect: Option<Duration>,
    pub first_byte: Option<Duration>,
    pub answer_idle: Option<Duration>,
    pub whole: Option<Duration>,
    pub tunnel_idle: Option<Duration>,
    pub pool_idle: Option<Duration>,
    pub down: Option<Duration>,
}

/// The maximum sizes and numbers of a gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "documented in the schema of the rules file")]
pub struct GatewaySizes {
    pub connections: Option<usize>,
    pub connections_per_client: Option<usize>,
    pub head_bytes: Option<usize>,
    pub headers: Option<usize>,
    pub body_bytes: Option<u64>,
    pub body_rate: Option<u32>,
    pub streams: Option<u32>,
    pub pool: Option<usize>,
}

impl Validator<'_> {
    pub(super) fn gateway(&mut self, file: &schema::RulesFile) -> Option<GatewayConfig> {
        let field = file.gateway.value()?;
        let timeouts = field.timeouts.value().map(|field| self.timeouts(field));
        let sizes = field.sizes.value().map(|field| self.sizes(field));
        let config = GatewayConfig {
            listen: field.listen.as_ref().and_then(|listen| self.listen(listen)),
            upstreams: self.upstreams(&field.upstreams),
            upstream_host: matches!(field.host.value(), Some(schema::GatewayHost::Upstream)),
            upstream_ca_cert: self.path("upstream_ca_cert", &field.upstream_ca_cert),
            proxy_protocol: self.proxy_protocol(file, &field.proxy_protocol),
            tls: field.tls.value().and_then(|tls| {
                let certificate = self.path("cert", &tls.cert);
                certificate.zip(self.path("key", &tls.key))
            }),
            timeouts: timeouts.unwrap_or_default(),
            sizes: sizes.unwrap_or_default(),
        };
        let is_tls = |upstream: &Uri| matches!(upstream.scheme_str(), Some("https" | "h2"));
        if let Some(ca_cert) = &field.upstream_ca_cert
            && !config.upstreams.is_empty()
            && !config.upstreams.iter().any(is_tls)
        {
            let message = "`upstream_ca_cert` requires an upstream with TLS";
            self.error(code::CONTRADICTION, ca_cert.span, message)
                .help("write upstreams like https://host, or remove it");
        }
        Some(config)
    }

    fn proxy_protocol(
        &mut self,
        file: &schema::RulesFile,
        field: &Option<Spanned<Switch>>,
    ) -> bool {
        let (Some(Switch(true)), Some(span)) = (field.value(), field.span()) else {
            return false;
        };
        let message = match &file.trusted_proxies {
            None => "`proxy_protocol` requires `trusted_proxies`: nobody else may send a header",
            Some(field) if matches!(field.get(), Some(Shorthand::Map(_))) => {
                "`proxy_protocol` requires the networks of `trusted_proxies`, not `hops`"
            }
            Some(_) => return true,
        };
        self.error(code::CONTRADICTION, span, message)
            .help("name the load balancer: `trusted_proxies: [10.0.0.0/8]`");
        true
    }

    fn listen(&mut self, field: &Spanned<Text>) -> Option<SocketAddr> {
        let text = field.get()?;
        let address = text.text.parse();
        if address.is_err() {
            let message = format!("invalid address and port {}", text.quoted());
            self.error(code::GATEWAY, field.span, message)
                .help("expected an address such as `0.0.0.0:8000` or \"[::]:8000\"");
        }
        address.ok()
    }

    fn upstreams(&mut self, field: &Option<Spanned<OneOrMany<Url>>>) -> Vec<Uri> {
        let items = self.non_empty("upstreams", field, "such as `http://10.0.0.7:3000`");
        let spans = items.iter().map(|item| item.span);
        self.max_items("upstreams", spans, MAX_UPSTREAMS);
        let mut upstreams = Vec::new();
        for item in items.iter().take(MAX_UPSTREAMS) {
            let Some(url) = item.get() else { continue };
            match parse_upstream(&url.0.text) {
                Some(upstream) => upstreams.push(upstream),
                None => {
                    // The message must not contain the URL: it may have a password.
                    let message = "invalid upstream: expected a scheme, a host and a port, without \
                                   user, path or query";
                    self.error(code::GATEWAY, item.span, message).help(
                        "such as http://10.0.0.7:3000, https://api.internal for TLS, h2c:// for \
                         HTTP/2 or h2:// for HTTP/2 over TLS",
                    );
                }
            }
        }
        upstreams
    }

    fn timeouts(&mut self, field: &schema::GatewayTimeouts) -> GatewayTimeouts {
        GatewayTimeouts {
            header: self.duration(&field.header),
            body_idle: self.duration(&field.body_idle),
            body_grace: self.duration(&field.body_grace),
            keep_alive: self.duration(&field.keep_alive),
            write: self.duration(&field.write),
            connect: self.duration(&field.connect),
            first_byte: self.duration(&field.first_byte),
            answer_idle: self.duration(&field.answer_idle),
            whole: self.duration(&field.whole),
            tunnel_idle: self.duration(&field.tunnel_idle),
            pool_idle: self.duration(&field.pool_idle),
            down: self.duration(&field.down),
        }
    }

    fn sizes(&mut self, field: &schema::GatewaySizes) -> GatewaySizes {
        GatewaySizes {
            connections: self.integer("connections", &field.connections, 1..=1 << 20),
            connections_per_client: self.integer(
                "connections_per_client",
                &field.connections_per_client,
                0..=1 << 20,
            ),
            head_bytes: self.integer("head_bytes", &field.head_bytes, 8 << 10..=1 << 20),
            headers: self.integer("headers", &field.headers, 1..=10_000),
            body_bytes: self.integer("body_bytes", &field.body_bytes, 0..=1 << 40),
            body_rate: self.integer("body_rate", &field.body_rate, 0..=1 << 30),
            streams: self.integer("streams", &field.streams, 1..=10_000),
            pool: self.integer("pool", &field.pool, 0..=65_536),
        }
    }

    pub(super) fn single_flight(
        &mut self,
        field: &schema::SingleFlight,
        matcher: &Matcher,
    ) -> Option<CoalesceBy> {
        match field {
            Shorthand::Value(flag) => flag.get()?.0.then_some(CoalesceBy::Credentials),
            Shorthand::Map(map) => {
                let parts = map.by.get()?;
                if parts.0.is_empty() {
                    let message = "`by` is an empty list: all clients would share responses";
                    self.error(code::NO_VALUE, map.by.span, message)
                        .help("write `by: [{ constant: all }]` if that is intended, or `true`");
                    return None;
                }
                let (parts, _) = self.key(parts, map.by.span, Some(matcher));
                parts.map(CoalesceBy::Parts)
            }
        }
    }
}

/// An upstream: a scheme, a host and a port, without user, path or query.
fn parse_upstream(text: &str) -> Option<Uri> {
    let uri: Uri = text.parse().ok()?;
    let authority = uri.authority()?;
    let valid = matches!(uri.scheme_str(), Some("http" | "https" | "h2c" | "h2"))
        && matches!(uri.path(), "" | "/")
        && uri.query().is_none()
        && !authority.as_str().contains('@')
        && !authority.host().is_empty();
    valid.then_some(uri)
}
