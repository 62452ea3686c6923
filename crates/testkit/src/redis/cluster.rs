//! A cluster of three masters and three replicas, whose slots move. Knows nothing of the client
//! under test.

mod migration;
mod nodes;

pub use migration::Move;

use std::ops::RangeInclusive;

use self::nodes::{Member, is_ok, knows, view};
use super::config::{Plan, Role};
use super::{Flavour, PATIENCE, Server, start_all};
use crate::poll;
use crate::ports::BUS_OFFSET;
use crate::resp::Reply;

const SLOTS: u16 = 16_384;
const MASTERS: usize = 3;
const NODES: usize = 6;

/// Six servers; node `i + 3` begins as the replica of node `i`. All are killed when dropped.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Server>,
    ids: Vec<String>,
}

impl Cluster {
    /// How long a node may be silent before the others replace it, in milliseconds.
    pub const NODE_TIMEOUT_MS: u64 = 1000;

    /// Starts Redis and waits until every node agrees on every slot and replicas are in step.
    #[must_use]
    pub fn start() -> Self {
        Self::start_as(Flavour::Redis, &[])
    }

    /// Starts Redis or Valkey, every node with further arguments.
    ///
    /// # Panics
    ///
    /// Panics with the logs if they do not find together.
    #[must_use]
    pub fn start_as(flavour: Flavour, args: &[&str]) -> Self {
        let mut plan = Plan::new(flavour, args);
        plan.role = Role::ClusterNode;
        plan.config = vec![
            "cluster-enabled yes".to_owned(),
            format!("cluster-node-timeout {}", Self::NODE_TIMEOUT_MS),
            // A replica may take over however old its data are.
            "cluster-replica-validity-factor 0".to_owned(),
            "repl-ping-replica-period 1".to_owned(),
        ];
        if let Some((_, password)) = &plan.login {
            plan.config.push(format!("masterauth {password}"));
        }
        let nodes = start_all([&plan; NODES]);
        let id = |node: &Server| node.command(&["CLUSTER", "MYID"]).text().to_owned();
        let ids = nodes.iter().map(id).collect();
        let cluster = Self { nodes, ids };
        cluster.assemble();
        cluster
    }

    /// Where a client finds it: `redis-cluster://127.0.0.1:P1,127.0.0.1:P2,…`, every node, with
    /// the password before them if they ask for one.
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

    /// Every node; a node is named by its place here.
    #[must_use]
    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// One node.
    ///
    /// # Panics
    ///
    /// Panics if there are not so many.
    #[must_use]
    pub fn node(&self, node: usize) -> &Server {
        &self.nodes[node]
    }

    /// The slot of a key, hash tag and all.
    #[must_use]
    pub fn slot_of(&self, key: &str) -> u16 {
        let node = self.awake().next();
        let node = node.expect("a node is awake");
        let slot = node.command(&["CLUSTER", "KEYSLOT", key]).integer();
        u16::try_from(slot).expect("a slot is below 16384")
    }

    /// The node that owns a slot, as the nodes that are awake agree.
    ///
    /// # Panics
    ///
    /// Panics with the logs if they do not agree in time.
    #[must_use]
    pub fn node_for_slot(&self, slot: u16) -> usize {
        let agreed = poll::first(PATIENCE, || {
            let views = self.views();
            let mut owners = views.iter().map(|view| self.owner(view, slot));
            let first = owners.next()??;
            owners.all(|owner| owner == Some(first)).then_some(first)
        });
        agreed.unwrap_or_else(|| panic!("nobody owns slot {slot}\n{}", self.logs()))
    }

    /// The nodes that own slots now.
    #[must_use]
    pub fn masters(&self) -> Vec<usize> {
        let Some(view) = self.views().into_iter().next() else {
            return Vec::new();
        };
        let owns = |member: &&Member| member.is_master && !member.slots.is_empty();
        let owners = view.iter().filter(owns);
        owners.filter_map(|member| self.place(&member.id)).collect()
    }

