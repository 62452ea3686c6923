//! What a server is and how it is set up, judged for limits.

use std::time::{SystemTime, UNIX_EPOCH};

use tallygate::{RedisReply, RedisServer, Topology};

use super::finding::Finding;
use super::server_info::{Look, fields, is_right_missing};
use crate::format::{bytes, duration};

/// The oldest version that can be used.
const OLDEST: (u32, u32) = (6, 2);
/// How far the server's clock may be off before it is worth a warning.
const MOST_APART_US: u64 = 1_000_000;
/// How many steps a search for keys takes at most, how many keys a step passes, and how many of
/// those found are looked at.
const MOST_STEPS: usize = 10;
const STEP: &str = "1000";
const MOST_KEYS: usize = 100;
const SLOTS: u64 = 16_384;

/// Whether it is the right kind of server.
pub(super) async fn basics(look: &Look<'_>, wanted: Topology) -> Vec<Finding> {
    vec![version(look), arrangement(look, wanted), role(look).await]
}

/// What may surprise later.
pub(super) async fn surroundings(look: &Look<'_>, namespace: &str) -> Vec<Finding> {
    let mut found = vec![
        eviction(look),
        persistence(look).await,
        replication(look),
        clock(look.server).await,
        expiry(look.server, namespace).await,
    ];
    found.extend(sharing(look.server).await);
    found
}

fn version(look: &Look<'_>) -> Finding {
    let Some(version) = look.field("redis_version") else {
        return Finding::unseen("version", "INFO");
    };
    let shown = match look.field("valkey_version") {
        Some(valkey) => format!("Valkey {valkey}, compatible with Redis {version}"),
        None => format!("Redis {version}"),
    };
    let mut numbers = version.split('.').map(|part| part.parse().unwrap_or(0));
    let is = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if is < OLDEST {
        return Finding::fail(
            "version",
            format!("{shown} is older than 6.2"),
            "upgrade it to Redis 6.2 or Valkey 7.2 or later",
        );
    }
    Finding::ok("version", shown)
}

fn arrangement(look: &Look<'_>, wanted: Topology) -> Finding {
    let Some(mode) = look.field("redis_mode") else {
        return Finding::unseen("arrangement", "INFO");
    };
    match (mode, wanted) {
        ("cluster", Topology::Cluster) => Finding::ok("arrangement", "a cluster, as the URL says"),
        ("cluster", Topology::Single | Topology::Socket | Topology::Sentinel) => Finding::fail(
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
            Finding::ok("arrangement", "a single server, as the URL says")
        }
    }
}

async fn role(look: &Look<'_>) -> Finding {
    let role = match look.field("role") {
        Some(role) => role.to_owned(),
        None => match look.server.command(&["ROLE"]).await {
            Ok(RedisReply::List(parts)) => match parts.into_iter().next() {
                Some(RedisReply::Text(role)) => role,
                Some(_) | None => return Finding::unseen("role", "INFO or ROLE"),
            },
            Ok(_) | Err(_) => return Finding::unseen("role", "INFO or ROLE"),
        },
    };
    if role == "master" {
        return Finding::ok("role", "a master: it takes writes");
    }
    Finding::fail(
        "role",
        "a replica: it takes no writes, and limits are writes",
        "name the master, or use redis-sentinel:// or redis-cluster:// to follow it",
    )
}

