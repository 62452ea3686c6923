//! Which server of a cluster holds which slot, and how to follow it when that changes. Sends a
//! call again only when it certainly did not run.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::Value;
use tokio::sync::watch;
use tokio::time::timeout;

use super::address::{Host, Servers};
use super::call::{Answer, Call};
use super::error::Trouble;
use super::lane::Lane;
use super::link::{Goal, Link};
use super::settings::Settings;

const SLOTS: usize = 16_384;
/// How long a call that did not run is tried again. Whoever asked may well give up earlier.
const TRIED_FOR: Duration = Duration::from_secs(2);
/// The pause before trying again where waiting is all that helps.
const PAUSE: Duration = Duration::from_millis(5);
/// The map is not asked for more often than this.
const MAP_PAUSE: Duration = Duration::from_millis(50);
/// How long a server may take to say what it knows of the map.
const MAP_WITHIN: Duration = Duration::from_millis(400);

pub(super) struct Cluster {
    settings: Arc<Settings>,
    map: RwLock<Map>,
    /// Whether somebody is asking for the map, and how often that has ended.
    asking: AtomicBool,
    asked: watch::Sender<u64>,
}

/// Who holds what, as far as is known.
struct Map {
    links: HashMap<Host, Arc<Link>>,
    slots: Vec<Option<Arc<Link>>>,
    drawn: Option<Instant>,
}

impl Cluster {
    pub(super) fn new(settings: Arc<Settings>) -> Arc<Self> {
        let map = Map {
            links: HashMap::new(),
            slots: vec![None; SLOTS],
            drawn: None,
        };
        Arc::new(Cluster {
            settings,
            map: RwLock::new(map),
            asking: AtomicBool::new(false),
            asked: watch::Sender::new(0),
        })
    }

    /// Decides a call whose counters share a slot, wherever that is at the moment.
    pub(super) async fn decide(self: &Arc<Self>, call: Arc<Call>) -> Result<Answer, Trouble> {
        let slot = call.slot();
        let began = Instant::now();
        let mut target = None;
        loop {
            let trouble = match self.once(slot, target.take(), Arc::clone(&call)).await {
                Ok(answer) => return Ok(answer),
                Err(trouble) => trouble,
            };
            if began.elapsed() > TRIED_FOR {
                return Err(trouble);
            }
            match trouble {
                Trouble::Moved { slot, to } => {
                    self.put(slot, &to);
                    self.redraw_soon();
                }
                Trouble::Ask(to) => target = Some(to),
                // One counter is here or there; several may be in both places until the move ends.
                Trouble::TryAgain if call.len() > 1 => return Err(Trouble::TryAgain),
                Trouble::TryAgain => tokio::time::sleep(PAUSE).await,
                Trouble::Down(_)
                | Trouble::ReadOnly
                | Trouble::NotNow("CLUSTERDOWN" | "LOADING" | "MASTERDOWN") => {
                    self.redraw().await;
                    tokio::time::sleep(PAUSE).await;
                }
                other => {
                    if other == Trouble::Broken {
                        self.redraw_soon();
                    }
                    return Err(other);
                }
            }
        }
    }

    async fn once(
        self: &Arc<Self>,
        slot: u16,
        asking: Option<Host>,
        call: Arc<Call>,
    ) -> Result<Answer, Trouble> {
        if let Some(host) = asking {
            return self.link(&host).lane().await?.asking(call).await;
        }
        self.lane(slot).await?.decide(call).await
    }

    /// A connection to whoever holds a slot.
    pub(super) async fn lane(self: &Arc<Self>, slot: u16) -> Result<Arc<Lane>, Trouble> {
        if self.holder(slot).is_none() {
            self.redraw().await;
        }
        let link = self.holder(slot).ok_or(Trouble::NotNow("CLUSTERDOWN"))?;
        link.lane().await
    }

    /// Every server that holds slots, as far as is known.
    pub(super) async fn masters(self: &Arc<Self>) -> Vec<Arc<Link>> {
        let holders = self.holders().await.into_iter();
        holders.map(|(_, link)| link).collect()
    }

    /// The same, each by its name, in the order of their slots.
    pub(super) async fn holders(self: &Arc<Self>) -> Vec<(Host, Arc<Link>)> {
        if self.map().drawn.is_none() {
            self.redraw().await;
        }
        let map = self.map();
        let mut holders: Vec<(Host, Arc<Link>)> = Vec::new();
        for link in map.slots.iter().flatten() {
            let same = |other: &Arc<Link>| Arc::ptr_eq(other, link);
            if holders.iter().any(|(_, known)| same(known)) {
                continue;
            }
            if let Some((host, _)) = map.links.iter().find(|(_, known)| same(known)) {
                holders.push((host.clone(), Arc::clone(link)));
            }
        }
        holders
    }

    /// Connections to the servers that the URL names.
    pub(super) fn seeds(&self) -> Vec<Arc<Link>> {
        let hosts = self.seed_hosts().iter();
        hosts.map(|host| self.link(host)).collect()
    }

