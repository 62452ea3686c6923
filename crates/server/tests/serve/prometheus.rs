//! The files of `ops/` in a real Prometheus that scrapes a real server: every query of the
//! dashboard and every alert uses metrics that the server exports.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tallygate_testkit::{poll, ports};

use super::client::send;
use super::upstream::Upstream;
use super::{Server, TIMEOUT, TempDir};

const OPS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ops");
/// Where `./test` unpacks the Debian package; installing it would start a service.
const UNPACKED: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../target/testkit/prometheus/usr/bin"
);

/// `prometheus` or `promtool`: in `TALLYGATE_PROMETHEUS`, unpacked by `./test`, or in the path.
fn program(name: &str) -> PathBuf {
    let configured = std::env::var_os("TALLYGATE_PROMETHEUS").map(PathBuf::from);
    let folders = configured.into_iter().chain([UNPACKED.into()]);
    let mut programs = folders.map(|folder| folder.join(name));
    programs
        .find(|program| program.exists())
        .unwrap_or_else(|| name.into())
}

fn promtool(args: &[&str]) {
    let output = Command::new(program("promtool")).args(args).output();
    let output = output.expect("promtool is installed by ./test");
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{args:?}: {stdout} {stderr}");
}

/// A Prometheus that scrapes a server every second, killed on drop.
struct Prometheus {
    child: Child,
    address: SocketAddr,
    folder: TempDir,
}

impl Prometheus {
    fn start(server: &Server) -> Self {
        let folder = TempDir::new();
        // The example with another address, shorter intervals and absolute paths.
        let example = fs::read_to_string(format!("{OPS}/prometheus.yaml")).unwrap();
        let config = example
            .replace("127.0.0.1:8090", &server.admin.to_string())
            .replace("15s", "1s")
            .replace("- prometheus-", &format!("- {OPS}/prometheus-"));
        assert!(config.contains(&server.admin.to_string()) && config.contains("interval: 1s"));
        let config = folder.write("prometheus.yaml", &config);
        let started = poll::first(TIMEOUT, || {
            let address = SocketAddr::from(([127, 0, 0, 1], ports::free()));
            let mut child = Command::new(program("prometheus"))
                .arg(format!("--config.file={config}"))
                .arg(format!(
                    "--storage.tsdb.path={}/data",
                    folder.path().display()
                ))
                .arg(format!("--web.listen-address={address}"))
                .args(["--log.level=error"])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("prometheus is installed by ./test");
            let ready = || match child.try_wait().unwrap() {
                // Another process took the port.
                Some(_) => Some(false),
                None => {
                    let connects = TcpStream::connect(address).is_ok();
                    let ready = || send(address, "GET", "/-/ready", &[], "").status == 200;
                    (connects && ready()).then_some(true)
                }
            };
            match poll::first(TIMEOUT, ready) {
                Some(true) => Some((child, address)),
                _ => {
                    let _ = child.kill();
                    let _ = child.wait();
                    None
                }
            }
        });
        let (child, address) = started.expect("prometheus starts");
        Prometheus {
            child,
            address,
            folder,
        }
    }

    fn get(&self, path: &str) -> Value {
        let mut stream = TcpStream::connect(self.address).unwrap();
        // In HTTP/1.0 the body ends with the connection.
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap()
    }

