//! The load generator: wrk over loopback.

use std::io;
use std::path::Path;

use super::process::Cores;

/// The load of a run.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Connections, each with one request in flight.
    pub connections: usize,
    /// The duration.
    pub seconds: u32,
}

/// The result of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadResult {
    /// Completed requests.
    pub requests: u64,
    /// Responses other than 2xx and 3xx.
    pub errors: u64,
    /// Connections that could not be used, and requests without a response within two seconds.
    pub socket_errors: u64,
    /// Requests per second.
    pub rate: f64,
    /// The 99th percentile of the latency in milliseconds.
    pub p99_ms: f64,
}

/// Sends requests to a URL, with a wrk script if there is one.
///
/// # Errors
/// When wrk cannot be run or its output cannot be parsed.
pub fn run(cores: Cores, load: Load, script: Option<&Path>, url: &str) -> io::Result<LoadResult> {
    let mut command = cores.command("wrk");
    command.args(["--latency", "-t", "1"]);
    command.args(["-c", &load.connections.to_string()]);
    command.args(["-d", &format!("{}s", load.seconds)]);
    if let Some(script) = script {
        command.arg("-s").arg(script);
    }
    let output = command.arg(url).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    parse(&text).ok_or_else(|| {
        let error = String::from_utf8_lossy(&output.stderr);
        io::Error::other(format!("wrk failed:\n{text}{error}"))
    })
}

fn parse(text: &str) -> Option<LoadResult> {
    let after = |name: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(name));
        line.map(str::trim)
    };
    let requests = text.lines().find_map(|line| {
        let (number, _) = line.trim().split_once(" requests in ")?;
        number.parse().ok()
    })?;
    let socket_errors = match after("Socket errors:") {
        // connect 0, read 0, write 0, timeout 12
        Some(list) => {
            let numbers = list
                .split(", ")
                .map(|entry| entry.rsplit(" ").next()?.parse::<u64>().ok());
            numbers.sum::<Option<u64>>()?
        }
        None => 0,
    };
    Some(LoadResult {
        requests,
        socket_errors,
        errors: match after("Non-2xx or 3xx responses:") {
            Some(number) => number.parse().ok()?,
            None => 0,
        },
        rate: after("Requests/sec:")?.parse().ok()?,
        p99_ms: milliseconds(after("99%")?)?,
    })
}

fn milliseconds(text: &str) -> Option<f64> {
    let at = text.find(char::is_alphabetic)?;
    let (number, unit) = text.split_at(at);
    let factor = match unit {
        "us" => 0.001,
        "ms" => 1.0,
        "s" => 1_000.0,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
Running 1s test @ http://127.0.0.1:8000/
  1 threads and 32 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.02ms    0.35ms   8.13ms   93.30%
    Req/Sec    31.42k     1.25k   33.35k    70.00%
  Latency Distribution
     50%    0.95ms
     75%    1.07ms
     90%    1.26ms
     99%  850.00us
  31310 requests in 1.00s, 5.17MB read
  Non-2xx or 3xx responses: 12
Requests/sec:  31242.39
Transfer/sec:      5.16MB
";

    #[test]
    fn the_output_of_wrk_is_parsed() {
        let result = parse(OUTPUT).unwrap();
        assert_eq!((result.requests, result.errors), (31_310, 12));
        assert_eq!(result.socket_errors, 0);
        assert_eq!((result.rate, result.p99_ms), (31_242.39, 0.85));
        assert_eq!(milliseconds("1.50s"), Some(1_500.0));
    }

    #[test]
    fn socket_errors_are_counted() {
        let errors = "  Socket errors: connect 1, read 2, write 0, timeout 12\nRequests/sec";
        let result = parse(&OUTPUT.replace("Requests/sec", errors)).unwrap();
        assert_eq!(result.socket_errors, 15);
    }

    #[test]
    fn a_failed_run_has_no_result() {
        assert_eq!(parse("unable to connect"), None);
    }
}
