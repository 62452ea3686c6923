//! The fields of a rules file and their types, from which it is read and `json_schema` is
//! generated. `validate` checks what the types cannot express.
//!
//! The doc comments are the descriptions of the JSON Schema. The text after the name of a mapping is
//! what error messages call it.

mod field;

use schemars::JsonSchema;

use super::deserialize::{Context, Field, FromNode};

pub(super) use field::*;

/// Defines mappings: their fields are read in the order of definition.
macro_rules! mappings {
    ($($(#[$meta:meta])* $name:ident = $shown:literal {
        $($(#[$field_meta:meta])* $field:ident: $type:ty,)*
    })*) => {$(
        $(#[$meta])*
        #[derive(JsonSchema)]
        #[schemars(deny_unknown_fields)]
        pub(in crate::config) struct $name {
            $($(#[$field_meta])* pub(in crate::config) $field: $type,)*
        }

        impl FromNode for $name {
            fn from_node(field: Field<'_>, context: &mut Context) -> Option<Self> {
                let fields = field.fields($shown, &[$(stringify!($field)),*], context)?;
                $(let $field = fields.read(stringify!($field), context);)*
                // Every field has been read: errors of all of them are reported.
                $(let Some($field) = $field else {
                    return fields.report_missing(stringify!($field), context);
                };)*
                Some($name { $($field),* })
            }
        }
    )*};
}

/// Defines enums that are written as one word.
macro_rules! words {
    ($($(#[$meta:meta])* $name:ident { $($word:literal => $variant:ident),* })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, JsonSchema)]
        pub(in crate::config) enum $name {
            $(#[schemars(rename = $word)] $variant),*
        }

        impl FromNode for $name {
            fn from_node(field: Field<'_>, context: &mut Context) -> Option<Self> {
                field.word(&[$(($word, $name::$variant)),*], context)
            }
        }
    )*};
}

#[cfg(feature = "simulate")]
pub(super) mod scenario;

pub(super) type Store = Shorthand<Url, Box<StoreOptions>>;
/// Hosts, or `{ file: shards.txt }`.
pub(super) type Shards = Shorthand<OneOrMany<Text>, ShardsFile>;
pub(super) type RefusalCache = Shorthand<Off, RefusalCacheOptions>;
pub(super) type TrustedProxies = Shorthand<OneOrMany<Text>, Hops>;
pub(super) type Headers = Shorthand<OnOff, HeaderOptions>;
pub(super) type HeaderTest = Shorthand<OneOrMany<Text>, Present>;
/// `ip`, `route`, `method`, `host`, or a mapping such as `{ header: x-api-key }`.
pub(super) type Part = Shorthand<Text, Box<PartSource>>;
/// A quota, such as `100/min` or `token-bucket 10/s burst 50`.
pub(super) type Limit = Shorthand<Spanned<Text>, NamedLimit>;
/// A key: one text for each part of the rule's key, in order.
pub(super) type Key = OneOrMany<Secret>;
pub(super) type KeyParts = OneOrMany<Part>;
pub(super) type Cost = Shorthand<Spanned<Integer>, CostSource>;
/// A network such as `192.0.2.0/24`, or `{ key: … }`.
pub(super) type Client = Shorthand<Spanned<Text>, KeyEntry>;
pub(super) type OnFailure = Shorthand<FailurePolicy, FailureOptions>;
pub(super) type Replicas = Shorthand<Spanned<Integer>, AtLeast>;
/// `true`, `false` or `auto`, or a mapping.
pub(super) type Lease = Shorthand<LeaseMode, LeaseOptions>;
pub(super) type SingleFlight = Shorthand<Spanned<Bool>, SingleFlightBy>;

words! {

/// The header that trusted proxies write.
Forwarded { "x-forwarded-for" => XForwardedFor, "forwarded" => Forwarded }

/// None.
Off { "off" => Off }

/// Whether limits are reported to clients.
OnOff { "on" => On, "off" => Off }

/// The version of the IETF's rate limit headers.
RateLimit { "latest" => Latest, "draft-07" => Seven, "off" => Off }

/// What happens to a request without a part of the key.
Missing { "refuse" => Refuse, "pass" => Pass, "shared" => Shared }

/// The decision when the store fails.
FailurePolicy { "open" => Open, "closed" => Closed, "local" => Local }

/// The `Host` header sent to upstreams.
GatewayHost { "client" => Client, "upstream" => Upstream }

}

mappings! {

/// A rules file of Tallygate.
RulesFile = "a rules file" {
    /// The version of the file format: 1.
    version: Spanned<Integer>,
    /// Where counters are stored: `memory` (the default), or the URL of Redis or Valkey.
    store: Option<Spanned<Store>>,
    /// The proxies whose forwarding header is trusted: networks, or `hops: 2` for a fixed number of
    /// proxies that every request passes. None by default.
    trusted_proxies: Option<Spanned<TrustedProxies>>,
    /// The header that trusted proxies write: `x-forwarded-for` (the default) or `forwarded`.
    forwarded: Option<Spanned<Forwarded>>,
    /// The number of bits of an IPv6 address that identify a client: 0 to 128. 64 by default.
    ipv6_prefix: Option<Spanned<Integer>>,
    /// The rate limit headers of responses: a mapping; or whether limits are reported, `on` or
    /// `off`. The default of all rules.
    headers: Option<Spanned<Headers>>,
    /// The decision when the store fails. The default of all rules.
    on_failure: Option<Spanned<OnFailure>>,
    /// What happens to a request without a part of the key. The default of all rules.
    on_missing: Option<Spanned<Missing>>,
    /// The gateway of `tallygate serve`: its listener and upstreams.
    gateway: Option<Spanned<Box<Gateway>>>,
    /// More files with rules and overrides, relative to this file; may contain `*`. Their rules
    /// follow those of this file.
    include: Option<Spanned<OneOrMany<Text>>>,
    /// The rules. All rules that match a request apply, in this order, until one has `stop: true`.
    rules: Option<Spanned<Vec<Spanned<Box<Rule>>>>>,
    /// Keys and limits that several rules share, by name. Services with the same store share them too.
    budgets: Option<Spanned<Table<Box<Budget>>>>,
    /// Exceptions for some clients. The first that matches applies.
    overrides: Option<Spanned<Vec<Spanned<Box<Override>>>>>,
}

/// The store, its certificates and how it stores secrets.
StoreOptions = "`store`" {
    /// `memory`, or the URL of Redis or Valkey. With `shards` optional and without hosts.
    url: Option<Spanned<Url>>,
    /// Independent servers, each with a part of the keys: hosts such as `a:6379`, or a file with
    /// their list, which is read again when it changes.
    shards: Option<Spanned<Shards>>,
    /// How many live keys have their own counters in the memory of a process: all keys with
    /// `memory`, otherwise those that are counted while the servers fail. 1000000 by default.
    keys: Option<Spanned<Integer>>,
    /// The cache of exhausted counters in front of Redis or Valkey, or `off`.
    refusal_cache: Option<Spanned<RefusalCache>>,
    /// A secret of at least 16 bytes: parts of keys that are secret are stored as HMAC-SHA-256 with
    /// it, instead of SHA-256 alone. The same for all processes. `"${NAME}"` keeps it out of the file.
    hmac_secret: Option<Spanned<Secret>>,
    /// The number of hash tags of a cluster: a power of two, at most 16384; `true` is 64. Keys with the
    /// same tag share a slot, so that they are decided in batches. The same for all processes. `false`
    /// by default: every key has its own slot. Unused if the store is no cluster.
    hash_tags: Option<Spanned<HashTags>>,
    /// A PEM file with the certificate authority to trust instead of the system's.
    ca_cert: Option<Spanned<Text>>,
    /// A PEM file with the client certificate. Requires `client_key`.
    client_cert: Option<Spanned<Text>>,
    /// A PEM file with the private key of `client_cert`.
    client_key: Option<Spanned<Text>>,
}

/// A file with the list of shards.
ShardsFile = "`shards`" {
    /// The file: hosts separated by commas or white space; `#` starts a comment.
    file: Spanned<Text>,
}

/// The cache of exhausted counters.
RefusalCacheOptions = "`refusal_cache`" {
    /// How long a reset, a refund or a raised limit elsewhere may go unnoticed: at most `1min`. `1s`
    /// by default.
    max_age: Option<Spanned<Text>>,
    /// The number of counters. 65536 by default.
    keys: Option<Spanned<Integer>>,
}

/// A fixed number of proxies that every request passes.
Hops = "`trusted_proxies`" {
    /// The number of proxies: 1 to 32.
    hops: Spanned<Integer>,
}

/// The rate limit headers of responses.
HeaderOptions = "`headers`" {
    /// Whether the limits are reported to clients. By default they are if the rule has a key. `on` and
    /// `off` are short for it.
    reported: Option<Spanned<Bool>>,
    /// `Retry-After` on refusals. True by default.
    retry_after: Option<Spanned<Bool>>,
    /// The IETF's `RateLimit` and `RateLimit-Policy`: `latest` (the default), `draft-07` or `off`.
    ratelimit: Option<Spanned<RateLimit>>,
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`. True by default. With `epoch` the reset is a
    /// time in seconds since 1970 instead of seconds from now.
    x_ratelimit: Option<Spanned<XRateLimit>>,
    /// The maximum random delay added to `Retry-After`, such as `5s`. None by default.
    jitter: Option<Spanned<Text>>,
}

/// A rule: which requests it matches, what they are counted by, and the limits.
Rule = "a rule" {
    /// The name, used in counters and metrics. 1 to 64 of a-z, 0-9, `.`, `_`, `-`.
    name: Spanned<Text>,
    /// Whether the rule applies. True by default.
    enabled: Option<Spanned<Bool>>,
    /// The requests it applies to. Every request by default.
    r#match: Option<Spanned<Match>>,
    /// What clients are identified by: `ip`, or parts of the request. By default all requests share
    /// one counter.
    key: Option<Spanned<OneOrMany<Part>>>,
    /// The budget the rule spends, instead of `key` and `limits`.
    budget: Option<Spanned<Text>>,
    /// What happens to a request without a part of the key: `shared` (the default) counts all such
    /// requests together, by the parts they have; `refuse` refuses it; `pass` skips the rule.
    on_missing: Option<Spanned<Missing>>,
    /// The limits: one or several quotas, such as `100/min`.
    limits: Option<Spanned<OneOrMany<Limit>>>,
    /// How a client's tier is determined. With `tiers`, instead of `limits`.
    tier: Option<Spanned<Tier>>,
    /// The limits of each tier.
    tiers: Option<Spanned<Table<OneOrMany<Limit>>>>,
    /// Who shares the limits that are `shared`, such as `token-bucket 100/s burst 100 shared`.
    share: Option<Spanned<Box<Share>>>,
    /// The cost of a request: a number, or by path, method, header or JSON body; and where the response
    /// says what it really cost. 1 by default.
    cost: Option<Spanned<Cost>>,
    /// Clients the rule does not apply to: networks and keys.
    allow: Option<Spanned<OneOrMany<Client>>>,
    /// Clients the rule refuses: networks and keys. Takes precedence over `allow`.
    deny: Option<Spanned<OneOrMany<Client>>>,
    /// The decision when the store fails: `local` (the default) counts in this process, `open`
    /// admits, `closed` refuses.
    on_failure: Option<Spanned<OnFailure>>,
    /// Whether the rule only counts and never refuses. False by default.
    shadow: Option<Spanned<Bool>>,
    /// Whether later rules are skipped for requests this rule applies to. False by default.
    stop: Option<Spanned<Bool>>,
    /// The rate limit headers of responses: a mapping; or whether responses report the rule's
    /// limits, `on` or `off`. By default they are if the rule has a key.
    headers: Option<Spanned<Headers>>,
    /// The response statuses that count; the cost of other responses is refunded. All by default.
    count: Option<Spanned<Count>>,
    /// The maximum time a quota with a queue may delay a request, such as `2s`.
    longest_delay: Option<Spanned<Text>>,
    /// How many live keys of this rule have their own counters in memory. An equal part of the
    /// store's `keys` by default.
    keys: Option<Spanned<Integer>>,
    /// Whether processes take units of this rule's limits ahead, and spend them without asking the
    /// store: `true`, `auto` for hot keys only, or a mapping. False by default. Limits in memory ignore
    /// it.
    lease: Option<Spanned<Lease>>,
    /// Whether the gateway coalesces identical concurrent requests into one upstream request. False
    /// by default.
    single_flight: Option<Spanned<SingleFlight>>,
}

/// The requests a rule applies to. All given fields must match, by any item of a list.
Match = "`match`" {
    /// Methods, such as `POST`. `GET` does not include `HEAD`.
    method: Option<Spanned<OneOrMany<Text>>>,
    /// Hosts, such as `api.example.com` or `'*.example.com'`.
    host: Option<Spanned<OneOrMany<Text>>>,
    /// Paths, such as `/users/{id}/files/**`.
    path: Option<Spanned<OneOrMany<Text>>>,
    /// Headers and their values: text with at most one `*`, any of a list, or `present`.
    header: Option<Spanned<Table<HeaderTest>>>,
    /// gRPC methods, such as `shop.v1.Carts/Checkout` or `shop.v1.Carts/*`.
    grpc: Option<Spanned<OneOrMany<Text>>>,
}

/// Whether a header is present.
Present = "a header match" {
    /// True: the header must be present. False: it must be absent.
    present: Spanned<Bool>,
}

/// A part of a key: exactly one of `header`, `cookie`, `query`, `path` and `constant`, or `claim`
/// with its `header`.
PartSource = "a key part" {
    /// A header.
    header: Option<Spanned<Text>>,
    /// A cookie.
    cookie: Option<Spanned<Text>>,
    /// A query parameter.
    query: Option<Spanned<Text>>,
    /// A parameter of the rule's path: `id` for `/users/{id}`.
    path: Option<Spanned<Text>>,
    /// A claim of a JWT that a proxy has verified and passes on in `header`.
    claim: Option<Spanned<Text>>,
    /// A constant.
    constant: Option<Spanned<Text>>,
    /// The fallback if the part is missing.
    or: Option<Spanned<OneOrMany<Part>>>,
}

/// A budget: a key and limits that several rules share.
Budget = "a budget" {
    /// What clients are identified by, as in a rule.
    key: Option<Spanned<OneOrMany<Part>>>,
    /// The limits: one or several quotas, such as `100/min`.
    limits: Option<Spanned<OneOrMany<Limit>>>,
    /// How a client's tier is determined. With `tiers`, instead of `limits`.
    tier: Option<Spanned<Tier>>,
    /// The limits of each tier.
    tiers: Option<Spanned<Table<OneOrMany<Limit>>>>,
    /// Who shares the limits that are `shared`, as in a rule.
    share: Option<Spanned<Box<Share>>>,
    /// How many live keys of this budget have their own counters in memory. An equal part of the
    /// store's `keys` by default.
    keys: Option<Spanned<Integer>>,
}

/// Who shares limits: the members, and what each weighs.
Share = "`share`" {
    /// What members are told apart by: parts of the request, as in a key.
    by: Spanned<OneOrMany<Part>>,
    /// The weights of some members, 1 to 1000. They always have a place.
    weights: Option<Spanned<Table<Integer, Secret>>>,
    /// The weight of all other members, 1 to 1000. 1 by default.
    default: Option<Spanned<Integer>>,
}

/// A quota with a name.
NamedLimit = "a limit" {
    /// The quota, such as `100/min`.
    quota: Spanned<Text>,
    /// The name of its counters. The algorithm and the period by default.
    name: Option<Spanned<Text>>,
}

/// How a client's tier is determined: exactly one of `header` and `keys`.
Tier = "`tier`" {
    /// A header with the tier's name, written by a trusted proxy.
    header: Option<Spanned<Text>>,
    /// The keys of each tier.
    keys: Option<Spanned<Table<OneOrMany<Key>>>>,
    /// The tier of all other clients.
    default: Spanned<Text>,
}

/// The cost of a request: one of `path`, `method`, `header` and `json`; with `actual` also `default` alone.
CostSource = "`cost`" {
    /// A header with the cost, in decimal digits.
    header: Option<Spanned<Text>>,
    /// The path of the cost in the request's JSON body, such as `options.max_tokens`; with `map`, of a
    /// text that has a cost.
    json: Option<Spanned<Text>>,
    /// The cost of each text at `json`, such as the name of a model; may contain one `*`. A text takes
    /// precedence over a pattern.
    map: Option<Spanned<Table<Integer>>>,
    /// The fallback if `header` or `json` has no cost.
    or: Option<Spanned<OneOrMany<Box<CostFallback>>>>,
    /// The cost of each method.
    method: Option<Spanned<Table<Integer>>>,
    /// The cost of each path, such as `/api/search` or `/export/**`. The most specific that matches
    /// counts.
    path: Option<Spanned<Table<Integer>>>,
    /// The cost without a valid header or value, or of any other path, method or text. 1 by default.
    default: Option<Spanned<Integer>>,
    /// The minimum cost of a header or a number at `json`. 1 by default.
    at_least: Option<Spanned<Integer>>,
    /// The maximum cost of a header or a number at `json`; higher values are capped. 4294967295 by
    /// default.
    at_most: Option<Spanned<Integer>>,
    /// Where the response says what the request really cost. What was charged is corrected by it.
    actual: Option<Spanned<Box<Actual>>>,
}

/// A fallback of `cost`: `header` or `json`.
CostFallback = "`or`" {
    /// A header with the cost, in decimal digits.
    header: Option<Spanned<Text>>,
    /// The path of the cost in the request's JSON body; with `map`, of a text that has a cost.
    json: Option<Spanned<Text>>,
    /// The cost of each text at `json`.
    map: Option<Spanned<Table<Integer>>>,
    /// The fallback if this one has no cost.
    or: Option<Spanned<OneOrMany<Box<CostFallback>>>>,
}

/// Where a response says what its request cost.
Actual = "`actual`" {
    /// A header of the response, in decimal digits.
    header: Option<Spanned<Text>>,
    /// The path of the cost in the response's JSON body, such as `usage.total_tokens`. Of a stream of
    /// events the last one that has it counts. With `header`, the fallback of it.
    json: Option<Spanned<Text>>,
    /// The fallback if the response has neither.
    or: Option<Spanned<OneOrMany<Box<Actual>>>>,
}

/// A client by its key.
KeyEntry = "a list entry" {
    /// The key: text, or a list with one text for each part of the rule's key.
    key: Spanned<Key>,
}

/// The decision when the store fails, and how long to wait for the store.
FailureOptions = "`on_failure`" {
    /// `local` counts in this process, `open` admits, `closed` refuses. `local` by default.
    policy: Option<Spanned<FailurePolicy>>,
    /// With `local`: the number of processes that share a limit. By default the number last counted
    /// by the store.
    replicas: Option<Spanned<Replicas>>,
    /// The timeout of the store, such as `20ms`. 50ms by default.
    deadline: Option<Spanned<Text>>,
}

/// The number of processes last counted by the store, with a minimum.
AtLeast = "`replicas`" {
    /// The minimum.
    at_least: Spanned<Integer>,
}

/// The response statuses that count: exactly one of `only` and `except`.
Count = "`count`" {
    /// Only these statuses, such as `[401, 403]` or `5xx`.
    only: Option<Spanned<OneOrMany<Text>>>,
    /// All except these statuses.
    except: Option<Spanned<OneOrMany<Text>>>,
}

/// An exception for a client: exactly one of `limits`, `allow` and `deny`.
Override = "an override" {
    /// The client: a network, or `{ key: … }`.
    r#for: Spanned<Client>,
    /// The rule's name. Every rule by default.
    rule: Option<Spanned<Text>>,
    /// The limits that replace those of the rule.
    limits: Option<Spanned<OneOrMany<Limit>>>,
    /// The rule does not apply.
    allow: Option<Spanned<Bool>>,
    /// The request is refused.
    deny: Option<Spanned<Bool>>,
}

/// The gateway of `tallygate serve`.
Gateway = "`gateway`" {
    /// The listen address, such as `0.0.0.0:8000`. 127.0.0.1:8000 by default.
    listen: Option<Spanned<Text>>,
    /// The upstreams, used in turn: `http://host:port`, `https://` for TLS, `h2c://` for HTTP/2 and
    /// `h2://` for HTTP/2 over TLS.
    upstreams: Option<Spanned<OneOrMany<Url>>>,
    /// The `Host` header sent to upstreams: the `client`'s (the default), or the `upstream`'s.
    host: Option<Spanned<GatewayHost>>,
    /// A PEM file with the certificate authority to trust for upstreams instead of the system's.
    upstream_ca_cert: Option<Spanned<Text>>,
    /// Whether trusted proxies have to start their connections with a PROXY protocol header (version 1
    /// or 2, before TLS), which names the client: `true` or `on`. Needs `trusted_proxies`. False by
    /// default.
    proxy_protocol: Option<Spanned<Switch>>,
    /// TLS of the listener.
    tls: Option<Spanned<GatewayTls>>,
    /// Timeouts.
    timeouts: Option<Spanned<GatewayTimeouts>>,
    /// Maximum sizes and numbers.
    sizes: Option<Spanned<GatewaySizes>>,
}

/// TLS of the listener. Both files are reloaded when they change.
GatewayTls = "`tls`" {
    /// A PEM file with the certificate chain.
    cert: Spanned<Text>,
    /// A PEM file with the private key.
    key: Spanned<Text>,
}

/// Timeouts of the gateway, such as `30s`.
GatewayTimeouts = "`timeouts`" {
    /// From the first byte of a request to the end of its head. 10s by default.
    header: Option<Spanned<Text>>,
    /// Between two chunks of a request body. 30s by default.
    body_idle: Option<Spanned<Text>>,
    /// How long a request body may take before `sizes.body_rate` applies to it. 10s by default.
    body_grace: Option<Spanned<Text>>,
    /// Between two requests on a connection. 1min15s by default.
    keep_alive: Option<Spanned<Text>>,
    /// For a client to accept more of a response. 30s by default.
    write: Option<Spanned<Text>>,
    /// To connect to an upstream. 5s by default.
    connect: Option<Spanned<Text>>,
    /// From the end of a request to the first byte of its response. 1min by default.
    first_byte: Option<Spanned<Text>>,
    /// Between two chunks of a response body. 1min by default.
    answer_idle: Option<Spanned<Text>>,
    /// From the admission of a request to the end of its response. 1h by default.
    whole: Option<Spanned<Text>>,
    /// Without traffic on an upgraded connection. 10min by default.
    tunnel_idle: Option<Spanned<Text>>,
    /// For an idle connection to an upstream. 4s by default.
    pool_idle: Option<Spanned<Text>>,
    /// The first pause after an upstream refused a connection. 1s by default.
    down: Option<Spanned<Text>>,
}

/// Maximum sizes and numbers of the gateway.
GatewaySizes = "`sizes`" {
    /// Client connections. Beyond, the idlest are closed; if none is idle, others wait. 16384 by
    /// default.
    connections: Option<Spanned<Integer>>,
    /// Connections of one client (IPv4 address or IPv6 /64). Beyond, its idlest is closed; if none is
    /// idle, the new one is. Trusted proxies are exempt. 1024 by default; 0: no bound.
    connections_per_client: Option<Spanned<Integer>>,
    /// Bytes of a request head; 431 beyond. 32768 by default, at least 8192.
    head_bytes: Option<Spanned<Integer>>,
    /// Headers of a request; 431 beyond. 100 by default.
    headers: Option<Spanned<Integer>>,
    /// Bytes of a request body; 413 beyond. 1073741824 by default.
    body_bytes: Option<Spanned<Integer>>,
    /// Bytes a second that a request body must have on average; 408 below. gRPC is exempt. 500 by
    /// default; 0: no bound.
    body_rate: Option<Spanned<Integer>>,
    /// Concurrent requests of an HTTP/2 connection. 100 by default.
    streams: Option<Spanned<Integer>>,
    /// Idle connections to each upstream. 256 by default.
    pool: Option<Spanned<Integer>>,
}

/// Units that processes take ahead.
LeaseOptions = "`lease`" {
    /// The most units that one process takes ahead for one key: at least 2. 1000 by default. It never
    /// takes more than a fourth of what is available, divided by the number of processes.
    max: Option<Spanned<Integer>>,
    /// How long units are held before those left are returned: `10ms` to `1min`. `1s` by default.
    hold: Option<Spanned<Text>>,
    /// Whether only hot keys are leased: those that a process checks 64 times in one `hold`. False by
    /// default.
    hot_only: Option<Spanned<Bool>>,
}

/// What identical requests have in common, instead of everything that may hold credentials.
SingleFlightBy = "`single_flight`" {
    /// Parts of the request, as in `key`. Method, host, path and query are always compared.
    by: Spanned<OneOrMany<Part>>,
}

}
