//! Settings of the whole file: the store, client addresses, and the defaults of rules.

use std::fmt;
use std::path::PathBuf;

use crate::http::{ClientAddress, Draft, ForwardedBy, Headers, Network};

use super::rule::RuleDefaults;
use super::{OptionalField, Span, Spanned, Text, Validator, code, schema};
use crate::config::schema::{Integer, Shorthand, Url};
use crate::rules::Missing;

const VERSION: u64 = 1;

/// The store of the counters.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreConfig {
    /// `memory`, or the URL of Redis or Valkey. May contain a password.
    pub url: String,
    /// The certificate authority to trust instead of the system's.
    pub ca_cert: Option<PathBuf>,
    /// The client certificate.
    pub client_cert: Option<PathBuf>,
    /// The private key of the client certificate.
    pub client_key: Option<PathBuf>,
}

impl Default for StoreConfig {
    fn default() -> Self {
        StoreConfig {
            url: "memory".into(),
            ca_cert: None,
            client_cert: None,
            client_key: None,
        }
    }
}

impl fmt::Debug for StoreConfig {
    /// Omits the URL, which may contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreConfig").finish_non_exhaustive()
    }
}

impl Validator<'_> {
    pub(super) fn version(&mut self, file: &schema::RulesFile) {
        if let Some(Integer(version)) = file.version.get()
            && *version != VERSION
        {
            let message = format!("unsupported version, expected {VERSION}");
            self.error(code::VERSION, file.version.span, message)
                .help("write `version: 1`, or use a newer release");
        }
    }

    /// Reports settings of an included file: only the main file may have them.
    pub(super) fn no_settings(&mut self, file: &schema::RulesFile) {
        for (field, span) in [
            ("store", file.store.span()),
            ("trusted_proxies", file.trusted_proxies.span()),
            ("forwarded", file.forwarded.span()),
            ("ipv6_prefix", file.ipv6_prefix.span()),
            ("headers", file.headers.span()),
            ("on_failure", file.on_failure.span()),
            ("on_missing", file.on_missing.span()),
            ("gateway", file.gateway.span()),
        ] {
            if let Some(span) = span {
                let message = format!("`{field}` is not allowed in an included file");
                self.error(code::INCLUDE, span, message)
                    .help(format!("move `{field}` to the main file"));
            }
        }
    }

    pub(super) fn store(&mut self, file: &schema::RulesFile) -> StoreConfig {
        let mut config = StoreConfig::default();
        let Some((span, store)) = file.store.span().zip(file.store.value()) else {
            return config;
        };
        let options = match store {
            Shorthand::Value(url) => {
                self.store_url(span, url, &mut config);
                return config;
            }
            Shorthand::Map(options) => options,
        };
        if let Some(url) = options.url.get() {
            self.store_url(options.url.span, url, &mut config);
        }
        config.ca_cert = self.path("ca_cert", &options.ca_cert);
        config.client_cert = self.path("client_cert", &options.client_cert);
        config.client_key = self.path("client_key", &options.client_key);
        let unpaired = match (&options.client_cert, &options.client_key) {
            (Some(field), None) => Some((field.span, "client_cert", "client_key")),
            (None, Some(field)) => Some((field.span, "client_key", "client_cert")),
            (Some(_), Some(_)) | (None, None) => None,
        };
        if let Some((span, given, missing)) = unpaired {
            let message = format!("`{given}` requires `{missing}`");
            self.error(code::CONTRADICTION, span, message);
        }
        let certificates = [&options.ca_cert, &options.client_cert, &options.client_key];
        if config.url == "memory"
            && let Some(field) = certificates.into_iter().flatten().next()
        {
            let message = "the memory store does not use certificates";
            self.error(code::CONTRADICTION, field.span, message);
        }
        config
    }

    /// A path relative to the directory of its rules file.
    pub(super) fn path<'f>(
        &mut self,
        name: &str,
        field: impl Into<Option<&'f Spanned<Text>>>,
    ) -> Option<PathBuf> {
        let field = field.into()?;
        let path = self.non_empty_text(name, field)?;
        let file = self.sources.get(field.span.file).path.as_deref();
        let directory = file.and_then(|file| file.parent());
        Some(directory.map_or_else(|| PathBuf::from(&path), |parent| parent.join(&path)))
    }

    fn store_url(&mut self, span: Span, url: &Url, config: &mut StoreConfig) {
        let text = &url.0.text;
        // Without the feature `redis`, the application has to check the URL.
        #[cfg(feature = "redis")]
        if text != "memory"
            && let Err(error) = crate::RedisStore::builder(text).check_url()
        {
            // The message must not contain the URL.
            self.error(code::STORE, span, error.problem().to_owned())
                .help(
                    "expected `memory` or a URL such as redis://host:6379/0, rediss:// for TLS, \
                 redis-sentinel://host:26379/master or redis-cluster://host1,host2",
                );
            return;
        }
        config.url.clone_from(text);
    }

    pub(super) fn client_address(&mut self, file: &schema::RulesFile) -> ClientAddress {
        let mut client = match file.trusted_proxies.value() {
            None => ClientAddress::peer(),
            Some(Shorthand::Value(list)) => {
                let networks: Vec<_> = list.0.iter().filter_map(|at| self.proxy(at)).collect();
                ClientAddress::behind(networks)
            }
            Some(Shorthand::Map(map)) => {
                let hops = self.integer("hops", &map.hops, 1..=32);
                ClientAddress::behind_hops(hops.unwrap_or(1))
            }
        };
        if let Some(forwarded) = file.forwarded.value() {
            client = client.header(match forwarded {
                schema::Forwarded::XForwardedFor => ForwardedBy::XForwardedFor,
                schema::Forwarded::Forwarded => ForwardedBy::Forwarded,
            });
        }
        if let Some(field) = &file.forwarded
            && file.trusted_proxies.is_none()
        {
            let message = "`forwarded` requires `trusted_proxies`";
            self.error(code::CONTRADICTION, field.span, message)
                .help("such as `trusted_proxies: [10.0.0.0/8]`");
        }
        if let Some(field) = &file.ipv6_prefix
            && let Some(bits) = self.integer("ipv6_prefix", field, 0..=128)
        {
            client = client.ipv6_prefix(bits);
            if bits > 64 {
                let message =
                    format!("a prefix of {bits} bits distinguishes addresses of a client");
                self.diagnostics
                    .warning("rules::ipv6-rotation", field.span, message)
                    .help("a client usually has a whole /64");
            }
        }
        client
    }

    fn proxy(&mut self, field: &Spanned<Text>) -> Option<Network> {
        let help = "expected a network such as 10.0.0.0/8, 2001:db8::/32 or 192.0.2.7";
        let network = self.network(field, help)?;
        if field.get()?.text.ends_with("/0") {
            let message = "every client is trusted to name its own address";
            self.diagnostics
                .warning("rules::trusts-everybody", field.span, message)
                .help("list only the networks of the proxies, or use `{ hops: 1 }`");
        }
        Some(network)
    }

    pub(super) fn rule_defaults(&mut self, file: &schema::RulesFile) -> RuleDefaults {
        let mut defaults = RuleDefaults::default();
        if let Some(headers) = file.headers.value() {
            defaults.headers = self.headers(headers, defaults.headers);
        }
        if let Some(on_failure) = file.on_failure.value() {
            defaults.on_failure = self.on_failure(on_failure, defaults.on_failure);
        }
        if let Some(on_missing) = file.on_missing.value() {
            defaults.on_missing = missing(*on_missing);
        }
        defaults
    }

    pub(super) fn headers(&mut self, field: &schema::Headers, defaults: Headers) -> Headers {
        let options = match field {
            Shorthand::Value(schema::Off::Off) => return Headers::none(),
            Shorthand::Map(options) => options,
        };
        let mut headers = defaults;
        if let Some(on) = options.retry_after.value() {
            headers = headers.retry_after(on.0);
        }
        if let Some(on) = options.x_ratelimit.value() {
            headers = headers.x_ratelimit(on.0);
        }
        if let Some(version) = options.ratelimit.value() {
            headers = headers.draft(match version {
                schema::RateLimit::Latest => Some(Draft::Latest),
                schema::RateLimit::Seven => Some(Draft::Seven),
                schema::RateLimit::Off => None,
            });
        }
        if let Some(max) = self.duration(&options.jitter) {
            headers = headers.jitter(max);
        }
        headers
    }
}

pub(super) fn missing(field: schema::Missing) -> Missing {
    match field {
        schema::Missing::Refuse => Missing::Refuse,
        schema::Missing::Pass => Missing::Pass,
        schema::Missing::Shared => Missing::Shared,
    }
}
