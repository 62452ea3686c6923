//! The load: wrk on loopback, and what it tells. Knows nothing of who is asked.

use std::io;
use std::path::Path;

use super::process::On;

/// How much load.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Connections, each with one request under way.
    pub connections: usize,
    /// For how many seconds.
    pub seconds: u32,
}

/// What a load came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Told {
    /// Requests that were answered.
    pub requests: u64,
    /// Of them, those that were answered with neither 2xx nor 3xx.
    pub not_well: u64,
    /// Requests a second.
    pub rate: f64,
    /// What 99 of 100 requests took at most, in milliseconds.
    pub p99_ms: f64,
}

/// Asks a URL, as a script says if there is one.
///
/// # Errors
/// When wrk cannot be run, or says something else than expected.
pub fn run(on: On, load: Load, script: Option<&Path>, url: &str) -> io::Result<Told> {
    let mut command = on.command("wrk");
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
        io::Error::other(format!("wrk said:\n{text}{error}"))
    })
}

fn parse(text: &str) -> Option<Told> {
    let after = |name: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(name));
        line.map(str::trim)
    };
    let requests = text.lines().find_map(|line| {
        let (number, _) = line.trim().split_once(" requests in ")?;
        number.parse().ok()
    })?;
    if text.contains("Socket errors") {
        return None;
    }
    Some(Told {
        requests,
        not_well: match after("Non-2xx or 3xx responses:") {
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

    const TOLD: &str = "\
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
    fn what_wrk_tells_is_read() {
        let told = parse(TOLD).unwrap();
        assert_eq!((told.requests, told.not_well), (31_310, 12));
        assert_eq!((told.rate, told.p99_ms), (31_242.39, 0.85));
        assert_eq!(milliseconds("1.50s"), Some(1_500.0));
    }

    #[test]
    fn a_load_that_broke_is_no_figure() {
        let broken = TOLD.replace("Requests/sec", "  Socket errors: read 1\nRequests/sec");
        assert_eq!(parse(&broken), None);
        assert_eq!(parse("unable to connect"), None);
    }
}
