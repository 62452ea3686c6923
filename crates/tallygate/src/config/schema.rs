//! The fields of a rules file and their types, from which serde reads it and `json_schema` is
//! generated. `validate` checks what the types cannot express.
//!
//! The doc comments are the descriptions of the JSON Schema. `serde(rename = …)` on a struct is what
//! error messages call it.

mod field;

use schemars::JsonSchema;
use serde::Deserialize;

pub(super) use field::*;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "a rules file", deny_unknown_fields)]
#[schemars(rename = "RulesFile", description = "A rules file of Tallygate.")]
pub(super) struct File {
    /// The version of the file format: 1.
    pub(super) version: Spanned<Integer>,
    /// Where counters are stored: `memory` (the default), or the URL of Redis or Valkey.
    pub(super) store: Option<Spanned<Store>>,
    /// The proxies whose forwarding header is trusted: networks, or `hops: 2` for a fixed number of
    /// proxies that every request passes. None by default.
    pub(super) trusted_proxies: Option<Spanned<TrustedProxies>>,
    /// The header that trusted proxies write: `x-forwarded-for` (the default) or `forwarded`.
    pub(super) forwarded: Option<Spanned<Forwarded>>,
    /// The number of bits of an IPv6 address that identify a client: 0 to 128. 64 by default.
    pub(super) ipv6_prefix: Option<Spanned<Integer>>,
    /// The rate limit headers of responses. The default of all rules.
    pub(super) headers: Option<Spanned<Headers>>,
    /// The decision when the store fails. The default of all rules.
    pub(super) on_failure: Option<Spanned<OnFailure>>,
    /// What happens to a request without a part of the key. The default of all rules.
    pub(super) on_missing: Option<Spanned<Missing>>,
    /// The gateway of `tallygate serve`: its listener and upstreams.
    pub(super) gateway: Option<Spanned<Box<Gateway>>>,
    /// More files with rules and overrides, relative to this file; may contain `*`. Their rules
    /// follow those of this file.
    pub(super) include: Option<Spanned<OneOrMany<Text>>>,
    /// The rules. All rules that match a request apply, in this order, until one has `stop: true`.
    pub(super) rules: Option<Spanned<Vec<Spanned<Box<Rule>>>>>,
    /// Exceptions for some clients. The first that matches applies.
    pub(super) overrides: Option<Spanned<Vec<Spanned<Box<Override>>>>>,
}

pub(super) type Store = Shorthand<Url, Box<StoreOptions>>;

/// The store and its certificates.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "`store`", deny_unknown_fields)]
#[schemars(rename = "StoreOptions")]
pub(super) struct StoreOptions {
    /// The URL of Redis or Valkey.
    pub(super) url: Spanned<Url>,
    /// A PEM file with the certificate authority to trust instead of the system's.
    pub(super) ca_cert: Option<Spanned<Text>>,
    /// A PEM file with the client certificate. Requires `client_key`.
    pub(super) client_cert: Option<Spanned<Text>>,
    /// A PEM file with the private key of `client_cert`.
    pub(super) client_key: Option<Spanned<Text>>,
}

pub(super) type TrustedProxies = Shorthand<OneOrMany<Text>, Hops>;

/// A fixed number of proxies that every request passes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "`trusted_proxies`", deny_unknown_fields)]
#[schemars(rename = "Hops")]
pub(super) struct Hops {
    /// The number of proxies: 1 to 32.
    pub(super) hops: Spanned<Integer>,
}

/// The header that trusted proxies write.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Forwarded {
    XForwardedFor,
    Forwarded,
}

pub(super) type Headers = Shorthand<Off, HeaderOptions>;

/// No headers.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Off {
    Off,
}

