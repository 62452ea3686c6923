//! From the metrics that Prometheus reads to those that OTLP carries: the same names, labels and
//! values. Knows both forms; counts nothing.

use std::time::{SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, Sum,
    metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prometheus::proto::{Metric as Sample, MetricFamily, MetricType};

/// Who tells.
pub(super) fn resource(service: &str) -> Resource {
    let instance = format!("{:016x}", fastrand::u64(..));
    Resource {
        attributes: vec![
            text("service.name", service),
            text("service.version", env!("CARGO_PKG_VERSION")),
            text("service.instance.id", &instance),
        ],
        ..Resource::default()
    }
}

/// What part of it.
pub(super) fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "tallygate".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    }
}

/// Every family, as of now, counted since the beginning.
pub(super) fn metrics(
    families: &[MetricFamily],
    began: SystemTime,
    now: SystemTime,
) -> Vec<Metric> {
    let (began, now) = (nanoseconds(began), nanoseconds(now));
    let cumulative = AggregationTemporality::Cumulative.into();
    families
        .iter()
        .map(|family| {
            let samples = family.get_metric().iter();
            let numbers = |value: fn(&Sample) -> f64| {
                let point = |sample: &Sample| NumberDataPoint {
                    attributes: labels(sample),
                    start_time_unix_nano: began,
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
                        .map(|sample| histogram(sample, began, now))
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
        })
        .collect()
}

/// Prometheus counts what is at most a bound; OTLP what is between two.
fn histogram(sample: &Sample, began: u64, now: u64) -> HistogramDataPoint {
    let histogram = sample.get_histogram();
    let finite = histogram.get_bucket().iter();
    let finite = finite.filter(|bucket| bucket.upper_bound().is_finite());
    let (mut bounds, mut counts, mut below) = (Vec::new(), Vec::new(), 0);
    for bucket in finite {
        bounds.push(bucket.upper_bound());
        counts.push(bucket.cumulative_count().saturating_sub(below));
        below = bucket.cumulative_count();
    }
    // Read one after the other while others count, the figures may differ by a few: what is told
    // has to add up.
    let all = histogram.get_sample_count().max(below);
    counts.push(all - below);
    HistogramDataPoint {
        attributes: labels(sample),
        start_time_unix_nano: began,
        time_unix_nano: now,
        count: all,
        sum: Some(histogram.get_sample_sum()),
        bucket_counts: counts,
        explicit_bounds: bounds,
        ..HistogramDataPoint::default()
    }
}

fn labels(sample: &Sample) -> Vec<KeyValue> {
    let labels = sample.get_label().iter();
    labels
        .map(|label| text(label.name(), label.value()))
        .collect()
}

pub(super) fn text(key: &str, value: &str) -> KeyValue {
    let value = any_value::Value::StringValue(value.to_owned());
    pair(key, value)
}

pub(super) fn whole(key: &str, value: i64) -> KeyValue {
    pair(key, any_value::Value::IntValue(value))
}

fn pair(key: &str, value: any_value::Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}

pub(super) fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
