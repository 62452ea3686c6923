//! Single flight: identical requests that are in flight at the same time share one call to an
//! upstream. Knows requests and answers; knows nothing of limits, which every one of them has
//! passed by itself, nor of upstreams.
//!
//! One leads and asks; the others follow and wait. Whatever comes of it is theirs too, an error
//! included, unless it is not meant for others: an answer that sets a cookie, is private or not to
//! be stored, varies by something that differs, is an event stream or is too large to keep. Then
//! those who followed ask for themselves. If the leader's client leaves, a follower leads.

mod key;
mod response;

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use http::header::{HeaderMap, HeaderName};
use http::{Request, Response};
use tallygate::Key;
use tallygate::http::Head;
use tokio::sync::watch;
use tower_service::Service;

use super::body::Reply;
use super::client::Inbound;
use key::{Likeness, is_safe};
use response::{Kept, keep};

/// Which requests share one call to an upstream, and what makes them identical.
#[derive(Clone)]
pub struct SingleFlight {
    alike: Arc<WhenAlike>,
    headers: Option<Arc<[HeaderName]>>,
    body_bytes: usize,
}

type WhenAlike = dyn Fn(&Head<'_>) -> Option<Alike> + Send + Sync;

/// What makes a request identical with others, besides method, host, path and query.
#[derive(Clone, PartialEq, Eq)]
pub enum Alike {
    /// Every header that may hold a secret or say what answer is wanted.
    Credentials,
    /// This key, and no header.
    Key(Key<'static>),
}

impl SingleFlight {
    /// Shares calls for the requests that a function says yes to: GET or HEAD without body,
    /// `Range`, condition or upgrade, and alike in method, host, path, query and every header that
    /// may hold a secret or say what answer is wanted. Nobody gets an answer to somebody else's
    /// credentials.
    pub fn when(when: impl Fn(&Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        SingleFlight::alike(move |head| when(head).then_some(Alike::Credentials))
    }

    /// Shares calls for the requests that a function says anything of, among those that it says
    /// the same of; otherwise as [`SingleFlight::when`].
    pub fn alike(alike: impl Fn(&Head<'_>) -> Option<Alike> + Send + Sync + 'static) -> Self {
        SingleFlight {
            alike: Arc::new(alike),
            headers: None,
            body_bytes: 1 << 20,
        }
    }

    /// Sets which headers make requests identical, and no others: credentials that are not among
    /// them do not count.
    #[must_use]
    pub fn identical_by(mut self, headers: impl IntoIterator<Item = HeaderName>) -> Self {
        self.headers = Some(headers.into_iter().collect());
        self
    }

    /// Sets the largest body that is kept to be shared: 1 MiB unless told otherwise.
    #[must_use]
    pub fn body_bytes(mut self, most: usize) -> Self {
        self.body_bytes = most;
        self
    }
}

impl fmt::Debug for SingleFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SingleFlight")
            .field("headers", &self.headers)
            .field("body_bytes", &self.body_bytes)
            .finish_non_exhaustive()
    }
}

/// How many calls may be shared at a time; requests beyond ask for themselves.
const MOST_FLIGHTS: usize = 4096;

/// Shares calls to a service.
#[derive(Clone)]
pub(super) struct Flights<I> {
    inner: I,
    /// None where no calls are shared.
    shared: Option<Arc<Shared>>,
}

/// What calls are shared, and those that are.
struct Shared {
    rules: Vec<SingleFlight>,
    flights: Mutex<HashMap<Likeness, Flight>>,
}

/// A call that is under way, by what comes of it. Without a sender it came to nothing.
type Flight = watch::Receiver<Option<Come>>;

/// What came of a call.
#[derive(Clone)]
enum Come {
    /// An answer for all whose request was like the leader's.
    Shared(Arc<Kept>, Arc<HeaderMap>),
    /// None for others.
    Alone,
}

impl<I> Flights<I> {
    pub(super) fn new(inner: I, rules: Vec<SingleFlight>) -> Self {
        let shared = (!rules.is_empty()).then(|| {
            Arc::new(Shared {
                rules,
                flights: Mutex::default(),
            })
        });
        Flights { inner, shared }
    }
}

type Answered = Pin<Box<dyn Future<Output = Result<Response<Reply>, Infallible>> + Send>>;

impl<I> Service<Request<Inbound>> for Flights<I>
where
    I: Service<Request<Inbound>, Response = Response<Reply>, Error = Infallible, Future = Answered>
        + Clone
        + Send
        + 'static,
{
    type Response = Response<Reply>;
    type Error = Infallible;
    type Future = Answered;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Inbound>) -> Answered {
        // What costs least goes first: few calls are shared.
        let safe = request.method().is_safe();
        let Some(shared) = self.shared.as_ref().filter(|_| safe) else {
            return self.inner.call(request);
        };
        let found = shared.rules.iter().find_map(|rule| {
            let alike = (rule.alike)(&Head::from(&request))?;
            Some((rule, alike))
        });
        let Some((rule, alike)) = found.filter(|_| is_safe(&request)) else {
            return self.inner.call(request);
        };
        let likeness = Likeness::of(&request, alike, rule.headers.as_deref());
        let (shared, most) = (Arc::clone(shared), rule.body_bytes);
        let part = shared.join(&likeness);
        let inner = self.inner.clone();
        Box::pin(shared.fly(inner, part, likeness, request, most))
    }
}

/// What a request does about a flight.
enum Part {
    Leads(Lead),
    Follows(Flight),
    /// There are too many flights.
    Alone,
}

/// The leader of a flight, which is off the list as soon as it is done or gives up.
struct Lead {
    come: watch::Sender<Option<Come>>,
    likeness: Likeness,
    shared: Arc<Shared>,
}

impl Drop for Lead {
    fn drop(&mut self) {
        self.shared.flights().remove(&self.likeness);
    }
}

impl Shared {
    fn flights(&self) -> MutexGuard<'_, HashMap<Likeness, Flight>> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn join(self: &Arc<Self>, likeness: &Likeness) -> Part {
        let mut flights = self.flights();
        if let Some(flight) = flights.get(likeness) {
            return Part::Follows(flight.clone());
        }
        if flights.len() >= MOST_FLIGHTS {
            return Part::Alone;
        }
        let (come, flight) = watch::channel(None);
        flights.insert(likeness.clone(), flight);
        Part::Leads(Lead {
            come,
            likeness: likeness.clone(),
            shared: Arc::clone(self),
        })
    }

    async fn fly<I>(
        self: Arc<Self>,
        mut inner: I,
        mut part: Part,
        likeness: Likeness,
        request: Request<Inbound>,
        most: usize,
    ) -> Result<Response<Reply>, Infallible>
    where
        I: Service<Request<Inbound>, Response = Response<Reply>, Error = Infallible>,
    {
        loop {
            let mut flight = match part {
                Part::Alone => return inner.call(request).await,
                Part::Leads(lead) => return Ok(lead.fly(inner, request, most).await),
                Part::Follows(flight) => flight,
            };
            let come = match flight.wait_for(Option::is_some).await {
                Ok(come) => come.clone(),
                Err(_) => None,
            };
            part = match come {
                Some(Come::Shared(kept, asked)) if kept.is_for(&asked, request.headers()) => {
                    return Ok(kept.response());
                }
                Some(Come::Shared(..) | Come::Alone) => Part::Alone,
                // The leader gave up: whoever comes first leads.
                None => self.join(&likeness),
            };
        }
    }
}

impl Lead {
    async fn fly<I>(self, mut inner: I, request: Request<Inbound>, most: usize) -> Response<Reply>
    where
        I: Service<Request<Inbound>, Response = Response<Reply>, Error = Infallible>,
    {
        let asked = Arc::new(request.headers().clone());
        let Ok(response) = inner.call(request).await;
        let (response, kept) = keep(response, most).await;
        let come = match kept {
            Some(kept) => Come::Shared(kept, asked),
            None => Come::Alone,
        };
        self.come.send_replace(Some(come));
        response
    }
}
