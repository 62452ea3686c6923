//! The playground: a page to try quotas on, and its API. Every visitor has a session with bounded
//! counters of its own.

mod card_store;
mod demo_api;
mod labs;
mod sessions;
mod snapshot_json;
mod steps;
mod validate;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method, Response, header};
use http_body_util::Full;
use hyper::Request;
use hyper::body::Incoming;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub(super) use self::card_store::CardStore;
use self::labs::Labs;
use self::sessions::{Session, SessionId, Sessions};
use crate::api::{Object, QuotaCache};
use crate::assets;
use crate::endpoints::http_origin;
use crate::problem::{Code, Problem};
use crate::response;
use crate::state::ServerState;

const MAX_BODY_BYTES: usize = 256 << 10;

pub(super) struct Playground {
    quota_cache: QuotaCache,
    labs: Labs,
    store: CardStore,
    state: Arc<ServerState>,
    sessions: Sessions,
}

impl Playground {
    pub(super) fn new(store: CardStore, state: &Arc<ServerState>) -> Self {
        Playground {
            quota_cache: QuotaCache::default(),
            labs: Labs::default(),
            store,
            state: Arc::clone(state),
            sessions: Sessions::default(),
        }
    }

    pub(super) fn has(path: &str) -> bool {
        path == "/" || path.starts_with("/ui/") || path.starts_with("/api/")
    }

    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
        peer: SocketAddr,
    ) -> Result<Response<Full<Bytes>>, Problem> {
        let path = request.uri().path().to_owned();
        match path.strip_prefix("/api/") {
            Some(rest) => self.api(rest, request, peer.ip()).await,
            None => {
                let name = path.strip_prefix("/ui/").unwrap_or("index.html");
                assets::answer(name, &request)
            }
        }
    }

    async fn api(
        &self,
        path: &str,
        request: Request<Incoming>,
        peer: IpAddr,
    ) -> Result<Response<Full<Bytes>>, Problem> {
        let [] = response::parse_query(request.uri().query(), [])?;
        let parts: Vec<&str> = path.split('/').collect();
        let allowed = match &*parts {
            ["play"] => &[Method::GET, Method::POST][..],
            ["play", "quota"] | ["lab", _] | ["rate-limit", _] | ["rate-limit", _, "burst"] => {
                &[Method::POST][..]
            }
            _ => {
                let detail = "the paths are /api/play, /api/play/quota, /api/lab/{name}, \
                              /api/rate-limit/{algorithm}, \
                              /api/rate-limit/{algorithm}/burst and /api/rate-limit/reset";
                return Err(Problem::new(Code::NotFound, detail));
            }
        };
        if !allowed.contains(request.method()) {
            return Ok(response::method_not_allowed(allowed));
        }
        let (head, body) = request.into_parts();
        let cookie = SessionId::from_cookie(&head.headers);
        let id = cookie.unwrap_or_else(SessionId::random);
        let json = response::read_body(&head.headers, body, MAX_BODY_BYTES).await?;
        let ok = |value: Value| response::ok(&value);
        let result = match &*parts {
            ["play", "quota"] => self.check_quota(&json).map(ok),
            ["lab", name] => {
                let rules = self.state.active_rules.rules();
                let client = rules.client().resolve(peer, &head.headers);
                self.lab(client, name, &json).await
            }
            ["rate-limit", "reset"] => self.demo_reset(id).await.map(ok),
            ["rate-limit", algorithm] => self.demo_request(id, algorithm, &json).await.map(ok),
            ["rate-limit", algorithm, _] => self.demo_burst(id, algorithm, &json).await.map(ok),
            _ if head.method == Method::GET => Ok(ok(self.about(peer).await)),
            _ => self.take_steps(id, &json).await.map(ok),
        };
        let mut response = result.unwrap_or_else(|problem| problem.response());
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if cookie.is_none() {
            headers.insert(header::SET_COOKIE, id.cookie());
        }
        Ok(response)
    }

    fn session(&self, id: SessionId) -> Arc<Session> {
        let (session, evictions) = self.sessions.get_or_create(id);
        self.store.evict(evictions);
        session
    }

    async fn about(&self, peer: IpAddr) -> Value {
        // The live view is for this machine, unless it is asked with a token.
        let live = peer.to_canonical().is_loopback();
        let live = live.then(|| format!("{}/live", http_origin(self.state.endpoints.admin)));
        json!({
            "live": live,
            "store": self.store.kind(),
            "reachable": self.store.is_reachable().await,
            "version": env!("CARGO_PKG_VERSION"),
            "bounds": validate::bounds(),
        })
    }
}

/// Parses an object whose fields all have defaults; an empty body has them all.
fn parse_or_default<T: DeserializeOwned + Default>(json: &[u8]) -> Result<T, Problem> {
    match json.trim_ascii() {
        [] => Ok(T::default()),
        json => Ok(response::parse_json::<Object<T>>(json)?.0),
    }
}
