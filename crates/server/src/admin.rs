//! The admin listener: health, metrics, the live view, and changes at run time.

mod audit;
mod keys;
mod live;
mod overrides;
mod rules;
mod top;

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, header};
use http_body_util::Full;
use hyper::Request;
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;

use self::audit::Audit;
use self::live::{AdminBody, Live};
use crate::active_rules::KillSwitch;
use crate::api::Object;
use crate::assets;
use crate::auth::is_authorized;
use crate::listener::RequestHandler;
use crate::problem::{Code, Problem};
use crate::response;
use crate::state::ServerState;

const MAX_BODY_BYTES: usize = 64 << 10;

pub(crate) struct Admin {
    state: Arc<ServerState>,
    audit: Audit,
    live: Arc<Live>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KillSwitchUpdate {
    state: String,
}

impl Admin {
    /// Creates the listener; `shutdown` ends open event streams.
    pub(crate) fn new(state: Arc<ServerState>, shutdown: watch::Receiver<bool>) -> Self {
        let audit = Audit::new(Arc::clone(state.top_keys.redactor()));
        let live = Live::start(Arc::clone(&state), shutdown);
        Admin { state, audit, live }
    }

    async fn route(
        &self,
        request: Request<Incoming>,
        peer: SocketAddr,
    ) -> Result<Response<Full<Bytes>>, Problem> {
        let path = request.uri().path().to_owned();
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let read_only = |answer: Response<Full<Bytes>>| match is_read {
            true => answer,
            false => response::method_not_allowed(&[Method::GET]),
        };
        match &*path {
            "/healthz" => return Ok(read_only(response::ok(&json!({"status": "ok"})))),
            "/readyz" => return Ok(read_only(self.ready())),
            "/metrics" if is_read => return Ok(self.metrics().await),
            "/metrics" => return Ok(response::method_not_allowed(&[Method::GET])),
            _ => {}
        }
        let page = match &*path {
            "/live" => Some("live.html"),
            path => path.strip_prefix("/live/"),
        };
        if let Some(name) = page {
            self.authorize(&request, peer)?;
            return assets::answer(name, &request);
        }
        if !path.starts_with("/admin/") {
            let detail = "the paths are /healthz, /readyz, /metrics, /live, /admin/rules, /admin/keys/{key}, \
                          /admin/overrides, /admin/kill-switch and /admin/top";
            return Err(Problem::new(Code::NotFound, detail));
        }
        self.authorize(&request, peer)?;
        let parts: Vec<&str> = path.split('/').skip(2).collect();
        match &*parts {
            ["rules"] => self.rules(request.method()),
            ["rules", name] => {
                self.rule(&response::percent_decode(name)?, request, peer)
                    .await
            }
            ["keys", key] => self.key(key, request, peer).await,
            ["overrides"] => self.overrides(request, peer).await,
            ["overrides", id] => self.one_override(id, request.method(), peer),
            ["top"] => self.top(&request),
            ["kill-switch"] => self.kill_switch(request, peer).await,
            _ => {
                let detail = "the paths are /admin/rules, /admin/keys/{key}, /admin/overrides, \
                              /admin/kill-switch and /admin/top";
                Err(Problem::new(Code::NotFound, detail))
            }
        }
    }

    fn authorize(&self, request: &Request<Incoming>, peer: SocketAddr) -> Result<(), Problem> {
        if is_authorized(self.state.token.as_ref(), peer.ip(), request.headers()) {
            return Ok(());
        }
        let detail = match self.state.token {
            Some(_) => "requests from other machines need the admin token",
            None => "no admin token is set: only requests from this machine are allowed",
        };
        Err(Problem::new(Code::TokenRequired, detail))
    }

    fn events(
        &self,
        request: &Request<Incoming>,
        peer: SocketAddr,
    ) -> Result<Response<AdminBody>, Problem> {
        self.authorize(request, peer)?;
        if request.method() != Method::GET {
            return Ok(response::method_not_allowed(&[Method::GET]).map(AdminBody::Full));
        }
        let mut response = Response::new(self.live.join()?);
        let content_type = HeaderValue::from_static("text/event-stream");
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, content_type);
        Ok(response)
    }

    fn ready(&self) -> Response<Full<Bytes>> {
        let store = match self.state.engine.store_is_down() {
            true => "down",
            false => "up",
        };
        match self.state.not_ready() {
            None => response::ok(&json!({"status": "ready", "store": store})),
            Some(reason) => {
                let body = json!({"status": "not ready", "why": reason, "store": store});
                response::json_value(StatusCode::SERVICE_UNAVAILABLE, &body)
            }
        }
    }

    async fn metrics(&self) -> Response<Full<Bytes>> {
        let state = Arc::clone(&self.state);
        // Counting keys visits every slot in memory: too slow for an async thread.
        let text = tokio::task::spawn_blocking(move || state.metrics.text(&state.store_stats()));
        let Ok(text) = text.await else {
            return Problem::new(Code::Closed, "the server is shutting down").response();
        };
        let mut response = Response::new(Full::from(text));
        let content_type = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, content_type);
        response
    }

    async fn kill_switch(
        &self,
        request: Request<Incoming>,
        peer: SocketAddr,
    ) -> Result<Response<Full<Bytes>>, Problem> {
        let active_rules = &self.state.active_rules;
        match *request.method() {
            Method::GET => {}
            Method::PUT | Method::POST => {
                let Object(update) = self.body::<Object<KillSwitchUpdate>>(request).await?;
                let Some(switch) = KillSwitch::from_name(&update.state) else {
                    let detail = "`state` is not off, open or closed";
                    return Err(Problem::new(Code::BadField, detail));
                };
                active_rules.set_kill_switch(switch);
                self.audit.kill_switch(peer, switch);
            }
            _ => {
                let allowed = [Method::GET, Method::PUT, Method::POST];
                return Ok(response::method_not_allowed(&allowed));
            }
        }
        let body = json!({"state": active_rules.kill_switch().name()});
        Ok(response::ok(&body))
    }

    async fn body<T: serde::de::DeserializeOwned>(
        &self,
        request: Request<Incoming>,
    ) -> Result<T, Problem> {
        let (head, body) = request.into_parts();
        let json = response::read_body(&head.headers, body, MAX_BODY_BYTES).await?;
        response::parse_json(&json)
    }
}

impl RequestHandler for Admin {
    type Body = AdminBody;

    async fn handle(&self, request: Request<Incoming>, peer: SocketAddr) -> Response<AdminBody> {
        let routed = match request.uri().path() {
            "/live/events" => self.events(&request, peer),
            _ => {
                let routed = self.route(request, peer).await;
                routed.map(|answer| answer.map(AdminBody::Full))
            }
        };
        let mut response = routed.unwrap_or_else(|problem| problem.response().map(AdminBody::Full));
        // Caches must not store live state.
        let no_store = HeaderValue::from_static("no-store");
        response
            .headers_mut()
            .entry(header::CACHE_CONTROL)
            .or_insert(no_store);
        response
    }
}
