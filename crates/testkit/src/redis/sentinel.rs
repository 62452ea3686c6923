//! A master and two replicas, monitored by three sentinels.

use std::collections::HashMap;

use super::config::{Role, ServerConfig};
use super::{Flavour, Server, TIMEOUT, start_all};
use crate::poll;
use crate::resp::Reply;

/// Short periods, in milliseconds, so that a sentinel discovers the others and a promotion quickly.
const SHORT_PERIODS: [&str; 8] = [
    "INFO-PERIOD",
    "200",
    "PING-PERIOD",
    "200",
    "ASK-PERIOD",
    "200",
    "PUBLISH-PERIOD",
    "200",
];

/// A Sentinel deployment; all of it is killed on drop.
#[derive(Debug)]
pub struct Sentinel {
    nodes: Vec<Server>,
    sentinels: Vec<Server>,
    login: Option<String>,
    sentinel_password: Option<String>,
}

impl Sentinel {
    /// The name of the master.
    pub const NAME: &'static str = "mymaster";

    /// Starts Redis and waits until every sentinel knows the others and both replicas. A master
    /// that does not reply for a second is considered down.
    #[must_use]
    pub fn start() -> Self {
        Self::start_as(Flavour::Redis, &[])
    }

    /// Starts Redis or Valkey, the master and the replicas with further arguments;
    /// `["--requirepass", …]` is understood.
    ///
    /// # Panics
    ///
    /// Panics with the logs if they do not discover each other.
    #[must_use]
    pub fn start_as(flavour: Flavour, args: &[&str]) -> Self {
        Self::start_protected(flavour, args, None)
    }

    /// As [`start_as`](Self::start_as), with a password that the sentinels require.
    ///
    /// # Panics
    ///
    /// Panics with the logs if they do not discover each other.
    #[must_use]
    pub fn start_protected(
        flavour: Flavour,
        args: &[&str],
        sentinel_password: Option<&str>,
    ) -> Self {
        let mut config = ServerConfig::new(flavour, args);
        config.lines.push("repl-ping-replica-period 1".to_owned());
        let password = config.login.as_ref().map(|(_, password)| password.clone());
        if let Some(password) = &password {
            config.lines.push(format!("masterauth {password}"));
        }
        let master = Server::start_config(&config);
        let port = master.port();
        config.lines.push(format!("replicaof 127.0.0.1 {port}"));
        let sentinel = sentinel_config(flavour, port, password.as_deref(), sentinel_password);
        let mut started = start_all([&config, &config, &sentinel, &sentinel, &sentinel]);
        let sentinels = started.split_off(2);
        let mut nodes = vec![master];
        nodes.append(&mut started);
        for sentinel in &sentinels {
            let command = [&["SENTINEL", "DEBUG"][..], &SHORT_PERIODS].concat();
            let reply = sentinel.command(&command);
            assert_eq!(reply.error(), None, "a sentinel accepts short periods");
        }
        let group = Self {
            nodes,
            sentinels,
            login: password,
            sentinel_password: sentinel_password.map(str::to_owned),
        };
        group.wait("discover each other", |group| group.is_whole());
        group
    }

