//! Forward-auth: a proxy asks before it lets a request through, and tells in headers what it is.
//! Knows what nginx, Traefik and Caddy write; knows nothing of how rules decide.

use std::net::SocketAddr;

use bytes::Bytes;
use http::header::{self, HeaderName};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use tollgate::http::{Head, Passage, Policy, Refusal};

use super::super::problem::{Code, Problem};
use super::super::reply;
use super::Api;

/// Where proxies write the method and the target of the request that they got.
const METHODS: [&str; 2] = ["x-original-method", "x-forwarded-method"];
const TARGETS: [&str; 2] = ["x-original-uri", "x-forwarded-uri"];
const HOSTS: [&str; 1] = ["x-forwarded-host"];

impl Api {
    /// Answers a proxy: 200 to let the request through, 429 or what is asked for instead.
    pub(super) async fn auth(
        &self,
        request: Request<Incoming>,
        peer: SocketAddr,
    ) -> Result<Response<Full<Bytes>>, Problem> {
        // The body is the proxy's copy of somebody else's; it is not looked at.
        let (mut parts, _) = request.into_parts();
        let [deny] = reply::query(parts.uri.query(), ["deny"])?;
        let deny = match deny.as_deref() {
            None | Some("429") => StatusCode::TOO_MANY_REQUESTS,
            Some("403") => StatusCode::FORBIDDEN,
            Some("401") => StatusCode::UNAUTHORIZED,
            Some(_) => {
                let detail = "`deny` is not 401, 403 or 429";
                return Err(Problem::new(Code::BadQuery, detail));
            }
        };
        let rules = self.serving.force.rules();
        if !rules.client().trusts(peer.ip()) {
            let detail = "only a proxy may ask here; list its address in trusted_proxies";
            return Err(Problem::new(Code::UntrustedPeer, detail));
        }
        original(&mut parts.method, &mut parts.uri, &mut parts.headers)?;
        let plan = self.serving.force.plan(&Head::from(&parts));
        let passage = self.serving.pass(plan).await;
        Ok(answer(&passage, &Head::from(&parts), deny))
    }
}

fn answer(passage: &Passage, asked: &Head<'_>, deny: StatusCode) -> Response<Full<Bytes>> {
    let mut response = match passage.refusal() {
        None => Response::new(Full::default()),
        Some(refusal) => {
            let mut response = refusal.response(asked).map(Full::from);
            // A quota's refusal alone: a lost store is not made to look like one.
            if let Refusal::Quota { .. } | Refusal::NeverFits { .. } = refusal
                && response.status() == StatusCode::TOO_MANY_REQUESTS
            {
                *response.status_mut() = deny;
            }
            response
        }
    };
    passage.tell(response.headers_mut());
    response
}

/// Puts what the proxy got in the place of what it asks.
fn original(method: &mut Method, uri: &mut Uri, headers: &mut HeaderMap) -> Result<(), Problem> {
    let missing = |names: [&str; 2]| {
        let detail = format!("neither {} nor {} is there", names[0], names[1]);
        Problem::new(Code::MissingOriginal, detail)
    };
    let wrong = |what: &str| {
        let detail = format!("the original {what} cannot be read");
        Problem::new(Code::BadAttribute, detail)
    };
    let said = taken(headers, METHODS)?.ok_or_else(|| missing(METHODS))?;
    *method = Method::from_bytes(said.as_bytes()).map_err(|_| wrong("method"))?;
    let said = taken(headers, TARGETS)?.ok_or_else(|| missing(TARGETS))?;
    let target = PathAndQuery::try_from(said.as_bytes()).map_err(|_| wrong("target"))?;
    if !said.as_bytes().starts_with(b"/") && said != "*" {
        return Err(wrong("target"));
    }
    *uri = Uri::from(target);
    if let Some(host) = taken(headers, HOSTS)? {
        headers.insert(header::HOST, host);
    }
    Ok(())
}

/// The one value of headers that mean the same, taken out. A proxy overwrites its own; one that
/// says something else was written by the client.
fn taken<const N: usize>(
    headers: &mut HeaderMap,
    names: [&'static str; N],
) -> Result<Option<HeaderValue>, Problem> {
    let mut found: Option<HeaderValue> = None;
    for name in names.map(HeaderName::from_static) {
        for value in headers.get_all(&name) {
            if found.as_ref().is_some_and(|found| found != value) {
                let detail = format!("{} say different things", names.join(" and "));
                return Err(Problem::new(Code::AmbiguousOriginal, detail));
            }
            found = Some(value.clone());
        }
        headers.remove(&name);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&'static str, &str)]) -> Result<(Method, Uri, HeaderMap), Code> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        let (mut method, mut uri) = (Method::GET, Uri::from_static("/v1/auth"));
        match original(&mut method, &mut uri, &mut headers) {
            Ok(()) => Ok((method, uri, headers)),
            Err(problem) => Err(problem.code),
        }
    }

    #[test]
    fn each_proxy_is_understood() {
        let nginx = [
            ("x-original-method", "POST"),
            ("x-original-uri", "/login?a=b"),
        ];
        let traefik = [
            ("x-forwarded-method", "POST"),
            ("x-forwarded-uri", "/login?a=b"),
            ("x-forwarded-host", "example.com"),
            ("host", "tollgate:8080"),
        ];
        let (method, uri, _) = read(&nginx).unwrap();
        assert_eq!((method, uri), (Method::POST, "/login?a=b".parse().unwrap()));
        let (method, uri, headers) = read(&traefik).unwrap();
        assert_eq!((method, uri), (Method::POST, "/login?a=b".parse().unwrap()));
        assert_eq!(headers["host"], "example.com");
        assert_eq!(headers.len(), 1);
    }

    #[test]
    fn who_says_two_things_says_nothing() {
        let both = |uri| {
            read(&[
                ("x-original-method", "GET"),
                ("x-original-uri", "/a"),
                ("x-forwarded-uri", uri),
            ])
        };
        assert!(both("/a").is_ok());
        assert_eq!(both("/b").unwrap_err(), Code::AmbiguousOriginal);
        let twice = [("x-original-method", "GET"), ("x-original-method", "PUT")];
        assert_eq!(read(&twice).unwrap_err(), Code::AmbiguousOriginal);
        assert_eq!(read(&[]).unwrap_err(), Code::MissingOriginal);
        let method = [("x-original-method", "GET")];
        assert_eq!(read(&method).unwrap_err(), Code::MissingOriginal);
        for target in ["", "a", "http://x/", "/a b"] {
            let pairs = [("x-original-method", "GET"), ("x-original-uri", target)];
            assert_eq!(read(&pairs).unwrap_err(), Code::BadAttribute, "{target}");
        }
    }
}
