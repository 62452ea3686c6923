//! Spans of requests and of the decisions they led to. Knows the header `traceparent` (W3C Trace
//! Context) and who is sampled; nothing of a request but its method and status is told, no path, no
//! key.

use std::cell::RefCell;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderValue, Method, StatusCode};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode as Verdict;
use opentelemetry_proto::tonic::trace::v1::{Span, Status};
use tallygate::http::Outcome;
use tokio::sync::mpsc;

use super::metrics::{nanoseconds, text, whole};
use super::traceparent::Parent;

const PARENT: &str = "traceparent";
const STATE: &str = "tracestate";
/// How many spans wait to be sent; more are lost, and counted.
const WAITING: usize = 4_096;
/// The most decisions that one request is told of with.
const MOST_DECISIONS: usize = 16;
/// The longest `tracestate` that is passed on to the receiver.
const LONGEST_STATE: usize = 512;

/// What requests are traced with.
#[derive(Debug)]
pub(crate) struct Traces {
    spans: mpsc::Sender<Span>,
    /// Of how many requests without a trace one is begun, in millionths.
    ratio: u32,
    pub(super) lost: AtomicU64,
}

/// Where a request came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    Api,
    Gateway,
}

/// A request that is traced.
pub(crate) struct Traced<'t> {
    traces: &'t Traces,
    door: Door,
    method: Method,
    trace: [u8; 16],
    parent: Option<[u8; 8]>,
    id: [u8; 8],
    state: String,
    began: SystemTime,
}

/// A decision while a request is traced.
struct Decided {
    rule: String,
    outcome: Outcome,
    ended: SystemTime,
    took: Duration,
}

tokio::task_local! {
    static DECISIONS: RefCell<Vec<Decided>>;
}

/// Tells of a decision, if the request that it is for is traced.
#[inline]
pub(crate) fn note(rule: &str, outcome: Outcome, took: Duration) {
    let _ = DECISIONS.try_with(|decisions| {
        let mut decisions = decisions.borrow_mut();
        if decisions.len() < MOST_DECISIONS {
            decisions.push(Decided {
                rule: rule.to_owned(),
                outcome,
                ended: SystemTime::now(),
                took,
            });
        }
    });
}

impl Traces {
    pub(super) fn new(ratio: u32) -> (Self, mpsc::Receiver<Span>) {
        let (spans, told) = mpsc::channel(WAITING);
        let lost = AtomicU64::new(0);
        let traces = Traces { spans, ratio, lost };
        (traces, told)
    }

    /// Traces a request, if it is to be: as whoever sent it says, or else by the ratio.
    pub(crate) fn begin(
        &self,
        door: Door,
        method: &Method,
        headers: &HeaderMap,
    ) -> Option<Traced<'_>> {
        let mut said = headers.get_all(PARENT).iter();
        let parent = match (said.next(), said.next()) {
            (Some(said), None) => Parent::read(said.as_bytes()),
            _ => None,
        };
        let (trace, parent) = match parent {
            Some(parent) if parent.sampled => (parent.trace, Some(parent.span)),
            Some(_) => return None,
            None if fastrand::u32(..1_000_000) < self.ratio => (drawn(), None),
            None => return None,
        };
        let state = headers.get(STATE).filter(|_| parent.is_some());
        let state = state.and_then(|state| state.to_str().ok());
        let state = state.filter(|state| state.len() <= LONGEST_STATE);
        Some(Traced {
            traces: self,
            door,
            method: method.clone(),
            trace,
            parent,
            id: drawn(),
            state: state.unwrap_or_default().to_owned(),
            began: SystemTime::now(),
        })
    }

    fn send(&self, span: Span) {
        if self.spans.try_send(span).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Traced<'_> {
    /// Names this request as the parent of those that it leads to.
    pub(crate) fn lead(&self, headers: &mut HeaderMap) {
        let parent = Parent {
            trace: self.trace,
            span: self.id,
            sampled: true,
        };
        let value = HeaderValue::try_from(parent.to_string());
        headers.insert(PARENT, value.expect("hexadecimal digits are visible"));
        if self.parent.is_none() {
            // It is of a trace that is not this one.
            headers.remove(STATE);
        }
    }

    /// Carries the request out, and tells of it. One that is given up is told of too.
    pub(crate) async fn around<T>(
        self,
        request: impl Future<Output = T>,
        status: impl FnOnce(&T) -> StatusCode,
    ) -> T {
        let ending = Ending(Some(self));
        DECISIONS
            .scope(RefCell::default(), async move {
                let answer = request.await;
                ending.end(status(&answer));
                answer
            })
            .await
    }

    fn end(self, status: Option<StatusCode>) {
        let decisions = DECISIONS.try_with(RefCell::take).unwrap_or_default();
        for decided in decisions {
            let took = u64::try_from(decided.took.as_nanos()).unwrap_or(u64::MAX);
            self.traces.send(Span {
                span_id: drawn::<8>().to_vec(),
                parent_span_id: self.id.to_vec(),
                name: "tallygate.decision".to_owned(),
                kind: SpanKind::Internal.into(),
                start_time_unix_nano: nanoseconds(decided.ended).saturating_sub(took),
                end_time_unix_nano: nanoseconds(decided.ended),
                attributes: vec![
                    text("tallygate.rule", &decided.rule),
                    text("tallygate.outcome", decided.outcome.name()),
                ],
                ..self.blank()
            });
        }
        let door = match self.door {
            Door::Api => "api",
            Door::Gateway => "gateway",
        };
        // Anybody may write any method.
        let method = match self.method.as_str().len() {
            ..=16 => self.method.as_str(),
            _ => "_OTHER",
        };
        let mut attributes = vec![
            text("http.request.method", method),
            text("tallygate.door", door),
        ];
        let failed = status.is_none_or(|status| status.is_server_error());
        if let Some(status) = status {
            let code = i64::from(status.as_u16());
            attributes.push(whole("http.response.status_code", code));
        }
        let verdict = if failed {
            Verdict::Error
        } else {
            Verdict::Unset
        };
        self.traces.send(Span {
            span_id: self.id.to_vec(),
            parent_span_id: self.parent.map(Vec::from).unwrap_or_default(),
            name: method.to_owned(),
            kind: SpanKind::Server.into(),
            start_time_unix_nano: nanoseconds(self.began),
            end_time_unix_nano: nanoseconds(SystemTime::now()),
            attributes,
            status: Some(Status {
                code: verdict.into(),
                ..Status::default()
            }),
            ..self.blank()
        });
    }

    /// A span of this trace.
    fn blank(&self) -> Span {
        Span {
            trace_id: self.trace.to_vec(),
            trace_state: self.state.clone(),
            flags: 1,
            ..Span::default()
        }
    }
}

