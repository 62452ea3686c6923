//! The slot map of a cluster, and the redirections that keep it current. A call is sent again only
//! if it certainly did not run.

mod vote;

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::{Cmd, Value};
use tokio::sync::watch;
use tokio::time::{sleep, timeout, timeout_at};

use self::vote::{SLOTS, SlotRange, elect, has_majority, join_adjacent, parse_slots};

use super::command::{ScriptCall, ScriptReply};
use super::connector::Connector;
use super::error::StoreFailure;
use super::keys;
use super::reconnect::{Node, Target};
use super::url::{Endpoints, Host};

/// How long a call that did not run is retried. The caller's deadline may end sooner.
const RETRY_TIMEOUT: Duration = Duration::from_secs(2);
const RETRY_INTERVAL: Duration = Duration::from_millis(5);
/// The same for a counter with several keys while a slot migration has them on two servers.
const MIGRATION_TIMEOUT: Duration = Duration::from_secs(10);
/// The pauses between these attempts double up to this.
const MAX_MIGRATION_INTERVAL: Duration = Duration::from_millis(100);
/// Redirections followed without a pause; beyond that, the nodes disagree and need time.
const MAX_FAST_REDIRECTS: u32 = 4;
/// The minimum time between two fetches of the slot map, successful or not.
const MIN_REFRESH_INTERVAL: Duration = Duration::from_millis(50);
const SLOTS_TIMEOUT: Duration = Duration::from_millis(400);
/// How long to wait for other replies after the first, unless most nodes agree sooner.
const VOTE_TIMEOUT: Duration = Duration::from_millis(100);
/// A node that was the target of a redirection stays connected for so long, even without slots:
/// it may be importing some.
const KEEP_TARGET: Duration = Duration::from_secs(60);

const NO_SERVER: StoreFailure = StoreFailure::NotConnected("no server of the cluster replies");

pub(super) struct Cluster {
    connector: Arc<Connector>,
    map: RwLock<SlotMap>,
    /// Counts the completed refreshes.
    refreshes: watch::Sender<u64>,
}

struct SlotMap {
    nodes: HashMap<Host, Arc<Node>>,
    slots: Vec<Option<Arc<Node>>>,
    refresh: Refresh,
    /// Why there is no map yet.
    failure: Option<StoreFailure>,
}

#[derive(Clone, Copy)]
enum Refresh {
    Never,
    Running,
    Finished(Instant),
}

impl Cluster {
    pub(super) fn new(connector: Arc<Connector>) -> Arc<Self> {
        let map = SlotMap {
            nodes: HashMap::new(),
            slots: vec![None; SLOTS.into()],
            refresh: Refresh::Never,
            failure: Some(NO_SERVER),
        };
        Arc::new(Cluster {
            connector,
            map: RwLock::new(map),
            refreshes: watch::Sender::new(0),
        })
    }

    /// Decides a call whose counters share a slot, following redirections. Retries until `until` at
    /// most, if there is such a time.
    pub(super) async fn decide(
        self: &Arc<Self>,
        call: Arc<ScriptCall>,
        until: Option<Instant>,
    ) -> Result<ScriptReply, StoreFailure> {
        let slot = call.slot();
        let started = Instant::now();
        let mut ask_target = None;
        let mut redirects = 0;
        let mut migration_interval = RETRY_INTERVAL;
        loop {
            let result = self
                .decide_once(slot, ask_target.take(), Arc::clone(&call))
                .await;
            let failure = match result {
                Ok(reply) => return Ok(reply),
                Err(failure) => failure,
            };
            let now = Instant::now();
            let (retry_timeout, next) = match failure {
                StoreFailure::TryAgain => (MIGRATION_TIMEOUT, now + migration_interval),
                _ => (RETRY_TIMEOUT, now),
            };
            let is_late = until.is_some_and(|until| next >= until);
            if is_late || now - started > retry_timeout {
                return Err(failure);
            }
            if let StoreFailure::Moved { .. } | StoreFailure::Ask(_) = failure {
                redirects += 1;
                if redirects > MAX_FAST_REDIRECTS {
                    sleep(RETRY_INTERVAL).await;
                }
            }
            match failure {
                StoreFailure::Moved { slot, to } => {
                    self.set_owner(slot, &to);
                    // Other slots may have moved too; this call need not wait for the map.
                    self.spawn_refresh();
                }
                StoreFailure::Ask(to) => ask_target = Some(to),
                // Several counters may be on both servers until the migration ends.
                StoreFailure::TryAgain if call.len() > 1 => return Err(StoreFailure::TryAgain),
                // The keys of one counter are decided together or not at all. One that does not exist
                // counts as migrated on the source, and as missing on the target, to the end.
                StoreFailure::TryAgain => {
                    sleep(migration_interval).await;
                    migration_interval = MAX_MIGRATION_INTERVAL.min(2 * migration_interval);
                }
                StoreFailure::NotConnected(_)
                | StoreFailure::ReadOnly
                | StoreFailure::Unavailable("CLUSTERDOWN" | "LOADING" | "MASTERDOWN") => {
                    self.refresh().await;
                    sleep(RETRY_INTERVAL).await;
                }
                // The slot may have a new owner soon, but this call need not wait for it.
                StoreFailure::BreakerOpen => {
                    self.spawn_refresh();
                    return Err(StoreFailure::BreakerOpen);
                }
                other => {
                    if !other.did_not_run() {
                        self.spawn_refresh();
                    }
                    return Err(other);
                }
            }
        }
    }

