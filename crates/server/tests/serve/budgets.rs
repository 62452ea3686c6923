//! Budgets that several rules and several servers spend, and costs by path.

use tallygate_testkit::poll;
use tallygate_testkit::redis::Server as Redis;

use super::client::Response;
use super::upstream::Upstream;
use super::{Server, TIMEOUT, TempDir, send};

/// A gateway with these rules, by their YAML without version.
fn start(rules: &str, upstream: &Upstream, store: &str) -> (TempDir, Server) {
    let folder = TempDir::new();
    let rules = folder.write("rules.yaml", &format!("version: 1\n{rules}"));
    let url = upstream.url();
    let server = Server::start(&[
        "--config",
        &rules,
        "--store",
        store,
        "--gateway",
        "127.0.0.1:0",
        "--upstream",
        &url,
    ]);
    poll::until(TIMEOUT, "ready", || {
        server.admin("GET", "/readyz", "").status == 200
    });
    (folder, server)
}

fn get(server: &Server, path: &str, key: &str) -> Response {
    send(server.gateway(), "GET", path, &[("x-api-key", key)], "")
}

fn remaining(response: &Response) -> u32 {
    let value = response.header("x-ratelimit-remaining");
    value
        .unwrap_or_else(|| panic!("{response:?}"))
        .parse()
        .unwrap()
}

const BUDGET: &str = "
budgets: { api: { key: { header: x-api-key }, limits: sliding-window-log 20/d } }
";

#[test]
fn two_servers_with_different_rules_spend_one_budget() {
    let redis = Redis::start();
    let upstream = Upstream::text("hello");
    let read = format!("{BUDGET}rules: [{{ name: read, match: {{ path: /read }}, budget: api }}]");
    let search = format!(
        "{BUDGET}rules:
  - {{ name: find, match: {{ path: /search }}, budget: api, cost: 5 }}
  # Its own counter, although it has the name of the budget.
  - {{ name: api, match: {{ path: /own }}, key: {{ header: x-api-key }},
      limits: sliding-window-log 20/d }}"
    );
    let (_one, first) = start(&read, &upstream, &redis.url());
    let (_two, second) = start(&search, &upstream, &redis.url());
    let mut left = 20;
    for _ in 0..3 {
        let response = get(&first, "/read", "k1");
        left -= 1;
        assert_eq!((response.status, remaining(&response)), (200, left));
        let response = get(&second, "/search", "k1");
        left -= 5;
        assert_eq!((response.status, remaining(&response)), (200, left));
    }
    assert_eq!(get(&second, "/search", "k1").status, 429);
    let last = get(&first, "/read", "k1");
    assert_eq!((last.status, remaining(&last)), (200, left - 1));
    assert_eq!(
        last.header("ratelimit-policy"),
        Some("\"api\";q=20;w=86400")
    );
    // Other keys and rules have counters of their own.
    assert_eq!(remaining(&get(&second, "/search", "k2")), 15);
    assert_eq!(remaining(&get(&second, "/own", "k1")), 19);
    // Metrics are by rule.
    let decisions = |rule, outcome| {
        second.metric(&format!(
            "tallygate_decisions_total{{outcome=\"{outcome}\",rule=\"{rule}\"}}"
        ))
    };
    assert_eq!(decisions("find", "admitted"), Some(4.0));
    assert_eq!(decisions("find", "refused"), Some(1.0));
    let rules = second.admin("GET", "/admin/rules", "").json();
    assert_eq!(rules["rules"][0]["budget"], "api");
    assert_eq!(rules["rules"][1]["budget"], serde_json::Value::Null);
}

