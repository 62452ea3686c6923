//! A cluster of three masters and three replicas.

mod migration;
mod nodes;

pub use migration::Migration;

use std::ops::RangeInclusive;

use self::nodes::{Member, is_ok, knows, view};
use super::config::{Role, ServerConfig};
use super::{Flavour, Server, TIMEOUT, start_all};
use crate::poll;
use crate::ports::BUS_OFFSET;
use crate::resp::Reply;

const SLOTS: u16 = 16_384;
const MASTERS: usize = 3;
const NODES: usize = 6;

/// Six servers; node `i + 3` starts as the replica of node `i`. All are killed on drop.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Server>,
    ids: Vec<String>,
}

impl Cluster {
    /// `cluster-node-timeout`.
    pub const NODE_TIMEOUT_MS: u64 = 1000;

    /// Starts Redis and waits until all nodes agree on all slots and the replicas are in sync.
    #[must_use]
    pub fn start() -> Self {
        Self::start_as(Flavour::Redis, &[])
    }

    /// Starts Redis or Valkey with further arguments for every node.
    ///
    /// # Panics
    ///
    /// Panics with the logs if the cluster does not form.
    #[must_use]
    pub fn start_as(flavour: Flavour, args: &[&str]) -> Self {
        let mut config = ServerConfig::new(flavour, args);
        config.role = Role::ClusterNode;
        config.lines = vec![
            "cluster-enabled yes".to_owned(),
            format!("cluster-node-timeout {}", Self::NODE_TIMEOUT_MS),
            // A replica may take over with data of any age.
            "cluster-replica-validity-factor 0".to_owned(),
            "repl-ping-replica-period 1".to_owned(),
        ];
        if let Some((_, password)) = &config.login {
            config.lines.push(format!("masterauth {password}"));
        }
        let nodes = start_all([&config; NODES]);
        let id = |node: &Server| node.command(&["CLUSTER", "MYID"]).text().to_owned();
        let ids = nodes.iter().map(id).collect();
        let cluster = Self { nodes, ids };
        cluster.assemble();
        cluster
    }

    /// Its URL: `redis-cluster://127.0.0.1:P1,127.0.0.1:P2,…`, every node, with
    /// the password if there is one.
    #[must_use]
    pub fn url(&self) -> String {
        let host = |node: &Server| format!("127.0.0.1:{}", node.port());
        let hosts: Vec<String> = self.nodes.iter().map(host).collect();
        let login = match self.nodes[0].password() {
            Some(password) => format!(":{password}@"),
            None => String::new(),
        };
        format!("redis-cluster://{login}{}", hosts.join(","))
    }

    /// All nodes; a node is identified by its index.
    #[must_use]
    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// One node.
    ///
    /// # Panics
    ///
    /// Panics if there is no such node.
    #[must_use]
    pub fn node(&self, node: usize) -> &Server {
        &self.nodes[node]
    }

    /// The slot of a key.
    #[must_use]
    pub fn key_slot(&self, key: &str) -> u16 {
        let node = self.awake().next();
        let node = node.expect("a node is running");
        let slot = node.command(&["CLUSTER", "KEYSLOT", key]).integer();
        u16::try_from(slot).expect("a slot is below 16384")
    }

    /// The owner of a slot, once all running nodes agree.
    ///
    /// # Panics
    ///
    /// Panics with the logs if they do not agree in time.
    #[must_use]
    pub fn node_for_slot(&self, slot: u16) -> usize {
        let agreed = poll::first(TIMEOUT, || {
            let views = self.views();
            let mut owners = views.iter().map(|view| self.owner(view, slot));
            let first = owners.next()??;
            owners.all(|owner| owner == Some(first)).then_some(first)
        });
        agreed.unwrap_or_else(|| panic!("no node owns slot {slot}\n{}", self.logs()))
    }

