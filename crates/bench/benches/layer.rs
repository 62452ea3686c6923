//! What the layer adds to a call of an axum router, in this process and on the memory store,
//! beside tower_governor's: one table, one run.
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
use tallygate_bench::figure::Figure;
use tallygate_bench::machine;
use tallygate_bench::measure::thread_cpu_time;
use tallygate_bench::options::{Options, Size};
use tallygate_bench::table::Table;
use tower::Service;
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

const BARE: &str = "bare axum";
const TALLYGATE: &str = "tallygate";
const GOVERNOR: &str = "tower_governor";

/// How many clients call in turn.
const CLIENTS: u32 = 1_000;

/// A row of the table: what is asked of each contender.
struct Scenario {
    name: &'static str,
    admitted: bool,
    tells: Tells,
    router: Routed,
}

/// What becomes of a router before it is called.
#[derive(Clone, Copy, PartialEq)]
enum Routed {
    /// It is given its state, as `axum::serve` and every `into_make_service` do: its layers are put on
    /// once.
    Served,
    /// Nothing: its layers are put on anew for every call.
    Raw,
}

/// What clients are told.
#[derive(Clone, Copy, PartialEq)]
enum Tells {
    Nothing,
    /// `X-RateLimit-*`, which both contenders have.
    Counts,
    /// All that Tallygate tells unless told otherwise; the other has no more than before.
    All,
}

const SCENARIOS: [Scenario; 5] = [
    Scenario {
        name: "admitted, told nothing",
        admitted: true,
        tells: Tells::Nothing,
        router: Routed::Served,
    },
    Scenario {
        name: "admitted, told nothing, router without state",
        admitted: true,
        tells: Tells::Nothing,
        router: Routed::Raw,
    },
    Scenario {
        name: "admitted, told X-RateLimit",
        admitted: true,
        tells: Tells::Counts,
        router: Routed::Served,
    },
    Scenario {
        name: "admitted, told all",
        admitted: true,
        tells: Tells::All,
        router: Routed::Served,
    },
    Scenario {
        name: "refused, told X-RateLimit",
        admitted: false,
        tells: Tells::Counts,
        router: Routed::Served,
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
    let mut table = Table::new("ns of CPU a call", [BARE, TALLYGATE, GOVERNOR]);
    for scenario in SCENARIOS {
        if !options.wants_scenario(scenario.name) {
            continue;
        }
        eprintln!("measuring {}", scenario.name);
        let mut contenders = contenders(&scenario);
        // In turns, so that what disturbs one disturbs all.
        for _ in 0..rounds {
            for (name, router) in &mut contenders {
                let value = runtime.block_on(measure(router, calls, scenario.admitted))?;
                table.add(Figure {
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
    // Filled faster than anybody calls, or hardly ever.
    let (quota, interval, burst) = match scenario.admitted {
        true => (
            "token-bucket 1000000/s burst 1000",
            Duration::from_micros(1),
            1_000,
        ),
        false => ("token-bucket 1/d", Duration::from_secs(24 * 60 * 60), 1),
    };
    let quota: Quota = quota.parse().expect("a quota");
    let headers = match scenario.tells {
        Tells::Nothing => Headers::none(),
        Tells::Counts => Headers::none().retry_after(true).x_ratelimit(true),
        Tells::All => Headers::default(),
    };
    let layer = RateLimitLayer::new(Rule::new("bench", quota).by_ip().headers(headers));
    let mut governor = GovernorConfigBuilder::default();
    governor.period(interval).burst_size(burst);
    let governed = if scenario.tells != Tells::Nothing {
        let config = governor
            .use_headers()
            .finish()
            .expect("a burst of one or more");
        plain().layer(GovernorLayer::new(config))
    } else {
        let config = governor.finish().expect("a burst of one or more");
        plain().layer(GovernorLayer::new(config))
    };
    let routed = |router: Router| match scenario.router {
        Routed::Served => router.with_state(()),
        Routed::Raw => router,
    };
    vec![
        (BARE, routed(plain())),
        (TALLYGATE, routed(plain().layer(layer))),
        (GOVERNOR, routed(governed)),
    ]
}

/// The processor time of one call, in nanoseconds.
async fn measure(router: &mut Router, calls: u32, admitted: bool) -> Result<f64, Box<dyn Error>> {
    let began = thread_cpu_time();
    let mut refused = 0;
    for i in 0..calls {
        let mut request = Request::new(Body::empty());
        let peer = SocketAddr::from((Ipv4Addr::from(i % CLIENTS), 40_000));
        request.extensions_mut().insert(ConnectInfo(peer));
        let response = Service::<Request<Body>>::call(router, request).await?;
        refused += u32::from(response.status() == StatusCode::TOO_MANY_REQUESTS);
    }
    let spent = thread_cpu_time() - began;
    if admitted && refused > 0 {
        return Err(format!("{refused} calls were refused that should not be").into());
    }
    Ok(spent.as_nanos() as f64 / f64::from(calls))
}