    async fn decide_once(
        self: &Arc<Self>,
        slot: u16,
        ask_target: Option<Host>,
        call: Arc<ScriptCall>,
    ) -> Result<ScriptReply, StoreFailure> {
        let Some(host) = ask_target else {
            let node = self.slot_node(slot).await?;
            let reply = node.decide(call).await;
            return reply.map_err(|failure| failure.with_default_host(node.host()));
        };
        let node = self.redirect_target(&host);
        let reply = node.decide_asking(call).await;
        reply.map_err(|failure| failure.with_default_host(node.host()))
    }

    /// Whether the owner of a key is unknown or has stopped replying.
    pub(super) fn is_silent(&self, key: &[u8]) -> bool {
        let owner = self.owner(keys::slot(key));
        owner.is_none_or(|node| node.is_silent(key))
    }

    /// Sends a command about keys of one slot, following redirections. Not for commands that must
    /// not run twice.
    pub(super) async fn command(
        self: &Arc<Self>,
        slot: u16,
        command: &Cmd,
    ) -> Result<Value, StoreFailure> {
        let mut ask_target = None;
        let mut redirects = 0;
        loop {
            let (node, asking) = match ask_target.take() {
                Some(host) => (self.redirect_target(&host), true),
                None => (self.slot_node(slot).await?, false),
            };
            let connection = node.connection().await?;
            let reply = match asking {
                true => {
                    let commands = [redis::cmd("ASKING"), command.clone()];
                    let replies = connection.commands(commands.into_iter()).await;
                    replies.and_then(|mut replies| replies.pop().ok_or(StoreFailure::InvalidReply))
                }
                false => connection.command(command).await,
            };
            let failure = match reply {
                Ok(value) => return Ok(value),
                Err(failure) => failure.with_default_host(node.host()),
            };
            redirects += 1;
            match failure {
                failure if redirects > MAX_FAST_REDIRECTS => return Err(failure),
                StoreFailure::Moved { slot, to } => {
                    self.set_owner(slot, &to);
                    self.spawn_refresh();
                }
                StoreFailure::Ask(to) => ask_target = Some(to),
                StoreFailure::TryAgain => sleep(RETRY_INTERVAL).await,
                other => return Err(other),
            }
        }
    }

    async fn slot_node(self: &Arc<Self>, slot: u16) -> Result<Arc<Node>, StoreFailure> {
        if self.owner(slot).is_none() {
            self.refresh().await;
        }
        let node = self.owner(slot);
        node.ok_or(StoreFailure::Unavailable("CLUSTERDOWN"))
    }

    /// All known nodes.
    pub(super) fn nodes(&self) -> Vec<Arc<Node>> {
        self.map().nodes.values().cloned().collect()
    }

