//! Exports the metrics of the Prometheus registry. Without the SDK: it has no constructor for
//! collected metrics and no observable histogram, so everything would be counted twice.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, Sum, metric, number_data_point,
};
use opentelemetry_proto::transform::common::tonic::{Attributes, ResourceAttributesWithSchema};
use opentelemetry_sdk::Resource;
use prometheus::proto::{Metric as Sample, MetricFamily, MetricType};
use prost::Message;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use super::{Client, scope};
use crate::state::ServerState;

pub(super) struct MetricsExporter {
    client: Client,
    resource: Vec<KeyValue>,
    state: Arc<ServerState>,
    started: SystemTime,
}

impl MetricsExporter {
    pub(super) fn new(client: Client, resource: &Resource, state: Arc<ServerState>) -> Self {
        MetricsExporter {
            client,
            resource: ResourceAttributesWithSchema::from(resource).attributes.0,
            state,
            started: SystemTime::now(),
        }
    }

    pub(super) async fn run(&self, every: Duration) -> Infallible {
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.export().await;
        }
    }

    pub(super) async fn export(&self) {
        let state = Arc::clone(&self.state);
        // Counting keys visits every slot in memory: too slow for an async thread.
        let families = spawn_blocking(move || state.metrics.gather(&state.store_stats()));
        let Ok(families) = families.await else { return };
        let (start, now) = (unix_nanos(self.started), unix_nanos(SystemTime::now()));
        let mut resource_metrics = ResourceMetrics::default();
        resource_metrics.resource.get_or_insert_default().attributes = self.resource.clone();
        resource_metrics.scope_metrics.push(ScopeMetrics {
            scope: Some((scope(), None).into()),
            metrics: families
                .iter()
                .map(|family| convert(family, start, now))
                .collect(),
            ..ScopeMetrics::default()
        });
        let request = ExportMetricsServiceRequest {
            resource_metrics: vec![resource_metrics],
        };
        let body = request.encode_to_vec();
        self.client.post("/v1/metrics", body).await;
    }
}

/// A metric family with the same name, labels and values, cumulative since `start`.
fn convert(family: &MetricFamily, start: u64, now: u64) -> Metric {
    let cumulative = AggregationTemporality::Cumulative.into();
    let samples = family.get_metric().iter();
    let numbers = |value: fn(&Sample) -> f64| {
        let point = |sample: &Sample| NumberDataPoint {
            attributes: attributes(sample),
            start_time_unix_nano: start,
            time_unix_nano: now,
            value: Some(number_data_point::Value::AsDouble(value(sample))),
            ..NumberDataPoint::default()
        };
        samples.clone().map(point).collect()
    };
    let data = match family.get_field_type() {
        MetricType::COUNTER => metric::Data::Sum(Sum {
            data_points: numbers(|sample| sample.get_counter().get_value()),
            aggregation_temporality: cumulative,
            is_monotonic: true,
        }),
        MetricType::HISTOGRAM => metric::Data::Histogram(Histogram {
            data_points: samples
                .map(|sample| histogram(sample, start, now))
                .collect(),
            aggregation_temporality: cumulative,
        }),
        MetricType::GAUGE | MetricType::SUMMARY | MetricType::UNTYPED => {
            metric::Data::Gauge(Gauge {
                data_points: numbers(|sample| sample.get_gauge().get_value()),
            })
        }
    };
    let unit = match family.name().ends_with("_seconds") {
        true => "s",
        false => "1",
    };
    Metric {
        name: family.name().to_owned(),
        description: family.help().to_owned(),
        unit: unit.to_owned(),
        data: Some(data),
        ..Metric::default()
    }
}

/// Prometheus counts cumulatively up to each bound, OTLP per bucket.
fn histogram(sample: &Sample, start: u64, now: u64) -> HistogramDataPoint {
    let histogram = sample.get_histogram();
    let (mut bounds, mut counts, mut below) = (Vec::new(), Vec::new(), 0);
    let buckets = histogram.get_bucket().iter();
    for bucket in buckets.filter(|bucket| bucket.upper_bound().is_finite()) {
        bounds.push(bucket.upper_bound());
        counts.push(bucket.cumulative_count().saturating_sub(below));
        below = bucket.cumulative_count();
    }
    // The total and the buckets are not read atomically, but must add up.
    let count = histogram.get_sample_count().max(below);
    counts.push(count - below);
    HistogramDataPoint {
        attributes: attributes(sample),
        start_time_unix_nano: start,
        time_unix_nano: now,
        count,
        sum: Some(histogram.get_sample_sum()),
        bucket_counts: counts,
        explicit_bounds: bounds,
        ..HistogramDataPoint::default()
    }
}

fn attributes(sample: &Sample) -> Vec<KeyValue> {
    let labels = sample.get_label().iter();
    let labels = labels.map(|label| {
        opentelemetry::KeyValue::new(label.name().to_owned(), label.value().to_owned())
    });
    Attributes::from(labels).0
}

fn unix_nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
