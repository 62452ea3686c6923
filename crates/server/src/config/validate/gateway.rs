//! The `gateway` section, and `single_flight` of rules. Opens no files and connections.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::{OneOrMany, OptionalField, Spanned, Text, Validator, code, schema};
use crate::config::schema::{Shorthand, Url};
use crate::gateway::{Host, Limits, Timeouts, Tls, Upstream};
use tallygate::rules::{CoalesceBy, Matcher};

const MAX_UPSTREAMS: usize = 256;

/// The gateway of a rules file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatewayConfig {
    /// The listen address.
    pub listen: Option<SocketAddr>,
    /// The upstreams, used in turn. May be empty and given on the command line instead.
    pub upstreams: Vec<Upstream>,
    /// The `Host` header sent to upstreams.
    pub host: Host,
    /// The certificate authority to trust for upstreams instead of the system's.
    pub upstream_ca_cert: Option<PathBuf>,
    /// TLS of the listener.
    pub tls: Option<Tls>,
    /// Timeouts.
    pub timeouts: Timeouts,
    /// Maximum sizes and numbers.
    pub limits: Limits,
}

impl Validator<'_> {
    pub(super) fn gateway(&mut self, file: &schema::File) -> Option<GatewayConfig> {
        let field = file.gateway.value()?;
        let mut config = GatewayConfig {
            listen: field.listen.as_ref().and_then(|listen| self.listen(listen)),
            upstreams: self.upstreams(&field.upstreams),
            upstream_ca_cert: self.path("upstream_ca_cert", &field.upstream_ca_cert),
            tls: field.tls.value().and_then(|tls| self.tls(tls)),
            ..GatewayConfig::default()
        };
        if let Some(host) = field.host.value() {
            config.host = match host {
                schema::Host::Client => Host::Client,
                schema::Host::Upstream => Host::Upstream,
            };
        }
        if let Some(ca_cert) = &field.upstream_ca_cert
            && !config.upstreams.is_empty()
            && !config.upstreams.iter().any(Upstream::is_tls)
        {
            let message = "`upstream_ca_cert` requires an upstream with TLS";
            self.error(code::CONTRADICTION, ca_cert.span, message)
                .help("write upstreams like https://host, or remove it");
        }
        if let Some(timeouts) = field.timeouts.value() {
            self.timeouts(timeouts, &mut config.timeouts);
        }
        if let Some(sizes) = field.sizes.value() {
            self.sizes(sizes, &mut config.limits);
        }
        Some(config)
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

    fn upstreams(&mut self, field: &Option<Spanned<OneOrMany<Url>>>) -> Vec<Upstream> {
        let items = self.non_empty("upstreams", field, "such as `http://10.0.0.7:3000`");
        self.max_items(
            "upstreams",
            items.iter().map(|item| item.span),
            MAX_UPSTREAMS,
        );
        let mut upstreams = Vec::new();
        for item in items.iter().take(MAX_UPSTREAMS) {
            let Some(url) = item.get() else { continue };
            match url.0.text.parse() {
                Ok(upstream) => upstreams.push(upstream),
                Err(_) => {
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

    fn tls(&mut self, field: &schema::Tls) -> Option<Tls> {
        let certificate = self.path("cert", &Some(field.cert.clone()));
        let key = self.path("key", &Some(field.key.clone()));
        Some(Tls {
            certificate: certificate?,
            key: key?,
        })
    }

    fn timeouts(&mut self, field: &schema::Timeouts, timeouts: &mut Timeouts) {
        let fields: [(&Option<Spanned<Text>>, &mut Duration); 11] = [
            (&field.header, &mut timeouts.header),
            (&field.body_idle, &mut timeouts.body_idle),
            (&field.keep_alive, &mut timeouts.keep_alive),
            (&field.write, &mut timeouts.write),
            (&field.connect, &mut timeouts.connect),
            (&field.first_byte, &mut timeouts.first_byte),
            (&field.answer_idle, &mut timeouts.answer_idle),
            (&field.whole, &mut timeouts.whole),
            (&field.tunnel_idle, &mut timeouts.tunnel_idle),
            (&field.pool_idle, &mut timeouts.pool_idle),
            (&field.down, &mut timeouts.down),
        ];
        for (field, timeout) in fields {
            let duration = field.as_ref().and_then(|field| self.duration(field));
            *timeout = duration.unwrap_or(*timeout);
        }
    }

    fn sizes(&mut self, field: &schema::Sizes, limits: &mut Limits) {
        let usizes = [
            (
                "connections",
                &field.connections,
                1..=1 << 20,
                &mut limits.connections,
            ),
            (
                "head_bytes",
                &field.head_bytes,
                8 << 10..=1 << 20,
                &mut limits.head_bytes,
            ),
            ("headers", &field.headers, 1..=10_000, &mut limits.headers),
            ("pool", &field.pool, 0..=65_536, &mut limits.pool),
        ];
        for (name, field, range, size) in usizes {
            let number = field
                .as_ref()
                .and_then(|field| self.integer(name, field, range));
            *size = number.unwrap_or(*size);
        }
        if let Some(field) = &field.body_bytes {
            let number = self.integer("body_bytes", field, 0..=1 << 40);
            limits.body_bytes = number.unwrap_or(limits.body_bytes);
        }
        if let Some(field) = &field.streams {
            let number = self.integer("streams", field, 1..=10_000);
            limits.streams = number.unwrap_or(limits.streams);
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
                let (parts, _) = self.key(parts, map.by.span, matcher);
                parts.map(CoalesceBy::Parts)
            }
        }
    }
}