    /// The nodes that own slots now.
    #[must_use]
    pub fn masters(&self) -> Vec<usize> {
        let Some(view) = self.views().into_iter().next() else {
            return Vec::new();
        };
        let owns = |member: &&Member| member.is_master && !member.slots.is_empty();
        let owners = view.iter().filter(owns);
        owners.filter_map(|member| self.index(&member.id)).collect()
    }

    /// Starts migrating a slot to another master. Until the end, the reply for a migrated key is
    /// ASK, and for a call whose keys are on both nodes TRYAGAIN.
    #[must_use]
    pub fn start_migration(&self, slot: u16, to: usize) -> Migration<'_> {
        let from = self.node_for_slot(slot);
        assert_ne!(from, to, "slot {slot} is there already");
        let migration = Migration {
            cluster: self,
            slot,
            from,
            to,
        };
        // The target first: it must know before a client is redirected there.
        migration.set(to, &["IMPORTING", &self.ids[from]]);
        migration.set(from, &["MIGRATING", &self.ids[to]]);
        migration
    }

    /// Migrates a slot with all its keys.
    pub fn migrate_slot(&self, slot: u16, to: usize) {
        let migration = self.start_migration(slot, to);
        migration.move_keys();
        migration.end();
    }

    /// Kills the owner of a slot and returns its index.
    pub fn kill_master(&self, slot: u16) -> usize {
        let master = self.node_for_slot(slot);
        self.nodes[master].kill();
        master
    }

    /// Waits until all running nodes agree on the owners of all slots and serve them.
    ///
    /// # Panics
    ///
    /// Panics with the logs if that takes too long.
    pub fn settle(&self) {
        self.wait("agree", |cluster| {
            let views = cluster.views();
            cluster.awake().all(is_ok) && cluster.agree(&views)
        });
    }

    /// Restarts killed nodes, as replicas if they were replaced, and waits until all are in sync.
    ///
    /// # Panics
    ///
    /// Panics with the logs if that takes too long.
    pub fn rejoin(&self) {
        let gone = self.nodes.iter().filter(|node| !node.is_running());
        gone.for_each(Server::restart);
        self.wait("rejoin", Self::is_whole);
    }

    /// Waits until every node knows the owner of a slot.
    fn wait_for_owner(&self, slot: u16, owner: usize) {
        let epoch = |view: &[Member]| {
            let mut members = view.iter();
            let member = members.find(|member| member.id == self.ids[owner])?;
            Some(member.epoch)
        };
        self.wait("agree on a slot", |cluster| {
            let own = view(&cluster.nodes[owner]);
            let latest = own.and_then(|own| epoch(&own));
            let agrees = |view: &Vec<Member>| {
                epoch(view) == latest && cluster.owner(view, slot) == Some(owner)
            };
            latest.is_some() && cluster.views().iter().all(agrees)
        });
    }

    /// Creates the cluster without redis-cli, which pauses a second between steps.
    fn assemble(&self) {
        // All epochs first: after MEET a node accepts none.
        for (i, node) in self.nodes.iter().enumerate() {
            let epoch = (i + 1).to_string();
            assert_ok(&node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]));
        }
        for (i, node) in self.nodes.iter().enumerate() {
            for other in &self.nodes[i + 1..] {
                let (port, bus) = (other.port(), other.port() + BUS_OFFSET);
                let (port, bus) = (port.to_string(), bus.to_string());
                assert_ok(&node.command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]));
            }
        }
        for (master, slots) in ranges().into_iter().enumerate() {
            let slots: Vec<String> = slots.map(|slot| slot.to_string()).collect();
            let command = ["CLUSTER", "ADDSLOTS"].into_iter();
            let command: Vec<&str> = command.chain(slots.iter().map(String::as_str)).collect();
            assert_ok(&self.nodes[master].command(&command));
        }
        self.wait("meet", |cluster| {
            let met = |view: &Vec<Member>| cluster.ids.iter().all(|id| knows(view, id));
            cluster.views().iter().all(met)
        });
        for replica in MASTERS..NODES {
            let master = &self.ids[replica - MASTERS];
            assert_ok(&self.nodes[replica].command(&["CLUSTER", "REPLICATE", master]));
        }
        self.wait("form a cluster", Self::is_whole);
    }

    fn is_whole(&self) -> bool {
        let views = self.views();
        let is_complete = |view: &Vec<Member>| {
            let masters = view.iter().filter(|member| member.is_master).count();
            view.len() == NODES && masters == MASTERS && view.iter().all(|member| member.is_healthy)
        };
        let linked = |node: &&Server| node.info("master_link_status").as_deref() == Some("up");
        views.len() == NODES
            && views.iter().all(is_complete)
            && self.agree(&views)
            && self.nodes.iter().all(is_ok)
            && self.nodes.iter().filter(linked).count() == NODES - MASTERS
    }

    /// Whether all nodes name the same running owner of every slot.
    fn agree(&self, views: &[Vec<Member>]) -> bool {
        let owners = |view: &Vec<Member>| -> Option<Vec<usize>> {
            (0..SLOTS).map(|slot| self.owner(view, slot)).collect()
        };
        let Some(Some(first)) = views.first().map(owners) else {
            return false;
        };
        let serves = |&owner: &usize| self.nodes[owner].is_awake();
        first.iter().all(serves)
            && views
                .iter()
                .all(|view| owners(view).as_ref() == Some(&first))
    }

    fn owner(&self, view: &[Member], slot: u16) -> Option<usize> {
        let owns = |member: &&Member| member.slots.iter().any(|range| range.contains(&slot));
        self.index(&view.iter().find(owns)?.id)
    }

    fn index(&self, id: &str) -> Option<usize> {
        self.ids.iter().position(|known| known == id)
    }

    fn awake(&self) -> impl Iterator<Item = &Server> {
        self.nodes.iter().filter(|node| node.is_awake())
    }

    /// The view of every running node.
    fn views(&self) -> Vec<Vec<Member>> {
        self.awake().filter_map(view).collect()
    }

    fn wait(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let done = poll::within(TIMEOUT, || condition(self));
        assert!(done, "nodes do not {what}\n{}", self.logs());
    }

    fn logs(&self) -> String {
        let logs = self.nodes.iter().map(|node| {
            let view = node.try_command(&["CLUSTER", "NODES"]);
            let view = view.map(|view| view.text().to_owned());
            format!(
                "{}\nCLUSTER NODES: {}",
                node.log_tail(),
                view.unwrap_or_default()
            )
        });
        logs.collect::<Vec<_>>().join("\n")
    }
}

/// Starts a cluster of one node that owns all slots and has no replica.
///
/// # Panics
///
/// Panics with the log if it does not serve its slots in time.
#[must_use]
pub fn start_single_node() -> Server {
    let mut config = ServerConfig::new(Flavour::Redis, &[]);
    config.role = Role::ClusterNode;
    config.lines = vec!["cluster-enabled yes".to_owned()];
    let node = Server::start_config(&config);
    let slots: Vec<String> = (0..SLOTS).map(|slot| slot.to_string()).collect();
    let command = ["CLUSTER", "ADDSLOTS"].into_iter();
    let command: Vec<&str> = command.chain(slots.iter().map(String::as_str)).collect();
    assert_ok(&node.command(&command));
    let serves = poll::within(TIMEOUT, || is_ok(&node));
    assert!(serves, "it does not serve its slots\n{}", node.log_tail());
    node
}

/// Equal slot ranges for the masters.
fn ranges() -> [RangeInclusive<u16>; MASTERS] {
    [0..=5460, 5461..=10_922, 10_923..=SLOTS - 1]
}

#[track_caller]
fn assert_ok(reply: &Reply) {
    assert_eq!(reply.error(), None);
}
