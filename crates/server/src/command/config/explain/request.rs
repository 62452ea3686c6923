//! Builds the request to explain from the arguments.

use std::net::{IpAddr, SocketAddr};

use http::header::{FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Uri};
use tallygate::http::Peer;

use crate::cli::ConfigExplainArgs;
use crate::error::Failure;

/// An address for documentation (RFC 5737).
const EXAMPLE_ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

pub(super) fn from_args(args: &ConfigExplainArgs) -> Result<Request<()>, Failure> {
    let text = args.request.trim();
    let (method, target) = text.split_once(' ').unwrap_or(("GET", text));
    let lacks = |what| {
        Failure::Input(format!(
            "--request has no {what}; write it like 'POST /login'"
        ))
    };
    let mut request = Request::new(());
    *request.method_mut() = Method::from_bytes(method.as_bytes()).map_err(|_| lacks("method"))?;
    let uri = target.trim().parse().ok();
    let uri = uri.filter(|uri: &Uri| uri.path().starts_with('/'));
    *request.uri_mut() = uri.ok_or_else(|| lacks("path"))?;
    if let Some(authority) = request.uri().authority()
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        request.headers_mut().insert(HOST, host);
    }
    for text in &args.headers {
        // The value may be a secret: it is not repeated.
        let parsed = text.split_once(':').and_then(|(name, value)| {
            let name = HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
            Some((name, HeaderValue::from_str(value.trim()).ok()?))
        });
        let (name, value) = parsed
            .ok_or_else(|| Failure::Input("a --header is not like 'name: value'".to_owned()))?;
        request.headers_mut().append(name, value);
    }
    let peer = match (args.peer, args.ip) {
        (Some(peer), Some(client)) => {
            forward(request.headers_mut(), client);
            peer
        }
        (Some(address), None) | (None, Some(address)) => address,
        (None, None) => EXAMPLE_ADDRESS,
    };
    let peer = Peer(SocketAddr::new(peer, 0));
    request.extensions_mut().insert(peer);
    Ok(request)
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
