//! Checks one server: version, topology, role, eviction, persistence, replication, clock.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use tallygate::RedisError;
use tallygate::store::{RedisReply, RedisServer, Topology};

use super::report::Finding;
use crate::format::{bytes, duration, plural};

const MIN_VERSION: (u32, u32) = (6, 2);
const MAX_CLOCK_DIFFERENCE_US: u64 = 1_000_000;
/// The bounds of the search for keys: SCAN steps, keys per step, keys examined.
const MAX_SCAN_STEPS: usize = 10;
const SCAN_COUNT: &str = "1000";
const MAX_KEYS: usize = 100;
const SLOTS: u64 = 16_384;

pub(super) struct ServerInfo<'a> {
    pub(super) server: &'a RedisServer,
    /// `None` if the user may not call INFO.
    info: Option<HashMap<String, String>>,
}

impl<'a> ServerInfo<'a> {
    /// Fetches INFO. A missing permission is not an error.
    pub(super) async fn fetch(server: &'a RedisServer) -> Result<Self, RedisError> {
        let info = match server.command(&["INFO"]).await {
            Ok(RedisReply::Text(text)) => Some(fields(&text)),
            Ok(_) => None,
            Err(error) if is_permission_error(&error) => None,
            Err(error) => return Err(error),
        };
        Ok(ServerInfo { server, info })
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.info.as_ref()?.get(name).map(String::as_str)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.field(name)?.parse().ok()
    }

    /// Whether counters may be evicted when the memory is full. `None` if the user may not know.
    pub(super) fn may_evict(&self) -> Option<bool> {
        let policy = self.field("maxmemory_policy")?;
        Some(self.number("maxmemory")? > 0 && policy != "noeviction")
    }

    async fn setting(&self, name: &str) -> Option<String> {
        let reply = self.server.command(&["CONFIG", "GET", name]).await;
        let RedisReply::List(parts) = reply.ok()? else {
            return None;
        };
        match parts.into_iter().nth(1)? {
            RedisReply::Text(value) => Some(value),
            _ => None,
        }
    }
}

