//! Forward-auth: a proxy (nginx, Traefik, Caddy, Envoy) asks before it forwards a request, which
//! it describes in headers.

use std::net::SocketAddr;
use std::sync::Once;

use bytes::Bytes;
use http::header::{self, HeaderName};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use tallygate::http::{Enforcement, Head, Policy, Refusal};

use super::Api;
use crate::problem::{Code, Problem};
use crate::random::random_u128;
use crate::response::{self, HandlerResult};

/// The headers with the method and the target of the original request.
const METHOD_HEADERS: [&str; 2] = ["x-original-method", "x-forwarded-method"];
const TARGET_HEADERS: [&str; 2] = ["x-original-uri", "x-forwarded-uri"];
const HOST_HEADERS: [&str; 1] = ["x-forwarded-host"];

/// Envoy keeps the original method, and appends the original target to this path.
pub(super) const PATH: &str = "/v1/auth";

/// Logged once: the cause is the configuration of the proxy.
static CANNOT_RELEASE: Once = Once::new();

impl Api {
    /// Responds with 200 to forward the request; otherwise with 429, or the status in `deny`.
    pub(super) async fn forward_auth(
        &self,
        request: Request<Incoming>,
        peer: SocketAddr,
    ) -> HandlerResult {
        // The body is a copy of the original one, and is ignored.
        let (mut parts, _) = request.into_parts();
        let target = path_suffix(&parts.uri);
        let query = match target {
            // The query belongs to the target.
            Some(_) => None,
            None => parts.uri.query(),
        };
        let [deny] = response::parse_query(query, ["deny"])?;
        let deny = match deny.as_deref() {
            None | Some("429") => StatusCode::TOO_MANY_REQUESTS,
            Some("403") => StatusCode::FORBIDDEN,
            Some("401") => StatusCode::UNAUTHORIZED,
            Some(_) => {
                let detail = "`deny` is not 401, 403 or 429";
                return Err(Problem::new(Code::BadQuery, detail));
            }
        };
        let rules = self.state.active_rules.rules();
        if !rules.client().trusts(peer.ip()) {
            let detail = "only proxies in trusted_proxies may use this";
            return Err(Problem::new(Code::UntrustedPeer, detail));
        }
        restore_original(&mut parts, target)?;
        let mut plan = self.state.active_rules.plan(&Head::from(&parts));
        // The end of the request is not seen.
        plan.keep_estimates();
        if plan.lacks_owner() {
            CANNOT_RELEASE.call_once(|| {
                tracing::warn!(
                    "a request to /v1/auth has a concurrency limit: its end is not seen, so it counts \
                     for the whole hold time"
                );
            });
            // Nobody renews or releases it.
            plan.set_owner(format!("{:032x}", random_u128()));
        }
        let enforcement = self.state.enforce(plan).await;
        Ok(answer(&enforcement, &Head::from(&parts), deny))
    }
}

fn answer(enforcement: &Enforcement, head: &Head<'_>, deny: StatusCode) -> Response<Full<Bytes>> {
    let mut response = match enforcement.refusal() {
        None => Response::new(Full::default()),
        Some(refusal) => {
            let mut response = refusal.response(head).map(Full::from);
            // Only for a quota's refusal: that of a lost store keeps its status.
            if let Refusal::Quota { .. } | Refusal::InFlight { .. } | Refusal::NeverFits { .. } =
                refusal
                && response.status() == StatusCode::TOO_MANY_REQUESTS
            {
                *response.status_mut() = deny;
            }
            response
        }
    };
    enforcement.write_headers(response.headers_mut());
    response
}

/// The target that is appended to the path.
fn path_suffix(uri: &Uri) -> Option<HeaderValue> {
    let target = uri.path_and_query()?.as_str().strip_prefix(PATH)?;
    let target = Some(target).filter(|target| target.starts_with('/'))?;
    HeaderValue::from_str(target).ok()
}

