//! Spans of requests and of their decisions. A span carries a request's method and status, never a
//! path or a key.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{
    FutureExt, Span as _, SpanKind, Status, TraceContextExt, Tracer as _, TracerProvider,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracer, SdkTracerProvider, SpanData,
    SpanExporter,
};
use prost::Message;
use tallygate::http::Outcome;
use tokio::runtime::Handle;

use super::{Client, scope};

const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";
/// Longer `tracestate` values are not exported.
const MAX_TRACESTATE_BYTES: usize = 512;
/// Spans in the export queue; more are dropped.
const MAX_QUEUED_SPANS: usize = 4_096;
const MAX_BATCH_SPANS: usize = 512;
const BATCH_INTERVAL: Duration = Duration::from_secs(5);
/// Decision spans per request; more are not recorded.
const MAX_DECISIONS: usize = 16;

#[derive(Debug)]
pub(crate) struct Tracer {
    tracer: SdkTracer,
    propagator: TraceContextPropagator,
    /// Share of requests without a trusted `traceparent` that are sampled.
    sample_millionths: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listener {
    Api,
    Gateway,
}

impl Listener {
    /// For spans and log lines.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Listener::Api => "api",
            Listener::Gateway => "gateway",
        }
    }
}

/// The span of a sampled request. It ends when dropped.
pub(crate) struct RequestSpan {
    context: Context,
    has_parent: bool,
    status: Option<StatusCode>,
}

/// Records decision spans of a request: a value of its [`Context`].
struct DecisionRecorder {
    tracer: SdkTracer,
    recorded: AtomicUsize,
}

#[inline]
pub(crate) fn record_decision(rule: &str, outcome: Outcome, took: Duration) {
    Context::map_current(|context| {
        if let Some(recorder) = context.get::<DecisionRecorder>() {
            recorder.record(context, rule, outcome, took);
        }
    });
}

impl DecisionRecorder {
    fn record(&self, request: &Context, rule: &str, outcome: Outcome, took: Duration) {
        if self.recorded.fetch_add(1, Ordering::Relaxed) >= MAX_DECISIONS {
            return;
        }
        let ended = SystemTime::now();
        let builder = self
            .tracer
            .span_builder("tallygate.decision")
            .with_kind(SpanKind::Internal)
            .with_start_time(ended.checked_sub(took).unwrap_or(ended))
            .with_attributes([
                KeyValue::new("tallygate.rule", rule.to_owned()),
                KeyValue::new("tallygate.outcome", outcome.name()),
            ]);
        let mut span = self.tracer.build_with_context(builder, request);
        span.end_with_timestamp(ended);
    }
}

impl Tracer {
    pub(super) fn new(provider: &SdkTracerProvider, sample_millionths: u32) -> Self {
        Tracer {
            tracer: provider.tracer_with_scope(scope()),
            propagator: TraceContextPropagator::new(),
            sample_millionths,
        }
    }

    /// Starts a span if the request is sampled: by the `traceparent` in the headers of a trusted
    /// peer, otherwise by the configured share. Decided before the SDK builds a span, which costs more
    /// than the decision.
    pub(crate) fn start(
        &self,
        listener: Listener,
        method: &Method,
        trusted: Option<&HeaderMap>,
    ) -> Option<RequestSpan> {
        let parent = trusted.and_then(|headers| self.parent(headers));
        let is_sampled = match &parent {
            Some(parent) => parent.span().span_context().is_sampled(),
            None => fastrand::u32(..1_000_000) < self.sample_millionths,
        };
        if !is_sampled {
            return None;
        }
        let has_parent = parent.is_some();
        let parent = parent.unwrap_or_default();
        // Clients may send any method.
        let method = match method.as_str().len() {
            ..=16 => method.as_str().to_owned(),
            _ => "_OTHER".to_owned(),
        };
        let builder = self
            .tracer
            .span_builder(method.clone())
            .with_kind(SpanKind::Server)
            .with_attributes([
                KeyValue::new("http.request.method", method),
                KeyValue::new("tallygate.listener", listener.name()),
            ]);
        let span = self.tracer.build_with_context(builder, &parent);
        let recorder = DecisionRecorder {
            tracer: self.tracer.clone(),
            recorded: AtomicUsize::new(0),
        };
        Some(RequestSpan {
            context: parent.with_span(span).with_value(recorder),
            has_parent,
            status: None,
        })
    }

