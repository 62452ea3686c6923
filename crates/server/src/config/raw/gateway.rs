//! The gateway of a rules file as it is written. Like the file above it, knows nothing of what the
//! fields mean together.

use schemars::JsonSchema;
use serde::Deserialize;

use super::Part;
use crate::config::field::{At, Flag, OneOrMany, Text, Url, Whole};

/// The gateway of `tallygate serve`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "`gateway`", deny_unknown_fields)]
#[schemars(rename = "Gateway")]
pub(in crate::config) struct Gateway {
    /// Where it listens, such as `0.0.0.0:8000`. 127.0.0.1:8000 unless given.
    pub(in crate::config) listen: Option<At<Text>>,
    /// Where requests go, in turn: `http://host:port`, `https://` for TLS, `h2c://` for HTTP/2 and
    /// `h2://` for HTTP/2 over TLS.
    pub(in crate::config) upstreams: Option<At<OneOrMany<Url>>>,
    /// Which `Host` upstreams see: the `client`'s (the default), or the `upstream`'s own.
    pub(in crate::config) host: Option<At<Host>>,
    /// A PEM file with the authority to trust with upstreams instead of the system's.
    pub(in crate::config) upstream_ca_cert: Option<At<Text>>,
    /// Speaks TLS with clients.
    pub(in crate::config) tls: Option<At<Tls>>,
    /// How long anything may take.
    pub(in crate::config) timeouts: Option<At<Timeouts>>,
    /// How much of anything there may be.
    pub(in crate::config) sizes: Option<At<Sizes>>,
}

/// Which `Host` upstreams see.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "GatewayHost")]
pub(in crate::config) enum Host {
    Client,
    Upstream,
}

/// TLS with clients. Both files are read again when they change.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "`tls`", deny_unknown_fields)]
#[schemars(rename = "GatewayTls")]
pub(in crate::config) struct Tls {
    /// A PEM file with the certificate, and those that lead from it to one that clients know.
    pub(in crate::config) cert: At<Text>,
    /// A PEM file with its private key.
    pub(in crate::config) key: At<Text>,
}

/// How long anything may take, such as `30s`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "`timeouts`", deny_unknown_fields)]
#[schemars(rename = "GatewayTimeouts")]
pub(in crate::config) struct Timeouts {
    /// From a request's first byte to the end of its head. 10s unless given.
    pub(in crate::config) header: Option<At<Text>>,
    /// Between two parts of a request's body. 30s unless given.
    pub(in crate::config) body_idle: Option<At<Text>>,
    /// Between two requests on a connection. 1min15s unless given.
    pub(in crate::config) keep_alive: Option<At<Text>>,
    /// How long a client may take to make room for more of an answer. 30s unless given.
    pub(in crate::config) write: Option<At<Text>>,
    /// Until an upstream has taken a connection. 5s unless given.
    pub(in crate::config) connect: Option<At<Text>>,
    /// From the last of a request to the first of its answer. 1min unless given.
    pub(in crate::config) first_byte: Option<At<Text>>,
    /// Between two parts of an answer's body. 1min unless given.
    pub(in crate::config) answer_idle: Option<At<Text>>,
    /// From when a request was let through to the end of its answer. 1h unless given.
    pub(in crate::config) whole: Option<At<Text>>,
    /// How long nothing may pass through an upgraded connection. 10min unless given.
    pub(in crate::config) tunnel_idle: Option<At<Text>>,
    /// How long a connection to an upstream is kept idle. 4s unless given.
    pub(in crate::config) pool_idle: Option<At<Text>>,
    /// How long an upstream that took no connection is left alone at first. 1s unless given.
    pub(in crate::config) down: Option<At<Text>>,
}

/// How much of anything there may be.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "`sizes`", deny_unknown_fields)]
#[schemars(rename = "GatewaySizes")]
pub(in crate::config) struct Sizes {
    /// Connections from clients; others wait. 16384 unless given.
    pub(in crate::config) connections: Option<At<Whole>>,
    /// Bytes of a request's head: 431 beyond. 32768 unless given, at least 8192.
    pub(in crate::config) head_bytes: Option<At<Whole>>,
    /// Headers of a request: 431 beyond. 100 unless given.
    pub(in crate::config) headers: Option<At<Whole>>,
    /// Bytes of a request's body: 413 beyond. 1073741824 unless given.
    pub(in crate::config) body_bytes: Option<At<Whole>>,
    /// Requests at once on one HTTP/2 connection. 100 unless given.
    pub(in crate::config) streams: Option<At<Whole>>,
    /// Idle connections kept to each upstream. 256 unless given.
    pub(in crate::config) pool: Option<At<Whole>>,
}

/// Whether identical requests in flight share one call to an upstream.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    rename = "true, false, or a mapping with `by`",
    rename_all = "lowercase"
)]
#[schemars(rename = "SingleFlight", untagged)]
pub(in crate::config) enum SingleFlight {
    Text(At<Flag>),
    Map(SingleFlightBy),
}

/// What makes requests identical, instead of all that may hold a secret.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename = "`single_flight`", deny_unknown_fields)]
#[schemars(rename = "SingleFlightBy")]
pub(in crate::config) struct SingleFlightBy {
    /// Parts of the request, as in `key`. Method, host, path and query count in any case.
    pub(in crate::config) by: At<OneOrMany<Part>>,
}