/// Ends a traced request, answered or not.
struct Ending<'t>(Option<Traced<'t>>);

impl Ending<'_> {
    fn end(mut self, status: StatusCode) {
        if let Some(traced) = self.0.take() {
            traced.end(Some(status));
        }
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if let Some(traced) = self.0.take() {
            traced.end(None);
        }
    }
}

/// An identity that nobody else has, and is not 0.
fn drawn<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    fastrand::fill(&mut bytes);
    bytes[0] |= 1;
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn headers(parent: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(PARENT, parent.parse().unwrap());
        headers
    }

    #[test]
    fn whoever_sends_a_request_says_whether_it_is_traced() {
        let (all, _kept) = Traces::new(1_000_000);
        let (none, _kept) = Traces::new(0);
        let get = Method::GET;
        let begin = |traces: &Traces, headers: &HeaderMap| {
            let traced = traces.begin(Door::Api, &get, headers);
            traced.map(|traced| (traced.trace, traced.parent))
        };
        let (trace, parent) = begin(&none, &headers(SAMPLED)).unwrap();
        assert_eq!((trace[0], parent.unwrap()[7]), (0x0a, 0x31));
        let unsampled = SAMPLED.replace("-01", "-00");
        assert_eq!(begin(&all, &headers(&unsampled)), None);
        assert_eq!(begin(&none, &HeaderMap::new()), None);
        assert_eq!(begin(&none, &headers("nonsense")), None);
        let (_, parent) = begin(&all, &headers("nonsense")).unwrap();
        assert_eq!(parent, None);
    }

    #[tokio::test]
    async fn more_spans_than_can_wait_are_lost_and_counted() {
        let (traces, mut spans) = Traces::new(1_000_000);
        for _ in 0..WAITING + 7 {
            let traced = traces.begin(Door::Api, &Method::GET, &HeaderMap::new());
            let answer = async { StatusCode::OK };
            traced.unwrap().around(answer, |status| *status).await;
        }
        assert_eq!(traces.lost.load(Ordering::Relaxed), 7);
        assert_eq!(spans.len(), WAITING);
        assert!(spans.recv().await.is_some());
    }

    #[tokio::test]
    async fn a_request_that_is_given_up_is_told_of() {
        let (traces, mut spans) = Traces::new(1_000_000);
        let traced = traces.begin(Door::Gateway, &Method::GET, &HeaderMap::new());
        let mut around = Box::pin(traced.unwrap().around(
            async {
                note("login", Outcome::Admitted, Duration::from_millis(1));
                std::future::pending::<()>().await;
            },
            |()| StatusCode::OK,
        ));
        assert!(futures_util::poll!(&mut around).is_pending());
        drop(around);
        let mut names = Vec::new();
        while let Ok(span) = spans.try_recv() {
            names.push((span.name, span.status.map(|status| status.code)));
        }
        let error = Some(i32::from(Verdict::Error));
        assert_eq!(names.last(), Some(&("GET".to_owned(), error)));
    }
}
