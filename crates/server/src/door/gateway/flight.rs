//! Single flight: identical requests that are in flight at the same time share one call to an
//! upstream. Knows requests and answers; knows nothing of limits, which every one of them has
//! passed by itself, nor of upstreams.
//!
//! One leads and asks; the others follow and wait. Whatever comes of it is theirs too, an error
//! included, unless it is not meant for others: an answer that sets a cookie, is private or not to
//! be stored, varies by something that differs, is an event stream or is too large to keep. Then
//! those who followed ask for themselves. If the leader's client leaves, a follower leads.

mod answer;
mod likeness;

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use http::header::{HeaderMap, HeaderName};
use http::{Request, Response};
use tokio::sync::watch;
use tollgate::Key;
use tollgate::http::Head;
use tower_service::Service;

use super::body::Reply;
use super::early::Upload;
use answer::{Kept, keep};
use likeness::{Likeness, is_safe};

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
    rules: Arc<[SingleFlight]>,
    flights: Arc<Mutex<HashMap<Likeness, Flight>>>,
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
        Flights {
            inner,
            rules: rules.into(),
            flights: Arc::default(),
        }
    }
}

type Answered = Pin<Box<dyn Future<Output = Result<Response<Reply>, Infallible>> + Send>>;

impl<I> Service<Request<Upload>> for Flights<I>
where
    I: Service<Request<Upload>, Response = Response<Reply>, Error = Infallible, Future = Answered>
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

    fn call(&mut self, request: Request<Upload>) -> Answered {
        let found = match !self.rules.is_empty() && is_safe(&request) {
            true => self.rules.iter().find_map(|rule| {
                let alike = (rule.alike)(&Head::from(&request))?;
                Some((rule, alike))
            }),
            false => None,
        };
        let Some((rule, alike)) = found else {
            return self.inner.call(request);
        };
        let likeness = Likeness::of(&request, alike, rule.headers.as_deref());
        let part = self.join(&likeness);
        let (this, most) = (self.clone(), rule.body_bytes);
        Box::pin(this.fly(part, likeness, request, most))
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
    flights: Arc<Mutex<HashMap<Likeness, Flight>>>,
}

impl Drop for Lead {
    fn drop(&mut self) {
        let mut flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
        flights.remove(&self.likeness);
    }
}

impl<I> Flights<I>
where
    I: Service<Request<Upload>, Response = Response<Reply>, Error = Infallible, Future = Answered>,
{
    fn join(&self, likeness: &Likeness) -> Part {
        let mut flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
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
            flights: Arc::clone(&self.flights),
        })
    }

    async fn fly(
        mut self,
        mut part: Part,
        likeness: Likeness,
        request: Request<Upload>,
        most: usize,
    ) -> Result<Response<Reply>, Infallible> {
        loop {
            let mut flight = match part {
                Part::Alone => return self.inner.call(request).await,
                Part::Leads(lead) => return Ok(self.lead(lead, request, most).await),
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

    async fn lead(&mut self, lead: Lead, request: Request<Upload>, most: usize) -> Response<Reply> {
        let asked = Arc::new(request.headers().clone());
        let Ok(response) = self.inner.call(request).await;
        let (response, kept) = keep(response, most).await;
        let come = match kept {
            Some(kept) => Come::Shared(kept, asked),
            None => Come::Alone,
        };
        lead.come.send_replace(Some(come));
        response
    }
}