fn eviction(look: &Look<'_>) -> Finding {
    let (Some(most), Some(policy)) = (look.number("maxmemory"), look.field("maxmemory_policy"))
    else {
        return Finding::unseen("eviction", "INFO");
    };
    let used = look.number("used_memory").unwrap_or_default();
    if most == 0 {
        let text = format!(
            "nothing is evicted: there is no maxmemory; {} in use",
            bytes(used)
        );
        return Finding::ok("eviction", text);
    }
    let memory = format!("{} of {} in use", bytes(used), bytes(most));
    if policy != "noeviction" {
        let whose = if policy.starts_with("allkeys") {
            "any key"
        } else {
            "keys that expire, as all counters do"
        };
        return Finding::warn(
            "eviction",
            format!(
                "{policy}: when memory is short the server throws away {whose}; whoever loses a \
                 counter has the whole limit again; {memory}"
            ),
            "CONFIG SET maxmemory-policy noeviction: it refuses writes instead, and the failure \
             policy decides; or give limits a server of their own",
        );
    }
    if used > most / 10 * 9 {
        return Finding::warn(
            "eviction",
            format!("nearly full, {memory}: it will refuse writes (OOM)"),
            "raise maxmemory, or find who fills it",
        );
    }
    Finding::ok("eviction", format!("noeviction; {memory}"))
}

async fn persistence(look: &Look<'_>) -> Finding {
    let Some(append_only) = look.field("aof_enabled") else {
        return Finding::unseen("persistence", "INFO");
    };
    if look.field("rdb_last_bgsave_status") == Some("err") {
        return Finding::warn(
            "persistence",
            "the last snapshot failed; the server may refuse all writes (MISCONF)",
            "look at its log and its disk",
        );
    }
    if append_only == "1" {
        let text = "append-only file: a restart forgets about the last second of counts";
        return Finding::info("persistence", text);
    }
    match look.setting("save").await.as_deref() {
        Some("") => Finding::info(
            "persistence",
            "none: a restart forgets every count, and everybody has the whole limit again",
        ),
        Some(_) => Finding::info(
            "persistence",
            "snapshots: a restart forgets the counts since the last one",
        ),
        None => Finding::info(
            "persistence",
            "no append-only file: a restart forgets the counts since the last snapshot, if any \
             are made",
        ),
    }
}

fn replication(look: &Look<'_>) -> Finding {
    match look.number("connected_slaves") {
        None => Finding::unseen("replication", "INFO"),
        Some(0) => Finding::info(
            "replication",
            "no replica: while the server is down, the failure policy decides",
        ),
        Some(n) => Finding::info(
            "replication",
            format!(
                "{n} replica{}: a fail-over may forget the counts of its last moments",
                if n == 1 { "" } else { "s" }
            ),
        ),
    }
}

async fn clock(server: &RedisServer) -> Finding {
    let before = now_us();
    let reply = server.command(&["TIME"]).await;
    let after = now_us();
    let number = |reply: &RedisReply| match reply {
        RedisReply::Text(digits) => digits.parse::<u64>().ok(),
        RedisReply::Number(number) => u64::try_from(*number).ok(),
        _ => None,
    };
    let Ok(RedisReply::List(parts)) = reply else {
        return Finding::unseen("clock", "TIME");
    };
    let [seconds, micros] = &*parts else {
        return Finding::unseen("clock", "TIME");
    };
    let (Some(seconds), Some(micros)) = (number(seconds), number(micros)) else {
        return Finding::unseen("clock", "TIME");
    };
    let theirs = seconds.saturating_mul(1_000_000).saturating_add(micros);
    // The answer was made some time between.
    let apart = if theirs < before {
        before - theirs
    } else {
        theirs.saturating_sub(after)
    };
    if apart > MOST_APART_US {
        let text = format!(
            "this machine's and the server's differ by {}; limits go by the server's and are \
             kept, but logs of the two do not match",
            duration(apart)
        );
        return Finding::warn("clock", text, "let both keep time (NTP)");
    }
    Finding::ok(
        "clock",
        "this machine's and the server's agree within a second; limits go by the server's",
    )
}

fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    })
}

