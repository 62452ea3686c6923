//! The cost that the layer adds to a call of an axum router, in process and with the memory store,
//! compared with tower_governor.
//!
//! `cargo bench -p tallygate-bench --bench layer`
#![allow(clippy::print_stdout, clippy::print_stderr, clippy::float_arithmetic)]

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Request, StatusCode};
use axum::routing::get;
use tallygate::Quota;
use tallygate::http::Headers;
use tallygate::rules::Rule;
use tallygate::tower::RateLimitLayer;
use tallygate_bench::entry;
use tallygate_bench::machine;
use tallygate_bench::measure::thread_cpu_time;
use tallygate_bench::measurement::Measurement;
use tallygate_bench::options::{Options, Size};
use tallygate_bench::table::Table;
use tower::Service;
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

const BARE: &str = "bare axum";
const TALLYGATE: &str = "tallygate";
const GOVERNOR: &str = "tower_governor";

/// Clients, which call in turn.
const CLIENTS: u32 = 1_000;

/// A row of the table.
struct Scenario {
    name: &'static str,
    admitted: bool,
    headers: HeaderSet,
    router: RouterKind,
}

/// How a router is prepared.
#[derive(Clone, Copy, PartialEq)]
enum RouterKind {
    /// With its state, as `axum::serve` and `into_make_service` do: layers are applied once.
    WithState,
    /// Without state: layers are applied again on every call.
    WithoutState,
}

/// The rate limit headers of a response.
#[derive(Clone, Copy, PartialEq)]
enum HeaderSet {
    None,
    /// `X-RateLimit-*`, which both contenders support.
    XRateLimit,
    /// Tallygate's default headers; `X-RateLimit-*` for tower_governor.
    All,
}

const SCENARIOS: [Scenario; 5] = [
    Scenario {
        name: "admitted, no headers",
        admitted: true,
        headers: HeaderSet::None,
        router: RouterKind::WithState,
    },
    Scenario {
        name: "admitted, no headers, router without state",
        admitted: true,
        headers: HeaderSet::None,
        router: RouterKind::WithoutState,
    },
    Scenario {
        name: "admitted, with X-RateLimit headers",
        admitted: true,
        headers: HeaderSet::XRateLimit,
        router: RouterKind::WithState,
    },
    Scenario {
        name: "admitted, with all headers",
        admitted: true,
        headers: HeaderSet::All,
        router: RouterKind::WithState,
    },
    Scenario {
        name: "refused, with X-RateLimit headers",
        admitted: false,
        headers: HeaderSet::XRateLimit,
        router: RouterKind::WithState,
    },
];

fn main() -> ExitCode {
    entry::run("layer", measure_all)
}

fn measure_all(options: &Options) -> Result<(), Box<dyn Error>> {
    let (rounds, calls) = match options.size {
        Size::Quick => (5, 20_000),
        Size::Usual => (31, 100_000),
        Size::Full => (101, 200_000),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut table = Table::new("ns of CPU per call", [BARE, TALLYGATE, GOVERNOR]);
    for scenario in SCENARIOS {
        if !options.selects_scenario(scenario.name) {
            continue;
        }
        eprintln!("measuring {}", scenario.name);
        let mut contenders = contenders(&scenario);
        // Interleaved, so that noise affects all contenders alike.
        for _ in 0..rounds {
            for (name, router) in &mut contenders {
                let value = runtime.block_on(measure(router, calls, scenario.admitted))?;
                table.add(Measurement {
                    row: scenario.name.to_owned(),
                    contender: (*name).to_owned(),
                    value,
                });
            }
        }
    }
    println!(
        "{}\n\n`{}`\n\n{table}",
        machine::describe(),
        options.command("layer")
    );
    Ok(())
}

fn contenders(scenario: &Scenario) -> Vec<(&'static str, Router)> {
    let plain = || Router::new().route("/", get(|| async { "hello" }));
    // Refills faster than the calls arrive, or practically never.
    let (quota, interval, burst) = match scenario.admitted {
        true => (
            "token-bucket 1000000/s burst 1000",
            Duration::from_micros(1),
            1_000,
        ),
        false => ("token-bucket 1/d", Duration::from_secs(24 * 60 * 60), 1),
    };
    let quota: Quota = quota.parse().expect("the quota is valid");
    let headers = match scenario.headers {
        HeaderSet::None => Headers::none(),
        HeaderSet::XRateLimit => Headers::none().retry_after(true).x_ratelimit(true),
        HeaderSet::All => Headers::default(),
    };
    let layer = RateLimitLayer::new(Rule::new("bench", quota).by_ip().headers(headers));
    let mut governor = GovernorConfigBuilder::default();
    governor.period(interval).burst_size(burst);
    let governed = if scenario.headers != HeaderSet::None {
        let config = governor
            .use_headers()
            .finish()
            .expect("the burst is at least one");
        plain().layer(GovernorLayer::new(config))
    } else {
        let config = governor.finish().expect("the burst is at least one");
        plain().layer(GovernorLayer::new(config))
    };
    let prepare = |router: Router| match scenario.router {
        RouterKind::WithState => router.with_state(()),
        RouterKind::WithoutState => router,
    };
    vec![
        (BARE, prepare(plain())),
        (TALLYGATE, prepare(plain().layer(layer))),
        (GOVERNOR, prepare(governed)),
    ]
}

/// The CPU time of one call, in nanoseconds.
async fn measure(router: &mut Router, calls: u32, admitted: bool) -> Result<f64, Box<dyn Error>> {
    let start = thread_cpu_time();
    let mut refused = 0;
    for i in 0..calls {
        let mut request = Request::new(Body::empty());
        let peer = SocketAddr::from((Ipv4Addr::from(i % CLIENTS), 40_000));
        request.extensions_mut().insert(ConnectInfo(peer));
        let response = Service::<Request<Body>>::call(router, request).await?;
        refused += u32::from(response.status() == StatusCode::TOO_MANY_REQUESTS);
    }
    let spent = thread_cpu_time() - start;
    if admitted && refused > 0 {
        return Err(format!("{refused} calls were refused, expected none").into());
    }
    Ok(spent.as_nanos() as f64 / f64::from(calls))
}
