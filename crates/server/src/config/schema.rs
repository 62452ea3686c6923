//! A rules file as it is written: which fields there are and what may stand in them. The only file
//! that derives `Deserialize` for it, and the source of its JSON Schema; knows nothing of what the
//! fields mean together.
//!
//! The name in `serde(rename = …)` is what an error calls the thing. An enum with the variants
//! `text`, `list` and `map` is told apart by what the value looks like.

use schemars::JsonSchema;
use serde::Deserialize;

use super::field::{At, Flag, OneOrMany, Secret, Table, Text, Url, Whole};

/// Rules of Tallygate.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "a rules file", deny_unknown_fields)]
#[schemars(rename = "RulesFile")]
pub(super) struct File {
    /// The version of this format: 1.
    pub(super) version: At<Whole>,
    /// Where the counters are kept: `memory` (the default), or the URL of Redis or Valkey.
    pub(super) store: Option<At<Store>>,
    /// Who may say which client it forwards a request for: networks, or `hops: 2` for a fixed
    /// number of proxies that are the only way in. Without it, nobody.
    pub(super) trusted_proxies: Option<At<Proxies>>,
    /// Which header the trusted proxies write: `x-forwarded-for` (the default) or `forwarded`.
    pub(super) forwarded: Option<At<Forwarded>>,
    /// How many bits of an IPv6 address tell clients apart: 0 to 128, 64 unless given.
    pub(super) ipv6_prefix: Option<At<Whole>>,
    /// Which headers tell clients about their limits, for every rule that does not say otherwise.
    pub(super) headers: Option<At<Headers>>,
    /// What to answer when the store does not, for every rule that does not say otherwise.
    pub(super) on_failure: Option<At<OnFailure>>,
    /// What happens to a request that does not say who it is, for every rule that does not say
    /// otherwise.
    pub(super) on_missing: Option<At<Missing>>,
    /// The gateway of `tallygate serve`: where it listens and leads to.
    pub(super) gateway: Option<At<Box<Gateway>>>,
    /// More files with rules and overrides, from this file's folder; `*` stands for any part of a
    /// name. Their rules come after this file's own.
    pub(super) include: Option<At<OneOrMany<Text>>>,
    /// The rules. All that match a request apply, in this order, until one says `stop`.
    pub(super) rules: Option<At<Vec<At<Box<Rule>>>>>,
    /// What holds for some clients instead of a rule. The first that fits counts.
    pub(super) overrides: Option<At<Vec<At<Box<Override>>>>>,
}

/// Where the counters are kept.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "a URL, or a mapping with `url`", rename_all = "lowercase")]
#[schemars(rename = "Store", untagged)]
pub(super) enum Store {
    Text(Url),
    Map(Box<StoreMap>),
}

/// Where the counters are kept, and the certificates for it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "a store", deny_unknown_fields)]
#[schemars(rename = "StoreWithCertificates")]
pub(super) struct StoreMap {
    /// The URL of Redis or Valkey.
    pub(super) url: At<Url>,
    /// A PEM file with the authority to trust instead of the system's.
    pub(super) ca_cert: Option<At<Text>>,
    /// A PEM file with the certificate to show; with `client_key`.
    pub(super) client_cert: Option<At<Text>>,
    /// A PEM file with the key of `client_cert`.
    pub(super) client_key: Option<At<Text>>,
}

/// Who may say which client it forwards a request for.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    rename = "networks, or a mapping with `hops`",
    rename_all = "lowercase"
)]
#[schemars(rename = "TrustedProxies", untagged)]
pub(super) enum Proxies {
    Text(At<Text>),
    List(Vec<At<Text>>),
    Map(Hops),
}

/// A fixed number of proxies that are the only way in.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "a number of proxies", deny_unknown_fields)]
#[schemars(rename = "Hops")]
pub(super) struct Hops {
    /// How many proxies a request passes: 1 to 32.
    pub(super) hops: At<Whole>,
}

/// Which header the trusted proxies write.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Forwarded {
    XForwardedFor,
    Forwarded,
}

/// Which headers tell clients about their limits.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "`off`, or a mapping", rename_all = "lowercase")]
#[schemars(rename = "Headers", untagged)]
pub(super) enum Headers {
    Text(Off),
    Map(HeadersMap),
}

