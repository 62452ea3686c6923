//! Doctor on healthy servers and on servers with problems.

use serde_json::Value;
use tallygate_testkit::redis::{
    ClientCertificate, Cluster, Flavour, Sentinel, Server, TlsServer, User,
};

use crate::golden::golden;
use crate::{CommandOutput, run};

fn doctor(url: &str, more: &[&str]) -> CommandOutput {
    run(&[&["doctor", "--store", url], more].concat(), "")
}

/// Replaces what depends on the machine and the run.
fn masked(page: &str) -> String {
    let mut shown = String::new();
    for line in page.lines() {
        let mut parts = Vec::new();
        for part in line.split(' ') {
            let host = part.starts_with("127.0.0.1:");
            let end = if part.ends_with(',') { "," } else { "" };
            parts.push(match host {
                true => format!("127.0.0.1:<port>{end}"),
                false => part.to_owned(),
            });
        }
        shown += &(parts.join(" ") + "\n");
    }
    let mut out = String::new();
    let mut hidden = false;
    for line in shown.lines().filter(|line| !line.starts_with("Healthy")) {
        let check = line.get(6..20).unwrap_or_default().trim_end();
        hidden = match check {
            "" => hidden && line.starts_with(' '),
            // Its length varies, and with it the line breaks.
            // On a loaded machine it may be a warning.
            "latency" | "eviction" | "version" => {
                out += &format!("      {}<varies>\n", &line[6..22]);
                true
            }
            _ => false,
        };
        if !hidden {
            out += line;
            out.push('\n');
        }
    }
    out
}

#[track_caller]
fn healthy(output: &CommandOutput) {
    assert_eq!(
        (output.code, output.stderr.as_str()),
        (0, ""),
        "{}",
        output.stdout
    );
    assert!(
        output.stdout.lines().all(|line| line.chars().count() <= 80),
        "{}",
        output.stdout
    );
}

/// The finding of a check, from the JSON output.
fn finding(url: &str, check: &str) -> Value {
    let output = doctor(url, &["--json"]);
    let shown: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(shown["healthy"], output.code == 0);
    let findings = shown["findings"].as_array().unwrap();
    let found = findings.iter().find(|finding| finding["check"] == check);
    found
        .unwrap_or_else(|| panic!("no {check}: {}", output.stdout))
        .clone()
}

#[test]
fn memory_is_healthy() {
    let output = run(&["doctor"], "");
    healthy(&output);
    golden("doctor-memory.txt", &output.stdout);
}

#[test]
fn healthy_servers_are_reported_healthy_and_left_unchanged() {
    let server = Server::start();
    let output = doctor(&server.url(), &[]);
    healthy(&output);
    assert!(
        output.stdout.contains("ok    version         Redis "),
        "{}",
        output.stdout
    );
    golden("doctor-single.txt", &masked(&output.stdout));
    assert_eq!(server.command(&["DBSIZE"]).integer(), 0);
    healthy(&doctor(&server.unix_url(), &[]));
    let valkey = Server::start_as(Flavour::Valkey, &[]);
    let output = doctor(&valkey.url(), &[]);
    healthy(&output);
    assert!(
        output.stdout.contains("ok    version         Valkey "),
        "{}",
        output.stdout
    );
}

#[test]
fn sentinel_is_reported_healthy_with_its_replicas() {
    let group = Sentinel::start();
    let output = doctor(&group.url(), &[]);
    healthy(&output);
    assert!(
        output.stdout.contains("mymaster replies"),
        "{}",
        output.stdout
    );
    assert!(output.stdout.contains("2 replicas"), "{}", output.stdout);
}