    /// Returns every node that owns slots, in the order of their slots.
    ///
    /// # Errors
    /// Why there is no slot map yet.
    pub(super) async fn masters(self: &Arc<Self>) -> Result<Vec<(Host, Arc<Node>)>, StoreFailure> {
        if self.map().failure.is_some() {
            self.refresh().await;
        }
        let map = self.map();
        if let Some(failure) = &map.failure {
            return Err(failure.clone());
        }
        let mut masters: Vec<(Host, Arc<Node>)> = Vec::new();
        for node in map.slots.iter().flatten() {
            let same = |other: &Arc<Node>| Arc::ptr_eq(other, node);
            if masters.iter().any(|(_, known)| same(known)) {
                continue;
            }
            if let Some((host, _)) = map.nodes.iter().find(|(_, known)| same(known)) {
                masters.push((host.clone(), Arc::clone(node)));
            }
        }
        Ok(masters)
    }

    /// Refreshes the map and checks that most masters accept writes.
    pub(super) async fn probe(self: &Arc<Self>) -> Result<(), StoreFailure> {
        self.refresh().await;
        let masters = self.masters().await?;
        let masters: Vec<Arc<Node>> = masters.into_iter().map(|(_, node)| node).collect();
        probe_most(&masters).await
    }

    fn seed_hosts(&self) -> &[Host] {
        match &self.connector.url.endpoints {
            Endpoints::Cluster(seeds) => seeds,
            Endpoints::Single(_)
            | Endpoints::Socket(_)
            | Endpoints::Sentinel { .. }
            | Endpoints::Shards(_) => &[],
        }
    }

    fn map(&self) -> RwLockReadGuard<'_, SlotMap> {
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn map_mut(&self) -> RwLockWriteGuard<'_, SlotMap> {
        self.map.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refreshes the map, unless that was just done, and waits for it.
    async fn refresh(self: &Arc<Self>) {
        let mut refreshes = self.refreshes.subscribe();
        if self.spawn_refresh() {
            // It fails only if the store is gone.
            let _ = refreshes.changed().await;
        }
    }

    /// Refreshes the map in the background, so that it completes even if no caller waits that
    /// long. Returns whether a refresh is running.
    fn spawn_refresh(self: &Arc<Self>) -> bool {
        {
            let mut map = self.map_mut();
            match map.refresh {
                Refresh::Running => return true,
                Refresh::Finished(at) if at.elapsed() < MIN_REFRESH_INTERVAL => return false,
                Refresh::Finished(_) | Refresh::Never => map.refresh = Refresh::Running,
            }
        }
        let guard = RefreshGuard(Arc::clone(self));
        self.connector.runtime.spawn(async move {
            let cluster = &guard.0;
            match cluster.fetch_slots().await {
                Ok(ranges) => cluster.replace_map(ranges),
                Err(failure) => {
                    // An old map stays in use.
                    let mut map = cluster.map_mut();
                    if map.failure.is_some() {
                        map.failure = Some(failure);
                    }
                }
            }
        });
        true
    }

    /// Queries all known nodes in parallel. Takes the map that more than half of them send as soon
    /// as they have; otherwise, after [`VOTE_TIMEOUT`], elects the owner of each slot.
    async fn fetch_slots(&self) -> Result<Vec<SlotRange>, StoreFailure> {
        for seed in self.seed_hosts() {
            self.node(seed);
        }
        let nodes = self.map().nodes.clone();
        let mut voters = nodes.len();
        let mut replies: FuturesUnordered<_> = nodes
            .iter()
            .map(|(host, node)| async move {
                let reply = timeout(SLOTS_TIMEOUT, fetch_slots_from(host, node)).await;
                (node, reply.unwrap_or(Err(StoreFailure::TimedOut)))
            })
            .collect();
        let (mut votes, mut other_maps) = (Vec::new(), Vec::new());
        let mut failure = NO_SERVER;
        let mut until = tokio::time::Instant::now() + SLOTS_TIMEOUT;
        while let Ok(Some((node, reply))) = timeout_at(until, replies.next()).await {
            match reply {
                // It may be cut off from the others. Its map is better than none.
                Ok(map) if node.was_cluster_down() => {
                    voters -= 1;
                    other_maps.push(map);
                }
                Ok(map) => {
                    if votes.is_empty() {
                        until = until.min(tokio::time::Instant::now() + VOTE_TIMEOUT);
                    }
                    votes.push(map);
                }
                // The failure of a server that replied is more specific.
                Err(StoreFailure::NotConnected(_)) if failure != NO_SERVER => {}
                Err(other) => failure = other,
            }
            if has_majority(&votes, voters)
                && let Some(map) = votes.pop()
            {
                return Ok(map);
            }
        }
        if votes.is_empty() {
            votes = other_maps;
        }
        if votes.is_empty() {
            return Err(failure);
        }
        Ok(elect(&votes, &self.current_ranges()))
    }

