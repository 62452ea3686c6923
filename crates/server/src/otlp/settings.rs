//! OTLP settings, from the arguments and the environment variables that OpenTelemetry defines.

use std::time::Duration;

use http::uri::{PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};

use crate::response::percent_decode;

const DEFAULT_INTERVAL: Duration = Duration::from_secs(60);
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
const DEFAULT_SAMPLE: f64 = 0.01;
/// Upper bound of the interval and the timeout: one day.
const MAX_MS: u64 = 86_400_000;

#[derive(Clone)]
pub(crate) struct Settings {
    /// Without a trailing `/`: paths such as `/v1/metrics` are appended.
    pub(super) endpoint: String,
    pub(super) headers: HeaderMap,
    /// Between two exports of metrics.
    pub(super) interval: Duration,
    /// Of one export.
    pub(super) timeout: Duration,
    pub(super) service: String,
    /// Share of requests without a trusted `traceparent` that are sampled.
    pub(super) sample_millionths: u32,
}

impl Settings {
    /// Reads the settings; none without an endpoint. `variable` looks up an environment variable;
    /// a blank one counts as unset.
    ///
    /// # Errors
    /// A text that names the wrong setting and repeats no value: it may be a secret.
    pub(crate) fn new(
        endpoint: Option<&str>,
        sample: Option<f64>,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, String> {
        let variable = |name: &str| variable(name).filter(|text| !text.trim().is_empty());
        let Some(endpoint) = endpoint.map(str::trim).filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        let endpoint = parse_endpoint(endpoint).ok_or(
            "--otlp (or OTEL_EXPORTER_OTLP_ENDPOINT) is not the URL of a receiver such as \
             http://127.0.0.1:4318",
        )?;
        if let Some(protocol) = variable("OTEL_EXPORTER_OTLP_PROTOCOL")
            && protocol.trim() != "http/protobuf"
        {
            let text = "OTEL_EXPORTER_OTLP_PROTOCOL is not http/protobuf, the only supported one";
            return Err(text.to_owned());
        }
        // Arguments of other samplers are not numbers.
        let sampler_arg = || variable("OTEL_TRACES_SAMPLER_ARG")?.trim().parse().ok();
        let sample = sample.or_else(sampler_arg).unwrap_or(DEFAULT_SAMPLE);
        let milliseconds = |name: &str, default: Duration| match variable(name) {
            None => Ok(default),
            Some(text) => match text.trim().parse() {
                Ok(number @ 1..=MAX_MS) => Ok(Duration::from_millis(number)),
                _ => Err(format!("{name} is not a number from 1 to {MAX_MS}")),
            },
        };
        let headers = variable("OTEL_EXPORTER_OTLP_HEADERS").unwrap_or_default();
        let headers = parse_headers(&headers)
            .ok_or("OTEL_EXPORTER_OTLP_HEADERS is not like name=value,name=value")?;
        Ok(Some(Settings {
            endpoint,
            headers,
            interval: milliseconds("OTEL_METRIC_EXPORT_INTERVAL", DEFAULT_INTERVAL)?,
            timeout: milliseconds("OTEL_EXPORTER_OTLP_TIMEOUT", DEFAULT_TIMEOUT)?,
            service: variable("OTEL_SERVICE_NAME").unwrap_or_else(|| "tallygate".to_owned()),
            sample_millionths: millionths(sample)?,
        }))
    }

    pub(super) fn is_https(&self) -> bool {
        self.endpoint.starts_with("https:")
    }
}

/// An endpoint in normal form; none if it is not an http or https URL, or carries credentials.
fn parse_endpoint(text: &str) -> Option<String> {
    let uri: Uri = text.parse().ok()?;
    let scheme = uri.scheme()?;
    if *scheme != Scheme::HTTP && *scheme != Scheme::HTTPS {
        return None;
    }
    let authority = uri.authority()?;
    if uri.query().is_some() || authority.host().is_empty() || authority.as_str().contains('@') {
        return None;
    }
    let path = uri.path_and_query().map_or("", PathAndQuery::path);
    let path = path.trim_end_matches('/');
    Some(format!("{scheme}://{authority}{path}"))
}

/// Parses `name=value,name=value` with percent-encoded values.
fn parse_headers(text: &str) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for pair in text.split(',').filter(|pair| !pair.trim().is_empty()) {
        let (name, value) = pair.split_once('=')?;
        let name = HeaderName::try_from(name.trim()).ok()?;
        let mut value = HeaderValue::try_from(percent_decode(value.trim()).ok()?).ok()?;
        value.set_sensitive(true);
        headers.append(name, value);
    }
    Some(headers)
}