    fn seed_hosts(&self) -> &[Host] {
        match &self.settings.address.servers {
            Servers::Cluster(seeds) => seeds,
            Servers::Single(_) | Servers::Socket(_) | Servers::Sentinel { .. } => &[],
        }
    }

    fn is_seed(&self, host: &Host) -> bool {
        self.seed_hosts().contains(host)
    }

    fn map(&self) -> RwLockReadGuard<'_, Map> {
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn map_mut(&self) -> RwLockWriteGuard<'_, Map> {
        self.map.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for the map if the last one is not brand-new; one asks for all, and goes on also if
    /// nobody waits for it any longer.
    pub(super) async fn redraw(self: &Arc<Self>) {
        let drawn = self.map().drawn;
        if drawn.is_some_and(|drawn| drawn.elapsed() < MAP_PAUSE) {
            return;
        }
        let mut ended = self.asked.subscribe();
        if !self.asking.swap(true, Ordering::AcqRel) {
            let cluster = Arc::clone(self);
            tokio::spawn(async move {
                if let Some(ranges) = cluster.ask().await {
                    cluster.draw(ranges);
                }
                cluster.asking.store(false, Ordering::Release);
                cluster.asked.send_modify(|times| *times += 1);
            });
        }
        let _ = ended.changed().await;
    }

    /// Asks every server at once: the first good answer will do, and one that hangs holds nobody
    /// up.
    async fn ask(&self) -> Option<Vec<Range>> {
        let mut hosts: HashSet<Host> = self.map().links.keys().cloned().collect();
        hosts.extend(self.seed_hosts().iter().cloned());
        let mut answers: FuturesUnordered<_> = hosts
            .into_iter()
            .map(|host| async move {
                let answer = timeout(MAP_WITHIN, self.ask_one(&host)).await;
                if answer.is_err() {
                    self.link(&host).distrust();
                }
                answer.ok().flatten()
            })
            .collect();
        while let Some(answer) = answers.next().await {
            if answer.is_some() {
                return answer;
            }
        }
        None
    }

    async fn ask_one(&self, host: &Host) -> Option<Vec<Range>> {
        let lane = self.link(host).lane().await.ok()?;
        let mut command = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        ranges(lane.command(&command).await.ok()?, host)
    }

    fn redraw_soon(&self) {
        // Whoever runs into trouble next waits for the map; this one has been told the way.
        let mut map = self.map_mut();
        map.drawn = map.drawn.map(|drawn| drawn - MAP_PAUSE);
    }

    fn draw(&self, ranges: Vec<Range>) {
        let mut map = self.map_mut();
        // Those that the URL names are kept: they may be asked for the next map.
        let mut links = map.links.clone();
        let holds = |host: &Host| ranges.iter().any(|(_, _, holder)| holder == host);
        links.retain(|host, _| holds(host) || self.is_seed(host));
        let mut slots = vec![None; SLOTS];
        for (first, last, host) in ranges {
            let link = links.entry(host.clone());
            let link = link.or_insert_with(|| self.connect(&host));
            let range = usize::from(first)..=usize::from(last).min(SLOTS - 1);
            if let Some(places) = slots.get_mut(range) {
                places.fill(Some(Arc::clone(link)));
            }
        }
        *map = Map {
            links,
            slots,
            drawn: Some(Instant::now()),
        };
    }

    fn put(&self, slot: u16, host: &Host) {
        let link = self.link(host);
        if let Some(place) = self.map_mut().slots.get_mut(usize::from(slot)) {
            *place = Some(link);
        }
    }

    fn holder(&self, slot: u16) -> Option<Arc<Link>> {
        self.map().slots.get(usize::from(slot))?.clone()
    }

    fn link(&self, host: &Host) -> Arc<Link> {
        let known = self.map().links.get(host).cloned();
        known.unwrap_or_else(|| {
            let connect = || self.connect(host);
            let mut map = self.map_mut();
            Arc::clone(map.links.entry(host.clone()).or_insert_with(connect))
        })
    }

    fn connect(&self, host: &Host) -> Arc<Link> {
        Link::keep(Arc::clone(&self.settings), Goal::Node(host.clone()))
    }
}

/// The first and the last slot of a range, and the master that holds them.
type Range = (u16, u16, Host);

/// Reads the answer to CLUSTER SLOTS.
/// A server that does not know its own name is called what it was called to ask it.
fn ranges(reply: Value, asked: &Host) -> Option<Vec<Range>> {
    let Value::Array(rows) = reply else {
        return None;
    };
    let number = |value: &Value| match value {
        Value::Int(n) => u16::try_from(*n).ok(),
        _ => None,
    };
    let mut ranges = Vec::with_capacity(rows.len());
    for row in rows {
        let Value::Array(row) = row else {
            return None;
        };
        let [first, last, Value::Array(master), ..] = &*row else {
            return None;
        };
        let [Value::BulkString(name), port, ..] = &**master else {
            return None;
        };
        let name = match &**name {
            b"" => asked.name.clone(),
            name => String::from_utf8(name.to_vec()).ok()?,
        };
        let port = number(port)?;
        ranges.push((number(first)?, number(last)?, Host { name, port }));
    }
    (!ranges.is_empty()).then_some(ranges)
}