    fn parent(&self, headers: &HeaderMap) -> Option<Context> {
        if !headers.contains_key(TRACEPARENT) {
            return None;
        }
        let context = Context::new();
        let parent = self
            .propagator
            .extract_with_context(&context, &TraceHeaders(headers));
        Some(parent).filter(Context::has_active_span)
    }
}

/// The trace id in the `traceparent` of a request, whoever sent it.
pub(crate) fn trace_id(headers: &HeaderMap) -> Option<&str> {
    TraceHeaders(headers).value(TRACEPARENT)?.get(3..35)
}

impl RequestSpan {
    pub(crate) fn trace_id(&self) -> String {
        self.context.span().span_context().trace_id().to_string()
    }

    /// Makes this span the parent of the forwarded request.
    pub(crate) fn propagate(&self, headers: &mut HeaderMap) {
        let span = self.context.span();
        let (trace_id, span_id) = (
            span.span_context().trace_id(),
            span.span_context().span_id(),
        );
        let value = HeaderValue::try_from(format!("00-{trace_id}-{span_id}-01"));
        headers.insert(TRACEPARENT, value.expect("hexadecimal digits are visible"));
        if !self.has_parent {
            // It belongs to another trace.
            headers.remove(TRACESTATE);
        }
    }

    /// Runs the request within this span. The span also ends if the future is dropped.
    pub(crate) async fn run<B>(
        mut self,
        response: impl Future<Output = Response<B>>,
    ) -> Response<B> {
        let response = response.with_context(self.context.clone()).await;
        self.status = Some(response.status());
        response
    }
}

impl Drop for RequestSpan {
    fn drop(&mut self) {
        let span = self.context.span();
        if let Some(status) = self.status {
            let code = i64::from(status.as_u16());
            span.set_attribute(KeyValue::new("http.response.status_code", code));
        }
        if self.status.is_none_or(|status| status.is_server_error()) {
            span.set_status(Status::error(""));
        }
        span.end();
    }
}

/// The trace context headers of a request. The SDK reads `traceparent` less strictly than W3C
/// Trace Context demands: it takes ids and flags of any length.
struct TraceHeaders<'h>(&'h HeaderMap);

impl<'h> TraceHeaders<'h> {
    fn value(&self, key: &str) -> Option<&'h str> {
        let mut values = self.0.get_all(key).iter();
        let value = values.next()?.to_str().ok()?;
        let is_valid = match key {
            TRACEPARENT => values.next().is_none() && is_traceparent(value.as_bytes()),
            _ => value.len() <= MAX_TRACESTATE_BYTES,
        };
        is_valid.then_some(value)
    }
}

impl Extractor for TraceHeaders<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.value(key)
    }

    fn keys(&self) -> Vec<&str> {
        vec![TRACEPARENT, TRACESTATE]
    }
}

/// Whether a value has the form `00-<32 digits>-<16 digits>-<2 digits>`; later versions may append
/// fields.
fn is_traceparent(value: &[u8]) -> bool {
    let Some((head, rest)) = value.split_at_checked(55) else {
        return false;
    };
    let has_form = head.iter().enumerate().all(|(i, byte)| match i {
        2 | 35 | 52 => *byte == b'-',
        _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
    });
    has_form && (rest.is_empty() || rest.starts_with(b"-") && !head.starts_with(b"00"))
}

/// A provider whose spans are queued, batched and posted to the endpoint.
pub(super) fn provider(client: Client, resource: Resource) -> SdkTracerProvider {
    let exporter = Exporter {
        client,
        runtime: Handle::current(),
        resource: ResourceAttributesWithSchema::default(),
    };
    let batches = BatchConfigBuilder::default()
        .with_max_queue_size(MAX_QUEUED_SPANS)
        .with_max_export_batch_size(MAX_BATCH_SPANS)
        .with_scheduled_delay(BATCH_INTERVAL)
        .build();
    let processor = BatchSpanProcessor::builder(exporter).with_batch_config(batches);
    SdkTracerProvider::builder()
        .with_resource(resource)
        .with_sampler(Sampler::AlwaysOn)
        .with_span_processor(processor.build())
        .build()
}

#[derive(Debug)]
struct Exporter {
    client: Client,
    /// The batch processor exports on a thread outside of Tokio.
    runtime: Handle,
    resource: ResourceAttributesWithSchema,
}