#[test]
fn a_request_that_two_rules_match_is_charged_the_sum() {
    let upstream = Upstream::start(|request| {
        let found = !request.lines[0].contains("missing");
        let status = if found { "200 OK" } else { "404 Not Found" };
        format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").into_bytes()
    });
    let rules = format!(
        "{BUDGET}rules:
  - {{ name: every, budget: api }}
  - {{ name: search, match: {{ path: /search/** }}, budget: api, cost: 4, count: {{ except: 404 }} }}
  - {{ name: shadow, budget: api, cost: 7, shadow: true }}
overrides:
  - {{ for: {{ key: large }}, rule: search, limits: sliding-window-log 50/d }}"
    );
    let (_folder, server) = start(&rules, &upstream, "memory");
    assert_eq!(remaining(&get(&server, "/", "k1")), 19);
    assert_eq!(remaining(&get(&server, "/search", "k1")), 14);
    // What the second rule took is given back, and what the first took is not.
    get(&server, "/search/missing", "k1");
    assert_eq!(remaining(&get(&server, "/", "k1")), 12);
    assert_eq!(remaining(&get(&server, "/search", "k1")), 7);
    assert_eq!(remaining(&get(&server, "/search", "k1")), 2);
    let refused = get(&server, "/search", "k1");
    assert_eq!((refused.status, remaining(&refused)), (429, 2));
    let decisions = |rule, outcome| {
        server.metric(&format!(
            "tallygate_decisions_total{{outcome=\"{outcome}\",rule=\"{rule}\"}}"
        ))
    };
    for rule in ["every", "search"] {
        assert_eq!(decisions(rule, "refused"), Some(1.0), "{rule}");
    }
    assert_eq!(decisions("every", "admitted"), Some(6.0));
    assert_eq!(decisions("search", "admitted"), Some(4.0));
    assert_eq!(decisions("shadow", "shadow_refused"), Some(4.0));
    // The limits of a budget are replaced for all its rules.
    assert_eq!(remaining(&get(&server, "/", "large")), 49);
    assert_eq!(remaining(&get(&server, "/search", "large")), 44);
    // A budget is listed once.
    let keys = server.admin("GET", "/admin/keys/k1", "").json();
    let counters = keys["counters"].as_array().unwrap();
    let of_budget = counters.iter().filter(|c| c["rule"] == "every");
    assert_eq!(of_budget.count(), 2, "{keys}");
    assert!(counters.iter().all(|c| c["budget"] == "api"), "{keys}");
    assert!(counters.iter().all(|c| c["rule"] != "search"), "{keys}");
}

#[test]
fn the_most_expensive_reading_of_a_path_is_charged() {
    let rules = "
rules:
  - name: api
    key: { header: x-api-key }
    limits: sliding-window-log 1000/d
    cost: { path: { /api/search: 5, /api/**: 2, '/api/export/**': 20, /free: 0 }, default: 1 }";
    let upstream = Upstream::text("hello");
    let (_folder, server) = start(rules, &upstream, "memory");
    for (number, (path, cost)) in [
        ("/", 1),
        ("/free", 0),
        ("/api", 2),
        ("/api/other", 2),
        ("/api/search", 5),
        ("/api/search/", 5),
        ("//api//search", 5),
        ("/api/%73earch?q=1", 5),
        ("/api/search/more", 2),
        ("/api/export", 20),
        ("/api/export/a/b", 20),
        ("/api/search;jsessionid=1", 5),
        ("/free;x", 1),
        ("/free/..%2Fapi%2Fexport", 20),
        ("/free/..;/api/export", 20),
        ("/api/export%2F..%2Fsearch", 5),
        ("/x//../api/search", 5),
    ]
    .into_iter()
    .enumerate()
    {
        let response = get(&server, path, &format!("key {number}"));
        assert_eq!(1000 - remaining(&response), cost, "{path}");
    }
}

#[test]
fn the_documented_budget_is_spent_as_documented() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/rules.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    let (_, section) = docs.split_once("\n## budgets\n").unwrap();
    let example = section.split("```yaml\n").nth(1).unwrap();
    let example = example.split("```").next().unwrap();
    let rules = example.replace("version: 1\n", "");
    let upstream = Upstream::text("hello");
    let (_folder, server) = start(&rules, &upstream, "memory");
    let request = |method, path| {
        let headers = [("x-api-key", "k1")];
        let response = send(server.gateway(), method, path, &headers, "");
        let policy = response.header("ratelimit-policy").unwrap();
        assert!(policy.starts_with("\"api "), "{policy}");
        // 40 at once, refilled at 10 a second.
        assert_eq!(response.header("x-ratelimit-limit"), Some("40"));
        (response.status, remaining(&response))
    };
    assert_eq!(request("GET", "/api/items"), (200, 39));
    // 20 of the units left, or of a full bucket.
    let (status, left) = request("POST", "/api/import/all");
    assert_eq!(status, 200);
    assert!((19..=20).contains(&left), "{left}");
}