    fn replace_map(&self, ranges: Vec<SlotRange>) {
        let mut map = self.map_mut();
        // Seed hosts stay, even without slots: they may be queried for the next map.
        let mut nodes = map.nodes.clone();
        let owns_slots = |host: &Host| ranges.iter().any(|range| range.owner == *host);
        nodes.retain(|host, node| {
            owns_slots(host)
                || self.seed_hosts().contains(host)
                || node.was_redirect_target(KEEP_TARGET)
        });
        let mut slots = vec![None; SLOTS.into()];
        for SlotRange { first, last, owner } in ranges {
            let node = nodes.entry(owner.clone());
            let node = node.or_insert_with(|| self.connect(&owner));
            let range = usize::from(first)..=usize::from(last);
            if let Some(owners) = slots.get_mut(range) {
                owners.fill(Some(Arc::clone(node)));
            }
        }
        map.nodes = nodes;
        map.slots = slots;
        map.failure = None;
    }

    fn current_ranges(&self) -> Vec<SlotRange> {
        let map = self.map();
        let owners = (0..).zip(&map.slots);
        join_adjacent(owners.filter_map(|(slot, node)| {
            let owner = node.as_ref()?.host()?.clone();
            Some(SlotRange {
                first: slot,
                last: slot,
                owner,
            })
        }))
    }

    fn set_owner(&self, slot: u16, host: &Host) {
        let node = self.redirect_target(host);
        if let Some(owner) = self.map_mut().slots.get_mut(usize::from(slot)) {
            *owner = Some(node);
        }
    }

    fn owner(&self, slot: u16) -> Option<Arc<Node>> {
        self.map().slots.get(usize::from(slot))?.clone()
    }

    fn node(&self, host: &Host) -> Arc<Node> {
        let known = self.map().nodes.get(host).cloned();
        known.unwrap_or_else(|| {
            let connect = || self.connect(host);
            let mut map = self.map_mut();
            Arc::clone(map.nodes.entry(host.clone()).or_insert_with(connect))
        })
    }

    fn redirect_target(&self, host: &Host) -> Arc<Node> {
        let node = self.node(host);
        node.mark_redirect_target();
        node
    }

    fn connect(&self, host: &Host) -> Arc<Node> {
        Node::connect(Arc::clone(&self.connector), Target::Node(host.clone()))
    }
}

/// Checks that most servers accept writes. Calls to the others fail on their own.
pub(super) async fn probe_most(nodes: &[Arc<Node>]) -> Result<(), StoreFailure> {
    let mut healthy = 0;
    let mut failure = StoreFailure::Unavailable("CLUSTERDOWN");
    for result in join_all(nodes.iter().map(|node| node.probe())).await {
        match result {
            Ok(()) => healthy += 1,
            Err(other) => failure = other,
        }
    }
    if healthy * 2 > nodes.len() {
        Ok(())
    } else {
        Err(failure)
    }
}

/// Marks a refresh as finished, also if its task was dropped.
struct RefreshGuard(Arc<Cluster>);

impl Drop for RefreshGuard {
    fn drop(&mut self) {
        self.0.map_mut().refresh = Refresh::Finished(Instant::now());
        self.0.refreshes.send_modify(|count| *count += 1);
    }
}

async fn fetch_slots_from(host: &Host, node: &Node) -> Result<Vec<SlotRange>, StoreFailure> {
    let connection = node.connection().await?;
    let command = redis::cmd("CLUSTER").arg("SLOTS").take();
    let reply = connection.command(&command).await?;
    // A node that has not joined yet reports no slots.
    parse_slots(reply, host).ok_or(StoreFailure::Unavailable("CLUSTERDOWN"))
}
