//! Settings of the whole file: the store, client addresses, and the defaults of rules.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::http::{ClientAddress, Draft, ForwardedBy, Headers, Network};

use super::rule::RuleDefaults;
use super::{OptionalField, Span, Spanned, SpannedConfig, Text, Validator, code, schema};
use crate::config::schema::{HashTags, Integer, Secret, Shorthand, Url};
use crate::rules::Missing;
use crate::store::{DEFAULT_HASH_TAGS, MAX_HASH_TAGS, MIN_HMAC_SECRET_BYTES, may_be_hash_tags};

const VERSION: u64 = 1;
/// The keys of a process's memory, about 39 bytes each.
pub(super) const MAX_KEYS: usize = 100_000_000;
/// Keys in memory unless the file says otherwise.
pub const DEFAULT_KEYS: usize = 1_000_000;
const MAX_CACHE_KEYS: usize = 10_000_000;
const MAX_CACHE_AGE: Duration = Duration::from_secs(60);

/// The store of the counters.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreConfig {
    /// `memory`, or the URL of Redis or Valkey. May contain a password.
    pub url: String,
    /// How many live keys have their own counters in the memory of a process, if the file says so.
    pub keys: Option<usize>,
    /// The cache of exhausted counters in front of Redis or Valkey. `None` if it is off.
    pub refusal_cache: Option<RefusalCacheConfig>,
    /// What secrets in stored keys are hashed with, by HMAC-SHA-256. Never shown.
    pub hmac_secret: Option<String>,
    /// The number of hash tags of a cluster, if keys are put under some.
    pub hash_tags: Option<u32>,
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
            keys: None,
            refusal_cache: Some(RefusalCacheConfig::default()),
            hmac_secret: None,
            hash_tags: None,
            ca_cert: None,
            client_cert: None,
            client_key: None,
        }
    }
}

/// The cache of exhausted counters in front of a shared store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusalCacheConfig {
    /// How long a reset, a refund or a raised limit elsewhere may go unnoticed.
    pub max_age: Duration,
    /// The number of counters.
    pub keys: usize,
}

impl Default for RefusalCacheConfig {
    fn default() -> Self {
        RefusalCacheConfig {
            max_age: Duration::from_secs(1),
            keys: 65_536,
        }
    }
}

impl fmt::Debug for StoreConfig {
    /// Omits the URL, which may contain a password, and the HMAC secret.
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
        match (&options.url, &options.shards) {
            (_, Some(shards)) => self.shards(options, shards, &mut config),
            (Some(field), None) => {
                if let Some(url) = field.get() {
                    self.store_url(field.span, url, &mut config);
                }
            }
            (None, None) => {
                let message = "missing field in `store`: expected `url` or `shards`";
                self.error(code::MISSING_FIELD, span, message)
                    .help("such as `url: redis://host:6379` or `shards: [a:6379, b:6379]`");
            }
        }
        config.keys = self.integer("keys", &options.keys, 1..=MAX_KEYS);
        if let Some(cache) = options.refusal_cache.value() {
            config.refusal_cache = self.refusal_cache(cache);
        }
        config.hmac_secret = self.hmac_secret(&options.hmac_secret);
        config.hash_tags = self.hash_tags(&options.hash_tags);
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

    fn hmac_secret(&mut self, field: &Option<Spanned<Secret>>) -> Option<String> {
        let field = field.as_ref()?;
        let Secret(Text { text, .. }) = field.get()?;
        let bytes = text.len();
        if bytes < MIN_HMAC_SECRET_BYTES {
            let message =
                format!("`hmac_secret` has {bytes} bytes, which is below {MIN_HMAC_SECRET_BYTES}");
            self.error(code::OUT_OF_RANGE, field.span, message)
                .help("such as the output of `openssl rand -hex 32`, as `\"${NAME}\"`");
            return None;
        }
        Some(text.clone())
    }