    /// Its URL: `redis-sentinel://127.0.0.1:P1,127.0.0.1:P2,127.0.0.1:P3/mymaster`.
    /// The hosts are the sentinels, the first segment of the path is the master's name, the second,
    /// if there is one, the database. User and password, if there are any, are the master's.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self
            .sentinels
            .iter()
            .map(|sentinel| format!("127.0.0.1:{}", sentinel.port()))
            .collect();
        let login = match &self.login {
            Some(password) => format!(":{password}@"),
            None => String::new(),
        };
        let mut url = format!("redis-sentinel://{login}{}/{}", hosts.join(","), Self::NAME);
        if let Some(password) = &self.sentinel_password {
            url += &format!("?sentinel_password={password}");
        }
        url
    }

    /// The master that most sentinels name; it may be down until they agree on another.
    ///
    /// # Panics
    ///
    /// Panics with the logs if they do not agree in time.
    #[must_use]
    pub fn master(&self) -> &Server {
        let agreed = poll::first(TIMEOUT, || {
            let named: Vec<u16> = self.sentinels.iter().filter_map(named_master).collect();
            self.nodes.iter().find(|node| {
                let votes = named.iter().filter(|&&port| port == node.port()).count();
                votes * 2 > self.sentinels.len()
            })
        });
        agreed.unwrap_or_else(|| panic!("no master\n{}", self.logs()))
    }

    /// The servers that are not the master, running or not.
    #[must_use]
    pub fn replicas(&self) -> Vec<&Server> {
        let master = self.master().port();
        let others = self.nodes.iter().filter(|node| node.port() != master);
        others.collect()
    }

    /// Master and replicas, in the order they were started.
    #[must_use]
    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// The sentinels.
    #[must_use]
    pub fn sentinels(&self) -> &[Server] {
        &self.sentinels
    }

    /// Kills the master and waits until every sentinel names a new one; returns it.
    ///
    /// # Panics
    ///
    /// Panics with the logs if that takes too long.
    pub fn fail_over(&self) -> &Server {
        let old = self.master();
        old.kill();
        self.wait("fail over", |group| {
            let mut named = group.sentinels.iter().map(named_master);
            let Some(Some(first)) = named.next() else {
                return false;
            };
            first != old.port() && named.all(|port| port == Some(first))
        });
        let new = self.master();
        self.wait("promote", |_| new.info("role").as_deref() == Some("master"));
        new
    }

    /// Restarts killed servers and waits until all follow the master.
    ///
    /// # Panics
    ///
    /// Panics with the logs if that takes too long.
    pub fn rejoin(&self) {
        let gone = self.nodes.iter().filter(|node| !node.is_running());
        gone.for_each(Server::restart);
        self.wait("rejoin", |group| group.is_whole());
    }

    fn is_whole(&self) -> bool {
        let linked = |node: &&Server| node.info("master_link_status").as_deref() == Some("up");
        self.nodes.iter().filter(linked).count() == 2 && self.sentinels.iter().all(sees_all)
    }

    fn wait(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let done = poll::within(TIMEOUT, || condition(self));
        assert!(done, "servers do not {what}\n{}", self.logs());
    }

    fn logs(&self) -> String {
        let all = self.nodes.iter().chain(&self.sentinels);
        all.map(Server::log_tail).collect::<Vec<_>>().join("\n")
    }
}

fn sentinel_config(
    flavour: Flavour,
    master: u16,
    password: Option<&str>,
    own_password: Option<&str>,
) -> ServerConfig {
    let name = Sentinel::NAME;
    let mut config = ServerConfig::new(flavour, &[]);
    config.login = own_password.map(|password| ("default".to_owned(), password.to_owned()));
    config.role = Role::Sentinel;
    config.lines = vec![
        format!("sentinel monitor {name} 127.0.0.1 {master} 2"),
        format!("sentinel down-after-milliseconds {name} 1000"),
        format!("sentinel failover-timeout {name} 3000"),
        format!("sentinel parallel-syncs {name} 2"),
    ];
    if let Some(password) = password {
        let line = format!("sentinel auth-pass {name} {password}");
        config.lines.push(line);
    }
    if let Some(password) = own_password {
        // It is also what they send to each other.
        config.lines.push(format!("requirepass {password}"));
    }
    config
}

fn named_master(sentinel: &Server) -> Option<u16> {
    let command = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", Sentinel::NAME];
    match sentinel.try_command(&command).ok()? {
        Reply::Array(address) => address.get(1)?.text().parse().ok(),
        Reply::Nil | Reply::Status(_) | Reply::Error(_) | Reply::Integer(_) | Reply::Bulk(_) => {
            None
        }
    }
}

/// Whether a sentinel sees a healthy master, two healthy replicas and both other sentinels.
fn sees_all(sentinel: &Server) -> bool {
    let master = sentinel.command(&["SENTINEL", "MASTER", Sentinel::NAME]);
    let master = fields(&master);
    let is = |field: &str, value: &str| master.get(field).is_some_and(|&found| found == value);
    let replicas = sentinel.command(&["SENTINEL", "REPLICAS", Sentinel::NAME]);
    let healthy = |replica| {
        let replica = fields(replica);
        replica.get("flags") == Some(&"slave") && replica.get("master-link-status") == Some(&"ok")
    };
    is("flags", "master")
        && is("num-other-sentinels", "2")
        && is("num-slaves", "2")
        && replicas.array().iter().all(healthy)
}

/// A flat list of names and values.
fn fields(reply: &Reply) -> HashMap<&str, &str> {
    let (pairs, _) = reply.array().as_chunks::<2>();
    pairs
        .iter()
        .map(|[name, value]| (name.text(), value.text()))
        .collect()
}
