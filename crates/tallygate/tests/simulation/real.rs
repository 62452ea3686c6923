//! One scenario for real: several processes and a Redis server, asked what the simulated fleet is asked.
//! Both results are printed side by side, as in docs/scaling.md.

use std::env;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tallygate::simulation::{Arrival, Results, Scenario, simulate};
use tallygate::store::{RedisStore, RefusalCacheSettings, Store};
use tallygate::{Engine, Request};
use tallygate_testkit::redis::Server;
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep_until};

use super::scenario;

/// Small enough for a debug build on a loaded machine. The deadline is missed only if a server never
/// replies.
const SCENARIO: &str = "
duration: 6s
nodes: 4
limits: { name: tenant, quota: token-bucket 300/s burst 600, lease: true }
on_failure: { policy: local, deadline: 20s }
traffic:
  - { rate: 600/s, keys: 200, skew: 1.5 }
  - { rate: 400/s, keys: 1, from: 2s, until: 4s }
";
/// Processes that start together lease after 5 s and a hold.
const WARM_UP: Duration = Duration::from_secs(12);
/// The parameters of a child: URL, its number, and when it starts in milliseconds since 1970.
const CHILD_VARIABLE: &str = "TALLYGATE_TEST_FLEET_CHILD";

/// What processes counted.
#[derive(Clone, Debug, Default)]
struct Counts {
    requests: u64,
    admitted: u64,
    leased: u64,
    degraded: u64,
    latencies_us: Vec<u64>,
}

impl Counts {
    fn percentile(&self, thousandths: usize) -> u64 {
        let mut sorted = self.latencies_us.clone();
        sorted.sort_unstable();
        let at = (sorted.len() * thousandths / 1_000).min(sorted.len().saturating_sub(1));
        sorted.get(at).copied().unwrap_or(0)
    }
}

fn millis_now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

/// Not a test by itself: run by the child processes of the test below.
#[test]
fn a_child_process_is_a_node() {
    let Ok(parameters) = env::var(CHILD_VARIABLE) else {
        return;
    };
    let parameters: Vec<&str> = parameters.split(';').collect();
    let [url, node, start] = &*parameters else {
        panic!("invalid parameters: {parameters:?}");
    };
    let (node, start): (u32, u64) = (node.parse().unwrap(), start.parse().unwrap());
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().unwrap();
    let counts = runtime.block_on(run_node(url, node, start));
    let latencies: Vec<String> = counts.latencies_us.iter().map(u64::to_string).collect();
    println!(
        "\ncounts={} {} {} {} {}",
        counts.requests,
        counts.admitted,
        counts.leased,
        counts.degraded,
        latencies.join(",")
    );
}

async fn run_node(url: &str, node: u32, start: u64) -> Counts {
    let scenario = scenario(SCENARIO);
    let store = RedisStore::builder(url).refusal_cache(RefusalCacheSettings::default());
    let store = store.response_timeout(Duration::from_secs(20));
    let store = store.connect().await.unwrap();
    let limits: Vec<_> = scenario
        .limits()
        .map(|(_, limit, _)| limit.clone())
        .collect();
    store.prepare(&limits[0]);
    let engine = Engine::new(store.clone()).deadline(Duration::from_secs(20));
    let start = Instant::now() + Duration::from_millis(start.saturating_sub(millis_now()));
    let own = scenario.traffic().filter(|arrival| arrival.node == node);
    let arrivals: Vec<Arrival> = own.collect();
    let mut tasks = Vec::with_capacity(arrivals.len());
    for arrival in arrivals {
        sleep_until(start + Duration::from_micros(arrival.at_us)).await;
        let (engine, limit) = (engine.clone(), limits[0].clone());
        tasks.push(tokio::spawn(async move {
            let key = format!("k{}", arrival.key);
            let request = Request::new(key, &limit).cost(arrival.cost);
            let asked = Instant::now();
            let decision = engine.decide(&request).await;
            (decision, asked.elapsed())
        }));
    }
    let mut counts = Counts::default();
    for task in tasks {
        let (decision, took) = task.await.unwrap();
        counts.requests += 1;
        counts.admitted += u64::from(decision.allowed());
        counts.leased += u64::from(decision.leased());
        counts.degraded += u64::from(decision.degraded());
        counts
            .latencies_us
            .push(u64::try_from(took.as_micros()).unwrap());
    }
    store.close().await;
    counts
}

fn start_node(url: &str, node: u32, start: u64) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "--test-threads=1"])
        .arg("real::a_child_process_is_a_node")
        .env(CHILD_VARIABLE, format!("{url};{node};{start}"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The script calls of a server.
fn calls(server: &Server) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]);
    let text = stats.text();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}

fn run_fleet(scenario: &Scenario) -> (Counts, u64) {
    let server = Server::start();
    let start = millis_now() + u64::try_from(WARM_UP.as_millis()).unwrap();
    let nodes = 0..scenario.nodes();
    let nodes: Vec<Child> = nodes
        .map(|node| start_node(&server.url(), node, start))
        .collect();
    let mut sum = Counts::default();
    for node in nodes {
        let output = node.wait_with_output().unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        let line = stdout.lines().find_map(|line| line.strip_prefix("counts="));
        let line = line.unwrap_or_else(|| panic!("no counts in {stdout}"));
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        sum.requests += number(0);
        sum.admitted += number(1);
        sum.leased += number(2);
        sum.degraded += number(3);
        let latencies = words[4].split(',').map(|text| text.parse::<u64>().unwrap());
        sum.latencies_us.extend(latencies);
    }
    (sum, calls(&server))
}

#[allow(clippy::print_stdout, clippy::float_arithmetic)]
fn print(simulated: &Results, real: &Counts, real_calls: u64) {
    let per_decision = |calls: u64, decisions: u64| calls as f64 / decisions as f64;
    println!(
        "| {} nodes | simulated | real |\n|---|---:|---:|",
        simulated.nodes
    );
    println!("| requests | {} | {} |", simulated.requests, real.requests);
    println!("| admitted | {} | {} |", simulated.admitted, real.admitted);
    println!(
        "| admitted by an exact limiter | {} | |",
        simulated.exact_admitted
    );
    println!(
        "| decided from leases | {} | {} |",
        simulated.answers.leases, real.leased
    );
    println!(
        "| script calls per decision | {:.3} | {:.3} |",
        simulated.calls_per_decision(),
        per_decision(real_calls, real.requests)
    );
    for (name, thousandths) in [("p50", 500), ("p99", 990)] {
        println!(
            "| {name}, µs | {} | {} |",
            simulated.latency.at(u16::try_from(thousandths).unwrap()),
            real.percentile(thousandths)
        );
    }
}

#[test]
fn a_real_fleet_does_what_the_simulated_one_does() {
    let scenario = scenario(SCENARIO);
    let simulated = simulate(&scenario, |_| {});
    let (real, real_calls) = run_fleet(&scenario);
    print(&simulated, &real, real_calls);
    // The same requests.
    assert_eq!(real.requests, simulated.requests);
    assert_eq!(real.degraded, 0);
    let near = |found: u64, expected: u64, percent: u64| {
        let distance = found.abs_diff(expected) * 100;
        assert!(
            distance <= expected * percent,
            "{found} instead of {expected}"
        );
    };
    // Requests of a loaded machine are late, and then the buckets have more.
    near(real.admitted, simulated.admitted, 15);
    near(real.leased, simulated.answers.leases, 40);
    near(real_calls, simulated.calls, 60);
}
