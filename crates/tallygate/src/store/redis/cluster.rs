//! Which server of a cluster holds which slot, and how to follow it when that changes. Sends a
//! call again only when it certainly did not run.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::Value;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::command::{Answer, Call};
use super::connection::Lane;
use super::connector::Settings;
use super::error::Trouble;
use super::reconnect::{Goal, Link};
use super::url::{Host, Servers};

const SLOTS: usize = 16_384;
/// How long a call that did not run is tried again. Whoever asked may well give up earlier.
const TRIED_FOR: Duration = Duration::from_secs(2);
/// The pause before trying again where waiting is all that helps.
const PAUSE: Duration = Duration::from_millis(5);
/// So often a call is sent on at once; then the servers disagree, and need time.
const MOST_SENT_ON: u32 = 4;
/// The map is not asked for more often than this, whether somebody answers or not.
const MAP_PAUSE: Duration = Duration::from_millis(50);
/// How long a server may take to say what it knows of the map.
const MAP_WITHIN: Duration = Duration::from_millis(400);

const NOBODY: Trouble = Trouble::Down("no server of the cluster answers");

pub(super) struct Cluster {
    settings: Arc<Settings>,
    map: RwLock<Map>,
    /// Counts how often the map was asked for, to the end.
    asked: watch::Sender<u64>,
}

/// Who holds what, as far as is known.
struct Map {
    links: HashMap<Host, Arc<Link>>,
    slots: Vec<Option<Arc<Link>>>,
    asking: Asking,
    /// Why there is no map yet.
    trouble: Option<Trouble>,
}

/// Whether somebody asks for the map.
#[derive(Clone, Copy)]
enum Asking {
    Never,
    Now,
    Last(Instant),
}

impl Cluster {
    pub(super) fn new(settings: Arc<Settings>) -> Arc<Self> {
        let map = Map {
            links: HashMap::new(),
            slots: vec![None; SLOTS],
            asking: Asking::Never,
            trouble: Some(NOBODY),
        };
        Arc::new(Cluster {
            settings,
            map: RwLock::new(map),
            asked: watch::Sender::new(0),
        })
    }