/// None at all.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Off {
    Off,
}

/// Which headers tell clients about their limits, one by one.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "`headers`", deny_unknown_fields)]
#[schemars(rename = "HeadersOneByOne")]
pub(super) struct HeadersMap {
    /// `Retry-After` on refusals. On unless turned off.
    pub(super) retry_after: Option<At<Flag>>,
    /// The IETF's `RateLimit` and `RateLimit-Policy`: `latest` (the default), `draft-07` or `off`.
    pub(super) ratelimit: Option<At<RateLimit>>,
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`. On unless turned off.
    pub(super) x_ratelimit: Option<At<Flag>>,
    /// A random bit of up to this is added to `Retry-After`, such as `5s`. None unless given.
    pub(super) jitter: Option<At<Text>>,
}

/// Which version of the IETF's fields is spoken.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
pub(super) enum RateLimit {
    #[serde(rename = "latest")]
    Latest,
    #[serde(rename = "draft-07")]
    Seven,
    #[serde(rename = "off")]
    Off,
}

/// A rule: which requests, who is limited, how much.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "a rule", deny_unknown_fields)]
#[schemars(rename = "Rule")]
pub(super) struct Rule {
    /// What it is called; counters and metrics go by it. 1 to 64 of a-z, 0-9, `.`, `_`, `-`.
    pub(super) name: At<Text>,
    /// Whether it applies at all. True unless given.
    pub(super) enabled: Option<At<Flag>>,
    /// Which requests it is about. Every request unless given.
    #[serde(rename = "match")]
    pub(super) when: Option<At<Match>>,
    /// Who is limited: `ip`, or any parts of the request. All together unless given.
    pub(super) key: Option<At<OneOrMany<Part>>>,
    /// What happens to a request that lacks a part of the key: `shared` (the default) limits all
    /// such as one, told apart by the parts that they have, `refuse` turns it away, `pass` lets it
    /// by.
    pub(super) on_missing: Option<At<Missing>>,
    /// How much is allowed: one or several quotas, such as `100/min`.
    pub(super) limits: Option<At<OneOrMany<Limit>>>,
    /// What says which tier a client is in; with `tiers` instead of `limits`.
    pub(super) tier: Option<At<Tier>>,
    /// The quotas of each tier.
    pub(super) tiers: Option<At<Table<OneOrMany<Limit>>>>,
    /// How much a request takes: a number, or by header or method. 1 unless given.
    pub(super) cost: Option<At<Cost>>,
    /// Whom it does not apply to: networks and keys.
    pub(super) allow: Option<At<OneOrMany<Entry>>>,
    /// Whom it turns away: networks and keys. Goes before `allow`.
    pub(super) deny: Option<At<OneOrMany<Entry>>>,
    /// What to answer when the store does not: `open` (the default) admits, `closed` refuses,
    /// `local` counts in this process.
    pub(super) on_failure: Option<At<OnFailure>>,
    /// Whether it only watches: it counts and stops nothing. False unless given.
    pub(super) shadow: Option<At<Flag>>,
    /// Whether rules after it do not apply where it applies. False unless given.
    pub(super) stop: Option<At<Flag>>,
    /// Which headers tell clients about its limits.
    pub(super) headers: Option<At<Headers>>,
    /// Which answers count; what was taken for any other is given back. All unless given.
    pub(super) count: Option<At<Count>>,
    /// The longest that a request may be held back by a quota with a queue, such as `2s`.
    pub(super) longest_delay: Option<At<Text>>,
    /// Whether identical requests that are in flight in the gateway share one call to an upstream.
    /// False unless given.
    pub(super) single_flight: Option<At<SingleFlight>>,
}

/// Which requests a rule is about: all that is given must hold, and of a list any one.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "`match`", deny_unknown_fields)]
#[schemars(rename = "Match")]
pub(super) struct Match {
    /// Methods, such as `POST`. `GET` does not mean `HEAD`.
    pub(super) method: Option<At<OneOrMany<Text>>>,
    /// Hosts, such as `api.example.com` or `'*.example.com'`.
    pub(super) host: Option<At<OneOrMany<Text>>>,
    /// Paths, such as `/users/{id}/files/**`.
    pub(super) path: Option<At<OneOrMany<Text>>>,
    /// What headers have to be.
    pub(super) header: Option<At<Table<HeaderTest>>>,
    /// gRPC methods, such as `shop.v1.Carts/Checkout` or `shop.v1.Carts/*`.
    pub(super) grpc: Option<At<OneOrMany<Text>>>,
}

/// What a header has to be: a text with at most one `*`, any of several, or there at all.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    rename = "a text, a list of texts, or a mapping with `present`",
    rename_all = "lowercase"
)]
#[schemars(rename = "HeaderTest", untagged)]
pub(super) enum HeaderTest {
    Text(At<Text>),
    List(Vec<At<Text>>),
    Map(Present),
}

/// Whether a header has to be there.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "a header's test", deny_unknown_fields)]
#[schemars(rename = "Present")]
pub(super) struct Present {
    /// True: it has to be there. False: it must not.
    pub(super) present: At<Flag>,
}

/// A part of a key: `ip`, `route`, `method`, `host`, or a mapping such as `{ header: x-api-key }`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    rename = "`ip`, `route`, `method`, `host` or a mapping such as `{ header: x-api-key }`",
    rename_all = "lowercase"
)]
#[schemars(rename = "Part", untagged)]
pub(super) enum Part {
    Text(Text),
    Map(Box<PartMap>),
}

/// A part of a key: exactly one of `header`, `cookie`, `query`, `path`, `constant`, or `claim` with
/// the `header` it is in.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "a part of a key", deny_unknown_fields)]
#[schemars(rename = "PartOfRequest")]
pub(super) struct PartMap {
    /// A header.
    pub(super) header: Option<At<Text>>,
    /// A cookie.
    pub(super) cookie: Option<At<Text>>,
    /// A parameter of the query.
    pub(super) query: Option<At<Text>>,
    /// A parameter of the rule's path: `id` for `/users/{id}`.
    pub(super) path: Option<At<Text>>,
    /// A claim of a JWT that whoever is in front of us has verified and passes on in `header`.
    pub(super) claim: Option<At<Text>>,
    /// Always this text.
    pub(super) constant: Option<At<Text>>,
    /// What to take where it is missing.
    pub(super) or: Option<At<OneOrMany<Part>>>,
}

/// What happens to a request that does not say who it is.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Missing {
    Refuse,
    Pass,
    Shared,
}

/// A quota, such as `100/min` or `token-bucket 10/s burst 50`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    rename = "a quota, or a mapping with `quota`",
    rename_all = "lowercase"
)]
#[schemars(rename = "Limit", untagged)]
pub(super) enum Limit {
    Text(At<Text>),
    Map(NamedLimit),
}

/// A quota under a name of its own.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "a limit", deny_unknown_fields)]
#[schemars(rename = "NamedLimit")]
pub(super) struct NamedLimit {
    /// The quota, such as `100/min`.
    pub(super) quota: At<Text>,
    /// What its counters go by, instead of its behaviour and period.
    pub(super) name: Option<At<Text>>,
}

/// What says which tier a client is in: exactly one of `header` and `keys`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "a tier's lookup", deny_unknown_fields)]
#[schemars(rename = "Tier")]
pub(super) struct Tier {
    /// A header with the tier's name, which whoever is in front of us has to write.
    pub(super) header: Option<At<Text>>,
    /// The keys of each tier.
    pub(super) keys: Option<At<Table<OneOrMany<Key>>>>,
    /// The tier of those who are in no other.
    pub(super) default: At<Text>,
}

/// A key as text: one for each part of the rule's key, in order.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    rename = "a key, or a list with a text for each part",
    rename_all = "lowercase"
)]
#[schemars(rename = "Key", untagged)]
pub(super) enum Key {
    Text(Secret),
    List(Vec<At<Secret>>),
}

/// How much a request takes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    rename = "a whole number, or a mapping with `header` or `method`",
    rename_all = "lowercase"
)]
#[schemars(rename = "Cost", untagged)]
pub(super) enum Cost {
    Text(At<Whole>),
    Map(CostMap),
}

/// How much a request takes: exactly one of `header` and `method`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "a cost", deny_unknown_fields)]
#[schemars(rename = "CostLookup")]
pub(super) struct CostMap {
    /// A header with the cost, in decimal digits.
    pub(super) header: Option<At<Text>>,
    /// The cost of each method.
    pub(super) method: Option<At<Table<Whole>>>,
    /// The cost where the header says none, or of any other method. 1 unless given.
    pub(super) default: Option<At<Whole>>,
    /// The least that a header may say. 1 unless given.
    pub(super) at_least: Option<At<Whole>>,
    /// The most that a header may say; more counts as this. 4294967295 unless given.
    pub(super) at_most: Option<At<Whole>>,
}

/// One on a list: a network, or `{ key: … }`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    rename = "a network such as 192.0.2.0/24, or a mapping with `key`",
    rename_all = "lowercase"
)]
#[schemars(rename = "Entry", untagged)]
pub(super) enum Entry {
    Text(At<Text>),
    Map(KeyEntry),
}

/// A key on a list.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "an entry of a list", deny_unknown_fields)]
#[schemars(rename = "KeyEntry")]
pub(super) struct KeyEntry {
    /// The key: a text, or a list with one for each part of the rule's key.
    pub(super) key: At<Key>,
}

/// What to answer when the store does not.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    rename = "`open`, `closed`, `local` or a mapping with `policy`",
    rename_all = "lowercase"
)]
#[schemars(rename = "OnFailure", untagged)]
pub(super) enum OnFailure {
    Text(FailurePolicy),
    Map(OnFailureMap),
}

/// What to answer when the store does not, and how long to wait for it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "a failure policy", deny_unknown_fields)]
#[schemars(rename = "OnFailureWithin")]
pub(super) struct OnFailureMap {
    /// `open` admits, `closed` refuses, `local` counts in this process. `open` unless given.
    pub(super) policy: Option<At<FailurePolicy>>,
    /// With `local`: among how many processes a limit is shared; as many as the store last
    /// counted unless given.
    pub(super) replicas: Option<At<Replicas>>,
    /// How long the store may take, such as `20ms`. 50ms unless given.
    pub(super) deadline: Option<At<Text>>,
}

/// What to answer when the store does not.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum FailurePolicy {
    Open,
    Closed,
    Local,
}

/// Among how many processes a limit is shared.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    rename = "a whole number, or a mapping with `at_least`",
    rename_all = "lowercase"
)]
#[schemars(rename = "Replicas", untagged)]
pub(super) enum Replicas {
    Text(At<Whole>),
    Map(AtLeast),
}

/// As many as the store last counted, and no fewer than this.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "`replicas`", deny_unknown_fields)]
#[schemars(rename = "AtLeast")]
pub(super) struct AtLeast {
    /// The least number.
    pub(super) at_least: At<Whole>,
}

/// Which answers count: exactly one of `only` and `except`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "`count`", deny_unknown_fields)]
#[schemars(rename = "Count")]
pub(super) struct Count {
    /// Only these statuses, such as `[401, 403]` or `5xx`.
    pub(super) only: Option<At<OneOrMany<Text>>>,
    /// All but these.
    pub(super) except: Option<At<OneOrMany<Text>>>,
}

/// What holds for some clients instead of a rule: exactly one of `limits`, `allow` and `deny`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "an override", deny_unknown_fields)]
#[schemars(rename = "Override")]
pub(super) struct Override {
    /// For whom: a network, or `{ key: … }`.
    #[serde(rename = "for")]
    pub(super) who: At<Entry>,
    /// The rule's name. Every rule unless given.
    pub(super) rule: Option<At<Text>>,
    /// Other quotas.
    pub(super) limits: Option<At<OneOrMany<Limit>>>,
    /// The rule does not apply.
    pub(super) allow: Option<At<Flag>>,
    /// The request is turned away.
    pub(super) deny: Option<At<Flag>>,
}

/// The gateway of `tallygate serve`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "`gateway`", deny_unknown_fields)]
#[schemars(rename = "Gateway")]
pub(super) struct Gateway {
    /// Where it listens, such as `0.0.0.0:8000`. 127.0.0.1:8000 unless given.
    pub(super) listen: Option<At<Text>>,
    /// Where requests go, in turn: `http://host:port`, `https://` for TLS, `h2c://` for HTTP/2 and
    /// `h2://` for HTTP/2 over TLS.
    pub(super) upstreams: Option<At<OneOrMany<Url>>>,
    /// Which `Host` upstreams see: the `client`'s (the default), or the `upstream`'s own.
    pub(super) host: Option<At<Host>>,
    /// A PEM file with the authority to trust with upstreams instead of the system's.
    pub(super) upstream_ca_cert: Option<At<Text>>,
    /// Speaks TLS with clients.
    pub(super) tls: Option<At<Tls>>,
    /// How long anything may take.
    pub(super) timeouts: Option<At<Timeouts>>,
    /// How much of anything there may be.
    pub(super) sizes: Option<At<Sizes>>,
}

/// Which `Host` upstreams see.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "GatewayHost")]
pub(super) enum Host {
    Client,
    Upstream,
}

/// TLS with clients. Both files are read again when they change.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "`tls`", deny_unknown_fields)]
#[schemars(rename = "GatewayTls")]
pub(super) struct Tls {
    /// A PEM file with the certificate, and those that lead from it to one that clients know.
    pub(super) cert: At<Text>,
    /// A PEM file with its private key.
    pub(super) key: At<Text>,
}

/// How long anything may take, such as `30s`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "`timeouts`", deny_unknown_fields)]
#[schemars(rename = "GatewayTimeouts")]
pub(super) struct Timeouts {
    /// From a request's first byte to the end of its head. 10s unless given.
    pub(super) header: Option<At<Text>>,
    /// Between two parts of a request's body. 30s unless given.
    pub(super) body_idle: Option<At<Text>>,
    /// Between two requests on a connection. 1min15s unless given.
    pub(super) keep_alive: Option<At<Text>>,
    /// How long a client may take to make room for more of an answer. 30s unless given.
    pub(super) write: Option<At<Text>>,
    /// Until an upstream has taken a connection. 5s unless given.
    pub(super) connect: Option<At<Text>>,
    /// From the last of a request to the first of its answer. 1min unless given.
    pub(super) first_byte: Option<At<Text>>,
    /// Between two parts of an answer's body. 1min unless given.
    pub(super) answer_idle: Option<At<Text>>,
    /// From when a request was let through to the end of its answer. 1h unless given.
    pub(super) whole: Option<At<Text>>,
    /// How long nothing may pass through an upgraded connection. 10min unless given.
    pub(super) tunnel_idle: Option<At<Text>>,
    /// How long a connection to an upstream is kept idle. 4s unless given.
    pub(super) pool_idle: Option<At<Text>>,
    /// How long an upstream that took no connection is left alone at first. 1s unless given.
    pub(super) down: Option<At<Text>>,
}

/// How much of anything there may be.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "`sizes`", deny_unknown_fields)]
#[schemars(rename = "GatewaySizes")]
pub(super) struct Sizes {
    /// Connections from clients; others wait. 16384 unless given.
    pub(super) connections: Option<At<Whole>>,
    /// Bytes of a request's head: 431 beyond. 32768 unless given, at least 8192.
    pub(super) head_bytes: Option<At<Whole>>,
    /// Headers of a request: 431 beyond. 100 unless given.
    pub(super) headers: Option<At<Whole>>,
    /// Bytes of a request's body: 413 beyond. 1073741824 unless given.
    pub(super) body_bytes: Option<At<Whole>>,
    /// Requests at once on one HTTP/2 connection. 100 unless given.
    pub(super) streams: Option<At<Whole>>,
    /// Idle connections kept to each upstream. 256 unless given.
    pub(super) pool: Option<At<Whole>>,
}

/// Whether identical requests in flight share one call to an upstream.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    rename = "true, false, or a mapping with `by`",
    rename_all = "lowercase"
)]
#[schemars(rename = "SingleFlight", untagged)]
pub(super) enum SingleFlight {
    Text(At<Flag>),
    Map(SingleFlightBy),
}

/// What makes requests identical, instead of all that may hold a secret.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "`single_flight`", deny_unknown_fields)]
#[schemars(rename = "SingleFlightBy")]
pub(super) struct SingleFlightBy {
    /// Parts of the request, as in `key`. Method, host, path and query count in any case.
    pub(super) by: At<OneOrMany<Part>>,
}