    /// The result of a valid expression.
    fn query(&self, expression: &str) -> Vec<Value> {
        let mut path = "/api/v1/query?query=".to_owned();
        for byte in expression.bytes() {
            path += &format!("%{byte:02X}");
        }
        let answer = self.get(&path);
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        let result = &answer["data"]["result"];
        result.as_array().cloned().unwrap_or_default()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const RULES: &str = "\
version: 1
rules:
  - name: login
    key: [ip]
    limits: [sliding-window-log 2/h]
  - name: mail
    key: [ip]
    limits: [leaky-bucket 10/min queue 20]
  - name: new
    key: [ip]
    limits: [1/h]
    shadow: true
  - { name: spender, budget: daily, match: { path: /spend } }
budgets:
  daily: { limits: token-bucket 1/h burst 1000 }
";

/// Every expression of the dashboard, with its variables replaced.
fn dashboard() -> Vec<String> {
    let text = fs::read_to_string(format!("{OPS}/grafana-dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array())
        .flatten();
    let mut expressions: Vec<String> = targets
        .map(|target| {
            assert_eq!(target["datasource"]["uid"], "${datasource}");
            target["expr"].as_str().unwrap().to_owned()
        })
        .collect();
    assert!(expressions.len() > 20);
    // The queries of the variables.
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        if let Some(query) = variable["definition"].as_str() {
            let inner = query.strip_prefix("label_values(").unwrap();
            let (selector, label) = inner.rsplit_once(", ").unwrap();
            let label = label.strip_suffix(')').unwrap();
            expressions.push(format!("count by ({label}) ({selector})"));
        }
    }
    let filled = |expression: String| {
        let filled = expression
            .replace("$__rate_interval", "20s")
            .replace("$instance", ".+")
            .replace("$rule", ".+")
            .replace("$job", ".+");
        assert!(!filled.contains('$'), "{filled}");
        filled
    };
    expressions.into_iter().map(filled).collect()
}

/// Names and expressions of all alerts and recording rules.
fn rules(prometheus: &Prometheus) -> Vec<(String, String)> {
    let answer = prometheus.get("/api/v1/rules");
    let groups = answer["data"]["groups"].as_array().unwrap().clone();
    let rules = groups
        .iter()
        .flat_map(|group| group["rules"].as_array().unwrap().clone());
    rules
        .map(|rule| {
            let text = |name: &str| rule[name].as_str().unwrap_or_default().to_owned();
            assert_eq!(text("lastError"), "", "{rule}");
            (text("name"), text("query"))
        })
        .collect()
}

/// The metric selectors of an expression.
fn selectors(expression: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = expression;
    let find = |text: &str| {
        let prefixes = ["tallygate_", "process_"].into_iter();
        prefixes.filter_map(|prefix| text.find(prefix)).min()
    };
    while let Some(at) = find(rest) {
        let is_within_a_name = rest[..at].ends_with(':');
        rest = &rest[at..];
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        let labels = match after.starts_with('{') {
            true => &after[..=after.find('}').unwrap()],
            false => "",
        };
        if !is_within_a_name {
            found.push(format!("{name}{labels}"));
        }
        rest = after;
    }
    found
}

#[test]
fn dashboard_and_alerts_use_exported_metrics() {
    let folder = TempDir::new();
    let path = folder.write("rules.yaml", RULES);
    let upstream = Upstream::text("hello");
    let url = format!("http://{}", upstream.address);
    let gateway = ["--gateway", "127.0.0.1:0", "--upstream", &url];
    let server = Server::start(&[&["--config", &path], &gateway[..]].concat());
    let prometheus = Prometheus::start(&server);
    let scrapes = || {
        let scraped = prometheus.query("count_over_time(tallygate_breaker_state[1m])");
        let number = scraped.first().map(|one| one["value"][1].clone());
        number.and_then(|number| number.as_str()?.parse::<u64>().ok())
    };
    let wait_for_scrapes = |times: u64| {
        let before = scrapes().unwrap_or_default();
        poll::until(TIMEOUT * 2, "scrapes", || scrapes() >= Some(before + times));
    };
    wait_for_scrapes(2);
    for rule in ["login", "mail", "new", "spender"] {
        for _ in 0..5 {
            let body = format!(r#"{{"rule":"{rule}","attributes":{{"ip":"192.0.2.1"}}}}"#);
            server.check(&body);
        }
    }
    send(server.gateway(), "GET", "/", &[], "");
    // Prometheus has scraped every decision.
    wait_for_scrapes(3);
    let counted = |outcome: &str, rule: &str| {
        let query =
            format!(r#"sum(tallygate_decisions_total{{outcome="{outcome}",rule="{rule}"}})"#);
        prometheus.query(&query)[0]["value"][1].clone()
    };
    assert_eq!(counted("refused", "login"), "3");
    // Two checks, and the request to the gateway.
    assert_eq!(counted("admitted", "login"), "3");
    assert_eq!(counted("delayed", "mail"), "4");
    assert_eq!(counted("shadow_refused", "new"), "4");

    let metrics = server.admin("GET", "/metrics", "").body;
    let exported: BTreeSet<&str> = metrics
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split(['{', ' ']).next().unwrap())
        .collect();
    let alerts = rules(&prometheus);
    assert_eq!(alerts.len(), 19, "{alerts:?}");
    let dashboard = dashboard();
    for expression in &dashboard {
        assert!(
            !prometheus.query(expression).is_empty(),
            "no data: {expression}"
        );
    }
    let mut shown = BTreeSet::new();
    let all = dashboard
        .iter()
        .chain(alerts.iter().map(|(_, query)| query));
    for expression in all {
        prometheus.query(expression);
        for selector in selectors(expression) {
            let name = selector.split('{').next().unwrap();
            assert!(exported.contains(name), "{name} in {expression}");
            assert!(
                !prometheus.query(&selector).is_empty(),
                "{selector} has no data"
            );
            let family = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|end| name.strip_suffix(end));
            shown.insert(family.unwrap_or(name).to_owned());
        }
    }
    // Every exported metric is shown.
    let types = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "));
    for family in types.map(|line| line.split(' ').next().unwrap()) {
        assert!(shown.contains(family), "no panel shows {family}");
    }

    // An invalid rules file fires an alert.
    let firing = || {
        let fired = prometheus.query(r#"ALERTS{alertname="TallygateReloadFailed"}"#);
        fired
            .iter()
            .any(|alert| alert["metric"]["alertstate"] == "firing")
    };
    assert!(!firing());
    folder.write("rules.yaml", "version: 1\nrules: [oops]\n");
    server.signal("-HUP");
    poll::until(TIMEOUT * 2, "the alert", firing);
    assert!(prometheus.folder.path().exists());
}

#[test]
fn prometheus_rules_are_valid_and_fire() {
    let file = |name: &str| format!("{OPS}/{name}");
    let alerts = file("prometheus-alerts.yaml");
    promtool(&[
        "check",
        "rules",
        &alerts,
        &file("prometheus-recording.yaml"),
    ]);
    promtool(&["check", "config", &file("prometheus.yaml")]);
    promtool(&["test", "rules", &file("prometheus-alerts.test.yaml")]);
    // Every alert has a test.
    let text = fs::read_to_string(&alerts).unwrap();
    let tested = fs::read_to_string(file("prometheus-alerts.test.yaml")).unwrap();
    let names = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    let names: Vec<&str> = names.collect();
    assert_eq!(names.len(), 16);
    for name in names {
        assert!(tested.contains(&format!("alertname=\"{name}\"")), "{name}");
    }
}
