//! The admin listener: health, metrics, and changes on the side. Knows the paths and who may ask;
//! leaves what is changed to the files below.

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
use self::live::{Events, Live};
use crate::active_rules::Switch;
use crate::api::Object;
use crate::assets::File;
use crate::auth::may_change;
use crate::listener::RequestHandler;
use crate::problem::{Code, Problem};
use crate::response;
use crate::state::Serving;

/// The most bytes of a change.
const LARGEST: usize = 64 << 10;

/// The admin listener.
pub(crate) struct Admin {
    serving: Arc<Serving>,
    audit: Audit,
    live: Arc<Live>,
}

/// The body of a turn of the kill switch.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Turn {
    state: String,
}

impl Admin {
    /// Opens it; whoever watches is told of the end by `stop`.
    pub(crate) fn new(serving: Arc<Serving>, stop: watch::Receiver<bool>) -> Self {
        let audit = Audit::new(Arc::clone(serving.top_keys.redactor()));
        let live = Live::start(Arc::clone(&serving), stop);
        Admin {
            serving,
            audit,
            live,
        }
    }

    async fn route(
        &self,
        request: Request<Incoming>,
        peer: SocketAddr,
    ) -> Result<Response<Full<Bytes>>, Problem> {
        let path = request.uri().path().to_owned();
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        let looks = |answer: Response<Full<Bytes>>| match reads {
            true => answer,
            false => response::other_method(&[Method::GET]),
        };
        match &*path {
            "/healthz" => {
                return Ok(looks(response::value(
                    StatusCode::OK,
                    &json!({"status": "ok"}),
                )));
            }
            "/readyz" => return Ok(looks(self.ready())),
            "/metrics" if reads => return Ok(self.metrics().await),
            "/metrics" => return Ok(response::other_method(&[Method::GET])),
            _ => {}
        }
        let page = match &*path {
            "/live" => Some("live.html"),
            path => path.strip_prefix("/live/"),
        };
        if let Some(name) = page {
            self.admitted(&request, peer)?;
            return File::answer(name, &request);
        }
        if !path.starts_with("/admin/") {
            let detail = "there is /healthz, /readyz, /metrics, /live, /admin/rules, /admin/keys/{key}, \
                          /admin/overrides, /admin/kill-switch and /admin/top";
            return Err(Problem::new(Code::NotFound, detail));
        }
        self.admitted(&request, peer)?;
        let parts: Vec<&str> = path.split('/').skip(2).collect();
        match &*parts {
            ["rules"] => self.rules(request.method()),
            ["rules", name] => self.rule(&response::decoded(name)?, request, peer).await,
            ["keys", key] => self.key(key, request, peer).await,
            ["overrides"] => self.overrides(request, peer).await,
            ["overrides", id] => self.one_override(id, request.method(), peer),
            ["top"] => self.top(&request),
            ["kill-switch"] => self.kill_switch(request, peer).await,
            _ => {
                let detail = "there is /admin/rules, /admin/keys/{key}, /admin/overrides, \
                              /admin/kill-switch and /admin/top";
                Err(Problem::new(Code::NotFound, detail))
            }
        }
    }

    /// Whether whoever asks may look and change things.
    fn admitted(&self, request: &Request<Incoming>, peer: SocketAddr) -> Result<(), Problem> {
        if may_change(self.serving.token.as_ref(), peer.ip(), request.headers()) {
            return Ok(());
        }
        let detail = match self.serving.token {
            Some(_) => "away from this machine the admin token is needed",
            None => "no admin token is set, so only this machine may ask",
        };
        Err(Problem::new(Code::TokenRequired, detail))
    }

    /// Tells what the server does, once a second.
    fn events(
        &self,
        request: &Request<Incoming>,
        peer: SocketAddr,
    ) -> Result<Response<Events>, Problem> {
        self.admitted(request, peer)?;
        if request.method() != Method::GET {
            return Ok(response::other_method(&[Method::GET]).map(Events::Whole));
        }
        let events = self.live.join().map_err(|why| match why {
            live::Full::Crowded => {
                Problem::new(Code::TooManyViewers, "as many look as may already")
            }
            live::Full::Ended => Problem::new(Code::Closed, "the server is about to end"),
        })?;
        let mut response = Response::new(events);
        let content_type = HeaderValue::from_static("text/event-stream");
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, content_type);
        Ok(response)
    }

    fn ready(&self) -> Response<Full<Bytes>> {
        let store = match self.serving.limiter.store_is_down() {
            true => "down",
            false => "up",
        };
        match self.serving.not_ready() {
            None => response::value(StatusCode::OK, &json!({"status": "ready", "store": store})),
            Some(why) => {
                let body = json!({"status": "not ready", "why": why, "store": store});
                response::value(StatusCode::SERVICE_UNAVAILABLE, &body)
            }
        }
    }

    async fn metrics(&self) -> Response<Full<Bytes>> {
        let serving = Arc::clone(&self.serving);
        // Every place in memory is looked at, which would hold requests up.
        let text = tokio::task::spawn_blocking(move || {
            let store_stats = serving.store_stats();
            serving.metrics.text(&store_stats)
        });
        let Ok(text) = text.await else {
            return Problem::new(Code::Closed, "the server is about to end").response();
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
        let force = &self.serving.force;
        match *request.method() {
            Method::GET => {}
            Method::PUT | Method::POST => {
                let Object(turn) = self.body::<Object<Turn>>(request).await?;
                let Some(switch) = Switch::named(&turn.state) else {
                    let detail = "`state` is not off, open or closed";
                    return Err(Problem::new(Code::BadField, detail));
                };
                force.turn(switch);
                self.audit.turned(peer, switch);
            }
            _ => {
                let allowed = [Method::GET, Method::PUT, Method::POST];
                return Ok(response::other_method(&allowed));
            }
        }
        let body = json!({"state": force.switch().name()});
        Ok(response::value(StatusCode::OK, &body))
    }

    async fn body<T: serde::de::DeserializeOwned>(
        &self,
        request: Request<Incoming>,
    ) -> Result<T, Problem> {
        let (head, body) = request.into_parts();
        let json = response::read(&head.headers, body, LARGEST).await?;
        response::parse(&json)
    }
}

impl RequestHandler for Admin {
    type Body = Events;

    async fn handle(&self, request: Request<Incoming>, peer: SocketAddr) -> Response<Events> {
        let routed = match request.uri().path() {
            "/live/events" => self.events(&request, peer),
            _ => {
                let routed = self.route(request, peer).await;
                routed.map(|answer| answer.map(Events::Whole))
            }
        };
        let mut response = routed.unwrap_or_else(|problem| problem.response().map(Events::Whole));
        // What is in force changes; nobody in between may keep it.
        let no_store = HeaderValue::from_static("no-store");
        response
            .headers_mut()
            .entry(header::CACHE_CONTROL)
            .or_insert(no_store);
        response
    }
}
