//! Builds the head of a request from the attributes of a check.

use std::net::{IpAddr, SocketAddr};

use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Method, Request, Uri, header};
use tallygate::http::Peer;

use super::body::Attributes;
use crate::problem::{Code, Problem};

const MAX_HEADER_VALUES: usize = 1_000;

/// The head that attributes describe; by default `GET /` without an address.
pub(super) fn head(attributes: Attributes) -> Result<Parts, Problem> {
    let (mut parts, ()) = Request::new(()).into_parts();
    if let Some(method) = &attributes.method {
        parts.method =
            Method::from_bytes(method.as_bytes()).map_err(|_| invalid("method", "no method"))?;
    }
    parts.uri = target(attributes.path.as_deref(), attributes.query.as_deref())?;
    if let Some(ip) = &attributes.ip {
        let ip: IpAddr = ip.parse().map_err(|_| invalid("ip", "no address"))?;
        parts.extensions.insert(Peer(SocketAddr::new(ip, 0)));
    }
    if let Some(host) = &attributes.host {
        let host = HeaderValue::from_str(host).map_err(|_| invalid("host", "no host"))?;
        parts.headers.append(header::HOST, host);
    }
    let mut room = MAX_HEADER_VALUES;
    for (name, values) in attributes.headers.0 {
        let name = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| invalid("headers", "no name of a header"))?;
        for value in values.into_vec() {
            let Some(left) = room.checked_sub(1) else {
                let why = format!("more than {MAX_HEADER_VALUES} values");
                return Err(invalid("headers", &why));
            };
            room = left;
            let value = HeaderValue::from_bytes(value.as_bytes())
                .map_err(|_| invalid("headers", "no value of a header"))?;
            parts
                .headers
                .try_append(&name, value)
                .map_err(|_| invalid("headers", "more than fit into a request"))?;
        }
    }
    Ok(parts)
}

fn target(path: Option<&str>, query: Option<&str>) -> Result<Uri, Problem> {
    let path = path.unwrap_or("/");
    let whole = match query {
        None => path.to_owned(),
        Some(query) if !path.contains('?') => format!("{path}?{query}"),
        Some(_) => return Err(invalid("query", "given twice, in `path` too")),
    };
    if !whole.starts_with('/') && whole != "*" {
        return Err(invalid("path", "no path, which begins with `/`"));
    }
    let whole = PathAndQuery::try_from(whole).map_err(|_| invalid("path", "no path"))?;
    Ok(Uri::from(whole))
}

fn invalid(name: &str, why: &str) -> Problem {
    Problem::new(
        Code::BadAttribute,
        format!("the attribute `{name}` is {why}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use tallygate::http::Head;

    fn read(json: &str) -> Result<Parts, Problem> {
        head(serde_json::from_str(json).unwrap())
    }

    #[test]
    fn attributes_make_a_request() {
        let json = r#"{"ip":"::ffff:192.0.2.1","method":"PUT","path":"/a%2fb","query":"x=1",
                       "host":"Example.com:80","headers":{"X-Key":"k","accept":["a","b"]}}"#;
        let parts = read(json).unwrap();
        let head = Head::from(&parts);
        assert_eq!(head.method(), Method::PUT);
        assert_eq!(head.uri(), "/a%2fb?x=1");
        assert_eq!(
            head.peer().unwrap(),
            "::ffff:192.0.2.1".parse::<IpAddr>().unwrap()
        );
        assert_eq!(head.headers()["x-key"], "k");
        assert_eq!(head.headers()["host"], "Example.com:80");
        assert_eq!(head.headers().get_all("accept").iter().count(), 2);
    }

    #[test]
    fn an_invalid_attribute_is_named() {
        for (json, name) in [
            (r#"{"ip":"localhost"}"#, "ip"),
            (r#"{"ip":"192.0.2.1:80"}"#, "ip"),
            (r#"{"method":"G T"}"#, "method"),
            (r#"{"method":""}"#, "method"),
            (r#"{"path":"a"}"#, "path"),
            (r#"{"path":""}"#, "path"),
            (r#"{"path":"http://x/"}"#, "path"),
            (r#"{"path":"/a b"}"#, "path"),
            (r#"{"path":"/?a","query":"b"}"#, "query"),
            (r#"{"host":"a\nb"}"#, "host"),
            (r#"{"headers":{"a b":"c"}}"#, "headers"),
            (r#"{"headers":{"a":"b\nc"}}"#, "headers"),
            (r#"{"headers":{"":"c"}}"#, "headers"),
        ] {
            let problem = read(json).unwrap_err();
            assert_eq!(problem.code, Code::BadAttribute, "{json}");
            assert!(problem.detail.contains(&format!("`{name}`")), "{json}");
        }
        let many = format!(r#"{{"headers":{{"a":[{}""]}}}}"#, "\"\",".repeat(1_000));
        assert_eq!(read(&many).unwrap_err().code, Code::BadAttribute);
    }
}
