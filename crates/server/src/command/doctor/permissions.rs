//! Checks the permissions of the user by trying every command, on a key that is then deleted.

use tallygate::RedisStore;
use tallygate::store::{RedisServer, Topology};

use super::report::Finding;
use super::server::is_permission_error;

const NO_SCRIPT: &str = "0000000000000000000000000000000000000000";

/// Tries every command and lists those that are not permitted. Other errors are ignored.
pub(super) async fn examine(
    server: &RedisServer,
    store: &RedisStore,
    namespace: &str,
) -> Vec<Finding> {
    // In the format of a counter key.
    let key = &*format!("tallygate:1:{namespace}:{{rights}}");
    let mut needed = vec![
        ("eval", vec!["EVAL", "return 1", "0"]),
        ("evalsha", vec!["EVALSHA", NO_SCRIPT, "0"]),
        ("script|load", vec!["SCRIPT", "LOAD", "return 1"]),
        ("ping", vec!["PING"]),
        ("time", vec!["TIME"]),
        ("set", vec!["SET", key, "", "PX", "60000"]),
        ("get", vec!["GET", key]),
        ("mget", vec!["MGET", key]),
        ("getrange", vec!["GETRANGE", key, "0", "1"]),
        ("setrange", vec!["SETRANGE", key, "0", "0"]),
        ("pexpireat", vec!["PEXPIREAT", key, "1"]),
        ("del", vec!["DEL", key]),
    ];
    match store.topology() {
        Topology::Single | Topology::Socket | Topology::Shards => {}
        Topology::Sentinel => needed.push(("role", vec!["ROLE"])),
        Topology::Cluster => needed.push(("cluster|slots", vec!["CLUSTER", "SLOTS"])),
    }
    let useful = [
        ("scan", vec!["SCAN", "0", "MATCH", key, "COUNT", "1"]),
        ("unlink", vec!["UNLINK", key]),
        ("info", vec!["INFO", "server"]),
        ("config|get", vec!["CONFIG", "GET", "save"]),
    ];
    let user = store.user().unwrap_or("default");
    let missing = missing(server, &needed).await;
    let mut found = if missing.is_empty() {
        vec![Finding::ok("rights", "all that limits need")]
    } else {
        let text = format!("user {user} may not call {}", missing.join(", "));
        vec![Finding::fail("rights", text, grant(user, &missing))]
    };
    let callers = [
        ("hmget", vec!["HMGET", key, "a"]),
        ("hset", vec!["HSET", key, "a", "b"]),
        ("hdel", vec!["HDEL", key, "a"]),
        ("hlen", vec!["HLEN", key]),
        ("hgetall", vec!["HGETALL", key]),
        ("unlink", vec!["UNLINK", key]),
        ("zadd", vec!["ZADD", key, "1", "a"]),
        ("zrange", vec!["ZRANGE", key, "0", "0"]),
        ("zrem", vec!["ZREM", key, "a"]),
        ("zremrangebyscore", vec!["ZREMRANGEBYSCORE", key, "1", "1"]),
        ("zcard", vec!["ZCARD", key]),
        ("pexpire", vec!["PEXPIRE", key, "60000"]),
    ];
    let missing = self::missing(server, &callers).await;
    if !missing.is_empty() {
        let text = format!(
            "limits work without {}, but concurrency limits and fair shares do not; grant with: {}",
            missing.join(", "),
            grant(user, &missing)
        );
        found.push(Finding::info("rights", text));
    }
    // The commands above may have left a value.
    let _ = server.command(&["DEL", key]).await;
    let missing = self::missing(server, &useful).await;
    if !missing.is_empty() {
        let text = format!(
            "limits work without {}, but replay and race cannot clean up (scan, unlink) and \
             doctor checks less (info, config|get); grant with: {}",
            missing.join(", "),
            grant(user, &missing)
        );
        found.push(Finding::info("rights", text));
    }
    found
}

async fn missing(server: &RedisServer, tries: &[(&'static str, Vec<&str>)]) -> Vec<&'static str> {
    let mut missing = Vec::new();
    for (permission, command) in tries {
        if let Err(error) = server.command(command).await
            && is_permission_error(&error)
        {
            missing.push(*permission);
        }
    }
    missing
}

fn grant(user: &str, missing: &[&str]) -> String {
    let added: Vec<String> = missing.iter().map(|name| format!("+{name}")).collect();
    format!("ACL SETUSER {user} ~tallygate:* {}", added.join(" "))
}
