//! Where telemetry goes and how much of it: from the arguments, and from the variables that
//! OpenTelemetry defines. Knows texts; connects to nobody.

use std::time::Duration;

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};

/// How often metrics are sent unless told otherwise.
const USUAL_INTERVAL: Duration = Duration::from_secs(60);
/// How long one export may take unless told otherwise.
const USUAL_TIMEOUT: Duration = Duration::from_secs(10);
/// Of how many requests a trace is begun unless told otherwise.
const USUAL_RATIO: f64 = 0.01;
/// The longest of both.
const LONGEST_MS: u64 = 86_400_000;

/// Where telemetry goes and how much of it.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(super) secure: bool,
    pub(super) authority: Authority,
    /// What stands before `/v1/metrics`.
    pub(super) path: String,
    pub(super) headers: HeaderMap,
    pub(super) interval: Duration,
    pub(super) timeout: Duration,
    pub(super) service: String,
    /// Of how many requests without a trace of their own one is begun, in millionths.
    pub(super) ratio: u32,
}

impl Settings {
    /// Reads them; none without an endpoint. `variable` looks one of the environment up, and one
    /// that is empty is none.
    ///
    /// # Errors
    /// A text that names what is wrong, and repeats no value that may be a secret.
    pub(crate) fn new(
        endpoint: Option<&str>,
        ratio: Option<f64>,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, String> {
        let variable = |name: &str| variable(name).filter(|text| !text.trim().is_empty());
        let Some(endpoint) = endpoint.map(str::trim).filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        let wrong = || {
            "--otlp (or OTEL_EXPORTER_OTLP_ENDPOINT) is no URL of a receiver; write it like \
             http://127.0.0.1:4318"
                .to_owned()
        };
        let uri: Uri = endpoint.parse().map_err(|_| wrong())?;
        let secure = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => false,
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(_) | None => return Err(wrong()),
        };
        let authority = uri.authority().ok_or_else(wrong)?.clone();
        if uri.query().is_some() || authority.host().is_empty() || authority.as_str().contains('@')
        {
            return Err(wrong());
        }
        if let Some(protocol) = variable("OTEL_EXPORTER_OTLP_PROTOCOL")
            && protocol.trim() != "http/protobuf"
        {
            let text = "OTEL_EXPORTER_OTLP_PROTOCOL is not http/protobuf, the one that is spoken";
            return Err(text.to_owned());
        }
        // Other samplers than ours have arguments that are no number.
        let sampler = || variable("OTEL_TRACES_SAMPLER_ARG")?.trim().parse().ok();
        let ratio = ratio.or_else(sampler).unwrap_or(USUAL_RATIO);
        let path = uri.path_and_query().map_or("", PathAndQuery::path);
        let milliseconds = |name: &str, usual: Duration| match variable(name) {
            None => Ok(usual),
            Some(text) => match text.trim().parse() {
                Ok(number @ 1..=LONGEST_MS) => Ok(Duration::from_millis(number)),
                _ => Err(format!("{name} is not a number from 1 to {LONGEST_MS}")),
            },
        };
        let given = variable("OTEL_EXPORTER_OTLP_HEADERS").unwrap_or_default();
        let service = variable("OTEL_SERVICE_NAME");
        Ok(Some(Settings {
            secure,
            authority,
            path: path.trim_end_matches('/').to_owned(),
            headers: headers(&given)?,
            interval: milliseconds("OTEL_METRIC_EXPORT_INTERVAL", USUAL_INTERVAL)?,
            timeout: milliseconds("OTEL_EXPORTER_OTLP_TIMEOUT", USUAL_TIMEOUT)?,
            service: service.unwrap_or_else(|| "tallygate".to_owned()),
            ratio: millionths(ratio)?,
        }))
    }
}

/// `name=value` with `,` between, values percent-encoded, as OpenTelemetry writes headers.
fn headers(text: &str) -> Result<HeaderMap, String> {
    let wrong = || "OTEL_EXPORTER_OTLP_HEADERS is not like name=value,name=value".to_owned();
    let mut headers = HeaderMap::new();
    for pair in text.split(',').filter(|pair| !pair.trim().is_empty()) {
        let (name, value) = pair.split_once('=').ok_or_else(wrong)?;
        let name = HeaderName::try_from(name.trim()).map_err(|_| wrong())?;
        let value = unescaped(value.trim()).ok_or_else(wrong)?;
        let mut value = HeaderValue::from_bytes(&value).map_err(|_| wrong())?;
        value.set_sensitive(true);
        headers.append(name, value);
    }
    Ok(headers)
}

fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        bytes.push(u8::try_from(digit()? << 4 | digit()?).ok()?);
    }
    Some(bytes)
}

/// A share of requests as a whole number.
// A share is written with a point; how it is compared is whole numbers.
#[allow(clippy::float_arithmetic)]
fn millionths(ratio: f64) -> Result<u32, String> {
    match (0.0..=1.0).contains(&ratio) {
        true => Ok((ratio * 1_000_000.0).round() as u32),
        false => Err(format!("--otlp-sample {ratio} is outside 0 to 1")),
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
    fn an_endpoint_and_variables_are_read() {
        let settings = read(
            "https://collector.example:4318/otlp/",
            &[
                ("OTEL_EXPORTER_OTLP_HEADERS", "a=b%20c, api-key=k"),
                ("OTEL_METRIC_EXPORT_INTERVAL", "1500"),
                ("OTEL_SERVICE_NAME", "edge"),
            ],
        );
        let settings = settings.unwrap().unwrap();
        assert!(settings.secure);
        assert_eq!(settings.authority, "collector.example:4318");
        assert_eq!(settings.path, "/otlp");
        assert_eq!(settings.headers["a"], "b c");
        assert_eq!(settings.headers["api-key"], "k");
        assert_eq!(settings.interval, Duration::from_millis(1_500));
        assert_eq!(settings.timeout, USUAL_TIMEOUT);
        assert_eq!(settings.service, "edge");
        assert_eq!(settings.ratio, 250_000);
        let plain = read("http://a", &[]).unwrap().unwrap();
        assert_eq!((plain.secure, plain.path.as_str()), (false, ""));
        assert!(read(" ", &[]).unwrap().is_none());
        assert!(Settings::new(None, None, &|_| None).unwrap().is_none());
    }

    #[test]
    fn a_share_comes_from_the_argument_then_the_variable() {
        let ratio = |argument, variable: &str| {
            let variable =
                |name: &str| (name == "OTEL_TRACES_SAMPLER_ARG").then(|| variable.to_owned());
            let settings = Settings::new(Some("http://a"), argument, &variable);
            settings.map(|settings| settings.unwrap().ratio)
        };
        assert_eq!(ratio(Some(0.5), "0.25"), Ok(500_000));
        assert_eq!(ratio(None, "0.25"), Ok(250_000));
        assert_eq!(ratio(None, ""), Ok(10_000));
        assert_eq!(ratio(None, "endpoint=http://b"), Ok(10_000));
        assert!(ratio(None, "7").is_err());
        let empty = ("OTEL_EXPORTER_OTLP_PROTOCOL", " ");
        assert!(read("http://a", &[empty]).unwrap().is_some());
    }

    #[test]
    fn what_is_wrong_is_named_and_never_repeated() {
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
        for ratio in [-0.1, 1.1, f64::NAN] {
            assert!(Settings::new(Some("http://a"), Some(ratio), &|_| None).is_err());
        }
    }
}