    /// Decides a call whose counters share a slot, wherever that is at the moment.
    pub(super) async fn decide(self: &Arc<Self>, call: Arc<Call>) -> Result<Answer, Trouble> {
        let slot = call.slot();
        let began = Instant::now();
        let mut target = None;
        let mut sent_on = 0;
        loop {
            let trouble = match self.once(slot, target.take(), Arc::clone(&call)).await {
                Ok(answer) => return Ok(answer),
                Err(trouble) => trouble,
            };
            if began.elapsed() > TRIED_FOR {
                return Err(trouble);
            }
            if let Trouble::Moved { .. } | Trouble::Ask(_) = trouble {
                sent_on += 1;
                if sent_on > MOST_SENT_ON {
                    sleep(PAUSE).await;
                }
            }
            match trouble {
                Trouble::Moved { slot, to } => {
                    self.put(slot, &to);
                    // More may have moved; this one has been told the way.
                    self.begin_redraw();
                }
                Trouble::Ask(to) => target = Some(to),
                // One counter is here or there; several may be in both places until the move ends.
                Trouble::TryAgain if call.len() > 1 => return Err(Trouble::TryAgain),
                Trouble::TryAgain => sleep(PAUSE).await,
                Trouble::Down(_)
                | Trouble::ReadOnly
                | Trouble::NotNow("CLUSTERDOWN" | "LOADING" | "MASTERDOWN") => {
                    self.redraw().await;
                    sleep(PAUSE).await;
                }
                other => {
                    if !other.not_run() {
                        self.begin_redraw();
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
    ///
    /// # Errors
    /// Why none is known.
    pub(super) async fn masters(self: &Arc<Self>) -> Result<Vec<Arc<Link>>, Trouble> {
        let holders = self.holders().await?.into_iter();
        Ok(holders.map(|(_, link)| link).collect())
    }

    /// The same, each by its name, in the order of their slots.
    ///
    /// # Errors
    /// Why none is known.
    pub(super) async fn holders(self: &Arc<Self>) -> Result<Vec<(Host, Arc<Link>)>, Trouble> {
        if self.map().trouble.is_some() {
            self.redraw().await;
        }
        let map = self.map();
        if let Some(trouble) = &map.trouble {
            return Err(trouble.clone());
        }
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
        Ok(holders)
    }

    /// Asks for the map, and whether most of the servers in it take writes. Calls for the rest
    /// find out by themselves.
    pub(super) async fn probe(self: &Arc<Self>) -> Result<(), Trouble> {
        self.redraw().await;
        let links = self.masters().await?;
        let mut well = 0;
        let mut trouble = Trouble::NotNow("CLUSTERDOWN");
        for answer in join_all(links.iter().map(|link| link.probe())).await {
            match answer {
                Ok(()) => well += 1,
                Err(other) => trouble = other,
            }
        }
        if well * 2 > links.len() {
            Ok(())
        } else {
            Err(trouble)
        }
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

    /// Asks for the map, unless that was just done, and waits for it.
    async fn redraw(self: &Arc<Self>) {
        let mut asked = self.asked.subscribe();
        if self.begin_redraw() {
            // It fails only if the store is gone.
            let _ = asked.changed().await;
        }
    }

    /// Asks for the map in the background, so that it gets done also if nobody waits so long; one
    /// asks for all. Says whether somebody is at it.
    fn begin_redraw(self: &Arc<Self>) -> bool {
        {
            let mut map = self.map_mut();
            match map.asking {
                Asking::Now => return true,
                Asking::Last(when) if when.elapsed() < MAP_PAUSE => return false,
                Asking::Last(_) | Asking::Never => map.asking = Asking::Now,
            }
        }
        let done = Done(Arc::clone(self));
        self.settings.runtime.spawn(async move {
            match done.0.ask().await {
                Ok(ranges) => done.0.draw(ranges),
                Err(trouble) => done.0.do_without(trouble),
            }
        });
        true
    }

    /// Asks every server at once: the first good answer will do, and one that hangs holds nobody
    /// up.
    async fn ask(&self) -> Result<Vec<Range>, Trouble> {
        let mut hosts: HashSet<Host> = self.map().links.keys().cloned().collect();
        hosts.extend(self.seed_hosts().iter().cloned());
        let mut answers: FuturesUnordered<_> = hosts
            .into_iter()
            .map(|host| async move {
                let answer = timeout(MAP_WITHIN, self.ask_one(&host)).await;
                answer.unwrap_or(Err(Trouble::Silent))
            })
            .collect();
        let mut trouble = NOBODY;
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(ranges) => return Ok(ranges),
                // Somebody who is there knows more than those who are not.
                Err(Trouble::Down(_)) if trouble != NOBODY => {}
                Err(other) => trouble = other,
            }
        }
        Err(trouble)
    }

    async fn ask_one(&self, host: &Host) -> Result<Vec<Range>, Trouble> {
        let lane = self.link(host).lane().await?;
        let reply = lane.command(redis::cmd("CLUSTER").arg("SLOTS")).await?;
        // A server of a cluster to be knows no slots.
        ranges(reply, host).ok_or(Trouble::NotNow("CLUSTERDOWN"))
    }

    /// Keeps the old map; notes why there is no first one.
    fn do_without(&self, trouble: Trouble) {
        let mut map = self.map_mut();
        if map.trouble.is_some() {
            map.trouble = Some(trouble);
        }
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
        map.links = links;
        map.slots = slots;
        map.trouble = None;
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

/// Lets the next one ask, also when this one was dropped.
struct Done(Arc<Cluster>);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.map_mut().asking = Asking::Last(Instant::now());
        self.0.asked.send_modify(|times| *times += 1);
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