    fn hash_tags(&mut self, field: &Option<Spanned<HashTags>>) -> Option<u32> {
        let field = field.as_ref()?;
        let count = match field.get()? {
            HashTags::Off => return None,
            HashTags::Default => return Some(DEFAULT_HASH_TAGS),
            HashTags::Count(count) => *count,
        };
        let valid = u32::try_from(count)
            .ok()
            .filter(|&count| may_be_hash_tags(count));
        if valid.is_none() {
            let message =
                format!("`hash_tags` {count} is not a power of two from 1 to {MAX_HASH_TAGS}");
            self.error(code::OUT_OF_RANGE, field.span, message)
                .help("such as 64, which `true` is short for");
        }
        valid
    }

    /// Whether the file names the memory store, literally.
    pub(super) fn chose_memory(&self, file: &schema::RulesFile) -> bool {
        let span = file.store.as_ref().and_then(|field| match field.get()? {
            Shorthand::Value(_) => Some(field.span),
            Shorthand::Map(options) => options.url.span(),
        });
        span.is_some_and(|span| self.text_start(span, "memory").is_some())
    }

    pub(super) fn refusal_cache(
        &mut self,
        field: &schema::RefusalCache,
    ) -> Option<RefusalCacheConfig> {
        let options = match field {
            Shorthand::Value(schema::Off::Off) => return None,
            Shorthand::Map(options) => options,
        };
        let mut config = RefusalCacheConfig::default();
        if let Some(field) = &options.max_age
            && let Some(max_age) = self.duration(field)
        {
            config.max_age = max_age;
            if max_age > MAX_CACHE_AGE {
                let found = field.get().map(Text::quoted).unwrap_or_default();
                let message = format!("`max_age` {found} is too long, at most 1min");
                self.error(code::DURATION, field.span, message)
                    .help("a reset elsewhere goes unnoticed for so long; the default is `1s`");
            }
        }
        if let Some(keys) = self.integer("keys", &options.keys, 1..=MAX_CACHE_KEYS) {
            config.keys = keys;
        }
        Some(config)
    }

    /// Reports rules whose own parts do not fit in the memory.
    pub(super) fn memory_parts(&mut self, config: &SpannedConfig) {
        let capacity = config.store.keys.unwrap_or(DEFAULT_KEYS);
        let mut left = capacity;
        let rules = &config.set.rules;
        for (number, (rule, spans)) in rules.iter().zip(&config.spans).enumerate() {
            let (Some(keys), Some(span)) = (rule.keys, spans.keys) else {
                continue;
            };
            // The rules of a budget have one part.
            if rules[..number].iter().any(|other| rule.same_budget(other)) {
                continue;
            }
            if keys > left {
                let message = format!(
                    "`keys: {keys}` does not fit: {left} of the store's {capacity} keys are left"
                );
                self.error(code::OUT_OF_RANGE, span, message)
                    .help("raise `keys` of the store, or lower those of the rules");
            }
            left = left.saturating_sub(keys);
        }
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

    pub(super) fn store_url(&mut self, span: Span, url: &Url, config: &mut StoreConfig) {
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
                 redis-sentinel://host:26379/master, redis-cluster://host1,host2 or \
                 redis+shards://host1,host2",
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
            Shorthand::Value(schema::OnOff::On) => return defaults.reported(true),
            Shorthand::Value(schema::OnOff::Off) => return defaults.reported(false),
            Shorthand::Map(options) => options,
        };
        let mut headers = defaults;
        if let Some(on) = options.reported.value() {
            headers = headers.reported(on.0);
        }
        if let Some(on) = options.retry_after.value() {
            headers = headers.retry_after(on.0);
        }
        if let Some(on) = options.x_ratelimit.value() {
            headers = match on {
                schema::XRateLimit::On => headers.x_ratelimit(true),
                schema::XRateLimit::Off => headers.x_ratelimit(false),
                schema::XRateLimit::Epoch => headers.x_ratelimit_epoch(),
            };
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
