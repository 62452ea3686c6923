//! Export to OpenTelemetry receivers (OTLP over HTTP): the metrics that Prometheus reads, and spans
//! of some requests. Off unless a receiver is named. Knows what is told; knows nothing of doors.

mod client;
mod metrics;
mod settings;
mod spans;
mod traceparent;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::{ResourceMetrics, ScopeMetrics};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval, timeout};

use self::client::Receiver;
pub(crate) use self::settings::Settings;
pub(crate) use self::spans::{Door, Traces, note};
use crate::state::Serving;

/// The most spans that travel together, and how long the first waits for others.
const MOST_SPANS: usize = 512;
const SPANS_EVERY: Duration = Duration::from_secs(5);
/// How long what is left may take when the server ends.
const LAST: Duration = Duration::from_secs(2);

/// Tells a receiver.
pub(crate) struct Otlp {
    settings: Settings,
    receiver: Receiver,
    resource: Resource,
    began: SystemTime,
    spans: mpsc::Receiver<Span>,
    traces: Arc<Traces>,
}

impl Otlp {
    /// Makes ready to tell a receiver, and what requests are traced with.
    ///
    /// # Errors
    /// When the system has no authorities to trust a receiver behind https by.
    pub(crate) fn new(settings: Settings) -> Result<Self, String> {
        let (traces, spans) = Traces::new(settings.ratio);
        Ok(Otlp {
            receiver: Receiver::new(&settings)?,
            resource: metrics::resource(&settings.service),
            settings,
            began: SystemTime::now(),
            spans,
            traces: Arc::new(traces),
        })
    }

    /// What requests are traced with.
    pub(crate) fn traces(&self) -> Arc<Traces> {
        Arc::clone(&self.traces)
    }

    /// Tells the receiver until told to stop, and then what is left.
    pub(crate) async fn run(self, serving: Arc<Serving>, mut stop: watch::Receiver<bool>) {
        let Otlp {
            settings,
            receiver,
            resource,
            began,
            mut spans,
            traces,
        } = self;
        let metrics = Metrics {
            serving,
            receiver: receiver.clone(),
            resource: resource.clone(),
            began,
        };
        let mut batch = Vec::new();
        let telling = async {
            tokio::join!(
                metrics.tell_every(settings.interval),
                tell_spans(&receiver, &resource, &mut spans, &mut batch, &traces),
            );
        };
        tokio::select! {
            () = telling => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
        let rest = async {
            while let Ok(span) = spans.try_recv() {
                batch.push(span);
            }
            send_spans(&receiver, &resource, &mut batch, &traces).await;
            metrics.tell().await;
        };
        let _ = timeout(LAST, rest).await;
    }
}

/// The metrics and whom to tell.
struct Metrics {
    serving: Arc<Serving>,
    receiver: Receiver,
    resource: Resource,
    began: SystemTime,
}

impl Metrics {
    async fn tell_every(&self, every: Duration) {
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.tell().await;
        }
    }

    async fn tell(&self) {
        let serving = Arc::clone(&self.serving);
        // Every place in memory is looked at, which would hold requests up.
        let families = tokio::task::spawn_blocking(move || {
            let readings = serving.readings();
            serving.metrics.gather(&readings)
        });
        let Ok(families) = families.await else { return };
        let request = ExportMetricsServiceRequest {
            resource_metrics: vec![ResourceMetrics {
                resource: Some(self.resource.clone()),
                scope_metrics: vec![ScopeMetrics {
                    scope: Some(metrics::scope()),
                    metrics: metrics::metrics(&families, self.began, SystemTime::now()),
                    ..ScopeMetrics::default()
                }],
                ..ResourceMetrics::default()
            }],
        };
        self.receiver
            .post("/v1/metrics", request.encode_to_vec())
            .await;
    }
}

async fn tell_spans(
    receiver: &Receiver,
    resource: &Resource,
    spans: &mut mpsc::Receiver<Span>,
    batch: &mut Vec<Span>,
    traces: &Traces,
) {
    let mut ticks = interval(SPANS_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            number = spans.recv_many(batch, MOST_SPANS - batch.len()) => {
                if number == 0 {
                    return;
                }
                if batch.len() < MOST_SPANS {
                    continue;
                }
            }
        }
        send_spans(receiver, resource, batch, traces).await;
    }
}

/// Sends what there is. Spans that do not arrive are lost: a receiver that is down is not a reason
/// to keep them.
async fn send_spans(
    receiver: &Receiver,
    resource: &Resource,
    batch: &mut Vec<Span>,
    traces: &Traces,
) {
    let lost = traces.lost.swap(0, Ordering::Relaxed);
    if lost > 0 {
        tracing::warn!(lost, "spans are lost: there are more than can be sent");
    }
    if batch.is_empty() {
        return;
    }
    let request = ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(resource.clone()),
            scope_spans: vec![ScopeSpans {
                scope: Some(metrics::scope()),
                spans: std::mem::take(batch),
                ..ScopeSpans::default()
            }],
            ..ResourceSpans::default()
        }],
    };
    receiver.post("/v1/traces", request.encode_to_vec()).await;
}