/// Looks for keys of ours that nobody will ever delete.
async fn expiry(server: &RedisServer, namespace: &str) -> Finding {
    let our_own = format!("tallygate:1:{namespace}:");
    let mut cursor = "0".to_owned();
    let mut names = Vec::new();
    let mut everywhere = false;
    for _ in 0..MOST_STEPS {
        let scan = ["SCAN", &cursor, "MATCH", "tallygate:*", "COUNT", STEP];
        let Ok(RedisReply::List(parts)) = server.command(&scan).await else {
            return Finding::unseen("expiry", "SCAN");
        };
        let [RedisReply::Text(next), RedisReply::List(found)] = &*parts else {
            return Finding::unseen("expiry", "SCAN");
        };
        names.extend(found.iter().filter_map(|name| match name {
            RedisReply::Text(name) if !name.starts_with(&our_own) => Some(name.clone()),
            _ => None,
        }));
        next.clone_into(&mut cursor);
        everywhere = cursor == "0";
        if everywhere || names.len() >= MOST_KEYS {
            break;
        }
    }
    let partly = !everywhere || names.len() > MOST_KEYS;
    names.truncate(MOST_KEYS);
    let mut lasting = 0;
    for name in &names {
        match server.command(&["PTTL", name]).await {
            Ok(RedisReply::Number(-1)) => lasting += 1,
            Ok(_) => {}
            Err(error) if is_right_missing(&error) => return Finding::unseen("expiry", "PTTL"),
            Err(_) => break,
        }
    }
    let looked = match (names.len(), partly) {
        (0, false) => "no counter is stored".to_owned(),
        (0, true) => "no counter among the first keys".to_owned(),
        (n, false) => format!("all {n} keys tallygate:* looked at"),
        (n, true) => format!("{n} keys tallygate:* looked at, of more"),
    };
    if lasting > 0 {
        return Finding::warn(
            "expiry",
            format!("{lasting} without an end; {looked}"),
            "Tallygate writes none such: find who does, or who calls PERSIST, and delete them",
        );
    }
    if names.is_empty() {
        return Finding::ok("expiry", looked);
    }
    Finding::ok("expiry", format!("every key expires; {looked}"))
}

/// Whether every slot has a server, as the cluster sees itself.
pub(super) async fn cluster(server: &RedisServer, reached: usize) -> Finding {
    let said = match server.command(&["CLUSTER", "INFO"]).await {
        Ok(RedisReply::Text(text)) => fields(&text),
        Err(error) if is_right_missing(&error) => {
            return Finding::unseen("cluster", "CLUSTER INFO");
        }
        Ok(_) => return Finding::unseen("cluster", "CLUSTER INFO"),
        Err(error) => return Finding::failed("cluster", &error),
    };
    let number = |name: &str| said.get(name).and_then(|n| n.parse::<u64>().ok());
    let assigned = number("cluster_slots_assigned").unwrap_or_default();
    let healthy = number("cluster_slots_ok").unwrap_or_default();
    let masters = number("cluster_size").unwrap_or_default();
    let check = "`redis-cli --cluster check host:port` tells which; `--cluster fix` mends it";
    if said.get("cluster_state").map(String::as_str) != Some("ok") || assigned < SLOTS {
        let text = format!("{assigned} of {SLOTS} slots have a server, {healthy} a healthy one");
        return Finding::fail("cluster", text, check);
    }
    if healthy < SLOTS || (reached as u64) < masters {
        let text = format!(
            "{healthy} of {SLOTS} slots have a healthy server; {reached} of {masters} masters \
             answer here"
        );
        return Finding::warn("cluster", text, check);
    }
    Finding::ok(
        "cluster",
        format!("all {SLOTS} slots are served, by {masters} masters"),
    )
}

/// How many processes say that they share these counters, where they are counted.
async fn sharing(server: &RedisServer) -> Option<Finding> {
    match server.command(&["ZCARD", "tallygate:1:replicas"]).await {
        Ok(RedisReply::Number(n)) if n > 0 => {
            let text = format!("{n} processes say that they share these counters");
            Some(Finding::info("sharing", text))
        }
        Ok(_) | Err(_) => None,
    }
}
