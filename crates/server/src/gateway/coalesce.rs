//! Single flight: identical requests in flight at the same time share one call to an upstream.
//! Each of them passed the limits by itself.
//!
//! The first request leads and is forwarded; the others follow and wait for its response, errors
//! included. Followers are forwarded themselves if the response cannot be shared: it sets a cookie,
//! is private or `no-store`, varies by a header that differs, is an event stream or is too large to
//! buffer. If the leader's client disconnects, a follower leads.

mod key;
mod response;

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use http::header::{HeaderMap, HeaderName};
use http::{Request, Response};
use tallygate::http::Head;
use tallygate::rules::CoalesceKey;
use tokio::sync::watch;
use tower_service::Service;

use super::body::ResponseBody;
use super::forward::{Forward, ResponseFuture};
use super::read_ahead::InboundBody;
use key::{CallKey, is_shareable};
use response::{SharedResponse, buffer};

/// Which requests share one call to an upstream, and what makes them identical.
#[derive(Clone)]
pub struct SingleFlight {
    identify: Arc<Identify>,
    headers: Option<Arc<[HeaderName]>>,
    max_body_bytes: usize,
}

type Identify = dyn Fn(&Head<'_>) -> Option<CoalesceKey> + Send + Sync;

impl SingleFlight {
    /// Shares calls among the requests that a predicate selects: GET or HEAD without body, `Range`,
    /// condition or upgrade, and identical in peer, method, host, path, query and every header that
    /// may hold a credential, name the client behind a proxy or select a response. No client gets a
    /// response to another client's address or credentials.
    pub fn when(predicate: impl Fn(&Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        SingleFlight::by(move |head| predicate(head).then_some(CoalesceKey::Credentials))
    }

    /// Shares calls among the requests that a function returns the same value for, but `None`;
    /// otherwise as [`SingleFlight::when`].
    pub fn by(identify: impl Fn(&Head<'_>) -> Option<CoalesceKey> + Send + Sync + 'static) -> Self {
        SingleFlight {
            identify: Arc::new(identify),
            headers: None,
            max_body_bytes: 1 << 20,
        }
    }

    /// Compares only these headers: credentials that are not among them are ignored, and so is the
    /// client's address.
    #[must_use]
    pub fn by_headers(mut self, headers: impl IntoIterator<Item = HeaderName>) -> Self {
        self.headers = Some(headers.into_iter().collect());
        self
    }

    /// Sets the size of the largest body that is shared, 1 MiB by default.
    #[must_use]
    pub fn max_body_bytes(mut self, bytes: usize) -> Self {
        self.max_body_bytes = bytes;
        self
    }
}

impl fmt::Debug for SingleFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SingleFlight")
            .field("headers", &self.headers)
            .field("max_body_bytes", &self.max_body_bytes)
            .finish_non_exhaustive()
    }
}

/// How many calls are shared at a time; requests beyond are forwarded themselves.
const MAX_CALLS: usize = 4096;

#[derive(Clone)]
pub(super) struct Coalesce {
    inner: Forward,
    /// `None` if no calls are shared.
    calls: Option<Arc<Calls>>,
}

struct Calls {
    rules: Vec<SingleFlight>,
    in_flight: Mutex<HashMap<CallKey, CallReceiver>>,
}

/// Receives the outcome of a call. Closed without one if the leader was dropped.
type CallReceiver = watch::Receiver<Option<CallOutcome>>;

#[derive(Clone)]
enum CallOutcome {
    /// A response, and the headers of the leader's request.
    Shared(Arc<SharedResponse>, Arc<HeaderMap>),
    Unshared,
}

impl Coalesce {
    pub(super) fn new(inner: Forward, rules: Vec<SingleFlight>) -> Self {
        let calls = (!rules.is_empty()).then(|| {
            Arc::new(Calls {
                rules,
                in_flight: Mutex::default(),
            })
        });
        Coalesce { inner, calls }
    }
}

impl Service<Request<InboundBody>> for Coalesce {
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<InboundBody>) -> ResponseFuture {
        // The cheapest check first: few calls are shared.
        let is_safe = request.method().is_safe();
        let Some(calls) = self.calls.as_ref().filter(|_| is_safe) else {
            return self.inner.call(request);
        };
        let rule = calls.rules.iter().find_map(|rule| {
            let by = (rule.identify)(&Head::from(&request))?;
            Some((rule, by))
        });
        let Some((rule, by)) = rule.filter(|_| is_shareable(&request)) else {
            return self.inner.call(request);
        };
        let peer = request.body().connection.address;
        let key = CallKey::new(&request, peer, by, rule.headers.as_deref());
        let (calls, max_bytes) = (Arc::clone(calls), rule.max_body_bytes);
        let role = calls.join(&key);
        let inner = self.inner.clone();
        Box::pin(calls.run(inner, role, key, request, max_bytes))
    }
}

enum Role {
    Leader(Box<Leader>),
    Follower(CallReceiver),
    Independent,
}

/// The leader of a call, which ends when this is dropped.
struct Leader {
    outcome: watch::Sender<Option<CallOutcome>>,
    key: CallKey,
    calls: Arc<Calls>,
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.calls.in_flight().remove(&self.key);
    }
}

impl Calls {
    fn in_flight(&self) -> MutexGuard<'_, HashMap<CallKey, CallReceiver>> {
        self.in_flight
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn join(self: &Arc<Self>, key: &CallKey) -> Role {
        let mut in_flight = self.in_flight();
        if let Some(call) = in_flight.get(key) {
            return Role::Follower(call.clone());
        }
        if in_flight.len() >= MAX_CALLS {
            return Role::Independent;
        }
        let (outcome, call) = watch::channel(None);
        in_flight.insert(key.clone(), call);
        Role::Leader(Box::new(Leader {
            outcome,
            key: key.clone(),
            calls: Arc::clone(self),
        }))
    }

    async fn run(
        self: Arc<Self>,
        mut inner: Forward,
        mut role: Role,
        key: CallKey,
        request: Request<InboundBody>,
        max_bytes: usize,
    ) -> Result<Response<ResponseBody>, Infallible> {
        loop {
            let mut call = match role {
                Role::Independent => return inner.call(request).await,
                Role::Leader(leader) => return Ok(leader.run(inner, request, max_bytes).await),
                Role::Follower(call) => call,
            };
            let outcome = call.wait_for(Option::is_some).await;
            role = match outcome.ok().and_then(|outcome| outcome.clone()) {
                Some(CallOutcome::Shared(response, leader))
                    if response.matches(&leader, request.headers()) =>
                {
                    return Ok(response.response());
                }
                Some(CallOutcome::Shared(..) | CallOutcome::Unshared) => Role::Independent,
                // The leader was dropped: the first follower to get here leads.
                None => self.join(&key),
            };
        }
    }
}

impl Leader {
    async fn run(
        self,
        mut inner: Forward,
        request: Request<InboundBody>,
        max_bytes: usize,
    ) -> Response<ResponseBody> {
        let headers = Arc::new(request.headers().clone());
        let Ok(response) = inner.call(request).await;
        let (response, shared) = buffer(response, max_bytes).await;
        self.outcome.send_replace(Some(match shared {
            Some(shared) => CallOutcome::Shared(shared, headers),
            None => CallOutcome::Unshared,
        }));
        response
    }
}
