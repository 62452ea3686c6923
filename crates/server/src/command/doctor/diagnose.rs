//! Runs all checks in order: URL, connection, TLS, authentication, then the servers.

use tallygate::{RedisError, RedisStore, Topology};

use super::finding::{Finding, Level, merge};
use super::server_info::ServerInfo;
use super::{decisions, permissions, server};

pub(super) fn memory() -> Vec<Finding> {
    vec![
        Finding::ok(
            "store",
            "memory: the counters are in the process that enforces the limits; nothing to check",
        ),
        Finding::info(
            "sharing",
            "each process counts separately: behind n processes a client gets up to n times \
             the limit; use --store redis://host to share one",
        ),
        Finding::info("restart", "counters are lost when the process restarts"),
    ]
}

/// Runs every check; stops if no server can be reached.
pub(super) async fn examine(store: &RedisStore, namespace: &str) -> Vec<Finding> {
    let mut findings = vec![Finding::ok("url", describe(store))];
    let servers = match store.servers().await {
        Ok(servers) => servers,
        Err(error) => {
            findings.extend(connection_findings(&error));
            return findings;
        }
    };
    let mut infos = Vec::new();
    for server in &servers {
        match ServerInfo::fetch(server).await {
            Ok(info) => infos.push(info),
            Err(error) => findings.push(Finding {
                server: (servers.len() > 1).then(|| server.address().to_owned()),
                ..Finding::failed("connection", &error)
            }),
        }
    }
    if infos.is_empty() {
        return findings;
    }
    let reached: Vec<&str> = infos.iter().map(|info| info.server.address()).collect();
    findings.push(Finding::ok("connection", describe_reached(&reached)));
    findings.push(tls(store));
    let user = store.user().unwrap_or("default");
    findings.push(Finding::ok("sign-in", format!("as user {user}")));
    let mut each = Vec::new();
    for info in &infos {
        let mut found = server::check_required(info, store.topology()).await;
        found.extend(permissions::examine(info.server, store, namespace).await);
        each.push((info.server.address().to_owned(), found));
    }
    findings.extend(merge(each));
    if store.topology() == Topology::Cluster {
        findings.push(server::cluster(infos[0].server, infos.len()).await);
    }
    // After a failure, these would only repeat it.
    if findings.iter().all(|finding| finding.level != Level::Fail) {
        findings.push(decisions::scripts(store).await);
        findings.push(decisions::latency(store).await);
    }
    let mut each = Vec::new();
    for info in &infos {
        let found = server::check_settings(info, namespace).await;
        each.push((info.server.address().to_owned(), found));
    }
    findings.extend(merge(each));
    findings
}

fn describe(store: &RedisStore) -> &'static str {
    match store.topology() {
        Topology::Single => "one server",
        Topology::Socket => "one server, over a Unix socket",
        Topology::Sentinel => "a master monitored by Sentinel",
        Topology::Cluster => "a cluster",
    }
}

fn describe_reached(reached: &[&str]) -> String {
    match reached {
        [one] => format!("{one} replies"),
        many => format!("{} masters reply: {}", many.len(), many.join(", ")),
    }
}

/// Assigns a connection error to the check it belongs to.
fn connection_findings(error: &RedisError) -> Vec<Finding> {
    let connected = Finding::ok("connection", "the server replies");
    match error.code() {
        Some("TLS") => vec![Finding::failed("tls", error)],
        Some("NOAUTH" | "WRONGPASS" | "DB") => vec![connected, Finding::failed("sign-in", error)],
        Some("NOPERM") => vec![connected, Finding::failed("rights", error)],
        Some("VERSION") => vec![connected, Finding::failed("version", error)],
        Some("TOPOLOGY") => vec![connected, Finding::failed("arrangement", error)],
        Some("CLUSTERDOWN") => vec![connected, Finding::failed("cluster", error)],
        Some(_) | None => vec![Finding::failed("connection", error)],
    }
}

fn tls(store: &RedisStore) -> Finding {
    if store.is_encrypted() {
        return Finding::ok("tls", "encrypted; the server's certificate is trusted");
    }
    match store.topology() {
        Topology::Socket => Finding::ok("tls", "not needed on a Unix socket"),
        Topology::Single | Topology::Sentinel | Topology::Cluster => Finding::info(
            "tls",
            "not encrypted: keys and the password are visible on the network; use rediss:// to \
             encrypt",
        ),
    }
}
