//! The playground: a page to try limits on, and what it asks. Knows the paths and who asks; leaves
//! what is asked to the files below. Visitors have counters of their own, within bounds, and reach
//! nobody else's.

mod card_store;
mod demo_api;
mod labs;
mod sessions;
mod snapshot_json;
mod steps;
mod validate;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use http_body_util::Full;
use hyper::Request;
use hyper::body::Incoming;
use serde_json::json;

use self::card_store::Real;
use self::labs::Labs;
use self::sessions::{Id, Visitors};
use crate::api::Known;
use crate::assets::File;
use crate::problem::{Code, Problem};
use crate::response;
use crate::state::Serving;

/// The most bytes of what a page asks.
const LARGEST: usize = 256 << 10;

/// The playground.
pub(super) struct Playground {
    known: Known,
    labs: Labs,
    real: Real,
    serving: Arc<Serving>,
    visitors: Visitors,
}

impl Playground {
    pub(super) fn new(serving: &Arc<Serving>) -> Self {
        Playground {
            known: Known::default(),
            labs: Labs::default(),
            real: Real::of(serving),
            serving: Arc::clone(serving),
            visitors: Visitors::default(),
        }
    }

    /// Whether a path is one of the playground's.
    pub(super) fn has(path: &str) -> bool {
        path == "/" || path.starts_with("/ui/") || path.starts_with("/api/")
    }

    /// Answers what is asked of one of its paths.
    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, Problem> {
        let path = request.uri().path().to_owned();
        match path.strip_prefix("/api/") {
            Some(rest) => self.api(rest, request).await,
            None => {
                let name = path.strip_prefix("/ui/").unwrap_or("index.html");
                File::answer(name, &request)
            }
        }
    }

    async fn api(
        &self,
        path: &str,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, Problem> {
        let [] = response::query(request.uri().query(), [])?;
        let parts: Vec<&str> = path.split('/').collect();
        let allowed = match &*parts {
            ["play"] => &[Method::GET, Method::POST][..],
            ["play", "quota"] | ["lab", _] | ["rate-limit", _] | ["rate-limit", _, "burst"] => {
                &[Method::POST][..]
            }
            _ => {
                let detail = "there is /api/play, /api/play/quota, /api/lab/{name}, \
                              /api/rate-limit/{algorithm}, \
                              /api/rate-limit/{algorithm}/burst and /api/rate-limit/reset";
                return Err(Problem::new(Code::NotFound, detail));
            }
        };
        if !allowed.contains(request.method()) {
            return Ok(response::other_method(allowed));
        }
        let (head, body) = request.into_parts();
        let said = Id::said(&head.headers);
        let id = said.unwrap_or_else(Id::random);
        if head.method == Method::POST {
            same_site(&head.headers)?;
        }
        let json = response::read(&head.headers, body, LARGEST).await?;
        let answered = match &*parts {
            ["play", "quota"] => self.judge(&json),
            ["lab", name] => self.lab(id, name, &json).await,
            ["rate-limit", "reset"] => self.start_over(id).await,
            ["rate-limit", algorithm] => self.attempt(id, algorithm, &json).await,
            ["rate-limit", algorithm, _] => self.burst(id, algorithm, &json).await,
            _ if head.method == Method::GET => Ok(self.about().await),
            _ => self.play(id, &json).await,
        };
        let mut response = answered.unwrap_or_else(|problem| problem.response());
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if said.is_none() {
            headers.insert(header::SET_COOKIE, id.cookie());
        }
        Ok(response)
    }

    /// What the page should know before it asks anything.
    async fn about(&self) -> Response<Full<Bytes>> {
        let body = json!({
            "store": self.real.kind(),
            "reachable": self.real.reachable().await,
            "version": env!("CARGO_PKG_VERSION"),
            "bounds": validate::told(),
        });
        response::value(StatusCode::OK, &body)
    }
}

/// Turns away what a page of somebody else's site asks in the name of its reader.
fn same_site(headers: &HeaderMap) -> Result<(), Problem> {
    let foreign = match headers.get("sec-fetch-site") {
        Some(site) => site != "same-origin" && site != "none",
        // Not every browser says so, nor does any over plain HTTP from afar.
        None => headers.get(header::ORIGIN).is_some_and(|origin| {
            let origin = origin.as_bytes();
            let host = headers.get(header::HOST).map(HeaderValue::as_bytes);
            let named = origin
                .strip_prefix(b"http://")
                .or_else(|| origin.strip_prefix(b"https://"));
            named.is_none() || named != host
        }),
    };
    if foreign {
        let detail = "the question comes from a page of another site";
        return Err(Problem::new(Code::ForeignOrigin, detail));
    }
    Ok(())
}