/// The rate limit headers of responses.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "`headers`", deny_unknown_fields)]
#[schemars(rename = "HeaderOptions")]
pub(super) struct HeaderOptions {
    /// `Retry-After` on refusals. True by default.
    pub(super) retry_after: Option<Spanned<Bool>>,
    /// The IETF's `RateLimit` and `RateLimit-Policy`: `latest` (the default), `draft-07` or `off`.
    pub(super) ratelimit: Option<Spanned<RateLimit>>,
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`. True by default.
    pub(super) x_ratelimit: Option<Spanned<Bool>>,
    /// The maximum random delay added to `Retry-After`, such as `5s`. None by default.
    pub(super) jitter: Option<Spanned<Text>>,
}

/// The version of the IETF's rate limit headers.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
pub(super) enum RateLimit {
    #[serde(rename = "latest")]
    Latest,
    #[serde(rename = "draft-07")]
    Seven,
    #[serde(rename = "off")]
    Off,
}

/// A rule: which requests it matches, what they are counted by, and the limits.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "a rule", deny_unknown_fields)]
#[schemars(rename = "Rule")]
pub(super) struct Rule {
    /// The name, used in counters and metrics. 1 to 64 of a-z, 0-9, `.`, `_`, `-`.
    pub(super) name: Spanned<Text>,
    /// Whether the rule applies. True by default.
    pub(super) enabled: Option<Spanned<Bool>>,
    /// The requests it applies to. Every request by default.
    #[serde(rename = "match")]
    pub(super) matcher: Option<Spanned<Match>>,
    /// What clients are identified by: `ip`, or parts of the request. By default all requests share
    /// one counter.
    pub(super) key: Option<Spanned<OneOrMany<Part>>>,
    /// What happens to a request without a part of the key: `shared` (the default) counts all such
    /// requests together, by the parts they have; `refuse` refuses it; `pass` skips the rule.
    pub(super) on_missing: Option<Spanned<Missing>>,
    /// The limits: one or several quotas, such as `100/min`.
    pub(super) limits: Option<Spanned<OneOrMany<Limit>>>,
    /// How a client's tier is determined. With `tiers`, instead of `limits`.
    pub(super) tier: Option<Spanned<Tier>>,
    /// The limits of each tier.
    pub(super) tiers: Option<Spanned<Table<OneOrMany<Limit>>>>,
    /// The cost of a request: a number, or by header or method. 1 by default.
    pub(super) cost: Option<Spanned<Cost>>,
    /// Clients the rule does not apply to: networks and keys.
    pub(super) allow: Option<Spanned<OneOrMany<Client>>>,
    /// Clients the rule refuses: networks and keys. Takes precedence over `allow`.
    pub(super) deny: Option<Spanned<OneOrMany<Client>>>,
    /// The decision when the store fails: `open` (the default) admits, `closed` refuses, `local`
    /// counts in this process.
    pub(super) on_failure: Option<Spanned<OnFailure>>,
    /// Whether the rule only counts and never refuses. False by default.
    pub(super) shadow: Option<Spanned<Bool>>,
    /// Whether later rules are skipped for requests this rule applies to. False by default.
    pub(super) stop: Option<Spanned<Bool>>,
    /// The rate limit headers of responses.
    pub(super) headers: Option<Spanned<Headers>>,
    /// The response statuses that count; the cost of other responses is refunded. All by default.
    pub(super) count: Option<Spanned<Count>>,
    /// The maximum time a quota with a queue may delay a request, such as `2s`.
    pub(super) longest_delay: Option<Spanned<Text>>,
    /// Whether the gateway coalesces identical concurrent requests into one upstream request. False
    /// by default.
    pub(super) single_flight: Option<Spanned<SingleFlight>>,
}

/// The requests a rule applies to. All given fields must match, by any item of a list.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "`match`", deny_unknown_fields)]
#[schemars(rename = "Match")]
pub(super) struct Match {
    /// Methods, such as `POST`. `GET` does not include `HEAD`.
    pub(super) method: Option<Spanned<OneOrMany<Text>>>,
    /// Hosts, such as `api.example.com` or `'*.example.com'`.
    pub(super) host: Option<Spanned<OneOrMany<Text>>>,
    /// Paths, such as `/users/{id}/files/**`.
    pub(super) path: Option<Spanned<OneOrMany<Text>>>,
    /// Headers and their values: text with at most one `*`, any of a list, or `present`.
    pub(super) header: Option<Spanned<Table<HeaderTest>>>,
    /// gRPC methods, such as `shop.v1.Carts/Checkout` or `shop.v1.Carts/*`.
    pub(super) grpc: Option<Spanned<OneOrMany<Text>>>,
}

pub(super) type HeaderTest = Shorthand<OneOrMany<Text>, Present>;

/// Whether a header is present.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "a header match", deny_unknown_fields)]
#[schemars(rename = "Present")]
pub(super) struct Present {
    /// True: the header must be present. False: it must be absent.
    pub(super) present: Spanned<Bool>,
}

/// `ip`, `route`, `method`, `host`, or a mapping such as `{ header: x-api-key }`.
pub(super) type Part = Shorthand<Text, Box<PartSource>>;

/// A part of a key: exactly one of `header`, `cookie`, `query`, `path` and `constant`, or `claim`
/// with its `header`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "a key part", deny_unknown_fields)]
#[schemars(rename = "PartSource")]
pub(super) struct PartSource {
    /// A header.
    pub(super) header: Option<Spanned<Text>>,
    /// A cookie.
    pub(super) cookie: Option<Spanned<Text>>,
    /// A query parameter.
    pub(super) query: Option<Spanned<Text>>,
    /// A parameter of the rule's path: `id` for `/users/{id}`.
    pub(super) path: Option<Spanned<Text>>,
    /// A claim of a JWT that a proxy has verified and passes on in `header`.
    pub(super) claim: Option<Spanned<Text>>,
    /// A constant.
    pub(super) constant: Option<Spanned<Text>>,
    /// The fallback if the part is missing.
    pub(super) or: Option<Spanned<OneOrMany<Part>>>,
}

/// What happens to a request without a part of the key.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Missing {
    Refuse,
    Pass,
    Shared,
}

/// A quota, such as `100/min` or `token-bucket 10/s burst 50`.
pub(super) type Limit = Shorthand<Spanned<Text>, NamedLimit>;

/// A quota with a name.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "a limit", deny_unknown_fields)]
#[schemars(rename = "NamedLimit")]
pub(super) struct NamedLimit {
    /// The quota, such as `100/min`.
    pub(super) quota: Spanned<Text>,
    /// The name of its counters. The algorithm and the period by default.
    pub(super) name: Option<Spanned<Text>>,
}

/// How a client's tier is determined: exactly one of `header` and `keys`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "`tier`", deny_unknown_fields)]
#[schemars(rename = "Tier")]
pub(super) struct Tier {
    /// A header with the tier's name, written by a trusted proxy.
    pub(super) header: Option<Spanned<Text>>,
    /// The keys of each tier.
    pub(super) keys: Option<Spanned<Table<OneOrMany<Key>>>>,
    /// The tier of all other clients.
    pub(super) default: Spanned<Text>,
}

/// A key: one text for each part of the rule's key, in order.
pub(super) type Key = OneOrMany<Secret>;

pub(super) type Cost = Shorthand<Spanned<Integer>, CostSource>;

/// The cost of a request: exactly one of `header` and `method`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "`cost`", deny_unknown_fields)]
#[schemars(rename = "CostSource")]
pub(super) struct CostSource {
    /// A header with the cost, in decimal digits.
    pub(super) header: Option<Spanned<Text>>,
    /// The cost of each method.
    pub(super) method: Option<Spanned<Table<Integer>>>,
    /// The cost without a valid header, or of any other method. 1 by default.
    pub(super) default: Option<Spanned<Integer>>,
    /// The minimum cost of a header. 1 by default.
    pub(super) at_least: Option<Spanned<Integer>>,
    /// The maximum cost of a header; higher values are capped. 4294967295 by default.
    pub(super) at_most: Option<Spanned<Integer>>,
}

/// A network such as `192.0.2.0/24`, or `{ key: … }`.
pub(super) type Client = Shorthand<Spanned<Text>, KeyEntry>;

/// A client by its key.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "a list entry", deny_unknown_fields)]
#[schemars(rename = "KeyEntry")]
pub(super) struct KeyEntry {
    /// The key: text, or a list with one text for each part of the rule's key.
    pub(super) key: Spanned<Key>,
}

pub(super) type OnFailure = Shorthand<FailurePolicy, FailureOptions>;

/// The decision when the store fails, and how long to wait for the store.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "`on_failure`", deny_unknown_fields)]
#[schemars(rename = "FailureOptions")]
pub(super) struct FailureOptions {
    /// `open` admits, `closed` refuses, `local` counts in this process. `open` by default.
    pub(super) policy: Option<Spanned<FailurePolicy>>,
    /// With `local`: the number of processes that share a limit. By default the number last counted
    /// by the store.
    pub(super) replicas: Option<Spanned<Replicas>>,
    /// The timeout of the store, such as `20ms`. 50ms by default.
    pub(super) deadline: Option<Spanned<Text>>,
}

/// The decision when the store fails.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum FailurePolicy {
    Open,
    Closed,
    Local,
}

pub(super) type Replicas = Shorthand<Spanned<Integer>, AtLeast>;

/// The number of processes last counted by the store, with a minimum.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "`replicas`", deny_unknown_fields)]
#[schemars(rename = "AtLeast")]
pub(super) struct AtLeast {
    /// The minimum.
    pub(super) at_least: Spanned<Integer>,
}

/// The response statuses that count: exactly one of `only` and `except`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "`count`", deny_unknown_fields)]
#[schemars(rename = "Count")]
pub(super) struct Count {
    /// Only these statuses, such as `[401, 403]` or `5xx`.
    pub(super) only: Option<Spanned<OneOrMany<Text>>>,
    /// All except these statuses.
    pub(super) except: Option<Spanned<OneOrMany<Text>>>,
}

/// An exception for a client: exactly one of `limits`, `allow` and `deny`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "an override", deny_unknown_fields)]
#[schemars(rename = "Override")]
pub(super) struct Override {
    /// The client: a network, or `{ key: … }`.
    #[serde(rename = "for")]
    pub(super) client: Spanned<Client>,
    /// The rule's name. Every rule by default.
    pub(super) rule: Option<Spanned<Text>>,
    /// The limits that replace those of the rule.
    pub(super) limits: Option<Spanned<OneOrMany<Limit>>>,
    /// The rule does not apply.
    pub(super) allow: Option<Spanned<Bool>>,
    /// The request is refused.
    pub(super) deny: Option<Spanned<Bool>>,
}

/// The gateway of `tallygate serve`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "`gateway`", deny_unknown_fields)]
#[schemars(rename = "Gateway")]
pub(super) struct Gateway {
    /// The listen address, such as `0.0.0.0:8000`. 127.0.0.1:8000 by default.
    pub(super) listen: Option<Spanned<Text>>,
    /// The upstreams, used in turn: `http://host:port`, `https://` for TLS, `h2c://` for HTTP/2 and
    /// `h2://` for HTTP/2 over TLS.
    pub(super) upstreams: Option<Spanned<OneOrMany<Url>>>,
    /// The `Host` header sent to upstreams: the `client`'s (the default), or the `upstream`'s.
    pub(super) host: Option<Spanned<Host>>,
    /// A PEM file with the certificate authority to trust for upstreams instead of the system's.
    pub(super) upstream_ca_cert: Option<Spanned<Text>>,
    /// TLS of the listener.
    pub(super) tls: Option<Spanned<Tls>>,
    /// Timeouts.
    pub(super) timeouts: Option<Spanned<Timeouts>>,
    /// Maximum sizes and numbers.
    pub(super) sizes: Option<Spanned<Sizes>>,
}

/// The `Host` header sent to upstreams.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "GatewayHost")]
pub(super) enum Host {
    Client,
    Upstream,
}

/// TLS of the listener. Both files are reloaded when they change.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "`tls`", deny_unknown_fields)]
#[schemars(rename = "GatewayTls")]
pub(super) struct Tls {
    /// A PEM file with the certificate chain.
    pub(super) cert: Spanned<Text>,
    /// A PEM file with the private key.
    pub(super) key: Spanned<Text>,
}

/// Timeouts of the gateway, such as `30s`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "`timeouts`", deny_unknown_fields)]
#[schemars(rename = "GatewayTimeouts")]
pub(super) struct Timeouts {
    /// From the first byte of a request to the end of its head. 10s by default.
    pub(super) header: Option<Spanned<Text>>,
    /// Between two chunks of a request body. 30s by default.
    pub(super) body_idle: Option<Spanned<Text>>,
    /// Between two requests on a connection. 1min15s by default.
    pub(super) keep_alive: Option<Spanned<Text>>,
    /// For a client to accept more of a response. 30s by default.
    pub(super) write: Option<Spanned<Text>>,
    /// To connect to an upstream. 5s by default.
    pub(super) connect: Option<Spanned<Text>>,
    /// From the end of a request to the first byte of its response. 1min by default.
    pub(super) first_byte: Option<Spanned<Text>>,
    /// Between two chunks of a response body. 1min by default.
    pub(super) answer_idle: Option<Spanned<Text>>,
    /// From the admission of a request to the end of its response. 1h by default.
    pub(super) whole: Option<Spanned<Text>>,
    /// Without traffic on an upgraded connection. 10min by default.
    pub(super) tunnel_idle: Option<Spanned<Text>>,
    /// For an idle connection to an upstream. 4s by default.
    pub(super) pool_idle: Option<Spanned<Text>>,
    /// The first pause after an upstream refused a connection. 1s by default.
    pub(super) down: Option<Spanned<Text>>,
}

/// Maximum sizes and numbers of the gateway.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "`sizes`", deny_unknown_fields)]
#[schemars(rename = "GatewaySizes")]
pub(super) struct Sizes {
    /// Client connections; others wait. 16384 by default.
    pub(super) connections: Option<Spanned<Integer>>,
    /// Bytes of a request head; 431 beyond. 32768 by default, at least 8192.
    pub(super) head_bytes: Option<Spanned<Integer>>,
    /// Headers of a request; 431 beyond. 100 by default.
    pub(super) headers: Option<Spanned<Integer>>,
    /// Bytes of a request body; 413 beyond. 1073741824 by default.
    pub(super) body_bytes: Option<Spanned<Integer>>,
    /// Concurrent requests of an HTTP/2 connection. 100 by default.
    pub(super) streams: Option<Spanned<Integer>>,
    /// Idle connections to each upstream. 256 by default.
    pub(super) pool: Option<Spanned<Integer>>,
}

pub(super) type SingleFlight = Shorthand<Spanned<Bool>, SingleFlightBy>;

/// What identical requests have in common, instead of everything that may hold credentials.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "`single_flight`", deny_unknown_fields)]
#[schemars(rename = "SingleFlightBy")]
pub(super) struct SingleFlightBy {
    /// Parts of the request, as in `key`. Method, host, path and query are always compared.
    pub(super) by: Spanned<OneOrMany<Part>>,
}
