//! The admin listener: health, metrics, the live view, and changes at run time.
//!
//! Every change is logged with the target `audit` and the peer's address. Keys are hashed.

mod callers;
mod keys;
mod live;
mod overrides;
mod rules;
mod top;

use std::net::SocketAddr;
use std::sync::Arc;

use http::{HeaderValue, Method, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use self::live::{AdminBody, Live};
use crate::active_rules::KillSwitch;
use crate::api::Object;
use crate::assets;
use crate::auth::{may_change, may_read};
use crate::cross_site;
use crate::listener::RequestHandler;
use crate::problem::{Code, Problem};
use crate::response::{self, HandlerResult};
use crate::state::ServerState;

const MAX_BODY_BYTES: usize = 64 << 10;

pub(crate) struct Admin {
    state: Arc<ServerState>,
    live: Arc<Live>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KillSwitchUpdate {
    state: String,
}

impl Admin {
    /// Creates the listener; `shutdown` ends open event streams.
    pub(crate) fn new(state: Arc<ServerState>, shutdown: CancellationToken) -> Self {
        let live = Live::start(Arc::clone(&state), shutdown);
        Admin { state, live }
    }

    async fn route(&self, request: Request<Incoming>, peer: SocketAddr) -> HandlerResult {
        let path = request.uri().path().to_owned();
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        cross_site::check(request.method(), request.headers())?;
        if let ["live", ..] | ["admin", _, ..] = *parts {
            self.authorize(&request, peer)?;
        }
        match *parts {
            ["healthz" | "readyz" | "metrics"] if !is_read(&request) => {
                Ok(response::method_not_allowed(&[Method::GET]))
            }
            ["healthz"] => Ok(response::ok(&json!({"status": "ok"}))),
            ["readyz"] => self.ready(request.uri().query()),
            ["metrics"] => self.metrics().await,
            ["live"] => assets::answer("live.html", &request),
            ["live", ref file @ ..] => assets::answer(&file.join("/"), &request),
            ["admin", "rules"] => self.rules(request.method()),
            ["admin", "rules", name] => self.rule(name, request, peer).await,
            ["admin", "keys", key] => self.key(key, request, peer).await,
            ["admin", "overrides"] => self.overrides(request, peer).await,
            ["admin", "overrides", id] => self.one_override(id, request.method(), peer),
            ["admin", "top"] => self.top(&request),
            ["admin", "kill-switch"] => self.kill_switch(request, peer).await,
            ["admin", _, ..] => {
                let detail = "the paths are /admin/rules, /admin/keys/{key}, /admin/overrides, \
                              /admin/kill-switch and /admin/top";
                Err(Problem::new(Code::NotFound, detail))
            }
            _ => {
                let detail = "the paths are /healthz, /readyz, /metrics, /live, /admin/rules, \
                              /admin/keys/{key}, /admin/overrides, /admin/kill-switch and \
                              /admin/top";
                Err(Problem::new(Code::NotFound, detail))
            }
        }
    }

    fn authorize(&self, request: &Request<Incoming>, peer: SocketAddr) -> Result<(), Problem> {
        let is_read = is_read(request);
        let may = if is_read { may_read } else { may_change };
        if may(self.state.token.as_ref(), peer.ip(), request.headers()) {
            return Ok(());
        }
        let detail = match self.state.token {
            Some(_) if is_read => "requests from other machines need the admin token",
            Some(_) => "changes need the admin token",
            None => "no admin token is set: only requests from this machine are allowed",
        };
        Err(Problem::new(Code::TokenRequired, detail))
    }

    fn events(
        &self,
        request: &Request<Incoming>,
        peer: SocketAddr,
    ) -> Result<Response<AdminBody>, Problem> {
        if request.method() != Method::GET {
            return Ok(response::method_not_allowed(&[Method::GET]).map(Full::boxed_unsync));
        }
        self.authorize(request, peer)?;
        Ok(response::with_type("text/event-stream", self.live.join()?))
    }

    /// Whether requests should be sent here. With `?store=optional` a store that has not answered yet
    /// is no reason not to.
    fn ready(&self, query: Option<&str>) -> HandlerResult {
        let [store] = response::parse_query(query, ["store"])?;
        let is_optional = match store.as_deref() {
            None => false,
            Some("optional") => true,
            Some(_) => {
                let detail = "`store` is not optional, the only supported value";
                return Err(Problem::new(Code::BadQuery, detail));
            }
        };
        let health = self.state.store_health();
        let is_down = self.state.engine.store_is_down() || health.failure.is_some();
        let store = match (health.reached, is_down) {
            (false, _) => "unreached",
            (true, true) => "down",
            (true, false) => "up",
        };
        let reason = match is_optional && !self.state.is_draining() {
            true => None,
            false => self.state.not_ready(),
        };
        let (status, name) = match reason {
            None => (StatusCode::OK, "ready"),
            Some(_) => (StatusCode::SERVICE_UNAVAILABLE, "not ready"),
        };
        let mut body = json!({"status": name, "store": store});
        if let Some(reason) = reason {
            body["why"] = reason.into();
        }
        if let Some(kind) = health.failure {
            body["error"] = kind.name().into();
        }
        Ok(response::json_value(status, &body))
    }

    async fn metrics(&self) -> HandlerResult {
        let state = Arc::clone(&self.state);
        state.budgets.sample(&state).await;
        // Counting keys visits every slot in memory: too slow for an async thread.
        let text = tokio::task::spawn_blocking(move || state.metrics.text(&state.store_stats()));
        let text = text.await.map_err(|_| live::shutting_down())?;
        let content_type = "text/plain; version=0.0.4; charset=utf-8";
        Ok(response::with_type(content_type, Full::from(text)))
    }

    async fn kill_switch(&self, request: Request<Incoming>, peer: SocketAddr) -> HandlerResult {
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
                let state = switch.name();
                tracing::warn!(
                    target: "audit", %peer, change = "kill-switch", state, "admin change"
                );
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

fn is_read(request: &Request<Incoming>) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD)
}

impl RequestHandler for Admin {
    type Body = AdminBody;

    async fn handle(&self, request: Request<Incoming>, peer: SocketAddr) -> Response<AdminBody> {
        let routed = match request.uri().path() {
            "/live/events" => self.events(&request, peer),
            _ => {
                let routed = self.route(request, peer).await;
                routed.map(|answer| answer.map(Full::boxed_unsync))
            }
        };
        let mut response =
            routed.unwrap_or_else(|problem| problem.response().map(Full::boxed_unsync));
        // Caches must not store live state.
        let no_store = HeaderValue::from_static("no-store");
        response
            .headers_mut()
            .entry(header::CACHE_CONTROL)
            .or_insert(no_store);
        response
    }
}
