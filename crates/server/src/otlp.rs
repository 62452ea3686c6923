//! OTLP export over HTTP: request spans, recorded with the OpenTelemetry SDK, and the metrics of
//! the Prometheus registry. Off by default.

mod client;
mod metrics;
mod settings;
mod spans;

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

pub(crate) use self::client::{Client, connector};
use self::metrics::MetricsExporter;
pub(crate) use self::settings::Settings;
pub(crate) use self::spans::{Listener, Tracer, record_decision, trace_id};
use crate::state::ServerState;

const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) struct Otlp {
    client: Client,
    resource: Resource,
    provider: SdkTracerProvider,
    tracer: Arc<Tracer>,
}

impl Otlp {
    /// Starts to export spans. Call it within a Tokio runtime.
    pub(crate) fn start(client: Client) -> Self {
        let instance = format!("{:016x}", fastrand::u64(..));
        let resource = Resource::builder_empty()
            .with_attributes([
                KeyValue::new("service.name", client.settings().service.clone()),
                KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
                KeyValue::new("service.instance.id", instance),
            ])
            .build();
        let provider = spans::provider(client.clone(), resource.clone());
        let tracer = Arc::new(Tracer::new(&provider, client.settings().sample_millionths));
        Otlp {
            client,
            resource,
            provider,
            tracer,
        }
    }

    pub(crate) fn tracer(&self) -> Arc<Tracer> {
        Arc::clone(&self.tracer)
    }

    /// Exports metrics until shutdown, then flushes both spans and metrics.
    pub(crate) async fn run(self, state: Arc<ServerState>, shutdown: CancellationToken) {
        let interval = self.client.settings().interval;
        let metrics = MetricsExporter::new(self.client, &self.resource, state);
        tokio::select! {
            never = metrics.run(interval) => match never {},
            () = shutdown.cancelled() => {}
        }
        let provider = self.provider;
        let spans = spawn_blocking(move || provider.shutdown_with_timeout(FLUSH_TIMEOUT));
        let flush = async { tokio::join!(spans, metrics.export()) };
        let _ = timeout(FLUSH_TIMEOUT, flush).await;
    }
}

fn scope() -> InstrumentationScope {
    InstrumentationScope::builder("tallygate")
        .with_version(env!("CARGO_PKG_VERSION"))
        .build()
}
