//! Builds the request to explain from the arguments.

use std::net::{IpAddr, SocketAddr};

use http::header::{FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue};
use http::{Extensions, Method, Uri};
use tallygate::http::{Head, Peer};

use crate::cli::ConfigExplainArgs;
use crate::error::Failure;

/// An address for documentation (RFC 5737).
const EXAMPLE_ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

pub(super) struct ExplainedRequest {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    extensions: Extensions,
}

impl ExplainedRequest {
    pub(super) fn from_args(args: &ConfigExplainArgs) -> Result<Self, Failure> {
        let request = args.request.trim();
        let (method, target) = request.split_once(' ').unwrap_or(("GET", request));
        let example = "write it like 'POST /login'";
        let method = Method::from_bytes(method.as_bytes())
            .map_err(|_| Failure::Input(format!("--request has no method; {example}")))?;
        let uri: Uri = target
            .trim()
            .parse()
            .ok()
            .filter(|uri: &Uri| uri.path().starts_with('/'))
            .ok_or_else(|| Failure::Input(format!("--request has no path; {example}")))?;
        let mut headers = HeaderMap::new();
        if let Some(authority) = uri.authority()
            && let Ok(host) = HeaderValue::from_str(authority.as_str())
        {
            headers.insert(HOST, host);
        }
        for text in &args.headers {
            // The value may be a secret: it is not repeated.
            let parsed = text.split_once(':').and_then(|(name, value)| {
                let name = HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
                Some((name, HeaderValue::from_str(value.trim()).ok()?))
            });
            let (name, value) = parsed
                .ok_or_else(|| Failure::Input("a --header is not like 'name: value'".to_owned()))?;
            headers.append(name, value);
        }
        let peer = match (args.peer, args.ip) {
            (Some(peer), Some(client)) => {
                forward(&mut headers, client);
                peer
            }
            (Some(address), None) | (None, Some(address)) => address,
            (None, None) => EXAMPLE_ADDRESS,
        };
        let mut extensions = Extensions::new();
        extensions.insert(Peer(SocketAddr::new(peer, 0)));
        Ok(ExplainedRequest {
            method,
            uri,
            headers,
            extensions,
        })
    }

    pub(super) fn head(&self) -> Head<'_> {
        Head::new(&self.method, &self.uri, &self.headers, &self.extensions)
    }

    /// Method, host and path. The query may hold a secret.
    pub(super) fn line(&self) -> String {
        let host = self.uri.host().unwrap_or_default();
        format!("{} {host}{}", self.method, self.uri.path())
    }
}

/// Adds the client to both forwarding headers; the rules file selects one.
fn forward(headers: &mut HeaderMap, client: IpAddr) {
    let quoted = match client {
        IpAddr::V4(ip) => format!("for={ip}"),
        IpAddr::V6(ip) => format!("for=\"[{ip}]\""),
    };
    let name = HeaderName::from_static("x-forwarded-for");
    for (name, text) in [(name, client.to_string()), (FORWARDED, quoted)] {
        let value = HeaderValue::try_from(text).expect("an address is visible ASCII");
        headers.append(name, value);
    }
}