impl SpanExporter for Exporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let resource_spans = group_spans_by_resource_and_scope(batch, &self.resource);
        let body = ExportTraceServiceRequest { resource_spans }.encode_to_vec();
        let client = self.client.clone();
        let posted = self
            .runtime
            .spawn(async move { client.post("/v1/traces", body).await });
        // The client logs failures. Here they would be logged for every batch.
        let _ = posted.await;
        Ok(())
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.resource = resource.into();
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::{SpanId, TraceId};
    use opentelemetry_sdk::trace::SimpleSpanProcessor;
    use tokio::sync::mpsc;

    use super::*;

    const SAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[derive(Debug)]
    struct Channel(mpsc::UnboundedSender<SpanData>);

    impl SpanExporter for Channel {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
            for span in batch {
                let _ = self.0.send(span);
            }
            Ok(())
        }
    }

    fn tracer(sample_millionths: u32) -> (Tracer, mpsc::UnboundedReceiver<SpanData>) {
        let (sender, spans) = mpsc::unbounded_channel();
        let provider = SdkTracerProvider::builder()
            .with_sampler(Sampler::AlwaysOn)
            .with_span_processor(SimpleSpanProcessor::new(Channel(sender)))
            .build();
        (Tracer::new(&provider, sample_millionths), spans)
    }

    fn headers(traceparent: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(TRACEPARENT, traceparent.parse().unwrap());
        headers
    }

    /// The trace and parent of the span that a request starts.
    fn started(tracer: &Tracer, headers: &HeaderMap) -> Option<(TraceId, bool)> {
        let span = tracer.start(Listener::Api, &Method::GET, Some(headers))?;
        let trace_id = span.context.span().span_context().trace_id();
        Some((trace_id, span.has_parent))
    }

    #[test]
    fn traceparent_decides_whether_a_request_is_sampled() {
        let ((all, _all_spans), (none, mut spans)) = (tracer(1_000_000), tracer(0));
        let trace_id = TraceId::from_hex("0af7651916cd43dd8448eb211c80319c").unwrap();
        assert_eq!(started(&none, &headers(SAMPLED)), Some((trace_id, true)));
        let span = spans.try_recv().unwrap();
        let parent = SpanId::from_hex("b7ad6b7169203331").unwrap();
        assert_eq!(span.parent_span_id, parent);
        let unsampled = SAMPLED.replace("-01", "-00");
        assert_eq!(started(&all, &headers(&unsampled)), None);
        assert_eq!(started(&none, &HeaderMap::new()), None);
        assert_eq!(started(&none, &headers("nonsense")), None);
        assert!(!started(&all, &headers("nonsense")).unwrap().1);
        let mut twice = headers(SAMPLED);
        twice.append(TRACEPARENT, SAMPLED.parse().unwrap());
        assert_eq!(started(&none, &twice), None);
    }

    #[test]
    fn traceparent_is_parsed_strictly() {
        let (none, _spans) = tracer(0);
        let is_sampled = |from: &str, to: &str| {
            let headers = headers(&SAMPLED.replacen(from, to, 1));
            started(&none, &headers).is_some()
        };
        assert!(is_sampled("-01", "-03"));
        assert!(is_sampled("00-0af7", "01-0af7"));
        for (from, to) in [
            ("-01", "-00"),
            ("-01", "-01-more"),
            ("00-0", "ff-0"),
            (
                "0af7651916cd43dd8448eb211c80319c",
                "00000000000000000000000000000000",
            ),
            ("b7ad6b7169203331", "0000000000000000"),
            ("0af7", "0AF7"),
            ("0af7", "0ag7"),
            ("0af7", "+af7"),
            ("-01", "-1"),
            ("-01", ""),
        ] {
            assert!(!is_sampled(from, to), "{from} {to}");
        }
        let later = format!("{}-more", SAMPLED.replacen("00", "01", 1));
        assert!(started(&none, &headers(&later)).is_some());
    }

    #[tokio::test]
    async fn a_request_that_is_dropped_ends_its_span_with_an_error() {
        let (tracer, mut spans) = tracer(1_000_000);
        let span = tracer.start(Listener::Gateway, &Method::GET, None);
        let mut request = Box::pin(span.unwrap().run(async {
            for _ in 0..MAX_DECISIONS + 1 {
                record_decision("login", Outcome::Admitted, Duration::from_millis(1));
            }
            std::future::pending::<Response<()>>().await
        }));
        assert!(futures_util::poll!(&mut request).is_pending());
        drop(request);
        for _ in 0..MAX_DECISIONS {
            assert_eq!(spans.try_recv().unwrap().name, "tallygate.decision");
        }
        let last = spans.try_recv().unwrap();
        assert_eq!((&*last.name, last.status), ("GET", Status::error("")));
    }
}
