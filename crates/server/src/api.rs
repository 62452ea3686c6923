//! The check API: checks in JSON and forward-auth for proxies, beside the playground.

mod attributes;
mod body;
mod budgets;
mod check_response;
mod forward_auth;
mod handler;
mod quota_cache;

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Method, Response, StatusCode};
use http_body_util::Full;
use hyper::Request;
use hyper::body::{Body, Incoming};
use serde_json::value::RawValue;
use tallygate::http::{NO_RULE, RuleSettings};

pub(crate) use self::body::{Object, OneOrMany};
use self::handler::PlannedCheck;
pub(crate) use self::quota_cache::QuotaCache;
use crate::auth::may_change;
use crate::cross_site;
use crate::listener::RequestHandler;
use crate::otlp;
use crate::playground::{CardStore, Playground};
use crate::problem::{Code, Problem};
use crate::response::{self, HandlerResult};
use crate::state::ServerState;

const MAX_BODY_BYTES: usize = 64 << 10;
const MAX_BATCH_BYTES: usize = 1 << 20;
const MAX_BATCH_ITEMS: usize = 1_000;
/// The limits of all checks of a batch.
const MAX_BATCH_LIMITS: usize = 4_096;
/// The checks of a batch that are decided at the same time: a batch must not fill the queue to the
/// store.
const MAX_CONCURRENT_CHECKS: usize = 32;

pub(crate) struct Api {
    state: Arc<ServerState>,
    quota_cache: QuotaCache,
    /// The settings of limits that a check names itself.
    no_rule: Arc<RuleSettings>,
    /// `None` if it is off.
    playground: Option<Playground>,
}

impl Api {
    pub(crate) fn new(state: Arc<ServerState>, playground: Option<CardStore>) -> Self {
        let playground = playground.map(|store| Playground::new(store, &state));
        Api {
            quota_cache: QuotaCache::default(),
            no_rule: Arc::new(RuleSettings::new(NO_RULE)),
            playground,
            state,
        }
    }

    async fn route(&self, request: Request<Incoming>, peer: SocketAddr) -> HandlerResult {
        let path = request.uri().path();
        let is_forward_auth = path == forward_auth::PATH || path.starts_with("/v1/auth/");
        // Forward-auth requests carry the headers of the original request, from any site.
        if !is_forward_auth {
            cross_site::check(request.method(), request.headers())?;
        }
        match path {
            "/v1/check" if request.method() == Method::POST => self.check(request, peer).await,
            "/v1/check/batch" if request.method() == Method::POST => {
                self.batch(request, peer).await
            }
            "/v1/check" | "/v1/check/batch" => Ok(response::method_not_allowed(&[Method::POST])),
            path if path.starts_with(budgets::PREFIX) => self.budget(&request).await,
            // With any method: some proxies keep the original one.
            _ if is_forward_auth => self.forward_auth(request, peer).await,
            path => match &self.playground {
                Some(playground) if Playground::has(path) => playground.answer(request, peer).await,
                Some(_) => {
                    let detail = "there is /v1/check, /v1/check/batch, /v1/auth, /v1/budgets/NAME, and \
                                  a page at /";
                    Err(Problem::new(Code::NotFound, detail))
                }
                None => {
                    let detail = "there is /v1/check, /v1/check/batch, /v1/auth and /v1/budgets/NAME; \
                                  the playground is off: start with --playground";
                    Err(Problem::new(Code::NotFound, detail))
                }
            },
        }
    }

    async fn check(&self, request: Request<Incoming>, peer: SocketAddr) -> HandlerResult {
        let (head, body) = request.into_parts();
        let [status] = response::parse_query(head.uri.query(), ["status"])?;
        let always_ok = match status.as_deref() {
            None => false,
            Some("200") => true,
            Some(_) => {
                let detail = "`status` is not 200, the only supported value";
                return Err(Problem::new(Code::BadQuery, detail));
            }
        };
        let json = response::read_body(&head.headers, body, MAX_BODY_BYTES).await?;
        let may_change = may_change(self.state.token.as_ref(), peer.ip(), &head.headers);
        let answer = self.enforce(self.plan_check(&json, may_change)?).await;
        Ok(answer.response(always_ok))
    }

    async fn batch(&self, request: Request<Incoming>, peer: SocketAddr) -> HandlerResult {
        let (head, body) = request.into_parts();
        let [] = response::parse_query(head.uri.query(), [])?;
        let json = response::read_body(&head.headers, body, MAX_BATCH_BYTES).await?;
        let items: Vec<&RawValue> = serde_json::from_slice(&json).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            let detail =
                format!("the body is not an array of checks (line {line} column {column})");
            Problem::new(Code::MalformedJson, detail)
        })?;
        if items.len() > MAX_BATCH_ITEMS {
            let number = items.len();
            let detail = format!("{number} checks are above the maximum of {MAX_BATCH_ITEMS}");
            return Err(Problem::new(Code::TooManyItems, detail));
        }
        let may_change = may_change(self.state.token.as_ref(), peer.ip(), &head.headers);
        let plan = |item: &RawValue| self.plan_check(item.get().as_bytes(), may_change);
        let checks: Vec<_> = items.into_iter().map(plan).collect();
        let limits: usize = checks.iter().flatten().map(PlannedCheck::limits).sum();
        if limits > MAX_BATCH_LIMITS {
            let detail =
                format!("{limits} limits in all are above the maximum of {MAX_BATCH_LIMITS}");
            return Err(Problem::new(Code::TooManyLimits, detail));
        }
        let decide = async |check| match check {
            Ok(check) => self.enforce(check).await.item(),
            Err(problem) => Problem::json(&problem),
        };
        let answers = stream::iter(checks).map(decide);
        let answers: Vec<Vec<u8>> = answers.buffered(MAX_CONCURRENT_CHECKS).collect().await;
        let mut json = Vec::with_capacity(answers.iter().map(|answer| answer.len() + 1).sum());
        json.push(b'[');
        json.extend(answers.join(&b','));
        json.extend(b"]\n");
        Ok(response::json(StatusCode::OK, json))
    }
}

impl RequestHandler for Api {
    type Body = Full<Bytes>;

    async fn handle(&self, request: Request<Incoming>, peer: SocketAddr) -> Response<Full<Bytes>> {
        let tracer = self.state.tracer.as_ref();
        let span = tracer.and_then(|tracer| {
            let rules = self.state.active_rules.rules();
            let is_trusted = rules.client().trusts(peer.ip());
            let trusted = is_trusted.then(|| request.headers());
            tracer.start(otlp::Listener::Api, request.method(), trusted)
        });
        let log = self.state.access_log.as_ref();
        let record = log.map(|log| log.start(otlp::Listener::Api, &request));
        if let (Some(record), Some(span)) = (&record, &span) {
            record.record().set_trace_id(span.trace_id());
        }
        let answer = async {
            let routed = self.route(request, peer).await;
            routed.unwrap_or_else(|problem| problem.response())
        };
        let answer = async {
            match &record {
                None => answer.await,
                // Boxed, as below.
                Some(record) => {
                    let response = Box::pin(record.scope(answer)).await;
                    record.record().set_status(response.status());
                    let bytes = response.body().size_hint().lower();
                    record
                        .record()
                        .add_sent(usize::try_from(bytes).unwrap_or(usize::MAX));
                    response
                }
            }
        };
        match span {
            None => answer.await,
            // Boxed: few requests are traced, and the other futures stay small.
            Some(span) => Box::pin(span.run(answer)).await,
        }
    }
}