#[test]
fn a_cluster_is_reported_healthy_until_slots_are_lost() {
    let cluster = Cluster::start();
    let output = doctor(&cluster.url(), &[]);
    healthy(&output);
    assert!(
        output
            .stdout
            .contains("all 16384 slots are covered, by 3 masters"),
        "{}",
        output.stdout
    );
    for node in cluster.masters() {
        assert_eq!(cluster.node(node).command(&["DBSIZE"]).integer(), 0);
    }
    // An unassigned slot.
    let owner = cluster.node_for_slot(0);
    for node in cluster.nodes() {
        node.command(&["CLUSTER", "DELSLOTS", "0"]);
    }
    let found = finding(
        &cluster
            .node(owner)
            .url()
            .replace("redis://", "redis-cluster://"),
        "cluster",
    );
    assert_eq!(found["level"], "fail", "{found}");
    assert!(
        found["text"]
            .as_str()
            .unwrap()
            .starts_with("16383 of 16384"),
        "{found}"
    );
}

#[test]
fn tls_and_a_user_with_minimal_permissions_are_healthy() {
    let tls = TlsServer::start(ClientCertificate::Required);
    let certificates = tls.certificates();
    let (authority, client) = (certificates.authority(), certificates.client());
    let certificates = [
        "--ca-cert",
        authority.to_str().unwrap(),
        "--client-cert",
        client.certificate.to_str().unwrap(),
        "--client-key",
        client.key.to_str().unwrap(),
    ];
    let output = doctor(&tls.url(User::Admin), &certificates);
    healthy(&output);
    assert!(
        output.stdout.contains("ok    tls             encrypted"),
        "{}",
        output.stdout
    );
    let user = "ACL SETUSER narrow on >narrow-secret ~tallygate:* +@connection +eval +evalsha \
                +script|load +time +set +get +mget +getrange +setrange +pexpireat +del";
    let words: Vec<&str> = user.split_whitespace().collect();
    assert_eq!(tls.server().command(&words).error(), None);
    let url = tls.url(User::Admin);
    let url = url.replace("admin:admin-secret", "narrow:narrow-secret");
    let output = doctor(&url, &certificates);
    healthy(&output);
    golden("doctor-narrow-user.txt", &masked(&output.stdout));
    assert_eq!(tls.server().command(&["DBSIZE"]).integer(), 0);
}

#[test]
fn eviction_is_a_warning() {
    for policy in ["allkeys-lru", "volatile-ttl"] {
        let server = Server::start_with(&["--maxmemory", "100mb", "--maxmemory-policy", policy]);
        healthy(&doctor(&server.url(), &[]));
        let found = finding(&server.url(), "eviction");
        assert_eq!(found["level"], "warn");
        assert!(
            found["advice"].as_str().unwrap().contains("noeviction"),
            "{found}"
        );
    }
    let server = Server::start_with(&["--maxmemory", "100mb"]);
    assert_eq!(finding(&server.url(), "eviction")["level"], "ok");
    // Completely full.
    let server = Server::start_with(&["--maxmemory", "1"]);
    let output = doctor(&server.url(), &[]);
    assert_eq!(output.code, 1);
    assert!(output.stdout.contains("OOM"), "{}", output.stdout);
}

#[test]
fn a_tallygate_key_without_expiry_is_a_warning() {
    let server = Server::start();
    server.command(&["SET", "tallygate:1:{a}cmin", "x", "PX", "60000"]);
    assert_eq!(finding(&server.url(), "expiry")["level"], "ok");
    server.command(&["SET", "tallygate:1:{b}cmin", "x"]);
    let found = finding(&server.url(), "expiry");
    assert_eq!(found["level"], "warn");
    assert!(
        found["text"]
            .as_str()
            .unwrap()
            .starts_with("1 without expiry"),
        "{found}"
    );
}

#[test]
fn data_loss_on_restart_is_reported() {
    let server = Server::start();
    let text = |server: &Server| finding(&server.url(), "persistence")["text"].clone();
    assert!(text(&server).as_str().unwrap().starts_with("none"));
    server.command(&["CONFIG", "SET", "save", "3600 1"]);
    assert!(text(&server).as_str().unwrap().starts_with("snapshots"));
    server.command(&["CONFIG", "SET", "appendonly", "yes"]);
    assert!(text(&server).as_str().unwrap().starts_with("append-only"));
}
