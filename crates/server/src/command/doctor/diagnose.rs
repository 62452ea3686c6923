//! Whether the store is where the URL says, and lets us in. Then everything else, in order.

use tallygate::{RedisError, RedisStore, Topology};

use super::finding::{Finding, Level, together};
use super::server_info::Look;
use super::{decisions, permissions, server};

/// What there is to say of counters in this process.
pub(super) fn memory() -> Vec<Finding> {
    vec![
        Finding::ok(
            "store",
            "memory: the counters are in the process that limits; nothing to connect to",
        ),
        Finding::info(
            "sharing",
            "every process counts for itself: behind n of them a client may get n times the \
             limit; to share one, give --store redis://host",
        ),
        Finding::info("restart", "a process that restarts forgets its counts"),
    ]
}

/// A URL that names no store.
pub(super) fn bad_url(error: &RedisError) -> Finding {
    Finding::failed("url", error)
}

/// Looks at everything. Stops where nothing further can be learnt.
pub(super) async fn examine(store: &RedisStore, namespace: &str) -> Vec<Finding> {
    let mut findings = vec![Finding::ok("url", described(store))];
    let servers = match store.servers().await {
        Ok(servers) => servers,
        Err(error) => {
            findings.extend(not_reached(&error));
            return findings;
        }
    };
    let mut looks = Vec::new();
    for server in &servers {
        match Look::at(server).await {
            Ok(look) => looks.push(look),
            Err(error) => findings.push(Finding {
                server: (servers.len() > 1).then(|| server.address().to_owned()),
                ..Finding::failed("connection", &error)
            }),
        }
    }
    if looks.is_empty() {
        return findings;
    }
    let reached: Vec<&str> = looks.iter().map(|look| look.server.address()).collect();
    findings.push(Finding::ok("connection", answers(&reached)));
    findings.push(tls(store));
    let user = store.user().unwrap_or("default");
    findings.push(Finding::ok("sign-in", format!("as user {user}")));
    let mut each = Vec::new();
    for look in &looks {
        let mut found = server::basics(look, store.topology()).await;
        found.extend(permissions::examine(look.server, store, namespace).await);
        each.push((look.server.address().to_owned(), found));
    }
    findings.extend(together(each));
    if store.topology() == Topology::Cluster {
        findings.push(server::cluster(looks[0].server, looks.len()).await);
    }
    // Whatever is wrong by now would only be said again.
    if findings.iter().all(|finding| finding.level != Level::Fail) {
        findings.push(decisions::scripts(store).await);
        findings.push(decisions::latency(store).await);
    }
    let mut each = Vec::new();
    for look in &looks {
        let found = server::surroundings(look, namespace).await;
        each.push((look.server.address().to_owned(), found));
    }
    findings.extend(together(each));
    findings
}

fn described(store: &RedisStore) -> &'static str {
    match store.topology() {
        Topology::Single => "one server",
        Topology::Socket => "one server, by a socket of this machine",
        Topology::Sentinel => "a master that sentinels watch over",
        Topology::Cluster => "a cluster",
    }
}

fn answers(reached: &[&str]) -> String {
    match reached {
        [one] => format!("{one} answers"),
        many => format!("{} masters answer: {}", many.len(), many.join(", ")),
    }
}

/// Puts a failure to connect under the check it belongs to.
fn not_reached(error: &RedisError) -> Vec<Finding> {
    let answers = Finding::ok("connection", "the server answers");
    match error.code() {
        Some("TLS") => vec![Finding::failed("tls", error)],
        Some("NOAUTH" | "WRONGPASS" | "DB") => vec![answers, Finding::failed("sign-in", error)],
        Some("NOPERM") => vec![answers, Finding::failed("rights", error)],
        Some("VERSION") => vec![answers, Finding::failed("version", error)],
        Some("TOPOLOGY") => vec![answers, Finding::failed("arrangement", error)],
        Some("CLUSTERDOWN") => vec![answers, Finding::failed("cluster", error)],
        Some(_) | None => vec![Finding::failed("connection", error)],
    }
}

fn tls(store: &RedisStore) -> Finding {
    if store.is_encrypted() {
        return Finding::ok("tls", "encrypted; the server's certificate is trusted");
    }
    match store.topology() {
        Topology::Socket => Finding::ok("tls", "not needed within one machine"),
        Topology::Single | Topology::Sentinel | Topology::Cluster => Finding::info(
            "tls",
            "not encrypted: whoever sees the network sees keys and the password; rediss:// \
             encrypts",
        ),
    }
}
