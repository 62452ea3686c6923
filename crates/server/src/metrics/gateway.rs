//! Metrics of the gateway and its upstreams. Series are found once: requests only increment them.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry,
};

/// From an upstream on the same machine to one that runs into its timeout.
const BUCKETS_SECONDS: [f64; 14] = [
    0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0,
];

/// The classes of statuses.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];
/// The status of a request whose client left before the response.
const NO_STATUS: &str = "none";

/// The metrics of a gateway.
#[derive(Debug)]
pub(crate) struct GatewayMetrics {
    pub(crate) connections: IntGauge,
    in_flight: IntGauge,
    responses: StatusCounters,
    unanswered: IntCounter,
    upstreams: Vec<Arc<UpstreamMetrics>>,
}

/// The metrics of one upstream.
#[derive(Debug)]
pub(crate) struct UpstreamMetrics {
    seconds: Histogram,
    responses: StatusCounters,
    errors: [IntCounter; UpstreamErrorKind::ALL.len()],
}

/// Why an upstream did not respond, or not completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpstreamErrorKind {
    /// It accepted no connection, or its certificate is invalid.
    Connect,
    /// It did not accept a connection in time.
    ConnectTimeout,
    /// It did not respond in time.
    Timeout,
    /// It closed the connection before its response, or responded with something else than HTTP.
    Broken,
    /// It broke its response off, or paused for too long.
    Body,
}

impl UpstreamErrorKind {
    /// In the order of the discriminants.
    const ALL: [Self; 5] = [
        UpstreamErrorKind::Connect,
        UpstreamErrorKind::ConnectTimeout,
        UpstreamErrorKind::Timeout,
        UpstreamErrorKind::Broken,
        UpstreamErrorKind::Body,
    ];

    /// The value of the metric label.
    pub(crate) fn name(self) -> &'static str {
        match self {
            UpstreamErrorKind::Connect => "connect",
            UpstreamErrorKind::ConnectTimeout => "connect_timeout",
            UpstreamErrorKind::Timeout => "timeout",
            UpstreamErrorKind::Broken => "broken",
            UpstreamErrorKind::Body => "body",
        }
    }
}

/// A counter per class of statuses.
#[derive(Debug)]
struct StatusCounters([IntCounter; CLASSES.len()]);

impl StatusCounters {
    fn new(counter: impl Fn(&str) -> IntCounter) -> Self {
        StatusCounters(CLASSES.map(counter))
    }

    fn record(&self, status: StatusCode) {
        // A status is 100 to 999.
        let class = usize::from(status.as_u16() / 100).clamp(1, CLASSES.len());
        self.0[class - 1].inc();
    }
}

impl GatewayMetrics {
    /// Registers metrics at 0, of upstreams with these names.
    pub(super) fn new(
        upstreams: impl IntoIterator<Item = String>,
        connections: IntGauge,
        registry: &Registry,
    ) -> prometheus::Result<Self> {
        let in_flight = IntGauge::new(
            "tallygate_gateway_in_flight",
            "Requests in flight in the gateway, until their response is sent.",
        )?;
        let responses = IntCounterVec::new(
            Opts::new(
                "tallygate_gateway_responses_total",
                "Responses of the gateway by class of status; none: the client left before.",
            ),
            &["status"],
        )?;
        let seconds = HistogramVec::new(
            HistogramOpts::new(
                "tallygate_upstream_duration_seconds",
                "Time from sending a request to an upstream to the head of its response.",
            )
            .buckets(BUCKETS_SECONDS.to_vec()),
            &["upstream"],
        )?;
        let upstream_responses = IntCounterVec::new(
            Opts::new(
                "tallygate_upstream_responses_total",
                "Responses of upstreams by class of status.",
            ),
            &["upstream", "status"],
        )?;
        let errors = IntCounterVec::new(
            Opts::new(
                "tallygate_upstream_errors_total",
                "Requests that an upstream did not answer, or not completely, by kind.",
            ),
            &["upstream", "kind"],
        )?;
        registry.register(Box::new(in_flight.clone()))?;
        registry.register(Box::new(responses.clone()))?;
        registry.register(Box::new(seconds.clone()))?;
        registry.register(Box::new(upstream_responses.clone()))?;
        registry.register(Box::new(errors.clone()))?;
        let upstream = |name: String| {
            let name = name.as_str();
            Arc::new(UpstreamMetrics {
                seconds: seconds.with_label_values(&[name]),
                responses: StatusCounters::new(|class| {
                    upstream_responses.with_label_values(&[name, class])
                }),
                errors: UpstreamErrorKind::ALL
                    .map(|kind| errors.with_label_values(&[name, kind.name()])),
            })
        };
        Ok(GatewayMetrics {
            connections,
            in_flight,
            responses: StatusCounters::new(|class| responses.with_label_values(&[class])),
            unanswered: responses.with_label_values(&[NO_STATUS]),
            upstreams: upstreams.into_iter().map(upstream).collect(),
        })
    }

    /// Metrics that nobody reads, for a gateway outside of a server.
    pub(crate) fn unregistered(upstreams: impl IntoIterator<Item = String>) -> Self {
        let connections = IntGauge::new("tallygate_connections", "Open connections.");
        connections
            .and_then(|connections| Self::new(upstreams, connections, &Registry::new()))
            .expect("metric names are valid and unique")
    }

    pub(crate) fn upstream(&self, index: usize) -> &Arc<UpstreamMetrics> {
        &self.upstreams[index]
    }

    pub(crate) fn start_request(&self) {
        self.in_flight.inc();
    }

    pub(crate) fn end_request(&self) {
        self.in_flight.dec();
    }

    pub(crate) fn record_response(&self, status: StatusCode) {
        self.responses.record(status);
    }

    /// Counts a request whose client left before the response.
    pub(crate) fn record_unanswered(&self) {
        self.unanswered.inc();
    }
}

impl UpstreamMetrics {
    pub(crate) fn record_response(&self, status: StatusCode, elapsed: Duration) {
        self.seconds.observe(elapsed.as_secs_f64());
        self.responses.record(status);
    }

    pub(crate) fn record_error(&self, kind: UpstreamErrorKind) {
        self.errors[kind as usize].inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_counted_by_class() {
        let metrics = GatewayMetrics::unregistered(["a:1".to_owned()]);
        for status in [100, 200, 204, 404, 599, 999] {
            metrics.record_response(StatusCode::from_u16(status).unwrap());
        }
        let counts = metrics.responses.0.each_ref().map(IntCounter::get);
        assert_eq!(counts, [1, 2, 0, 1, 2]);
    }

    #[test]
    fn kinds_are_in_the_order_of_their_counters() {
        for (index, kind) in UpstreamErrorKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
        }
    }
}