/// Restores the head of the original request. With an `appended` target the method is the original
/// one already, and headers must not contradict it.
fn restore_original(parts: &mut Parts, appended: Option<HeaderValue>) -> Result<(), Problem> {
    let Parts {
        method,
        uri,
        headers,
        ..
    } = parts;
    let missing = |names: [&str; 2]| {
        let detail = format!("neither {} nor {} is present", names[0], names[1]);
        Problem::new(Code::MissingOriginal, detail)
    };
    let wrong = |what: &str| {
        let detail = format!("the original {what} cannot be read");
        Problem::new(Code::BadAttribute, detail)
    };
    let known = HeaderValue::from_str(method.as_str()).ok();
    let known = known.filter(|_| appended.is_some());
    let original =
        remove_agreed(headers, METHOD_HEADERS, known)?.ok_or_else(|| missing(METHOD_HEADERS))?;
    *method = Method::from_bytes(original.as_bytes()).map_err(|_| wrong("method"))?;
    let original =
        remove_agreed(headers, TARGET_HEADERS, appended)?.ok_or_else(|| missing(TARGET_HEADERS))?;
    let target = PathAndQuery::try_from(original.as_bytes()).map_err(|_| wrong("target"))?;
    if !original.as_bytes().starts_with(b"/") && original != "*" {
        return Err(wrong("target"));
    }
    *uri = Uri::from(target);
    if let Some(host) = remove_agreed(headers, HOST_HEADERS, None)? {
        headers.insert(header::HOST, host);
    }
    Ok(())
}

/// Removes headers that mean the same and returns their one value, or `known`. Conflicting values
/// are an error: a proxy overwrites its own header, so the other one comes from the client.
fn remove_agreed<const N: usize>(
    headers: &mut HeaderMap,
    names: [&'static str; N],
    known: Option<HeaderValue>,
) -> Result<Option<HeaderValue>, Problem> {
    let mut found = known;
    for name in names.map(HeaderName::from_static) {
        for value in headers.get_all(&name) {
            if found.as_ref().is_some_and(|found| found != value) {
                let detail = format!("{} have different values", names.join(" and "));
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
        read_at("/v1/auth", pairs)
    }

    fn read_at(
        target: &str,
        pairs: &[(&'static str, &str)],
    ) -> Result<(Method, Uri, HeaderMap), Code> {
        let mut request = Request::put(target);
        for (name, value) in pairs {
            request = request.header(*name, *value);
        }
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        let target = path_suffix(&parts.uri);
        match restore_original(&mut parts, target) {
            Ok(()) => Ok((parts.method, parts.uri, parts.headers)),
            Err(problem) => Err(problem.code),
        }
    }

    #[test]
    fn envoy_writes_the_target_after_the_path() {
        for (requested, expected) in [
            ("/v1/auth/", "/"),
            ("/v1/auth/login?deny=403", "/login?deny=403"),
            ("/v1/auth//login", "//login"),
            ("/v1/auth/%2e%2e/x", "/%2e%2e/x"),
        ] {
            let (method, uri, _) = read_at(requested, &[]).unwrap();
            assert_eq!((method, uri), (Method::PUT, expected.parse().unwrap()));
        }
        for header in [
            ("x-original-uri", "/other"),
            ("x-forwarded-uri", "/other"),
            ("x-original-method", "GET"),
        ] {
            let read = read_at("/v1/auth/login", &[header]);
            assert_eq!(read.unwrap_err(), Code::AmbiguousOriginal);
        }
        assert_eq!(
            read_at("/v1/auth?x", &[]).unwrap_err(),
            Code::MissingOriginal
        );
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
            ("host", "tallygate:8080"),
        ];
        let (method, uri, _) = read(&nginx).unwrap();
        assert_eq!((method, uri), (Method::POST, "/login?a=b".parse().unwrap()));
        let (method, uri, headers) = read(&traefik).unwrap();
        assert_eq!((method, uri), (Method::POST, "/login?a=b".parse().unwrap()));
        assert_eq!(headers["host"], "example.com");
        assert_eq!(headers.len(), 1);
    }

    #[test]
    fn conflicting_headers_are_rejected() {
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
