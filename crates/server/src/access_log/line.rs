//! The fields of a line, in their order.

use serde::Serialize;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use super::Decision;

#[derive(Serialize)]
pub(super) struct Line<'r> {
    pub(super) listener: &'static str,
    pub(super) method: &'r str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) path: Option<&'r str>,
    /// `None` if the client left before the response.
    pub(super) status: Option<u16>,
    pub(super) rule: Option<&'r str>,
    pub(super) decision: Option<&'static str>,
    pub(super) decision_us: u64,
    pub(super) duration_us: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) upstream: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) upstream_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) upstream_error: Option<&'static str>,
    pub(super) bytes_received: u64,
    pub(super) bytes_sent: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) request_id: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) trace_id: Option<&'r str>,
    pub(super) decisions: Vec<Decided<'r>>,
}

#[derive(Serialize)]
pub(super) struct Decided<'r> {
    rule: &'r str,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'r str>,
}

impl<'r> From<&'r Decision> for Decided<'r> {
    fn from(decision: &'r Decision) -> Self {
        Decided {
            rule: &decision.rule,
            outcome: decision.outcome.name(),
            key: decision.key.as_deref(),
        }
    }
}

#[derive(Serialize)]
struct Timed<'r> {
    /// The end of the request.
    time: &'r str,
    #[serde(flatten)]
    line: &'r Line<'r>,
}

/// The line with the current time and a line end.
pub(super) fn write(line: &Line<'_>) -> Vec<u8> {
    let mut time = String::new();
    // Writing to a String cannot fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut time));
    let timed = Timed { time: &time, line };
    let mut json = serde_json::to_vec(&timed).expect("texts and numbers are valid JSON");
    json.push(b'\n');
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_json_in_a_fixed_order() {
        let json = write(&Line {
            listener: "gateway",
            method: "GET",
            path: None,
            status: Some(429),
            rule: Some("api"),
            decision: Some("refused"),
            decision_us: 3,
            duration_us: 9,
            upstream: None,
            upstream_us: None,
            upstream_error: None,
            bytes_received: 0,
            bytes_sent: 180,
            request_id: None,
            trace_id: None,
            decisions: Vec::new(),
        });
        let text = String::from_utf8(json).unwrap();
        let (time, rest) = text.split_once(',').unwrap();
        assert!(
            time.starts_with("{\"time\":\"20") && time.ends_with("Z\""),
            "{time}"
        );
        assert_eq!(
            rest,
            "\"listener\":\"gateway\",\"method\":\"GET\",\"status\":429,\"rule\":\"api\",\
             \"decision\":\"refused\",\"decision_us\":3,\"duration_us\":9,\"bytes_received\":0,\
             \"bytes_sent\":180,\"decisions\":[]}\n"
        );
    }
}