    /// Begins to move a slot to another master: from now until the end a key that is not there any
    /// more is answered with ASK, and a call with some keys here and some there with TRYAGAIN.
    #[must_use]
    pub fn begin_move(&self, slot: u16, to: usize) -> Move<'_> {
        let from = self.node_for_slot(slot);
        assert_ne!(from, to, "slot {slot} is there already");
        let moving = Move {
            cluster: self,
            slot,
            from,
            to,
        };
        // The target first: it has to know before anybody is sent there.
        moving.set(to, &["IMPORTING", &self.ids[from]]);
        moving.set(from, &["MIGRATING", &self.ids[to]]);
        moving
    }

    /// Moves a slot with all its keys.
    pub fn move_slot(&self, slot: u16, to: usize) {
        let moving = self.begin_move(slot, to);
        moving.move_keys();
        moving.end();
    }

    /// Kills the node that owns a slot, at once, and says which it was.
    pub fn kill_master(&self, slot: u16) -> usize {
        let master = self.node_for_slot(slot);
        self.nodes[master].kill();
        master
    }

    /// Waits until the nodes that are awake agree on who owns every slot, and serve it.
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

    /// Starts what was killed, as replicas if they were replaced, and waits until all are in step.
    ///
    /// # Panics
    ///
    /// Panics with the logs if that takes too long.
    pub fn rejoin(&self) {
        let gone = self.nodes.iter().filter(|node| !node.is_running());
        gone.for_each(Server::restart);
        self.wait("rejoin", Self::is_whole);
    }

    /// Waits until every node knows a slot's owner, by its latest epoch.
    fn wait_for_owner(&self, slot: u16, owner: usize) {
        let epoch = |view: &[Member]| {
            let mut members = view.iter();
            let member = members.find(|member| member.id == self.ids[owner])?;
            Some(member.epoch)
        };
        self.wait("agree on a slot", |cluster| {
            let own = view(&cluster.nodes[owner]);
            let latest = own.and_then(|own| epoch(&own));
            let heard = |view: &Vec<Member>| {
                epoch(view) == latest && cluster.owner(view, slot) == Some(owner)
            };
            latest.is_some() && cluster.views().iter().all(heard)
        });
    }

    /// Told by hand: the usual tool pauses a second between steps.
    fn assemble(&self) {
        // All of them first: a node that has been met takes no epoch any more.
        for (place, node) in self.nodes.iter().enumerate() {
            let epoch = (place + 1).to_string();
            good(&node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]));
        }
        for (place, node) in self.nodes.iter().enumerate() {
            for other in &self.nodes[place + 1..] {
                let (port, bus) = (other.port(), other.port() + BUS_OFFSET);
                let (port, bus) = (port.to_string(), bus.to_string());
                good(&node.command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]));
            }
        }
        for (master, slots) in ranges().into_iter().enumerate() {
            let slots: Vec<String> = slots.map(|slot| slot.to_string()).collect();
            let command = ["CLUSTER", "ADDSLOTS"].into_iter();
            let command: Vec<&str> = command.chain(slots.iter().map(String::as_str)).collect();
            good(&self.nodes[master].command(&command));
        }
        self.wait("meet", |cluster| {
            let met = |view: &Vec<Member>| cluster.ids.iter().all(|id| knows(view, id));
            cluster.views().iter().all(met)
        });
        for replica in MASTERS..NODES {
            let master = &self.ids[replica - MASTERS];
            good(&self.nodes[replica].command(&["CLUSTER", "REPLICATE", master]));
        }
        self.wait("find together", Self::is_whole);
    }

    fn is_whole(&self) -> bool {
        let views = self.views();
        let in_step = |view: &Vec<Member>| {
            let masters = view.iter().filter(|member| member.is_master).count();
            view.len() == NODES && masters == MASTERS && view.iter().all(|member| member.is_well)
        };
        let linked = |node: &&Server| node.info("master_link_status").as_deref() == Some("up");
        views.len() == NODES
            && views.iter().all(in_step)
            && self.agree(&views)
            && self.nodes.iter().all(is_ok)
            && self.nodes.iter().filter(linked).count() == NODES - MASTERS
    }

    /// Whether every view names the same owner of every slot, one that is awake.
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
        self.place(&view.iter().find(owns)?.id)
    }

    fn place(&self, id: &str) -> Option<usize> {
        self.ids.iter().position(|known| known == id)
    }

    fn awake(&self) -> impl Iterator<Item = &Server> {
        self.nodes.iter().filter(|node| node.is_awake())
    }

    /// What every node that is awake thinks the cluster is.
    fn views(&self) -> Vec<Vec<Member>> {
        self.awake().filter_map(view).collect()
    }

    fn wait(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let done = poll::within(PATIENCE, || condition(self));
        assert!(done, "nodes do not {what}\n{}", self.logs());
    }

    fn logs(&self) -> String {
        let said = self.nodes.iter().map(|node| {
            let view = node.try_command(&["CLUSTER", "NODES"]);
            let view = view.map(|view| view.text().to_owned());
            format!("{}\nsees {}", node.log_tail(), view.unwrap_or_default())
        });
        said.collect::<Vec<_>>().join("\n")
    }
}

/// Even shares for the masters.
fn ranges() -> [RangeInclusive<u16>; MASTERS] {
    [0..=5460, 5461..=10_922, 10_923..=SLOTS - 1]
}

#[track_caller]
fn good(reply: &Reply) {
    assert_eq!(reply.error(), None);
}
