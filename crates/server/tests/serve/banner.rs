//! The banner on a terminal, against golden files; and its request, as it is pasted.

use std::net::SocketAddr;
use std::process::Command;

use serde_json::Value;
use tallygate_testkit::redis::Server as Redis;

use super::golden_file::golden;
use super::terminal::Terminal;
use super::upstream::Upstream;
use super::{TempDir, tallygate};

const RULES: &str = "\
version: 1
budgets:
  api: { key: [{ header: x-api-key, or: ip }], limits: [100/min, 1000/h] }
rules:
  - name: login
    match: { method: POST, path: /login, header: { x-plan: 'p*' } }
    key: ip
    limits: sliding-window-log 5/min
  - name: search
    match: { path: /api/search }
    budget: api
    cost: 5
  - name: reads
    match: { path: /api/** }
    budget: api
  - name: total
    limits: 10000/s
    shadow: true
  - name: old
    enabled: false
    limits: 1/s
";

/// The banner, with names for addresses, and the addresses.
fn banner(args: &[&str], upstream: &Upstream, with_gateway: bool) -> (String, Value, Terminal) {
    let url = format!("http://{}", upstream.address);
    let ports = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let gateway = ["--gateway", "127.0.0.1:0", "--upstream", &url];
    let gateway = if with_gateway { &gateway[..] } else { &[] };
    let command = tallygate(&[&ports, gateway, args].concat());
    let terminal = Terminal::start(150, 50, &command);
    terminal.wait_for("429");
    let text = terminal.text();
    let first = text.lines().next().unwrap();
    let addresses: Value = serde_json::from_str(first).unwrap();
    let mut shown = text[first.len() + 1..].to_owned();
    // Log lines may follow.
    let end = shown.find("\n\n20").unwrap_or(shown.len());
    shown.truncate(end);
    for name in ["api", "gateway", "admin"] {
        if let Some(address) = addresses[name].as_str() {
            shown = shown.replace(address, &name.to_uppercase());
        }
    }
    shown = shown.replace(&upstream.address.to_string(), "UPSTREAM");
    let lines: Vec<&str> = shown.lines().map(str::trim_end).collect();
    (
        format!("{}\n", lines.join("\n").trim_end()),
        addresses,
        terminal,
    )
}

/// Pastes the last command of a banner into a shell.
fn paste(banner: &str, addresses: &Value) -> String {
    let at = banner.find("    curl ").unwrap();
    let mut command = banner[at..].trim().to_owned();
    for name in ["api", "gateway"] {
        if let Some(address) = addresses[name].as_str() {
            command = command.replace(&name.to_uppercase(), address);
        }
    }
    let output = Command::new("sh").arg("-c").arg(&command).output().unwrap();
    assert!(output.status.success(), "{command}: {output:?}");
    String::from_utf8_lossy(&output.stdout).to_lowercase()
}

#[test]
fn the_banner_of_a_limit_shows_a_request_that_is_limited() {
    let upstream = Upstream::text("hello");
    let (text, addresses, _server) = banner(&["--limit", "2/h"], &upstream, true);
    golden("banner-limit.txt", &text);
    let answer = paste(&text, &addresses);
    assert!(answer.starts_with("http/1.1 200"), "{answer}");
    assert!(
        answer.contains("ratelimit: \"per-client\";r=1;"),
        "{answer}"
    );
    paste(&text, &addresses);
    let answer = paste(&text, &addresses);
    assert!(answer.starts_with("http/1.1 429"), "{answer}");
}

#[test]
fn the_banner_of_the_sample_says_what_is_not_limited() {
    let upstream = Upstream::text("hello");
    let (text, addresses, _server) = banner(&[], &upstream, true);
    golden("banner-sample.txt", &text);
    let answer = paste(&text, &addresses);
    assert!(answer.contains("ratelimit: \"login\";r=4;"), "{answer}");
}

#[test]
fn the_banner_of_a_file_shows_rules_budgets_and_the_store() {
    let upstream = Upstream::text("hello");
    let (folder, redis) = (TempDir::new(), Redis::start());
    let rules = folder.write("rules.yaml", RULES);
    let args = ["--config", &rules, "--store", &redis.url()];
    let (text, addresses, _server) = banner(&args, &upstream, true);
    let server = SocketAddr::from(([127, 0, 0, 1], redis.port())).to_string();
    let shown = text.replace(&rules, "rules.yaml").replace(&server, "REDIS");
    golden("banner-file.txt", &shown);
    let answer = paste(&text, &addresses);
    assert!(answer.contains("ratelimit: \"login\";r=4;"), "{answer}");
}

#[test]
fn without_a_gateway_the_banner_shows_a_check() {
    let upstream = Upstream::text("hello");
    let (text, addresses, _server) = banner(&[], &upstream, false);
    golden("banner-no-gateway.txt", &text);
    let statuses = [1, 2, 3].map(|_| paste(&text, &addresses)[9..12].to_owned());
    assert_eq!(statuses, ["200", "200", "429"]);
}

/// The first shell block of the README that contains a text.
fn readme(part: &str) -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
    let readme = std::fs::read_to_string(path).unwrap();
    let blocks = readme.split("```sh\n").skip(1);
    let mut blocks = blocks.map(|block| block.split("```").next().unwrap());
    blocks
        .find(|block| block.contains(part))
        .unwrap()
        .to_owned()
}

#[test]
fn the_commands_of_the_readme_do_what_it_says() {
    let upstream = Upstream::text("hello");
    let serve = readme("serve --limit");
    let serve = serve.lines().find(|line| line.contains("--limit")).unwrap();
    let limit = serve.split('\'').nth(1).unwrap();
    assert!(serve.contains(" --upstream http://"), "{serve}");
    let (_, addresses, _server) = banner(&["--limit", limit], &upstream, true);
    let gateway = addresses["gateway"].as_str().unwrap();
    let answer = paste("    curl -si http://GATEWAY/any/path", &addresses);
    assert!(answer.contains("\"per-client\""), "{gateway}: {answer}");
    // The API's default address.
    let check = readme("/v1/check").replace("127.0.0.1:8080", "API");
    let statuses = [1, 2, 3].map(|_| {
        let answer = paste(&format!("    {check}"), &addresses);
        assert_eq!(
            answer.contains("retry-after: "),
            answer.starts_with("http/1.1 429")
        );
        answer[9..12].to_owned()
    });
    assert_eq!(statuses, ["200", "200", "429"]);
}
