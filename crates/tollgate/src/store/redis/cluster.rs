//! Which server of a cluster holds which slot, and how to follow it when that changes. Sends a
//! call again only when it certainly did not run.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use redis::Value;

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

pub(super) struct Cluster {
    settings: Arc<Settings>,
    map: RwLock<Map>,
    asking: AtomicBool,
}

/// Who holds what, as far as is known.
struct Map {
    links: HashMap<Host, Arc<Link>>,
    slots: Vec<Option<Host>>,
    drawn: Option<Instant>,
}

impl Cluster {
    pub(super) fn new(settings: Arc<Settings>) -> Self {
        let map = Map {
            links: HashMap::new(),
            slots: vec![None; SLOTS],
            drawn: None,
        };
        Cluster {
            settings,
            map: RwLock::new(map),
            asking: AtomicBool::new(false),
        }
    }

    /// Decides a call whose counters share a slot, wherever that is at the moment.
    pub(super) async fn decide(&self, call: Arc<Call>) -> Result<Answer, Trouble> {
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
                    self.put(slot, to);
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
        &self,
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
    pub(super) async fn lane(&self, slot: u16) -> Result<Arc<Lane>, Trouble> {
        if self.holder(slot).is_none() {
            self.redraw().await;
        }
        let link = self.holder(slot).ok_or(Trouble::NotNow("CLUSTERDOWN"))?;
        link.lane().await
    }

    /// Every server that holds slots, as far as is known.
    pub(super) async fn masters(&self) -> Vec<Arc<Link>> {
        if self.map().drawn.is_none() {
            self.redraw().await;
        }
        self.map().links.values().cloned().collect()
    }

    /// The servers that the URL names.
    pub(super) fn seeds(&self) -> Vec<Arc<Link>> {
        match &self.settings.address.servers {
            Servers::Cluster(seeds) => seeds.iter().map(|seed| self.link(seed)).collect(),
            Servers::Single(_) | Servers::Socket(_) | Servers::Sentinel { .. } => Vec::new(),
        }
    }

    fn map(&self) -> RwLockReadGuard<'_, Map> {
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn map_mut(&self) -> RwLockWriteGuard<'_, Map> {
        self.map.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for the map if the last one is not brand-new; one asks for all.
    pub(super) async fn redraw(&self) {
        let drawn = self.map().drawn;
        let fresh = drawn.is_some_and(|drawn| drawn.elapsed() < MAP_PAUSE);
        if fresh || self.asking.swap(true, Ordering::Acquire) {
            return;
        }
        let _done = Done(&self.asking);
        let mut sources: Vec<Host> = self.map().links.keys().cloned().collect();
        if let Servers::Cluster(seeds) = &self.settings.address.servers {
            sources.extend(seeds.iter().cloned());
        }
        for host in sources {
            let source = self.link(&host);
            let Ok(lane) = source.lane().await else {
                continue;
            };
            let mut command = redis::cmd("CLUSTER");
            command.arg("SLOTS");
            if let Ok(reply) = lane.command(&command).await
                && let Some(ranges) = ranges(reply, &host)
            {
                self.draw(ranges);
                return;
            }
            source.distrust();
        }
    }

    fn redraw_soon(&self) {
        // Whoever runs into trouble next waits for the map; this one has been told the way.
        let mut map = self.map_mut();
        map.drawn = map.drawn.map(|drawn| drawn - MAP_PAUSE);
    }

    fn draw(&self, ranges: Vec<(u16, u16, Host)>) {
        let mut map = self.map_mut();
        let mut links = HashMap::new();
        let mut slots = vec![None; SLOTS];
        for (first, last, host) in ranges {
            let known = map.links.get(&host).cloned();
            links
                .entry(host.clone())
                .or_insert_with(|| known.unwrap_or_else(|| self.connect(&host)));
            for slot in first..=last {
                if let Some(place) = slots.get_mut(usize::from(slot)) {
                    *place = Some(host.clone());
                }
            }
        }
        *map = Map {
            links,
            slots,
            drawn: Some(Instant::now()),
        };
    }

    fn put(&self, slot: u16, host: Host) {
        self.link(&host);
        let mut map = self.map_mut();
        if let Some(place) = map.slots.get_mut(usize::from(slot)) {
            *place = Some(host);
        }
    }

    fn holder(&self, slot: u16) -> Option<Arc<Link>> {
        let map = self.map();
        let host = map.slots.get(usize::from(slot))?.as_ref()?;
        map.links.get(host).cloned()
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
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Reads the answer to CLUSTER SLOTS: first slot, last slot, and the master that holds them.
/// A server that does not know its own name is called what it was called to ask it.
fn ranges(reply: Value, asked: &Host) -> Option<Vec<(u16, u16, Host)>> {
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