fn fields(text: &str) -> HashMap<String, String> {
    let pairs = text
        .lines()
        .filter_map(|line| line.trim_end().split_once(':'));
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

pub(super) fn is_permission_error(error: &RedisError) -> bool {
    error.code() == Some("NOPERM")
}

pub(super) async fn check_required(info: &ServerInfo<'_>, expected: Topology) -> Vec<Finding> {
    vec![version(info), topology(info, expected), role(info).await]
}

pub(super) async fn check_settings(info: &ServerInfo<'_>, keyspace: &str) -> Vec<Finding> {
    let mut found = vec![
        eviction(info),
        persistence(info).await,
        replication(info),
        clock(info.server).await,
        expiry(info.server, keyspace).await,
    ];
    found.extend(sharing(info.server).await);
    found
}

fn version(info: &ServerInfo<'_>) -> Finding {
    let Some(version) = info.field("redis_version") else {
        return Finding::not_permitted("version", "INFO");
    };
    let name = match info.field("valkey_version") {
        Some(valkey) => format!("Valkey {valkey}, compatible with Redis {version}"),
        None => format!("Redis {version}"),
    };
    let mut numbers = version.split('.').map(|part| part.parse().unwrap_or(0));
    let parsed = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if parsed < MIN_VERSION {
        return Finding::fail(
            "version",
            format!("{name} is older than 6.2"),
            "upgrade it to Redis 6.2 or Valkey 7.2 or later",
        );
    }
    Finding::ok("version", name)
}

fn topology(info: &ServerInfo<'_>, expected: Topology) -> Finding {
    let Some(mode) = info.field("redis_mode") else {
        return Finding::not_permitted("arrangement", "INFO");
    };
    match (mode, expected) {
        ("cluster", Topology::Cluster) => Finding::ok("arrangement", "a cluster, as in the URL"),
        (
            "cluster",
            Topology::Single | Topology::Socket | Topology::Sentinel | Topology::Shards,
        ) => Finding::fail(
            "arrangement",
            "this server is part of a cluster",
            "use redis-cluster:// with the same hosts",
        ),
        ("sentinel", _) => Finding::fail(
            "arrangement",
            "this server is a sentinel and holds no data",
            "use redis-sentinel://host:26379/master",
        ),
        (_, Topology::Cluster) => Finding::fail(
            "arrangement",
            "this server is not part of a cluster",
            "use redis:// for a single server",
        ),
        (_, Topology::Sentinel) => Finding::ok("arrangement", "named by the sentinels"),
        (_, Topology::Single | Topology::Socket) => {
            Finding::ok("arrangement", "a single server, as in the URL")
        }
        (_, Topology::Shards) => Finding::ok("arrangement", "one of several independent servers"),
    }
}

async fn role(info: &ServerInfo<'_>) -> Finding {
    let role = match info.field("role") {
        Some(role) => role.to_owned(),
        None => match info.server.command(&["ROLE"]).await {
            Ok(RedisReply::List(parts)) => match parts.into_iter().next() {
                Some(RedisReply::Text(role)) => role,
                Some(_) | None => return Finding::not_permitted("role", "INFO or ROLE"),
            },
            Ok(_) | Err(_) => return Finding::not_permitted("role", "INFO or ROLE"),
        },
    };
    if role == "master" {
        return Finding::ok("role", "a master: it accepts writes");
    }
    Finding::fail(
        "role",
        "a replica: it accepts no writes, and every check writes",
        "use the master, or redis-sentinel:// or redis-cluster:// to follow it",
    )
}

fn eviction(info: &ServerInfo<'_>) -> Finding {
    let (Some(max), Some(policy)) = (info.number("maxmemory"), info.field("maxmemory_policy"))
    else {
        return Finding::not_permitted("eviction", "INFO");
    };
    let used = info.number("used_memory").unwrap_or_default();
    if max == 0 {
        let text = format!(
            "nothing is evicted: maxmemory is not set; {} in use",
            bytes(used)
        );
        return Finding::ok("eviction", text);
    }
    let memory = format!("{} of {} in use", bytes(used), bytes(max));
    if info.may_evict() == Some(true) {
        let whose = if policy.starts_with("allkeys") {
            "any key"
        } else {
            "keys with an expiry, as all counters have"
        };
        return Finding::warn(
            "eviction",
            format!(
                "{policy}: when memory is short the server evicts {whose}; a client whose counter \
                 is evicted has its whole limit again; {memory}"
            ),
            "CONFIG SET maxmemory-policy noeviction: the server then refuses writes, and the \
             failure policy applies; or use a separate server for limits",
        );
    }
    if used > max / 10 * 9 {
        return Finding::warn(
            "eviction",
            format!("nearly full, {memory}: it will refuse writes (OOM)"),
            "raise maxmemory, or find what fills it",
        );
    }
    Finding::ok("eviction", format!("noeviction; {memory}"))
}

async fn persistence(info: &ServerInfo<'_>) -> Finding {
    let Some(append_only) = info.field("aof_enabled") else {
        return Finding::not_permitted("persistence", "INFO");
    };
    if info.field("rdb_last_bgsave_status") == Some("err") {
        return Finding::warn(
            "persistence",
            "the last snapshot failed; the server may refuse all writes (MISCONF)",
            "check its log and its disk",
        );
    }
    if append_only == "1" {
        let text = "append-only file: a restart loses about the last second of counts";
        return Finding::info("persistence", text);
    }
    match info.setting("save").await.as_deref() {
        Some("") => Finding::info(
            "persistence",
            "none: a restart loses all counters, and every client has its whole limit again",
        ),
        Some(_) => Finding::info(
            "persistence",
            "snapshots: a restart loses the counts since the last one",
        ),
        None => Finding::info(
            "persistence",
            "no append-only file: a restart loses the counts since the last snapshot, if there \
             are any",
        ),
    }
}

fn replication(info: &ServerInfo<'_>) -> Finding {
    match info.number("connected_slaves") {
        None => Finding::not_permitted("replication", "INFO"),
        Some(0) => Finding::info(
            "replication",
            "no replica: while the server is down, the failure policy applies",
        ),
        Some(n) => {
            let replicas = plural(n as usize, "replica");
            let text = format!("{replicas}: a failover may lose the most recent counts");
            Finding::info("replication", text)
        }
    }
}

async fn clock(server: &RedisServer) -> Finding {
    let before = now_us();
    let reply = server.command(&["TIME"]).await;
    let after = now_us();
    let number = |part: &RedisReply| match part {
        RedisReply::Text(digits) => digits.parse::<u64>().ok(),
        RedisReply::Number(number) => u64::try_from(*number).ok(),
        _ => None,
    };
    let time = match &reply {
        Ok(RedisReply::List(parts)) => parts.iter().map(number).collect::<Option<Vec<u64>>>(),
        Ok(_) | Err(_) => None,
    };
    let Some([seconds, micros]) = time.as_deref() else {
        return Finding::not_permitted("clock", "TIME");
    };
    let server_us = seconds.saturating_mul(1_000_000).saturating_add(*micros);
    // The reply was made between the two readings.
    let behind_us = before.saturating_sub(server_us);
    let difference = behind_us.max(server_us.saturating_sub(after));
    if difference > MAX_CLOCK_DIFFERENCE_US {
        let text = format!(
            "the server's clock and the local clock differ by {}; limits use the server's and \
             are not affected, but timestamps in logs differ",
            duration(difference)
        );
        return Finding::warn("clock", text, "synchronise both with NTP");
    }
    Finding::ok(
        "clock",
        "the server's clock and the local clock agree within a second",
    )
}

fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    })
}