// A share is written as a fraction, but compared as a whole number.
#[allow(clippy::float_arithmetic)]
fn millionths(share: f64) -> Result<u32, String> {
    match (0.0..=1.0).contains(&share) {
        true => Ok((share * 1_000_000.0).round() as u32),
        false => Err(format!("--otlp-sample {share} is outside 0 to 1")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(endpoint: &str, variables: &[(&str, &str)]) -> Result<Option<Settings>, String> {
        let variable = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Settings::new(Some(endpoint), Some(0.25), &variable)
    }

    #[test]
    fn endpoint_and_variables_are_parsed() {
        let settings = read(
            "https://collector.example:4318/otlp/",
            &[
                ("OTEL_EXPORTER_OTLP_HEADERS", "a=b%20c, api-key=k"),
                ("OTEL_METRIC_EXPORT_INTERVAL", "1500"),
                ("OTEL_SERVICE_NAME", "edge"),
            ],
        );
        let settings = settings.unwrap().unwrap();
        assert!(settings.is_https());
        assert_eq!(settings.endpoint, "https://collector.example:4318/otlp");
        assert_eq!(settings.headers["a"], "b c");
        assert_eq!(settings.headers["api-key"], "k");
        assert_eq!(settings.interval, Duration::from_millis(1_500));
        assert_eq!(settings.timeout, DEFAULT_TIMEOUT);
        assert_eq!(settings.service, "edge");
        assert_eq!(settings.sample_millionths, 250_000);
        let plain = read("http://a/", &[]).unwrap().unwrap();
        assert_eq!((plain.is_https(), &*plain.endpoint), (false, "http://a"));
        assert!(read(" ", &[]).unwrap().is_none());
        assert!(Settings::new(None, None, &|_| None).unwrap().is_none());
    }

    #[test]
    fn the_sample_argument_overrides_the_variable() {
        let sample = |argument, variable: &str| {
            let variable =
                |name: &str| (name == "OTEL_TRACES_SAMPLER_ARG").then(|| variable.to_owned());
            let settings = Settings::new(Some("http://a"), argument, &variable);
            settings.map(|settings| settings.unwrap().sample_millionths)
        };
        assert_eq!(sample(Some(0.5), "0.25"), Ok(500_000));
        assert_eq!(sample(None, "0.25"), Ok(250_000));
        assert_eq!(sample(None, ""), Ok(10_000));
        assert_eq!(sample(None, "endpoint=http://b"), Ok(10_000));
        assert!(sample(None, "7").is_err());
        let empty = ("OTEL_EXPORTER_OTLP_PROTOCOL", " ");
        assert!(read("http://a", &[empty]).unwrap().is_some());
    }

    #[test]
    fn errors_name_the_setting_and_hide_its_value() {
        for endpoint in [
            "a",
            "ftp://a",
            "http://",
            "http://u:s3cret@a",
            "http://a?s3cret",
        ] {
            let error = read(endpoint, &[]).err().unwrap();
            assert!(!error.contains("s3cret"), "{endpoint}");
        }
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_HEADERS", "s3cret"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=%s3"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a b=s3cret"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "0"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "s3cret"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ] {
            let error = read("http://a", &[(name, value)]).err().unwrap();
            assert!(error.contains(name) && !error.contains("s3"), "{error}");
        }
        for sample in [-0.1, 1.1, f64::NAN] {
            assert!(Settings::new(Some("http://a"), Some(sample), &|_| None).is_err());
        }
    }
}
