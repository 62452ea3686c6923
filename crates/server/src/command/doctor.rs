//! `tallygate doctor`: checks a store and prints findings with advice.

mod decisions;
mod permissions;
mod report;
mod server;

use std::io::Write;

use tallygate::store::{RedisServer, Topology};
use tallygate::{RedisError, RedisStore};

use self::report::{Finding, Level, Report, merge};
use self::server::ServerInfo;
use crate::cli::DoctorArgs;
use crate::error::Failure;
use crate::format::write_json;
use crate::store_url::StoreUrl;
use crate::temp_store::TempStore;

pub(crate) fn run(args: &DoctorArgs, out: &mut impl Write) -> Result<(), Failure> {
    let report = match StoreUrl::from_args(&args.store)? {
        StoreUrl::Memory => Report::new("memory", memory()),
        StoreUrl::Redis(builder) => match TempStore::open(builder, "doctor")? {
            Err(error) => Report::new("unknown", vec![Finding::failed("url", &error)]),
            Ok(temp) => {
                let (topology, _) = describe(temp.store());
                let findings = temp.run(examine(temp.store(), temp.namespace()));
                Report::new(topology, findings)
            }
        },
    };
    match args.json {
        true => write_json(&report, out)?,
        false => report.write_text(out)?,
    }
    match report.healthy {
        true => Ok(()),
        false => Err(Failure::CheckFailed),
    }
}

/// Whether a server may evict counters when its memory is full. `None` if the user may not know.
pub(crate) async fn may_evict(server: &RedisServer) -> Option<bool> {
    let info = ServerInfo::fetch(server).await.ok()?;
    info.may_evict()
}

fn memory() -> Vec<Finding> {
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

/// Runs every check in order: URL, connection, TLS, authentication, then the servers. Stops if no
/// server can be reached.
async fn examine(store: &RedisStore, namespace: &str) -> Vec<Finding> {
    let (_, topology) = describe(store);
    let mut findings = vec![Finding::ok("url", topology)];
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
    let reached = match &*reached {
        [one] => format!("{one} replies"),
        many => format!("{} masters reply: {}", many.len(), many.join(", ")),
    };
    findings.push(Finding::ok("connection", reached));
    findings.push(tls(store));
    let user = store.user().unwrap_or("default");
    findings.push(Finding::ok("sign-in", format!("as user {user}")));
    let mut each = Vec::new();
    for info in &infos {
        let mut found = server::check_required(info, store.topology()).await;
        found.extend(permissions::examine(info.server, store, namespace).await);
        each.push((info.server.address().to_owned(), found));
    }
    findings.extend(merge(&each));
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
    findings.extend(merge(&each));
    findings
}

/// The topology as a word and as text.
fn describe(store: &RedisStore) -> (&'static str, &'static str) {
    match store.topology() {
        Topology::Single => ("single", "one server"),
        Topology::Socket => ("socket", "one server, over a Unix socket"),
        Topology::Sentinel => ("sentinel", "a master monitored by Sentinel"),
        Topology::Cluster => ("cluster", "a cluster"),
        Topology::Shards => (
            "shards",
            "independent servers, each with a part of the keys",
        ),
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
        Topology::Single | Topology::Sentinel | Topology::Cluster | Topology::Shards => {
            Finding::info(
                "tls",
                "not encrypted: keys and the password are visible on the network; use rediss:// to \
                 encrypt",
            )
        }
    }
}