async fn expiry(server: &RedisServer, keyspace: &str) -> Finding {
    let own_prefix = format!("tallygate:1:{keyspace}:");
    let mut cursor = "0".to_owned();
    let mut keys = Vec::new();
    let mut complete = false;
    for _ in 0..MAX_SCAN_STEPS {
        let scan = ["SCAN", &cursor, "MATCH", "tallygate:*", "COUNT", SCAN_COUNT];
        let Ok(RedisReply::List(parts)) = server.command(&scan).await else {
            return Finding::not_permitted("expiry", "SCAN");
        };
        let [RedisReply::Text(next), RedisReply::List(found)] = &*parts else {
            return Finding::not_permitted("expiry", "SCAN");
        };
        keys.extend(found.iter().filter_map(|key| match key {
            RedisReply::Text(key) if !key.starts_with(&own_prefix) => Some(key.clone()),
            _ => None,
        }));
        next.clone_into(&mut cursor);
        complete = cursor == "0";
        if complete || keys.len() >= MAX_KEYS {
            break;
        }
    }
    let partial = !complete || keys.len() > MAX_KEYS;
    keys.truncate(MAX_KEYS);
    let mut persistent = 0;
    for key in &keys {
        match server.command(&["PTTL", key]).await {
            Ok(RedisReply::Number(-1)) => persistent += 1,
            Ok(_) => {}
            Err(error) if is_permission_error(&error) => {
                return Finding::not_permitted("expiry", "PTTL");
            }
            Err(_) => break,
        }
    }
    let examined = match (keys.len(), partial) {
        (0, false) => "no counters are stored".to_owned(),
        (0, true) => "no counters among the first keys".to_owned(),
        (n, false) => format!("all {n} keys tallygate:* checked"),
        (n, true) => format!("{n} of the keys tallygate:* checked"),
    };
    if persistent > 0 {
        return Finding::warn(
            "expiry",
            format!("{persistent} without expiry; {examined}"),
            "Tallygate sets an expiry on every key: find what writes them or calls PERSIST, and \
             delete them",
        );
    }
    if keys.is_empty() {
        return Finding::ok("expiry", examined);
    }
    Finding::ok("expiry", format!("every key expires; {examined}"))
}

pub(super) async fn cluster(server: &RedisServer, reached: usize) -> Finding {
    let info = match server.command(&["CLUSTER", "INFO"]).await {
        Ok(RedisReply::Text(text)) => fields(&text),
        Err(error) if !is_permission_error(&error) => return Finding::failed("cluster", &error),
        Ok(_) | Err(_) => return Finding::not_permitted("cluster", "CLUSTER INFO"),
    };
    let number = |name: &str| info.get(name).and_then(|n| n.parse::<u64>().ok());
    let assigned = number("cluster_slots_assigned").unwrap_or_default();
    let healthy = number("cluster_slots_ok").unwrap_or_default();
    let masters = number("cluster_size").unwrap_or_default();
    let advice = "run `redis-cli --cluster check host:port`; `--cluster fix` repairs it";
    if info.get("cluster_state").map(String::as_str) != Some("ok") || assigned < SLOTS {
        let text =
            format!("{assigned} of {SLOTS} slots are assigned, {healthy} to a healthy master");
        return Finding::fail("cluster", text, advice);
    }
    if healthy < SLOTS || (reached as u64) < masters {
        let text = format!(
            "{healthy} of {SLOTS} slots have a healthy master; {reached} of {masters} masters \
             are reachable"
        );
        return Finding::warn("cluster", text, advice);
    }
    Finding::ok(
        "cluster",
        format!("all {SLOTS} slots are covered, by {masters} masters"),
    )
}

/// Reports how many processes share the counters, if they are counted.
async fn sharing(server: &RedisServer) -> Option<Finding> {
    match server.command(&["ZCARD", "tallygate:1:replicas"]).await {
        Ok(RedisReply::Number(n)) if n > 0 => {
            let text = format!("{n} processes share these counters");
            Some(Finding::info("sharing", text))
        }
        Ok(_) | Err(_) => None,
    }
}
